"""The limits of times, by which milliseconds and times of day are refused at every entrance."""

from typing import Any

import numpy as np

from lreid.errors import InputError

EARLIEST, LATEST = 631_152_000, 4_102_444_800  # beginning of 1990 and of 2100, seconds since 1970
SINCE_START = 10**8  # smaller times of images count from a common start instead of 1970, seconds


def require_clock(seconds: Any, where: str, *, least: float = SINCE_START) -> None:
    """Refuse times before 1990 and after 2100.

    Args:
        seconds: one time or an array of times, seconds since 1970.
        where: name of the time in the message, such as ``list.csv: time of a.jpg``.
        least: times below ``least`` are accepted, because they count from a common start; ``-math.inf`` refuses them.

    Raises:
        InputError: a time is out of range; the message suggests seconds for milliseconds.
    """
    times = np.atleast_1d(seconds)
    for time in times[~(times < least) & ~((times >= EARLIEST) & (times < LATEST))].tolist():
        advice = "divide milliseconds by 1000" if EARLIEST <= time / 1000 < LATEST else "write seconds since 1970"
        raise InputError(f"{where} is {time}, which is before 1990 or after 2100; {advice}")
