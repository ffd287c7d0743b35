"""Read boxes from a tracker's results: MOT Challenge's format, supervision's CSV or JSON, or Ultralytics' JSON."""

import csv
import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lreid.errors import InputError
from lreid.utils.reading import naming_damage, read_json, read_text

logger = logging.getLogger("lreid")

TRUTH = "gt.txt"  # file name of the true tracks in MOT Challenge
PEDESTRIAN = 1  # class in the gt.txt of MOT16 and later, whose lines have nine values
FRAMES = ("frame_index", "frame", "frame_number")  # keys in JSON that may contain the frame number, from 0
TRACK_KEYS = ("tracker_id", "track_id")
CLASS_KEYS = ("class_id", "class")
CORNERS = (("x_min", "x1"), ("y_min", "y1"), ("x_max", "x2"), ("y_max", "y2"))
NO_TRACK = -1  # track number of a box that the tracker has not confirmed
NO_NUMBER = "no track number"
NORMALISED = 2  # boxes with coordinates from 0 to 1 are smaller, even where they leave the frame
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

    A file that is neither JSON nor supervision's CSV has MOT Challenge's format: each line contains frame, track, left,
    top, width and height, separated by commas or spaces. Confidence, class and further values may follow. Boxes with
    confidence 0, boxes of other classes, and boxes of JSON or of supervision's CSV without a track number are left out;
    lreid logs how many.

    Args:
        file: results of a tracker, or a ``gt.txt`` file of MOT Challenge.
        classes: classes of the boxes to read. If ``classes`` is empty, boxes of all classes are read, but only
            pedestrians (class 1) from a ``gt.txt`` with nine values per line.

    Raises:
        InputError: the file cannot be read, or a line is faulty: values are missing, a frame number is below 1, width
            or height is not positive, ``classes`` are given but the line has no class, or two boxes of a frame have the
            same track. Or no box has a track number, or the coordinates are not pixels.
        NoTracks: the file has no boxes of these classes.
    """
    boxes: list[Box] = []
    places: dict[tuple[int, int], int] = {}
    taken: Counter[float] = Counter()  # boxes by class
    left_out: Counter[str] = Counter()
    with_names, rows = _rows(file)
    for number, values in rows:
        label = values[7] if len(values) in (8, 9) or (classes and len(values) > 9) else None
        if classes and label is None:
            raise InputError(f"{file}:{number}: has no class, which would be the eighth value; remove --class")
        truth = file.name == TRUTH and len(values) == 9 and values[7] > 0
        if values[1] == NO_TRACK and with_names:
            left_out[NO_NUMBER] += 1
            continue
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
    if boxes and all(max(box.width, box.height) <= NORMALISED for box in boxes):
        raise InputError(f"{file}: no box has more than {NORMALISED} pixels; write pixels, not shares of the frame")
    _report(file, left_out, {} if classes else taken, empty=not boxes)
    return sorted(boxes, key=lambda box: (box.frame, box.track))


def _rows(file: Path) -> tuple[bool, Iterator[tuple[int, list[float]]]]:
    """Return whether the boxes have named values, and the number (from 1) and the values of each line or box."""
    with naming_damage(file, "cannot be read as tracks", "name a tracker's text file"):
        content = read_json(file) if file.suffix == ".json" else read_text(file).splitlines()
        if file.suffix != ".json" and content and {each[0] for each in CORNERS} <= {*content[0].split(",")}:
            content = [*csv.DictReader(content)]
        elif file.suffix != ".json":
            lines = ((number, line) for number, line in enumerate(content, start=1) if line.strip())
            return False, ((number, _values(f"{file}:{number}", line)) for number, line in lines)
    return True, _named_rows(file, content)


def _named_rows(file: Path, content: Any) -> Iterator[tuple[int, list[float]]]:
    """Convert boxes with named values to the values of lines in MOT Challenge's format.

    The content is a list. From supervision (``CSVSink`` or ``JSONSink`` with ``custom_data={"frame_index": number}``),
    an element is a row with a frame number and the corners of a box. From Ultralytics, an element is the list that
    ``Results.summary()`` returns for one frame.
    """
    if not isinstance(content, list):
        raise InputError(f"{file}: holds no list; write the rows of supervision's JSONSink, or one list per frame")
    rows = [
        (frame, row)
        for place, each in enumerate(content)
        for frame, row in ([(place, row) for row in each] if isinstance(each, list) else [(None, each)])
    ]
    for number, (frame, row) in enumerate(rows, start=1):
        try:
            corners = row.get("box", row)
            left, top, right, bottom = (float(_first(corners, names)) for names in CORNERS)
            first, track = float(_first(row, FRAMES) if frame is None else frame), _first(row, TRACK_KEYS)
            label = float(next((row[name] for name in CLASS_KEYS if row.get(name) not in (None, "")), 0))
            track = NO_TRACK if track in (None, "") else float(track)
            yield number, [first + 1, track, left, top, right - left, bottom - top, 1, label]
        except (AttributeError, TypeError, ValueError):
            raise InputError(
                f"{file}: row {number} is {str(row)[:60]!r}; expected a box with the numbers of its corners, frame, "
                "track and class"
            ) from None


def _first(row: dict[str, Any], names: Sequence[str]) -> Any:
    """Return the value under the first of the keys ``names`` that a row has, or None."""
    return next((row[name] for name in names if name in row), None)


def _report(file: Path, left_out: Mapping[str, int], taken: Mapping[float, int], *, empty: bool) -> None:
    """Log how many boxes were left out, and whether the other boxes have several classes; refuse an empty file."""
    omitted = ", ".join(f"{reason}: {count}" for reason, count in sorted(left_out.items()))
    omitted += "; pass --class N to take a class" * any(reason.startswith("class") for reason in left_out)
    if empty and [*left_out] == [NO_NUMBER]:
        raise InputError(f"{file}: no box has a track number; run a tracker, such as model.track of Ultralytics")
    if empty:
        content = f" except boxes that lreid leaves out ({omitted})" if omitted else ""
        raise NoTracks(f"{file}: holds no tracks{content}; expected frame,track,left,top,width,height,confidence")
    if omitted:
        logger.info("%s: boxes left out (%s)", file, omitted)
    if len(taken) > 1:
        counts = ", ".join(f"{label:g}: {count}" for label, count in sorted(taken.items()))
        logger.warning("%s: holds boxes of several classes (%s); pass --class N to take only one", file, counts)


def _values(where: str, line: str) -> list[float]:
    """Parse the numbers of a line; raise InputError if the line has fewer than six numbers."""
    try:
        values = [float(value) for value in line.replace(",", " ").split()]
    except ValueError:
        values = []
    if len(values) < 6:
        raise InputError(f"{where}: expected frame,track,left,top,width,height; found {line[:60]!r}")
    return values


def _box(where: str, number: int, values: Sequence[float]) -> Box:
    """Check the values of a line and return its box."""
    if not all(map(math.isfinite, values)):
        raise InputError(f"{where}: expected frame,track,left,top,width,height; found {values}")
    frame, track, left, top, width, height = values[:6]
    if frame < 1 or frame != int(frame) or track != int(track) or max(frame, track) >= LARGEST:
        raise InputError(f"{where}: frame {frame:g}, track {track:g}; write whole numbers below 2^53, frames from 1")
    if track < 0:
        raise InputError(f"{where}: track {track:g} marks a detection; run a tracker on the detections, pass its file")
    if width <= 0 or height <= 0:
        raise InputError(
            f"{where}: the box of track {track:g} has {width:g} x {height:g} pixels; a box is written as left, top, "
            "width and height, not as two corners"
        )
    return Box(number, int(frame), int(track), left, top, width, height)
