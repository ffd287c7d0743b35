"""Connections of clients to the server, whose number is limited."""

from asyncio import BaseTransport

from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """A connection that closes an idle one if more than ``backlog`` of uvicorn's config are open.

    uvicorn itself never closes the connection of a client that sends no request. If no connection is idle, the new one
    is closed.
    """

    def connection_made(self, transport: BaseTransport) -> None:
        """Accept a connection."""
        super().connection_made(transport)  # type: ignore[arg-type]
        if len(self.connections) > self.config.backlog:
            others = (each for each in self.connections - {self} if not each.transport.is_closing())
            idle = (each for each in others if each.cycle is None or each.cycle.response_complete)  # type: ignore[union-attr]
            next(idle, self).transport.abort()
