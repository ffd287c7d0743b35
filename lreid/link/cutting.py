"""Cut the best crops of every tracklet out of a camera's recording."""

import datetime
import logging
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lreid.data.tracker_boxes import Box, NoTracks, read_tracks
from lreid.data.tracks import BestCrops, Choice, sharpness
from lreid.data.videos import FASTEST, RATE, SLOWEST, Tracked, open_video, shown
from lreid.errors import InputError, counted
from lreid.link.detection import detect
from lreid.link.record import Json
from lreid.utils.clock import require_clock
from lreid.utils.files import spelled, write_file
from lreid.utils.identities import label_text
from lreid.utils.reading import misfit, naming_damage, parse_yaml, read_text

logger = logging.getLogger("lreid")

BOXES = "boxes.csv"  # file with the boxes of a tracklet; its columns are frame, left, top, width, height
SHARP = 100.0  # variance of the Laplacian at which a crop gets half of the full weight for sharpness
TALL = 128  # minimum height of a crop with the full weight for height, pixels
CAMERAS_FORM = {  # form of the YAML file for :func:`lreid.utils.reading.misfit`
    "cameras": {str: {"video": str, "tracks?": str, "start?": object, "rate?": (int, float), str: None}},
    "travel?": [list],
    str: None,
}


class Clip(NamedTuple):
    """A recording of a camera.

    Attributes:
        camera: name of the camera.
        video: a file, a folder of frames, or a URL (as text).
        tracks: the tracker's file, or None to detect and track moving objects.
        start: time of the first frame in seconds since 1970.
        rate: frames per second, or None to read the rate from the video.
    """

    camera: str
    video: Path | str
    tracks: Path | None
    start: float
    rate: float | None

    @property
    def name(self) -> str:
        """Unique name, made of camera and start: ``gate/20260302T080000``, or ``gate/untimed`` without a start."""
        if self.start == 0:
            return f"{self.camera}/untimed"
        moment = datetime.datetime.fromtimestamp(self.start, datetime.timezone.utc)
        return f"{self.camera}/{moment:%Y%m%dT%H%M%S}" + (f".{moment:%f}" if moment.microsecond else "")


def read_cameras(file: Path) -> tuple[list[Clip], list[tuple[str, str, float]]]:
    """Read recordings and minimum travel times between cameras (A, B, seconds) from a YAML file.

    Raises:
        InputError: the file cannot be read, a camera occurs twice, a key is unknown, a file is missing, a value is
            invalid, or only some cameras have a start or a time zone.
    """
    kind, advice = "list of cameras", "write cameras: NAME: {video: …, tracks: …}"
    with naming_damage(file, f"not a {kind}", advice, kind):
        content = parse_yaml(read_text(file))
        fault = misfit(content, CAMERAS_FORM)
        if fault or not content["cameras"]:
            raise ValueError(fault or "it lists no camera")
        count, content["cameras"] = len(content["cameras"]), {label_text(k): of for k, of in content["cameras"].items()}
        if len(content["cameras"]) < count:
            raise ValueError("it lists a camera twice")
    clips, kinds = [], {}
    for camera, of in content["cameras"].items():
        if "/" in camera or not camera.strip() or not camera.isprintable() or camera.startswith("."):
            raise InputError(f"{file}: camera {camera!r} names a folder; write no /, line breaks or leading dot")
        video = of["video"] if "://" in of["video"] else Path(spelled(str(file.parent / of["video"])))
        tracks = Path(spelled(str(file.parent / of["tracks"]))) if "tracks" in of else None
        for path, what in ((video, "video or folder of frames"), (tracks, "file of tracks")):
            if isinstance(path, Path) and not path.exists():
                raise InputError(f"{path}: no such {what}, as given in {file}; correct the path")
        if not SLOWEST <= (rate := of.get("rate", RATE)) <= FASTEST:
            raise InputError(f"{file}: {camera}: rate is {rate}; must be {SLOWEST:g} to {FASTEST:g} frames per second")
        start, kind = _start(f"{file}: {camera}", of.get("start"))
        kinds[kind] = camera
        clips.append(Clip(camera, video, tracks, start, of.get("rate")))
    if len(kinds) > 1:
        given = " and ".join(f"{camera} has {kind}" for kind, camera in kinds.items())
        raise InputError(f"{file}: {given}; give every camera a start with a time zone, or none of them")
    travel = [_travel(f"{file}: travel", each, content["cameras"]) for each in content.get("travel", [])]
    return clips, travel


