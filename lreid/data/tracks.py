"""Make a re-identification data set from videos and a tracker's results in MOT Challenge's format."""

import csv
import io
import logging
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from lreid.data.custom import LIST, cameras_of, splits_of
from lreid.data.listing import Listed
from lreid.data.records import grouped
from lreid.data.tracker_boxes import LARGEST, TRUTH, Box, read_tracks
from lreid.data.videos import FASTEST, Tracked, open_video, rate_in, shown
from lreid.errors import InputError, counted
from lreid.utils.files import describe_folder, folder_at_once, list_folder, write_file, write_text
from lreid.utils.identities import label_text
from lreid.utils.reading import escaped

logger = logging.getLogger("lreid")

INSIDE = 0.5  # minimum share of a box's area that must be in the frame
LISTS = (f"gt/{TRUTH}", "mtsc/mtsc.txt")  # files with the tracks in a folder of MOT Challenge or MTMC


@dataclass(frozen=True)
class Choice:
    """Rules that select which boxes become images.

    Attributes:
        every: length of a time interval in seconds. A track is cut into intervals of this length, and the sharpest box
            of each interval becomes an image.
        most: maximum number of images per track. Long tracks therefore have longer intervals than ``every``.
        height: minimum height of a box in pixels.
        sharpness: minimum sharpness of a box, see :func:`sharpness`.
        classes: classes of the boxes to read, see :func:`lreid.data.tracker_boxes.read_tracks`.
    """

    every: float = 0.5
    most: int = 20
    height: int = 64
    sharpness: float = 0.0
    classes: Sequence[int] = ()

    def __post_init__(self) -> None:
        for option, value in (("every", self.every), ("most", self.most), ("min-height", self.height)):
            if not value > 0:
                raise InputError(f"--{option} is {value}; must be above 0")


def from_tracks(
    sources: Sequence[Path], tracks: Sequence[Path], out: Path, choice: Choice = Choice(), *, same: bool = False
) -> int:
    """Write images ``out/images/CAMERA/TRACK/FRAME.jpg`` and their list, ``out/index.csv``.

    Without ``same``, every camera becomes a domain with identities of its own, and the list has no column for cameras,
    because each identity has a single camera. With ``same``, all cameras form one domain, and the list has a column for
    cameras. :func:`lreid.data.custom.splits_of` later splits the identities of each domain.

    Args:
        sources: videos, folders of frames, folders of MOT Challenge (``img1``) or MTMC (``vdo.avi``) with their
            ``gt/gt.txt``, or folders that contain such folders.
        tracks: a tracker's file for each source; without any, the files in the folders of the sources are used.
        out: folder to create.
        choice: rules that select which boxes become images.
        same: whether a track number means the same person in all videos, as in MTMC.

    Returns:
        The number of images written.

    Raises:
        InputError: a file cannot be read, all boxes come after the end of the video, or no box is large enough and
            sharp enough.
    """
    if out.exists():
        raise InputError(f"{out}: already exists; choose another --out, or delete it")
    sequences = _sequences(sources, tracks)
    images: list[Listed] = []
    try:
        with folder_at_once(out) as folder:
            assert folder is not None  # because `out` does not exist
            try:
                for sequence in sequences:
                    images += _images(sequence, choice, folder)
                write_text(folder / LIST, _list(sorted(images), same))
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror}); choose another --out") from None
    return len(images)


def sharpness(image: np.ndarray) -> float:
    """Compute the variance of the Laplacian of an image's grey values (0 to 255); 0 for images below 3 x 3 pixels."""
    grey = image @ np.array([0.299, 0.587, 0.114])  # (H, W)
    if min(grey.shape) < 3:
        return 0.0
    laplacian = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:] - 4 * grey[1:-1, 1:-1]
    return float(laplacian.var())


