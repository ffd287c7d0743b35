"""Signals that end a run, wherever Python is when they come."""

import os
import signal
import time

import pytest
from processes import on_hangup

from lreid.errors import InputError, Stopped
from lreid.training.signals import StopSignals


def test_signal_raises_stopped_at_once() -> None:
    with on_hangup(signal.SIG_DFL), pytest.raises(Stopped, match="SIGHUP") as stopped, StopSignals():
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(60)
    assert stopped.value.status == 129


def test_deferred_signal_raises_stopped_after_the_step() -> None:
    stops, done = StopSignals(), []
    with pytest.raises(Stopped), stops:
        with stops.deferred():
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("step")
        done.append("never")
    assert done == ["step"] and stops.received == signal.SIGTERM


@pytest.mark.parametrize("made", [ValueError("Invalid bounding box"), InputError("a.jpg: cannot be read")])
def test_error_caused_by_a_signal_counts_as_the_signal(made: Exception) -> None:
    """As matplotlib does while it draws, and PIL while it reads, of which we make an unreadable image."""
    with pytest.raises(Stopped), StopSignals():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        except Stopped:
            raise made from None


@pytest.mark.parametrize(("made", "raised"), [(ValueError("Invalid"), Stopped), (InputError("no"), InputError)])
def test_input_error_while_a_signal_is_deferred_is_kept(made: Exception, raised: type[BaseException]) -> None:
    """Of others nobody knows whether the signal did it."""
    with pytest.raises(raised), StopSignals() as stop, stop.deferred():
        os.kill(os.getpid(), signal.SIGTERM)
        raise made