def _start(where: str, value: Any) -> tuple[float, str]:
    """Return a start in seconds since 1970, and its kind in words; a time without a time zone counts as UTC."""
    if value is None:
        return 0.0, "no start"
    kind = "a start with a time zone"
    try:
        moment = datetime.datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(moment, datetime.datetime):
            if moment.tzinfo is None:
                moment, kind = moment.replace(tzinfo=datetime.timezone.utc), "a start without a time zone"
            moment = moment.timestamp()
        if type(moment) in (int, float):
            require_clock(moment, f"{where}: start", least=-math.inf)
            return float(moment), kind
    except (ValueError, OverflowError):
        pass
    raise InputError(f"{where}: start is {value!r}; write it like 2026-03-02T08:00:00, or as seconds since 1970")


def _travel(where: str, value: list[Any], cameras: dict[str, Any]) -> tuple[str, str, float]:
    value = [*label_text(value[:2]), *value[2:]]
    fits = len(value) == 3 and all(each in list(cameras) for each in value[:2]) and value[0] != value[1]
    if fits and type(value[2]) in (int, float) and 0 <= value[2] < math.inf:
        return value[0], value[1], float(value[2])
    raise InputError(f"{where}: {value!r}; write [CAMERA, OTHER CAMERA, SECONDS]")


def cut(clip: Clip, folder: Path, choice: Choice) -> list[Json]:
    """Write the best crops and all boxes of every tracklet of a recording into ``folder / key``.

    A tracklet is divided into at most ``choice.most`` time intervals; of each interval, only the best crop is written.

    Returns:
        The tracklets in the form of :class:`lreid.link.record.LinkRecord`, without identities.

    Raises:
        InputError: the video or the tracks cannot be read, or the tracks do not fit the video.
        NoTracks: there are no tracks, or no box shows enough of a person; no file is written.
    """
    video = shown(clip.video)
    tracked = Tracked(clip.camera, clip.video, clip.tracks or Path(video), clip.rate)
    boxes = read_tracks(clip.tracks, choice.classes) if clip.tracks else detect(tracked)
    rate, frames = open_video(tracked)
    best = BestCrops(boxes, choice, rate)
    crops: dict[int, dict[str, float]] = defaultdict(dict)
    for track, each in best.cut(frames, _quality):
        name = f"{each.frame:06d}.jpg"
        each.write(folder / clip.name / str(track) / name)
        crops[track][name] = round(each.quality, 4)
    best.require_boxes_in_video(tracked)
    tracklets: list[Json] = []
    for track in sorted(crops):
        seen = [box for box in best.by_track[track] if box.frame <= best.frames_read]
        key = f"{clip.name}/{track}"
        text = "".join(f"{box.frame},{','.join(f'{v:g}' for v in box[3:])}\n" for box in seen)
        write_file(folder / key / BOXES, lambda file: file.write(text.encode()))  # noqa: B023
        start, end = (clip.start + best.times[box.frame] for box in (seen[0], seen[-1]))
        place = {"key": key, "camera": clip.camera, "start": start, "end": end}
        decided = {"identity": 0, "score": None, "why": ""}
        tracklets.append({**place, **decided, "crops": dict(sorted(crops[track].items()))})
    if not tracklets:
        fault = f"no box shows enough of a person in {video}; pass the tracks of this video"
        raise NoTracks(f"{clip.tracks or video}: {fault}")
    if omitted := len(best.by_track) - len(tracklets):
        logger.warning("%s: %s left out: no frame shows enough of the person", clip.name, counted(omitted, "tracklet"))
    return tracklets


def _quality(pixels: np.ndarray, box: Box, others: Sequence[Box]) -> float:
    """Compute the weight in [0, 1] of a crop in the feature of its tracklet.

    The weight is a product of one weight each for height, sharpness, the share of the box that is inside the frame, and
    the share that no other box covers. Boxes with a lower bottom edge count as in front of the box.
    """
    area, hidden = box.width * box.height, 0.0
    for other in others:
        if other.top + other.height > box.top + box.height and other.track != box.track:
            width = min(box.left + box.width, other.left + other.width) - max(box.left, other.left)
            height = min(box.top + box.height, other.top + other.height) - max(box.top, other.top)
            hidden = max(hidden, max(width, 0) * max(height, 0) / area)
    visible, sharp = min(pixels.shape[0] * pixels.shape[1] / area, 1.0), sharpness(pixels)
    return min(1.0, box.height / TALL) * sharp / (sharp + SHARP) * visible * (1 - hidden)
