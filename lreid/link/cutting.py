"""Cut the best crops of every tracklet out of a camera's recording."""

import datetime
import logging
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from lreid.data.tracker_boxes import Box, NoTracks, read_tracks
from lreid.data.tracks import BestCrops, Choice, crop, sharpness, stretches_of
from lreid.data.videos import FASTEST, RATE, SLOWEST, Tracked, open_video, shown
from lreid.errors import InputError, counted
from lreid.link.detection import detect
from lreid.link.tracklets import crop_quality
from lreid.utils.files import write_file
from lreid.utils.reading import misfit, parse_yaml, raise_if_unreadable, read_text

logger = logging.getLogger("lreid")

BOXES = "boxes.csv"  # file with the boxes of a tracklet; its columns are frame, left, top, width, height
CAMERA = {"video": str, "tracks?": str, "start?": object, "rate?": (int, float), str: None}
FORM = {"cameras": {str: CAMERA}, "travel?": [list], str: None}
UTC = datetime.timezone.utc


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
        """Unique name, made of camera and start: ``gate/20260302T080000``."""
        moment = datetime.datetime.fromtimestamp(self.start, UTC)
        return f"{self.camera}/{moment:%Y%m%dT%H%M%S}" + (f".{moment:%f}" if moment.microsecond else "")


class Cut(NamedTuple):
    """A tracklet with the crops that were cut out of the recording.

    Attributes:
        key: folder of the tracklet below ``tracklets/``, such as ``gate/20260302T080000/4``.
        start, end: times of the tracklet's first and last box in seconds since 1970.
        crops: file names of the crops, each with its quality in [0, 1].
    """

    key: str
    start: float
    end: float
    crops: dict[str, float]


def read_cameras(file: Path) -> tuple[list[Clip], list[tuple[str, str, float]]]:
    """Read recordings and minimum travel times between cameras (A, B, seconds) from a YAML file.

    Raises:
        InputError: the file cannot be read, a camera occurs twice, a key is unknown, a file is missing, or a value is
            invalid.
    """
    try:
        content = parse_yaml(read_text(file))
        fault = misfit(content, FORM)
    except (OSError, ValueError) as error:
        raise_if_unreadable(error, file, "list of cameras")
        fault = str(error)
    if fault or not content["cameras"]:
        raise InputError(f"{file}: {fault or 'lists no camera'}; write cameras: NAME: {{video: …, tracks: …}}")
    clips = []
    for camera, of in content["cameras"].items():
        if "/" in camera or not camera.strip() or not camera.isprintable() or camera.startswith("."):
            raise InputError(
                f"{file}: camera {camera!r}: the name becomes a folder; write a name without /, line breaks and a "
                "leading dot"
            )
        video = of["video"] if "://" in of["video"] else file.parent / of["video"]
        tracks = file.parent / of["tracks"] if "tracks" in of else None
        for path, what in ((video, "video or folder of frames"), (tracks, "file of tracks")):
            if isinstance(path, Path) and not path.exists():
                raise InputError(f"{path}: no such {what}, as given in {file}; correct the path")
        if not SLOWEST <= (rate := of.get("rate", RATE)) <= FASTEST:
            raise InputError(f"{file}: {camera}: rate is {rate}; must be {SLOWEST:g} to {FASTEST:g} frames per second")
        clips.append(Clip(camera, video, tracks, _seconds(f"{file}: {camera}", of.get("start", 0)), of.get("rate")))
    travel = [_travel(f"{file}: travel", each, content["cameras"]) for each in content.get("travel", [])]
    return clips, travel


def _seconds(where: str, value: Any) -> float:
    """Convert a time from 1970 on to seconds since 1970; times without a time zone are UTC."""
    try:
        moment = datetime.datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(moment, datetime.datetime):
            moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if type(moment) in (int, float) and 0 <= moment < 1e11:
            return float(moment)
    except (ValueError, OverflowError):
        pass
    raise InputError(f"{where}: start is {value!r}; write it like 2026-03-02T08:00:00, or as seconds since 1970")


def _travel(where: str, value: list[Any], cameras: dict[str, Any]) -> tuple[str, str, float]:
    fits = len(value) == 3 and all(each in list(cameras) for each in value[:2]) and value[0] != value[1]
    if fits and type(value[2]) in (int, float) and 0 <= value[2] < math.inf:
        return value[0], value[1], float(value[2])
    raise InputError(f"{where}: {value!r}; write [CAMERA, OTHER CAMERA, SECONDS]")


