"""Signals that end a run: it saves where it is, and then ends with the status that the signal asks for."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import Any

from lreid.errors import Stopped

STOPS = (signal.SIGINT, signal.SIGTERM)


class StopSignals(AbstractContextManager["StopSignals"]):
    """Turns SIGINT (Ctrl-C) and SIGTERM (of a scheduler) into :class:`~lreid.errors.Stopped`.

    Attributes:
        received: a signal that waits to be looked at, while they are :meth:`deferred`.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._deferred = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        with suppress(ValueError):  # where this is not the main thread, which alone is sent signals
            self._before = {stop: signal.signal(stop, self._receive) for stop in STOPS}
        return self

    def __exit__(self, *_: object) -> None:
        for stop, handler in self._before.items():
            signal.signal(stop, handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside, a signal is only noted, so that the run ends between two updates; a second Ctrl-C does not wait."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False
        if self.received is not None:
            raise Stopped(self.received)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        again = self.received is not None and number == signal.SIGINT
        self.received = signal.Signals(number)
        if again:
            raise KeyboardInterrupt
        if not self._deferred:
            raise Stopped(number)
