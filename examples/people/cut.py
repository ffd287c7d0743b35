"""Cut the six people out of the frames of the film: python examples/people/cut.py FILM.mp4

A person is what differs from the median of all frames. The first half of each visit gives gallery images, the second
half new ones.
"""

import sys
from pathlib import Path

import cv2
import numpy as np

HERE = Path(__file__).parent
VISITS = ((70, 185), (240, 435), (520, 685), (760, 850), (945, 1185), (1245, 1345))  # first and last frame
IMAGES = 3  # per person and half
HEIGHT = 256


def box(frame: np.ndarray, empty: np.ndarray) -> tuple[int, int, int, int]:
    """Left, top, width and height of the largest region that differs from the empty scene."""
    mask = (cv2.absdiff(frame, empty).max(2) > 40).astype(np.uint8)
    mask = cv2.morphologyEx(mask, cv2.MORPH_CLOSE, np.ones((15, 15), np.uint8))
    _, _, stats, _ = cv2.connectedComponentsWithStats(mask)
    left, top, width, height, _ = stats[1 + stats[1:, cv2.CC_STAT_AREA].argmax()]
    return left, top, width, height


if __name__ == "__main__":
    film, frames = cv2.VideoCapture(sys.argv[1]), []
    while (read := film.read())[0]:
        frames.append(read[1])
    empty = np.median(frames[::40], axis=0).astype(np.uint8)
    for person, (first, last) in enumerate(VISITS, 1):
        for shot, number in enumerate(np.linspace(first, last, 2 * IMAGES).round().astype(int)):
            left, top, width, height = box(frames[number], empty)
            crop = frames[number][top : top + height, left : left + width]
            crop = cv2.resize(crop, (round(HEIGHT * width / height), HEIGHT), interpolation=cv2.INTER_AREA)
            part = HERE / ("images" if shot < IMAGES else "new") / f"person-{person}" / f"{number:04d}.jpg"
            part.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(part), crop, [cv2.IMWRITE_JPEG_QUALITY, 85])
