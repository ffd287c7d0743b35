"""Detect and track moving objects in front of a fixed camera, without a detector to download.

Background subtraction (MOG2; Zivkovic, ICPR 2004; OpenCV, Apache-2.0) detects boxes. The Hungarian method links boxes
to tracks by their overlap. Background subtraction needs a fixed camera. Background subtraction also detects vehicles
and shadows, and merges people who touch into one box. A detector and a tracker that write the MOT Challenge format are
more accurate; use them if you can.
"""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from lreid.data.tracker_boxes import Box, NoTracks
from lreid.data.videos import Tracked, open_video, shown
from lreid.utils.extras import Extra

logger = logging.getLogger("lreid")
cv2 = Extra("cv2", "link")
optimize = Extra("scipy.optimize", "link")

WORK_WIDTH = 320  # width to which wider frames are scaled down, pixels
MIN_HEIGHT = 0.15  # minimum height of a box, as a share of the frame's height
MIN_ASPECT, MAX_ASPECT = 0.15, 1.2  # minimum and maximum of a box's width divided by its height
MIN_OVERLAP = 0.2  # minimum intersection over union of consecutive boxes of one track
MAX_GAP, MIN_DURATION = 1.0, 1.0  # maximum gap in a track, and minimum length of a track, seconds


def detect(tracked: Tracked) -> list[Box]:
    """Detect and track moving objects; return their boxes with track numbers, sorted by frame.

    Raises:
        InputError: the video cannot be read.
        NoTracks: nothing moves.
    """
    logger.warning(
        "%s: has no tracks, so lreid takes everything that moves for a person; better run a tracker first",
        shown(tracked.frames),
    )
    rate, frames = open_video(tracked)
    subtractor = cv2.createBackgroundSubtractorMOG2(history=500, varThreshold=25, detectShadows=True)
    tracks: list[list[Box]] = []
    live: list[list[Box]] = []
    for number, (_, frame) in enumerate(frames, start=1):
        live = [track for track in live if number - track[-1].frame <= MAX_GAP * rate]
        boxes = _moving(subtractor, frame)
        overlaps = _overlaps([track[-1] for track in live], boxes)
        rows, columns = optimize.linear_sum_assignment(overlaps, maximize=True)
        pairs = {c: r for r, c in zip(rows, columns, strict=True) if overlaps[r, c] > MIN_OVERLAP}
        for column, box in enumerate(boxes):
            if column not in pairs:  # a new track
                pairs[column] = len(live)
                live.append([])
                tracks.append(live[-1])
            live[pairs[column]].append(box._replace(frame=number))
    tracks_shown = [each for each in tracks if each[-1].frame - each[0].frame >= MIN_DURATION * rate]
    if not tracks_shown:
        raise NoTracks(f"{shown(tracked.frames)}: no object moves for {MIN_DURATION:g} s; pass a tracker's file")
    boxes = [box._replace(track=number) for number, track in enumerate(tracks_shown, start=1) for box in track]
    return sorted(boxes, key=lambda box: (box.frame, box.track))


def _moving(subtractor: Any, frame: np.ndarray) -> list[Box]:
    """Return boxes (left, top, width, height) of moving regions of human proportions in a frame (H, W, 3)."""
    scale = min(1.0, WORK_WIDTH / frame.shape[1])
    small = cv2.resize(np.ascontiguousarray(frame), None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    moving = (subtractor.apply(small) == 255).astype(np.uint8)  # MOG2 marks shadows with 127
    moving = cv2.morphologyEx(moving, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    moving = cv2.morphologyEx(moving, cv2.MORPH_CLOSE, np.ones((15, 7), np.uint8))
    _, _, regions, _ = cv2.connectedComponentsWithStats(moving)
    boxes = [Box(0, 0, 0, *(float(value) / scale for value in region[:4])) for region in regions[1:]]
    tall = (box for box in boxes if box.height >= MIN_HEIGHT * frame.shape[0])
    return [box for box in tall if MIN_ASPECT <= box.width / box.height <= MAX_ASPECT]


def _overlaps(left: Sequence[Box], right: Sequence[Box]) -> np.ndarray:
    """Compute the intersection over union of boxes, (L, R) float64."""
    one, other = (np.array([box[3:] for box in each]).reshape(-1, 4) for each in (left, right))
    low = np.maximum(one[:, None, :2], other[None, :, :2])
    high = np.minimum((one[:, :2] + one[:, 2:])[:, None], (other[:, :2] + other[:, 2:])[None])
    both = (high - low).clip(0).prod(2)
    return both / (one[:, 2:].prod(1)[:, None] + other[:, 2:].prod(1)[None] - both)
