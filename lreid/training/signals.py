"""Signals that end a run: the run saves a checkpoint and exits with the status of the signal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import Any

from lreid.errors import InputError, Stopped

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LEASH = "LREID_ENDS_WITH_STDIN"  # environment variable of a process that must end with its parent


def end_with_parent() -> None:
    """If ``LEASH`` is set, send SIGTERM to this process when standard input ends because the parent died."""
    if not os.environ.pop(LEASH, ""):
        return

    def watch() -> None:
        with suppress(OSError):
            while os.read(0, 1):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


class StopSignals(AbstractContextManager["StopSignals"]):
    """Turn SIGINT (Ctrl-C), SIGTERM (from a scheduler) and SIGHUP into the exception :class:`~lreid.errors.Stopped`.

    SIGHUP is sent when a terminal closes; under nohup, SIGHUP is ignored. If a signal arrives while Python destroys an
    object, Python discards the exception, and the run ends after its next training step.

    Attributes:
        received: the received signal, or None. While signals are :meth:`deferred`, a received signal is handled later.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._deferred = False
        self._raised = False  # whether Stopped was raised
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        with suppress(ValueError):  # only the main thread can handle signals
            ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            stops = [stop for stop in STOPS if not (stop is signal.SIGHUP and ignored)]
            self._before = {stop: signal.signal(stop, self._receive) for stop in stops}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        for stop, handler in self._before.items():
            signal.signal(stop, handler)
        # A signal can make a C library fail, which lreid would report as an unreadable file. Any error after a signal
        # therefore counts as the signal, except lreid's own errors while signals are deferred, which have other causes.
        if self.received and isinstance(error, Exception) and (self._raised or not isinstance(error, InputError)):
            raise Stopped(self.received) from None

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer signals within a context, so that a run ends between updates; a second Ctrl-C ends it at once."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False
        if self.received is not None:
            raise Stopped(self.received)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return  # the run is ending already
        self.received = signal.Signals(number)
        if not self._deferred:
            self._raised = True
            raise Stopped(number)