def cut(clip: Clip, folder: Path, choice: Choice) -> list[Cut]:
    """Write the best crops and all boxes of every tracklet of a recording into ``folder / key``.

    A tracklet is divided into at most ``choice.most`` time intervals; of each interval, only the best crop is written.
    Memory holds only one crop per tracklet at a time.

    Raises:
        InputError: the video or the tracks cannot be read, or the tracks do not fit the video.
        NoTracks: there are no tracks, or no box shows enough of a person; no file is written.
    """
    video = shown(clip.video)
    listed = clip.tracks or video
    tracked = Tracked(clip.camera, clip.video, Path(listed), clip.rate)
    boxes = read_tracks(clip.tracks, choice.classes) if clip.tracks else detect(tracked)
    rate, frames = open_video(tracked)
    by_frame, by_track = defaultdict(list), defaultdict(list)
    for box in boxes:
        by_frame[box.frame].append(box)
        by_track[box.track].append(box)
    crops: dict[int, dict[str, float]] = defaultdict(dict)
    last = 0
    ends = {track: of[-1].frame for track, of in by_track.items()}
    for last, track, name, quality, pixels in _best(by_frame, ends, stretches_of(boxes, choice, rate), frames):  # noqa: B007
        if track is not None:
            path = folder / clip.name / str(track) / name
            write_file(path, lambda file: Image.fromarray(pixels).save(file, "JPEG", quality=95))  # noqa: B023
            crops[track][name] = round(quality, 4)
    beyond = sum(box.frame > last for box in boxes)
    if beyond == len(boxes):
        raise InputError(f"{listed}: all boxes come after frame {last}, where {video} ends or is damaged")
    if beyond:
        logger.warning(
            "%s: %d of %s left out: %s ends, or is damaged, after frame %d",
            *(listed, beyond, counted(len(boxes), "box"), video, last),
        )
    cuts = []
    for track in sorted(crops):
        seen = [box for box in by_track[track] if box.frame <= last]
        key, text = (
            f"{clip.name}/{track}",
            "".join(f"{box.frame},{','.join(f'{v:g}' for v in box[3:])}\n" for box in seen),
        )
        write_file(folder / key / BOXES, lambda file: file.write(text.encode()))  # noqa: B023
        start, end = (clip.start + (box.frame - 1) / rate for box in (seen[0], seen[-1]))
        cuts.append(Cut(key, start, end, dict(sorted(crops[track].items()))))
    if not cuts:
        raise NoTracks(f"{listed}: no box shows enough of a person in {video}; pass the tracks of this video")
    if omitted := len(by_track) - len(cuts):
        logger.warning(
            "%s: %s left out, because no frame shows enough of the person", clip.name, counted(omitted, "tracklet")
        )
    return cuts


def _best(
    by_frame: dict[int, list[Box]], ends: dict[int, int], stretch_of: Any, frames: Iterator[np.ndarray]
) -> Iterator[tuple[int, int | None, str, float, np.ndarray]]:
    """Yield the best crop of each interval of a track: number of frames read, track, file name, quality, pixels.

    The last item is not a crop: it contains the number of all frames, and None as the track.
    """
    best = BestCrops(stretch_of)
    end, number = max(by_frame, default=0), 0

    def done(track: int) -> tuple[int, int, str, float, np.ndarray]:
        held = best.take(track)
        return number, track, f"{held.frame:06d}.jpg", held.quality, held.pixels

    for number, frame in enumerate(frames, start=1):
        for box in by_frame.get(number, ()):
            pixels = crop(frame, box)
            if best.is_complete(box):
                yield done(box.track)
            if pixels is not None:
                best.offer(box, _quality(pixels, box, by_frame[number]), pixels)
            if number == ends[box.track] and box.track in best.held:
                yield done(box.track)
        if number >= end:
            break
    for track in sorted(best.held):  # the video ends before the tracks
        yield done(track)
    yield number, None, "", 0.0, np.zeros(0)


def _quality(pixels: np.ndarray, box: Box, others: Sequence[Box]) -> float:
    """Compute the :func:`crop_quality` of a box; other boxes with a lower bottom edge count as in front of it."""
    area, hidden = box.width * box.height, 0.0
    for other in others:
        if other.top + other.height > box.top + box.height and other.track != box.track:
            width = min(box.left + box.width, other.left + other.width) - max(box.left, other.left)
            height = min(box.top + box.height, other.top + other.height) - max(box.top, other.top)
            hidden = max(hidden, max(width, 0) * max(height, 0) / area)
    visible = min(pixels.shape[0] * pixels.shape[1] / area, 1.0)
    return crop_quality(box.height, sharpness(pixels), visible, hidden)
