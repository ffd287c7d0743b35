"""Signals that end a run: it saves its state, and ends with the exit status of the signal."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import Any

from lreid.errors import InputError, Stopped

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LEASH = "LREID_ENDS_WITH_STDIN"  # in the environment of a process that shall not outlive the one that started it


def end_with_parent() -> None:
    """Sends this process SIGTERM when standard input ends, if ``LEASH`` is set: the other end died, however it died."""
    if not os.environ.pop(LEASH, ""):
        return

    def watch() -> None:
        with suppress(OSError):
            while os.read(0, 1):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


class StopSignals(AbstractContextManager["StopSignals"]):
    """Turns SIGINT (Ctrl-C), SIGTERM (of a scheduler) and SIGHUP into :class:`~lreid.errors.Stopped`.

    SIGHUP, of a terminal that is closed, stays ignored where nohup had it ignored. Where Python swallows the exception,
    since the signal came while an object was being destroyed, the signal is sent again.

    Attributes:
        received: a signal that waits to be looked at, while they are :meth:`deferred`.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._deferred = False
        self._raised = False  # for it
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        with suppress(ValueError):  # where this is not the main thread, which alone is sent signals
            ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            stops = [stop for stop in STOPS if not (stop is signal.SIGHUP and ignored)]
            self._before = {stop: signal.signal(stop, self._receive) for stop in stops}
        self._unraisable = sys.unraisablehook
        sys.unraisablehook = self._swallowed
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        sys.unraisablehook = self._unraisable
        for stop, handler in self._before.items():
            signal.signal(stop, handler)
        # A C library may turn the signal into an error of its own, and our code that into one of an unreadable file,
        # which it is not. While signals are deferred, our own errors are genuine.
        if self.received and isinstance(error, Exception) and (self._raised or not isinstance(error, InputError)):
            raise Stopped(self.received) from None

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """A context that defers signals, so that a run ends between updates; a second Ctrl-C ends it at once."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False
        if self.received is not None:
            raise Stopped(self.received)

    def _swallowed(self, event: sys.UnraisableHookArgs) -> None:
        if not isinstance(event.exc_value, Stopped):
            self._unraisable(event)
            return
        self.received, self._raised = None, False
        # By a thread, and so when this is over: here it would be swallowed again.
        threading.Timer(0.01, os.kill, (os.getpid(), event.exc_value.signal)).start()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return  # the run is ending already
        self.received = signal.Signals(number)
        if not self._deferred:
            self._raised = True
            raise Stopped(number)
