"""Write a page that shows where and when each identity was seen, with its crops and its trips between cameras."""

import datetime
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import median
from urllib.parse import quote

from lreid.errors import counted
from lreid.link.constraints import LONGEST_TRIP
from lreid.link.record import Json, LinkRecord
from lreid.report.rendering import Cell, Panel, Table, TableRow, anchored, panel, render
from lreid.utils.clock import EARLIEST
from lreid.utils.files import write_text

MAX_TRACKLETS, MAX_CROPS = 12, 3  # maximum number of tracklets shown per identity, and of crops per tracklet
COLOUR_COUNT = 10  # number of colours in report/static/style.css


def write_identities_page(path: Path, record: LinkRecord) -> None:
    """Write the page about a record. The page works offline and loads the crops from the folder.

    Raises:
        InputError: the page cannot be written.
    """
    cameras = list(dict.fromkeys(clip["camera"] for clip in record.content["clips"]))
    spans = _spans(record.content["clips"])
    identities = record.identities
    lines = [_row(record, number, of, cameras, spans) for number, of in identities.items()]
    size = f"{counted(len(record.tracklets), 'tracklet')} of {counted(len(cameras), 'camera')}"
    timed = all(clip["start"] > 0 for clip in record.content["clips"])
    times = "times are UTC" if timed else "times count from the start of the recordings"
    threshold = record.content["threshold"]
    rule = f" Linked from mean similarity {threshold:.3f} on." if threshold is not None else ""
    intro = [
        f"{counted(len(lines), 'identity')} in {size}; {times}.{rule}",
        "Hours without a recording are left out of the timelines.",
        "Correct identities with lreid link merge, split (with a tracklet's name, below its crops), apart and name; "
        "lreid link undo reverts the last change.",
    ]
    legend = [(camera, number % COLOUR_COUNT) for number, camera in enumerate(cameras)]
    panels = [Panel("Identities", "", render("timeline.html", lines=lines, legend=legend))]
    if rows := _transitions(identities.values()):
        title = f"Transitions within {LONGEST_TRIP:.0f} seconds"
        heads = ("from", "to", "people", "median seconds")
        panels.append(panel("table.html", title, "", table=Table(title, heads, rows)))
    write_text(path, render("ranked.html", title="Identities", intro=intro, links=[], panels=anchored(panels)))


def _spans(clips: list[Json]) -> list[tuple[float, float]]:
    """Return the time spans that recordings cover; spans that overlap are merged."""
    spans: list[tuple[float, float]] = []
    for start, end in sorted((clip["start"], clip["end"]) for clip in clips):
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))
    return spans


def _row(record: LinkRecord, number: int, of: list[Json], cameras: list[str], spans: list[tuple[float, float]]) -> Json:
    """Describe an identity for the template: its bars, in per cent of the timeline, and its crops with addresses."""
    total = sum(end - start for start, end in spans) or 1.0

    def place(moment: float) -> float:
        return 100 * sum(min(max(moment - start, 0), end - start) for start, end in spans) / total

    of = sorted(of, key=lambda each: (each["start"], each["key"]))
    bars = []
    for each in of:
        left, right = place(each["start"]), place(each["end"])
        title = f"{_clock(each['start'])} to {_clock(each['end'])}, {each['key']}: {_reason(each)}"
        colour = cameras.index(each["camera"]) % COLOUR_COUNT
        bars.append({"left": round(left, 2), "width": round(right - left, 2), "colour": colour, "title": title})
    shown = of
    if len(of) > MAX_TRACKLETS:
        shown = [of[place * (len(of) - 1) // (MAX_TRACKLETS - 1)] for place in range(MAX_TRACKLETS)]
    crops = []
    for each in shown:
        best = sorted(sorted(each["crops"], key=each["crops"].__getitem__)[-MAX_CROPS:])
        crops.append((each["key"], _reason(each), [quote(f"tracklets/{each['key']}/{name}") for name in best]))
    keys = {each["key"] for each in shown}
    rest = [each["key"] for each in of if each["key"] not in keys]
    seen = counted(len({each["camera"] for each in of}), "camera")
    note = f"{counted(len(of), 'tracklet')}, {seen}, {_clock(of[0]['start'])} to {_clock(of[-1]['end'])}"
    line = {"identity": number, "name": record.name_of(number), "note": note, "bars": bars}
    return line | {"tracklets": crops, "rest": rest}


def _reason(tracklet: Json) -> str:
    score = "" if tracklet["score"] is None else f", mean similarity {tracklet['score']:.2f}"
    return f"{tracklet['why']}{score}"


def _clock(moment: float) -> str:
    if moment < EARLIEST:  # the recording has no start
        return str(datetime.timedelta(seconds=round(moment)))
    return f"{datetime.datetime.fromtimestamp(moment, datetime.timezone.utc):%Y-%m-%d %H:%M:%S}"


def _transitions(identities: Iterable[list[Json]]) -> list[TableRow]:
    """For each pair of cameras, count the people who went directly from one to the other, with the median time."""
    moves: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for of in identities:
        in_time = sorted(of, key=lambda each: (each["start"], each["key"]))
        for before, after in pairwise(in_time):
            gap = after["start"] - before["end"]
            if before["camera"] != after["camera"] and gap <= LONGEST_TRIP:
                moves.setdefault((before["camera"], after["camera"]), []).append((before["identity"], gap))
    rows = []
    for (a, b), of_pair in sorted(moves.items()):
        people, seconds = len({who for who, _ in of_pair}), median(gap for _, gap in of_pair)
        rows.append(TableRow("", (a, b, Cell(str(people), people), Cell(f"{seconds:.0f}", seconds))))
    return rows
