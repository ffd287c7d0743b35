"""Signals that end a run, wherever Python is when they come."""

from __future__ import annotations

import os
import signal
import time

import pytest

from lreid.errors import InputError, Stopped
from lreid.training.signals import StopSignals


class SentWhileItIsDestroyed:
    """Python prints what is raised in here, and goes on."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0)  # the handler runs here


def test_a_signal_ends_the_run_at_once() -> None:
    with pytest.raises(Stopped, match="SIGHUP") as stopped, StopSignals():
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(60)
    assert stopped.value.status == 129


def test_one_that_is_deferred_waits() -> None:
    stops, done = StopSignals(), []
    with pytest.raises(Stopped), stops:
        with stops.deferred():
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("step")
        done.append("never")
    assert done == ["step"] and stops.received == signal.SIGTERM


def test_one_that_comes_while_an_object_is_destroyed_is_not_lost(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Stopped, match="SIGTERM"), StopSignals():
        SentWhileItIsDestroyed()
        for _ in range(6000):
            time.sleep(0.01)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("made", "told"), [(ValueError("Invalid bounding box"), Stopped), (InputError("no"), InputError)]
)
def test_what_a_library_makes_of_it_is_a_stop_all_the_same(made: Exception, told: type[BaseException]) -> None:
    """As matplotlib does while it draws; errors of ours say what is wrong."""
    with pytest.raises(told), StopSignals():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        except Stopped:
            raise made from None