def _sequences(sources: Sequence[Path], tracks: Sequence[Path]) -> list[Tracked]:
    """Find the file of tracks for every video, and give each video a name of its own."""
    if tracks and len(tracks) != len(sources):
        raise InputError(f"{counted(len(sources), 'video')} and {len(tracks)} --tracks; pass one file per video")
    for source in sources:
        if not source.exists():
            raise InputError(f"{source}: no such video or folder; check the path")
    sequences = [_sequence(*pair) for pair in zip(sources, tracks, strict=False)]
    for source in () if tracks else sources:
        folders = [source, *(each for each in list_folder(source) if each.is_dir())] if source.is_dir() else []
        lists = [next((each / name for name in LISTS if (each / name).is_file()), None) for each in folders]
        inside = [_sequence(each, file) for each, file in zip(folders, lists, strict=True) if file and _frames_in(each)]
        if not inside:
            content = f" ({describe_folder(source)})" if source.is_dir() else ""
            raise InputError(f"{source}: no tracks next to its frames{content}; pass a tracker's file as --tracks")
        sequences += inside
    twice = [name for name, count in Counter(each.name for each in sequences).items() if count > 1]
    if twice:
        raise InputError(f"two videos are called {twice[0]}; rename one, because cameras are named after them")
    return sequences


def _sequence(source: Path, tracks: Path) -> Tracked:
    """Pair a video, or a folder with its frames, with its file of tracks."""
    if not source.is_dir():
        return Tracked(label_text(escaped(source.stem)), source, tracks)
    return Tracked(label_text(escaped(source.resolve().name)), _frames_in(source) or source, tracks, rate_in(source))


def _frames_in(folder: Path) -> Path | None:
    """Find the frames in a folder of MOT Challenge (``img1``) or MTMC (``vdo.*``); None if there are none."""
    if (folder / "img1").is_dir():
        return folder / "img1"
    return next(iter(list_folder(folder, "vdo.*")), None)


def _images(sequence: Tracked, choice: Choice, folder: Path) -> list[Listed]:
    """Write the images of a video; return them with their relative paths, and their times in seconds."""
    boxes = read_tracks(sequence.tracks, choice.classes)
    rate, frames = open_video(sequence)
    best = BestCrops(boxes, choice, rate)

    def quality(pixels: np.ndarray, box: Box, others: Sequence[Box]) -> float | None:
        sharp = sharpness(pixels) if box.height >= choice.height else -math.inf
        return sharp if sharp >= choice.sharpness else None

    images = []
    for track, each in best.cut(frames, quality):
        path = Path("images", sequence.name, str(track), f"{each.frame:06d}.jpg")
        each.write(folder / path)
        images.append(Listed(path.as_posix(), str(track), sequence.name, str(int(best.times[each.frame]))))
    if best.frames_read == 0:
        raise InputError(f"{sequence.frames}: no frame can be read; convert the video, for instance with ffmpeg")
    best.require_boxes_in_video(sequence)
    if not images:
        raise InputError(
            f"{sequence.tracks}: no box in the frames is at least {choice.height} pixels high with a sharpness of at "
            f"least {choice.sharpness:g}; lower --min-height or --min-sharpness"
        )
    tracks = counted(len({image.identity for image in images}), "track")
    logger.info("%s: %s of %s", sequence.name, counted(len(images), "image"), tracks)
    return images


class Crop(NamedTuple):
    """The best crop of a time interval of a track, with the interval, its quality and its frame number."""

    interval: int
    quality: float
    frame: int
    pixels: np.ndarray

    def write(self, path: Path) -> None:
        """Write the crop as a JPEG file."""
        write_file(path, lambda file: Image.fromarray(self.pixels).save(file, "JPEG", quality=95))


