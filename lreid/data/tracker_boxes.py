"""Read boxes from a tracker's results, in MOT Challenge's format or as JSON."""

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lreid.errors import InputError
from lreid.utils.reading import read_text

logger = logging.getLogger("lreid")

TRUTH = "gt.txt"  # file name of the true tracks in MOT Challenge
PEDESTRIAN = 1  # class in the gt.txt of MOT16 and later, whose lines have nine values
LARGEST = 2**53  # limit of frame and track numbers; above it, floats cannot hold every whole number


class NoTracks(InputError):
    """Raised if a recording has no tracks, for example because the camera saw nobody."""


class Box(NamedTuple):
    """One line of a tracker's file: a person's bounding box in a frame.

    Attributes:
        line: line number in the file, from 1.
        frame: number of the frame, from 1.
        track: number of the track; the tracker gives each person such a number.
        left, top, width, height: position and size of the box, pixels.
    """

    line: int
    frame: int
    track: int
    left: float
    top: float
    width: float
    height: float


def read_tracks(file: Path, classes: Sequence[int] = ()) -> list[Box]:
    """Read the boxes of a tracker's file, sorted by frame.

    :func:`lreid.data.tracker_json.json_lines` reads JSON files. All other files have MOT Challenge's format: each line
    contains frame, track, left, top, width and height, separated by commas or spaces. Confidence, class and further
    values may follow. Boxes with confidence 0 and boxes of other classes are left out; lreid logs how many.

    Args:
        file: results of a tracker, or a ``gt.txt`` file of MOT Challenge.
        classes: classes of the boxes to read. If ``classes`` is empty, boxes of all classes are read, but only
            pedestrians (class 1) from a ``gt.txt`` with nine values per line.

    Raises:
        InputError: the file cannot be read, or a line is faulty: values are missing, a frame number is below 1, width
            or height is not positive, ``classes`` are given but the line has no class, or two boxes of a frame have the
            same track.
        NoTracks: the file has no boxes of these classes.
    """
    boxes: list[Box] = []
    places: dict[tuple[int, int], int] = {}
    taken: Counter[float] = Counter()  # boxes by class
    left_out: Counter[str] = Counter()
    for number, line in _lines(file):
        values = _values(f"{file}:{number}", line)
        label = values[7] if len(values) in (8, 9) or (classes and len(values) > 9) else None
        if classes and label is None:
            raise InputError(f"{file}:{number}: has no class, which would be the eighth value; remove --class")
        truth = file.name == TRUTH and len(values) == 9 and values[7] > 0
        if values[6:7] == [0]:
            left_out["confidence 0"] += 1
            continue
        if label is not None and (classes or truth) and label not in (classes or [PEDESTRIAN]):
            left_out[f"class {label:g}"] += 1
            continue
        if label is not None:
            taken[label] += 1
        box = _box(f"{file}:{number}", number, values)
        if (box.frame, box.track) in places:
            raise InputError(
                f"{file}:{number}: track {box.track} is in frame {box.frame} on line "
                f"{places[box.frame, box.track]}, too; remove one of the two lines"
            )
        places[box.frame, box.track] = number
        boxes.append(box)
    _report(file, left_out, {} if classes else taken, empty=not boxes)
    return sorted(boxes, key=lambda box: (box.frame, box.track))


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the number (from 1) and the text of each line that is not empty."""
    try:
        if file.suffix == ".json":
            from lreid.data.tracker_json import json_lines

            return iter([*json_lines(file)])
        lines = read_text(file).splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{file}: cannot be read as tracks ({reason}); name a tracker's text file") from None
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def _report(file: Path, left_out: Mapping[str, int], taken: Mapping[float, int], *, empty: bool) -> None:
    """Log how many boxes were left out, and whether the other boxes have several classes; refuse an empty file."""
    omitted = ", ".join(f"{reason}: {count}" for reason, count in sorted(left_out.items()))
    if empty:
        content = f" except boxes that lreid leaves out ({omitted}; pass --class N to take a class)" if omitted else ""
        raise NoTracks(
            f"{file}: holds no tracks{content}; expected lines of frame,track,left,top,width,height,confidence"
        )
    if omitted:
        logger.info("%s: boxes left out (%s); pass --class N to take a class", file, omitted)
    if len(taken) > 1:
        counts = ", ".join(f"{label:g}: {count}" for label, count in sorted(taken.items()))
        logger.warning("%s: holds boxes of several classes (%s); pass --class N to take only one", file, counts)


def _values(where: str, line: str) -> list[float]:
    """Parse the numbers of a line; raise InputError if the line has fewer than six numbers."""
    try:
        values = [float(value) for value in line.replace(",", " ").split()]
    except ValueError:
        values = []
    if len(values) < 6 or not all(map(math.isfinite, values)):
        raise InputError(f"{where}: expected frame,track,left,top,width,height; found {line[:60]!r}")
    return values


def _box(where: str, number: int, values: Sequence[float]) -> Box:
    """Check the values of a line and return its box."""
    frame, track, left, top, width, height = values[:6]
    if frame < 1 or frame != int(frame) or track != int(track) or max(frame, track) >= LARGEST:
        raise InputError(
            f"{where}: frame {frame:g}, track {track:g}; both must be whole numbers below 2^53, and frames start at 1"
        )
    if track < 0:
        raise InputError(f"{where}: track {track:g} marks a detection; run a tracker on the detections, pass its file")
    if width <= 0 or height <= 0:
        raise InputError(
            f"{where}: the box of track {track:g} has {width:g} x {height:g} pixels; a box is written as left, top, "
            "width and height, not as two corners"
        )
    return Box(number, int(frame), int(track), left, top, width, height)
