"""A pen that draws shapes, and synthetic people: clothes, build, hair, hats and bags."""

import numpy as np

from lreid.data.synthetic.sites import Colour, Dice, darker
from lreid.utils.extras import Extra

cv2 = Extra("cv2", "opencv")

Point = tuple[int, int]

SKIN: tuple[Colour, ...] = ((236, 196, 168), (214, 166, 130), (170, 118, 82), (112, 74, 50))


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


class Person:
    """The constant appearance of a random person with clothes in the colours of a fashion.

    Lengths are in 128ths of the frame's height.

    Args:
        dice: random number generator.
        fashion: names of the colours, separated by spaces.
        when: time at which the person appears, in per cent of the season. Light clothes become more likely towards the
            end of the season.

    Attributes:
        canvas: height and width of the canvas, which are twice those of the image.
    """

    canvas = (128, 64)

    def __init__(self, dice: Dice, fashion: str, when: int) -> None:
        warm = dice.chance(when)
        self.skin = dice.one_of(SKIN)
        self.hair = dice.colour("black black brown brown beige charcoal silver maroon")
        self.upper = dice.colour(fashion)
        self.second = dice.colour(fashion)  # colour of the pattern and the logo
        self.inner = dice.colour(fashion)  # colour of the shirt under an open jacket
        self.lower = dice.colour("black navy denim denim charcoal grey " + fashion)
        self.shoes = dice.colour("black black white brown red grey")
        self.bag_colour = dice.colour("black brown navy red olive grey beige teal")
        self.hat_colour = dice.colour(fashion)
        self.shoulder = dice.between(11, 16)  # half the width of the body
        self.head = dice.between(4, 9)  # y of the top of the head
        self.hem = dice.between(62, 68) if warm else dice.one_of((66, 68, 70, 82, 90))  # y of the upper garment's end
        self.pattern = dice.one_of((*PATTERNS, "plain", "plain", "plain", "plain"))
        self.short_sleeves = warm and dice.chance(75)
        self.legs = dice.one_of(("trousers", "shorts", "skirt") if warm else ("trousers",) * 3 + ("skirt",))
        self.haircut = dice.one_of(("short", "short", "long", "long", "bald"))
        self.hat = dice.one_of(("none", "none", "none", "cap" if warm else "beanie"))
        self.bag = dice.one_of(("none", "none", "backpack", "satchel", "handbag"))
        self.front = dice.one_of(("plain", "logo") if warm else ("plain", "open", "open", "logo"))

    def draw(self, pen: Pen, view: str, dice: Dice) -> None:
        """Draw the person from the front, the side or the back, in a random pose."""
        side = view == "side"
        width = self.shoulder * 5 // 8 if side else self.shoulder
        stride = dice.between(2, 9) if side else dice.between(-2, 2)
        if self.bag == "backpack" and side:
            pen.oval(self.bag_colour, -width - 3, 46, 8, 14)
        self._legs(pen, width, stride, side)
        self._torso(pen, width, view)
        self._arms(pen, width, side, swing=dice.between(-4, 6))
        self._bag(pen, width, view)
        self._head(pen, view)

    def _legs(self, pen: Pen, width: int, stride: int, side: bool) -> None:
        hem = 86 if self.legs == "shorts" else 116
        for sign, light in ((-1, 6), (1, 8)):  # the far leg is darker
            hip = sign * (2 if side else width // 2)
            foot = hip + sign * stride
            knee = hip + (foot - hip) * (hem - 64) // 52
            if self.legs != "trousers":
                skin = darker(self.skin, light)
                pen.shape(skin, (hip - 3, 70), (hip + 3, 70), (foot + 2, 117), (foot - 2, 117))
            pen.oval(darker(self.shoes, light), foot + 3 * side, 119, 7 if side else 5, 4)
            if self.legs != "skirt":
                cloth = darker(self.lower, light)
                pen.shape(cloth, (hip - 5, 62), (hip + 5, 62), (knee + 4, hem), (knee - 4, hem))
        if self.legs == "skirt":
            pen.shape(self.lower, (-width + 2, 62), (width - 2, 62), (width + 2, 90), (-width - 2, 90))

    def _torso(self, pen: Pen, width: int, view: str) -> None:
        waist = width * 7 // 8
        outline = ((-width, 32), (-4, 27), (4, 27), (width, 32), (waist, self.hem), (-waist, self.hem))
        if self.pattern == "plain":
            pen.shape(self.upper, *outline)
        else:
            pen.print(self.pattern, self.upper, self.second, *outline)
        if view == "front" and self.front == "open":
            pen.shape(self.inner, (-3, 27), (3, 27), (4, self.hem), (-4, self.hem))
        elif view == "front" and self.front == "logo":
            pen.box(self.second, -5, 38, 5, 47)

    def _arms(self, pen: Pen, width: int, side: bool, swing: int) -> None:
        sleeve = darker(self.upper)
        forearm = self.skin if self.short_sleeves else sleeve
        for sign in (1,) if side else (-1, 1):
            top = 0 if side else sign * width
            elbow, hand = top + sign * 2 + swing // 2, top + sign * 2 + swing
            pen.shape(forearm, (elbow - 2, 46), (elbow + 3, 46), (hand + 2, 70), (hand - 2, 70))
            pen.shape(sleeve, (top - 3, 32), (top + 3, 32), (elbow + 3, 49), (elbow - 3, 49))
            pen.oval(self.skin, hand, 71, 3, 3)

    def _bag(self, pen: Pen, width: int, view: str) -> None:
        if self.bag == "backpack" and view == "back":
            pen.box(self.bag_colour, -8, 33, 8, 58)
            pen.box(darker(self.bag_colour), -6, 46, 6, 55)
        elif self.bag == "backpack" and view == "front":  # only the straps are visible
            for left in (-width + 3, width - 6):
                pen.box(self.bag_colour, left, 30, left + 3, 52)
        elif self.bag == "satchel":
            pen.shape(self.bag_colour, (-width + 2, 30), (-width + 5, 30), (width, 62), (width - 3, 62))
            pen.box(self.bag_colour, width - 7, 58, width + 5, 72)
        elif self.bag == "handbag":
            pen.box(self.bag_colour, width - 1, 72, width + 9, 86)

    def _head(self, pen: Pen, view: str) -> None:
        side, y = view == "side", self.head + 9
        pen.box(self.skin, -3, y + 4, 3, 30)
        if self.haircut == "long":
            pen.box(self.hair, -8 if side else -7, y, 1 if side else 7, y + 18)
        pen.oval(self.skin, 0, y, 7, 9)
        if self.haircut != "bald":
            start, end = {"front": (195, 345), "side": (120, 300), "back": (0, 360)}[view]
            pen.oval(self.hair, -1 if side else 0, y - 1, 8 if side else 7, 9, start, end)
        if self.hat != "none":
            pen.oval(self.hat_colour, 0, y - 3, 8, 8, 180, 360)
        if self.hat == "cap" and view != "back":
            pen.box(self.hat_colour, -2 if side else -6, y - 4, 12 if side else 6, y - 2)
