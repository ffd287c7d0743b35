"""Tools to draw synthetic images: random choices, colours, and a pen for shapes and patterns."""

import random
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from lreid.utils.extras import Extra

cv2 = Extra("cv2", "opencv")

Colour = tuple[int, int, int]
Point = tuple[int, int]
T = TypeVar("T")

COLOURS: dict[str, Colour] = {
    "black": (28, 28, 32),
    "charcoal": (58, 58, 64),
    "grey": (120, 122, 126),
    "silver": (178, 180, 184),
    "white": (232, 232, 228),
    "cream": (226, 212, 178),
    "beige": (190, 166, 128),
    "brown": (104, 70, 44),
    "maroon": (110, 28, 38),
    "red": (198, 40, 42),
    "coral": (236, 120, 100),
    "pink": (232, 150, 186),
    "orange": (232, 128, 36),
    "yellow": (236, 204, 62),
    "olive": (106, 108, 50),
    "lime": (150, 200, 70),
    "green": (48, 132, 66),
    "forest": (28, 72, 46),
    "teal": (30, 130, 134),
    "sky": (122, 182, 226),
    "blue": (42, 86, 188),
    "navy": (30, 38, 86),
    "denim": (72, 92, 134),
    "purple": (106, 58, 142),
}


class Dice:
    """A random number generator; the same key gives the same numbers on every machine.

    All methods use only ``random()``, because Python guarantees that its numbers never change.
    """

    def __init__(self, *key: object) -> None:
        self._random = random.Random("/".join(map(str, key))).random

    def below(self, n: int) -> int:
        """Draw an integer in [0, n)."""
        return int(self._random() * n)

    def between(self, low: int, high: int) -> int:
        """Draw an integer from ``low`` to ``high`` (inclusive)."""
        return low + self.below(high - low + 1)

    def chance(self, per_cent: int) -> bool:
        """Draw a boolean that is True with a probability of ``per_cent`` per cent."""
        return self.below(100) < per_cent

    def one_of(self, items: Sequence[T]) -> T:
        """Draw an item, each with the same probability."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return the items in random order."""
        return sorted(items, key=lambda _: self._random())

    def colour(self, names: str) -> Colour:
        """Draw one of the named colours (separated by spaces) and vary its brightness slightly."""
        red, green, blue = (min(255, max(0, v + self.between(-14, 14))) for v in COLOURS[self.one_of(names.split())])
        return red, green, blue

    def shade(self, colour: Colour) -> Colour:
        """Make a colour slightly darker or slightly lighter, at random."""
        return darker(colour, self.between(6, 9 if max(colour) < 226 else 8))


def darker(colour: Colour, eighths: int = 6) -> Colour:
    """Multiply the brightness of a colour by ``eighths / 8``."""
    red, green, blue = (value * eighths // 8 for value in colour)
    return red, green, blue


class Pen:
    """Draw filled shapes in body coordinates: x is 0 at the body's axis; y is 0 at the top and grows downwards."""

    def __init__(self, canvas: np.ndarray, x: int, y: int, scale: int, flip: bool) -> None:
        self.canvas, self.x, self.y, self.scale, self.sign = canvas, x, y, scale, -1 if flip else 1
        self.ground = canvas.shape[0] - 8  # the point that stays in place when a body is scaled

    def _at(self, x: int, y: int) -> Point:
        rise = (y - self.ground) * self.scale // 256
        return self.x + self.sign * x * self.scale // 256, self.y + self.ground + rise

    def shape(self, colour: Colour, *points: Point) -> None:
        """Fill a convex polygon."""
        cv2.fillConvexPoly(self.canvas, np.array([self._at(x, y) for x, y in points], np.int32), colour)

    def box(self, colour: Colour, left: int, top: int, right: int, bottom: int) -> None:
        """Fill an upright rectangle."""
        self.shape(colour, (left, top), (right, top), (right, bottom), (left, bottom))

    def oval(self, colour: Colour, x: int, y: int, rx: int, ry: int, start: int = 0, end: int = 360) -> None:
        """Fill an ellipse, or its sector from ``start`` to ``end`` degrees, clockwise from 3 o'clock."""
        radii = max(1, rx * self.scale // 256), max(1, ry * self.scale // 256)
        if self.sign < 0:
            start, end = 180 - end, 180 - start
        cv2.ellipse(self.canvas, self._at(x, y), radii, 0, start, end, colour, -1)

    def print(self, pattern: str, first: Colour, second: Colour, *points: Point) -> None:
        """Fill a convex polygon with a pattern that is fixed to the body."""
        height, width = self.canvas.shape[:2]
        top, left = 16 - self.y, 16 + width // 2 - self.x
        where = PATTERNS[pattern][top : top + height, left : left + width, None]
        cloth = np.where(where, np.array(second, np.uint8), np.array(first, np.uint8))  # (H, W, 3)
        mask = np.zeros((height, width), np.uint8)
        cv2.fillConvexPoly(mask, np.array([self._at(x, y) for x, y in points], np.int32), 255)
        cv2.copyTo(cloth, mask, self.canvas)


_Y, _X = np.mgrid[:160, :176]
PATTERNS = {  # masks of the pixels that get the second colour
    "hoops": _Y % 12 < 5,
    "stripes": _X % 10 < 4,
    "checks": (_X // 6 + _Y // 6) % 2 == 0,
    "dots": (_X % 10 - 5) ** 2 + (_Y % 10 - 5) ** 2 < 8,
    "tartan": (_X % 14 < 3) | (_Y % 14 < 3),
    "diagonal": (_X + _Y) % 16 < 6,
}