class BestCrops:
    """Cut the best crop of each time interval of each track out of a video.

    Tracks are divided into intervals of equal length, ``choice.every`` seconds or more, at most ``choice.most`` per
    track. Memory holds one crop per current track.

    Args:
        boxes: boxes of the tracks, sorted by frame.
        rate: frames per second.

    Attributes:
        frames_read: number of frames that :meth:`cut` has read.
        outside: number of boxes that :meth:`cut` left out, because less than half of each is in the frame.
        times: time of each frame with boxes in seconds, by its number, from 0 for the first frame of the video.
    """

    def __init__(self, boxes: Sequence[Box], choice: Choice, rate: float) -> None:
        self.boxes = boxes
        self.by_frame, self.by_track = (grouped(boxes, attrgetter(name)) for name in ("frame", "track"))
        frames = round(min(choice.every * rate, LARGEST))  # per interval, if all frames last equally long
        self.shortest = frames / rate if choice.every * rate >= 1 else max(choice.every, 1 / FASTEST)  # seconds
        self.most = choice.most
        self.frames_read = self.outside = 0
        self.times: dict[int, float] = {}

    def cut(
        self,
        frames: Iterator[tuple[float, np.ndarray]],
        quality: Callable[[np.ndarray, Box, Sequence[Box]], float | None],
    ) -> Iterator[tuple[int, Crop]]:
        """Yield track and crop when no later box can be better, and stop after the last frame with a box.

        Args:
            frames: time and frame (H, W, 3) uint8, from :func:`lreid.data.videos.open_video`.
            quality: function that returns the quality of a crop, from its pixels, its box and all boxes of the frame,
                or None to leave the crop out.
        """
        held: dict[int, Crop] = {}  # by track
        end = max(self.by_frame, default=0)
        for number, (seconds, frame) in enumerate(frames, start=1):
            self.frames_read = number
            boxes = self.by_frame.get(number, [])
            if boxes:
                self.times[number] = seconds
            for box in boxes:
                interval, last = self._interval(box), self.by_track[box.track][-1]
                if box.track in held and held[box.track].interval != interval:
                    yield box.track, held.pop(box.track)
                pixels = crop(frame, box)
                if pixels is None:
                    self.outside += 1
                else:
                    score = quality(pixels, box, boxes)
                    if score is not None and (box.track not in held or score > held[box.track].quality):
                        held[box.track] = Crop(interval, score, number, pixels)
                if box is last and box.track in held:
                    yield box.track, held.pop(box.track)
            if number >= end:
                break
        yield from sorted(held.items())  # the video ends before these tracks

    def require_boxes_in_video(self, sequence: Tracked) -> None:
        """Warn about boxes outside the frame or after the last one; refuse tracks that have only the latter."""
        count, source = sum(box.frame > self.frames_read for box in self.boxes), shown(sequence.frames)
        fault = f"{count} of {counted(len(self.boxes), 'box')} come after frame {self.frames_read}, the end of {source}"
        if count == len(self.boxes):
            raise InputError(f"{sequence.tracks}:{self.boxes[0].line}: {fault}; pass the tracks of this video")
        if count:
            logger.warning("%s: %s, and are left out", sequence.tracks, fault)
        if self.outside:
            reason = "because less than half of each is in the frame; a box has a width and a height, not two corners"
            logger.warning("%s: %s left out, %s", sequence.tracks, counted(self.outside, "box"), reason)

    def _interval(self, box: Box) -> int:
        """Return the number (from 0) of a box's interval in its track."""
        first, last = self.by_track[box.track][0].frame, self.by_track[box.track][-1].frame
        in_time = (self.times[box.frame] - self.times[first]) / self.shortest
        return min(int(in_time + 1e-6), (box.frame - first) // math.ceil((last - first + 1) / self.most))


def crop(frame: np.ndarray, box: Box) -> np.ndarray | None:
    """Cut a box out of a frame (H, W, 3); return None if less than half of the box is in the frame."""
    height, width, _ = frame.shape
    # The sums may be infinite.
    top, bottom = (round(min(max(edge, 0), height)) for edge in (box.top, box.top + box.height))
    left, right = (round(min(max(edge, 0), width)) for edge in (box.left, box.left + box.width))
    pixels = frame[top:bottom, left:right]
    seen = pixels.shape[0] * pixels.shape[1]
    return pixels.copy() if seen and seen >= INSIDE * box.width * box.height else None


def _list(images: Sequence[Listed], same: bool) -> str:
    """Format the list of the images as the text of a CSV file."""
    cameras = same and bool(cameras_of(images))
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["path", "pid", "split", "time", *["camid"] * cameras, *["domain"] * (not same)])
    for domain in dict.fromkeys("" if same else image.camera for image in images):
        # The same track number at two cameras means two people, so the name that is hashed contains the camera.
        group = [
            image if same else image._replace(identity=f"{domain}-{image.identity}")
            for image in images
            if same or image.camera == domain
        ]
        splits = splits_of(group if cameras else [image._replace(camera=None) for image in group])
        for image, split in zip(group, splits, strict=True):
            table.writerow([image.path, image.identity, split, image.time, *[image.camera] * (cameras or not same)])
    return text.getvalue()
