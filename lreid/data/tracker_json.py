"""Read a tracker's JSON file: rows of supervision's ``JSONSink``, or Ultralytics' results of each frame."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lreid.errors import InputError
from lreid.utils.reading import read_json

FRAMES = ("frame_index", "frame", "frame_number")  # keys that may contain the frame number, from 0
TRACKS = ("tracker_id", "track_id")
CORNERS = (("x_min", "x1"), ("y_min", "y1"), ("x_max", "x2"), ("y_max", "y2"))


def json_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Convert the boxes with a track number in a JSON file to lines in MOT Challenge's format.

    Args:
        file: JSON file that contains a list. From supervision (``sv.JSONSink`` with ``custom_data={"frame_index":
            number}``), an element of the list is a row with a frame number and the corners of a box. From Ultralytics,
            an element is the list that ``Results.summary()`` returns for one frame.

    Returns:
        Pairs of a line's position in the file (from 1) and the line.

    Raises:
        InputError: the file has neither supervision's nor Ultralytics' form.
        OSError: the file cannot be read.
        ValueError: the file is not JSON.
    """
    content = read_json(file)
    if not isinstance(content, list):
        raise InputError(f"{file}: holds no list; write the rows of supervision's JSONSink, or one list per frame")
    rows = [
        (frame, row)
        for place, each in enumerate(content)
        for frame, row in ([(place, row) for row in each] if isinstance(each, list) else [(None, each)])
    ]
    for number, (frame, row) in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise InputError(
                f"{file}: row {number} is {str(row)[:60]!r}; expected a box with its corners and its track"
            )
        corners = row | row["box"] if isinstance(row.get("box"), dict) else row
        left, top, right, bottom = (_number(file, number, corners, names) for names in CORNERS)
        if frame is None:
            frame = _number(file, number, row, FRAMES)
        if all(row.get(name) in (None, "", -1) for name in TRACKS):
            continue  # a detection that the tracker has not confirmed
        track = _number(file, number, row, TRACKS)
        label = next((row[name] for name in ("class_id", "class") if isinstance(row.get(name), int)), 0)
        yield number, f"{frame + 1:.17g},{track:.17g},{left},{top},{right - left},{bottom - top},1,{label}"


def _number(file: Path, number: int, row: dict[str, Any], names: tuple[str, ...]) -> float:
    """Return the number in a row under the first of the keys ``names`` that the row has."""
    value = next((row[name] for name in names if name in row), None)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{file}: row {number} has no {' or '.join(names)} that is a number; write it for every box")
    return value
