"""Check every request before it reaches the routes: sender, size, rate and number of simultaneous requests."""

import asyncio
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import ip_address

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# need no token (no gallery data)
OPEN_PATHS = ("/", "/page.js", "/page.css", "/style.css", "/docs", "/openapi.json", "/health")
MOST_CLIENTS = 1024  # maximum number of clients whose rates are tracked
SECONDS = 30  # seconds within which the next part of a body must arrive
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'; img-src blob: data:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Limits:
    """Limits of a client's requests.

    Attributes:
        body: maximum size of a request's body in bytes.
        rate: maximum number of requests per second and client. A short burst may have twice as many requests, and at
            least one.
        waiting: maximum number of requests of all clients together that run or wait.
    """

    body: int = 10_000_000
    rate: float = 100.0
    waiting: int = 64


class Guard:
    """Refuse forbidden requests before they reach the routes, and count all requests.

    Without a token, only this machine may use the server. Without a token, the host name in a request must also be a
    name of this machine, so that web pages of other sites cannot reach the server by DNS rebinding. Requests from web
    pages of another origin are always refused; such a page may only link to the pages without gallery data.

    Args:
        app: application that handles the requests that are allowed.
        token: token that a request must contain, or None to accept all requests.
        registry: registry of the metrics, in which requests are counted.
    """

    def __init__(self, app: ASGIApp, limits: Limits, token: str | None, registry: CollectorRegistry) -> None:
        self.app, self.limits, self.token = app, limits, token
        self._waiting = 0
        # Token bucket of each client: remaining tokens, and the time of the last request.
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()
        names = ("method", "path", "status")
        self._requests = Counter("lreid_requests", "Answered requests", names, registry=registry)
        self._seconds = Histogram("lreid_request_seconds", "Seconds until the answer", ("path",), registry=registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, method = time.perf_counter(), 500, scope["method"]
        if method == "HEAD":  # uvicorn leaves out the body of the answer
            scope = {**scope, "method": "GET"}

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        self._waiting += 1
        try:
            if refusal := self._refusal(scope):
                await refusal(scope, receive, answer)
            else:
                await self.app(scope, self._bounded(receive), answer)
        finally:
            self._waiting -= 1
            path = getattr(scope.get("route"), "path", "other")
            counted = method if method in ("GET", "POST", "DELETE", "HEAD") else "other"
            self._requests.labels(counted, path, status).inc()
            self._seconds.labels(path).observe(time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site") and scope["path"] not in OPEN_PATHS
        foreign |= bool(origin) and str(origin).partition("://")[2] != host
        if foreign or (self.token is None and not is_local(_name(host))):
            return _refused(
                403, "the request comes from a different site, or has another host name; open the server's own page"
            )
        if scope["path"] == "/health":
            return None
        if not self._in_time((scope.get("client") or ("",))[0]):
            return _refused(429, f"more than {self.limits.rate:g} requests per second; wait", {"Retry-After": "1"})
        if self.token is not None and scope["path"] not in OPEN_PATHS:
            given = headers.get("authorization", "").removeprefix("Bearer ")
            if not secrets.compare_digest(given.encode(), self.token.encode()):
                return _refused(401, "send the token: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        if self._waiting > self.limits.waiting:
            return _refused(429, "too many requests at the same time; wait", {"Retry-After": "1"})
        return None

    def _in_time(self, client: str) -> bool:
        """Count a request of a client, and return whether the client is within its rate limit."""
        now, most = time.monotonic(), max(2 * self.limits.rate, 1.0)
        left, before = self._clients.pop(client, (most, now))
        left = min(left + (now - before) * self.limits.rate, most)
        accepted = left >= 1
        self._clients[client] = (left - accepted, now)  # a refused request costs nothing, or all later ones are refused
        if len(self._clients) > MOST_CLIENTS:
            self._clients.popitem(last=False)
        return accepted

    def _bounded(self, receive: Receive) -> Receive:
        """Limit the size of a body, and the time until its next part arrives."""
        size, ended = 0, False

        async def read() -> Message:
            nonlocal size, ended
            if ended:
                return await receive()  # the message that the client has closed the connection
            try:
                message = await asyncio.wait_for(receive(), SECONDS)
            except asyncio.TimeoutError:
                raise HTTPException(408, f"no part of the body arrived for {SECONDS} seconds; send it again") from None
            if message["type"] == "http.disconnect":
                raise HTTPException(499, "the client closed the connection before the body was complete")
            size, ended = size + len(message.get("body", b"")), not message.get("more_body")
            if size > self.limits.body:
                most = f"{self.limits.body:,} bytes"
                raise HTTPException(413, f"the body has more than {most}; send a smaller image, or raise --max-mb")
            return message

        return read


def is_local(host: str) -> bool:
    """Whether a host name or address always means this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _name(host: str) -> str:
    """Return the name in a header ``Host`` without its port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _refused(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"detail": detail}, status, headers)
