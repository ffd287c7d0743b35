"""Open videos, and folders with one image per frame."""

import configparser
import logging
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lreid.data.images import read_image
from lreid.data.listing import visible_images
from lreid.errors import InputError
from lreid.utils.extras import Extra
from lreid.utils.files import describe_folder
from lreid.utils.reading import naming_damage, require_regular

cv2 = Extra("cv2", "opencv")
logger = logging.getLogger("lreid")

RATE = 25.0  # frames per second of a video that does not state its rate
SLOWEST, FASTEST = 1e-6, 1e6  # frames per second; a rate outside this range is taken for an error


@dataclass(frozen=True)
class Tracked:
    """A video and the file with its tracks.

    Attributes:
        name: name of the camera.
        frames: a video file; a folder with one image per frame, in the order of the numbers in their names; or the URL
            of a video, such as ``rtsp://…``, as text.
        tracks: file with the tracker's results.
        rate: frames per second; None reads the rate from the video.
    """

    name: str
    frames: Path | str
    tracks: Path
    rate: float | None = None


def open_video(sequence: Tracked) -> tuple[float, Iterator[tuple[float, np.ndarray]]]:
    """Open a video.

    The times of a video file come from its container, where they differ from those of a constant rate by half a frame
    or more. A given rate, or that of a folder's ``seqinfo.ini``, is taken as constant.

    Returns:
        Frames per second, on average; and an iterator that decodes the frames one by one, as the time since the first
        frame in seconds and (H, W, 3) uint8 RGB.

    Raises:
        InputError: the video or folder cannot be read.
    """
    source = sequence.frames
    if isinstance(source, Path) and source.is_dir():
        files = sorted(visible_images(source), key=_by_number)
        if not files:
            raise InputError(f"{source}: holds no images of frames; {describe_folder(source)}")
        rate = sequence.rate or rate_in(source) or rate_in(source.parent) or _assumed(source)
        return rate, ((number / rate, read_image(file)) for number, file in enumerate(files))
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")  # silences FFmpeg's own lines about damaged videos
    if isinstance(source, Path):
        require_regular(source)
    video = cv2.VideoCapture(os.fsencode(source))  # bytes, because OpenCV crashes on a str that is not valid UTF-8
    if not video.isOpened():
        raise InputError(
            f"{shown(source)}: cannot be read as a video (damaged, out of reach, or in a format that OpenCV does not "
            "know); convert it, for instance with ffmpeg, or pass a folder of its frames"
        )
    rate = sequence.rate or video.get(cv2.CAP_PROP_FPS)
    if not SLOWEST <= rate <= FASTEST:
        rate = _assumed(source)

    def frames() -> Iterator[tuple[float, np.ndarray]]:
        number, start, seconds = 0, 0.0, -math.inf
        try:
            while True:
                read, frame = video.read()
                if not read:
                    break
                stated = video.get(cv2.CAP_PROP_POS_MSEC) / 1000
                start = start if number else stated
                constant = sequence.rate or abs((stated - start) * rate - number) < 0.5
                exact = number / rate if constant else stated - start
                seconds = exact if exact > seconds else seconds + 1 / rate  # a stream may state no times
                number += 1
                yield seconds, np.ascontiguousarray(frame[..., ::-1])
            if (announced := video.get(cv2.CAP_PROP_FRAME_COUNT)) > number + 1:  # often an estimate
                logger.warning(
                    "%s: %d of %d frames can be read; if its middle is damaged, later tracks are shifted; convert "
                    "it, for instance by ffmpeg, and track again",
                    *(shown(source), number, announced),
                )
        finally:
            video.release()

    return rate, frames()


def _assumed(source: Path | str) -> float:
    logger.warning("%s: does not state its frame rate; lreid assumes %g frames per second", shown(source), RATE)
    return RATE


def rate_in(folder: Path) -> float | None:
    """Read the frames per second from MOT Challenge's ``seqinfo.ini``; None if the file or the rate is missing."""
    file, parser = folder / "seqinfo.ini", configparser.ConfigParser(interpolation=None)
    with naming_damage(file, "cannot be read", "correct it, or remove it"):
        parser.read(file, encoding="utf-8-sig")  # a missing file is empty
        rate = parser.getfloat("Sequence", "frameRate", fallback=None)
        if rate is not None and not SLOWEST <= rate <= FASTEST:
            raise ValueError(f"frameRate is {rate:g}; must be {SLOWEST:g} to {FASTEST:g} frames per second")
    return rate


def _by_number(file: Path) -> list[tuple[int, str]]:
    """Sort key of a frame that orders numbers by value: 2.jpg comes before 10.jpg."""
    return [(int(part), part) if part.isdecimal() else (0, part) for part in re.split("([0-9]+)", file.name)]


def shown(source: Path | str) -> str:
    """Return the path of a video, or its URL without the password, for messages."""
    return re.sub("//[^/@]*@", "//", str(source))
