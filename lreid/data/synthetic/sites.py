"""Sites of the synthetic people and vehicles (domains): random choices, colours, cameras, and what a camera shows."""

import random
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from lreid.errors import InputError, nearest_name
from lreid.utils.extras import Extra
from lreid.utils.reading import parse_yaml

cv2 = Extra("cv2", "opencv")

SEASON = 30_000  # number of identities that appear during a season
CAMERAS = 6  # number of cameras of every domain, numbered from 1
IN_FASHION = 6  # number of colours that are in fashion at any time
Colour = tuple[int, int, int]
T = TypeVar("T")

_FILE = parse_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
COLOURS: dict[str, Colour] = {name: tuple(values) for name, values in _FILE["colours"].items()}


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


class Domain(NamedTuple):
    """A site: the colours of its people or vehicles, its cameras and its background.

    Colours are names from :data:`COLOURS`, separated by spaces.
    """

    fashion: str  # colours of clothes or paint, in the order in which they come into fashion during the season
    wall: str  # background colours above the horizon
    ground: str  # background colours below the horizon
    texture: str  # texture of the background: bricks, panes, foliage or plain
    tint: Sequence[int] = (100, 100, 100)  # brightness of the colour channels, per cent
    light: Sequence[int] = (85, 115)  # range of the brightness of the cameras, per cent
    dusk: int = 40  # by how much the light falls (or rises, if negative) over the season, per cent
    views: Sequence[int] = (3, 2, 3)  # weights of front, side and back
    cast: int = 6  # largest deviation of a camera's colour channels from the tint, per cent
    blur: int = 1  # largest blur of a camera, pixels
    noise: int = 5  # largest standard deviation of a camera's noise, grey levels
    clutter: int = 10  # probability that an object occludes the body, per cent
    scenes: int = 8  # number of backgrounds per camera
    kind: str = "person"


DOMAINS = {name: Domain(**values) for name, values in _FILE["domains"].items()}


def domain_named(name: str) -> Domain:
    """Return the domain of the given name.

    Raises:
        InputError: no domain has this name; the message gives the most similar name.
    """
    if name not in DOMAINS:
        nearest = nearest_name(name, DOMAINS)
        raise InputError(f"unknown synthetic domain {name!r}; the nearest name is {nearest}")
    return DOMAINS[name]


class Camera:
    """A camera of a domain: its backgrounds, the sides of bodies that it shows, and its image quality.

    All properties depend only on the domain's name and the camera's number.
    """

    def __init__(self, name: str, number: int) -> None:
        domain, dice = DOMAINS[name], Dice(name, "camera", number)
        favourite = dice.below(3)  # the side (front, side or back) whose weight is three times as large for this camera
        weights = [weight * (3 if i == favourite else 1) for i, weight in enumerate(domain.views)]
        self.backgrounds = [_background(domain, dice) for _ in range(domain.scenes)]  # (192, 192, 3), above any canvas
        self.views = ("front",) * weights[0] + ("side",) * weights[1] + ("back",) * weights[2]
        self.scale = dice.between(200, 244)  # size of bodies, in 256ths
        self.light = dice.between(*domain.light)  # per cent
        self.cast = [tint + dice.between(-domain.cast, domain.cast) for tint in domain.tint]  # per cent per channel
        self.contrast = dice.between(-30, 30)  # by how much the mid-tones are lifted, per cent
        self.blur = 2 * dice.between(0, domain.blur) + 1  # width of the kernel
        self.noise = dice.between(0, domain.noise)  # standard deviation, grey levels


camera_of = lru_cache(maxsize=256)(Camera)


def _background(domain: Domain, dice: Dice) -> np.ndarray:
    size, horizon = 192, dice.between(70, 130)
    image = np.empty((size, size, 3), np.uint8)
    image[:horizon] = dice.colour(domain.wall)
    image[horizon:] = dice.colour(domain.ground)
    tone = dice.colour(domain.wall)
    if domain.texture == "bricks":
        for row, y in enumerate(range(0, horizon, 10)):
            for x in range(-10 * (row % 2), size, 20):
                cv2.rectangle(image, (x, y), (x + 18, min(y + 8, horizon - 1)), dice.shade(tone), -1)
    elif domain.texture == "panes":
        for x in range(0, size, dice.between(22, 40)):
            cv2.rectangle(image, (x, 4), (x + 14, horizon - 8), dice.shade(tone), -1)
    elif domain.texture == "foliage":
        for _ in range(60):
            centre, radius = (dice.below(size), dice.below(horizon)), dice.between(6, 16)
            cv2.circle(image, centre, radius, dice.shade(tone), -1)
    for _ in range(6):  # objects on the horizon, and lines on the ground
        x, width, height = dice.below(size), dice.between(4, 26), dice.between(6, 60)
        cv2.rectangle(image, (x, horizon - height), (x + width, horizon + 4), dice.colour(domain.wall), -1)
        y = dice.between(horizon, size)
        end, colour = (size, y + dice.between(-30, 30)), dice.colour(domain.ground)
        cv2.line(image, (0, y), end, colour, dice.between(1, 5))
    return image


def crop(background: np.ndarray, shape: tuple[int, int], dice: Dice) -> np.ndarray:
    """Cut a random part of the size of ``shape`` out of a background."""
    height, width = shape
    top, left = 40 + dice.between(-12, 12), dice.between(0, background.shape[1] - width)
    return background[top : top + height, left : left + width].copy()


def obstruct(canvas: np.ndarray, dice: Dice) -> None:
    """Draw an object that occludes the body: a post, an object on the ground, or a passer-by at the edge."""
    height, width = canvas.shape[:2]
    colour, kind = dice.colour("black grey brown forest navy silver maroon beige"), dice.below(3)
    if kind == 0:
        x = dice.between(width // 5, width * 4 // 5)
        cv2.rectangle(canvas, (x, 0), (x + dice.between(4, 9), height), colour, -1)
    elif kind == 1:
        top = dice.between(height * 5 // 8, height * 7 // 8)
        cv2.rectangle(canvas, (dice.between(-10, width // 2), top), (width, height), colour, -1)
    else:
        axes = width // 5, height // 2
        cv2.ellipse(canvas, (dice.one_of((0, width - 1)), height * 3 // 5), axes, 0, 0, 360, colour, -1)


# RandomState, not default_rng, because NumPy guarantees that its numbers never change. A sum of two uniform numbers in
# [-64, 64] has a standard deviation of 53.
_NOISE = np.random.RandomState(0).randint(-64, 65, (2, 256, 256, 3)).sum(0).astype(np.int16)


def expose(canvas: np.ndarray, eye: Camera, dusk: int, dice: Dice) -> np.ndarray:
    """Simulate a camera's sensor: blur, half resolution, light, colour cast and noise."""
    height, width = canvas.shape[0] // 2, canvas.shape[1] // 2
    canvas = cv2.GaussianBlur(canvas, (eye.blur, eye.blur), 0)
    image = cv2.resize(canvas, (width, height), interpolation=cv2.INTER_AREA)
    light = (100 - dusk) * (eye.light + dice.between(-8, 8)) // 100
    level = np.arange(256)[:, None]
    level = level + level * (255 - level) * eye.contrast // 25_500  # changes the mid-tones only, like a gamma curve
    table = np.clip(level * light * np.array(eye.cast) // 10_000, 0, 255).astype(np.uint8)  # (256, 3)
    image = cv2.LUT(image, table[None])
    y, x = dice.below(256 - height), dice.below(256 - width)
    grain = _NOISE[y : y + height, x : x + width] * eye.noise // 53
    return np.clip(image + grain, 0, 255).astype(np.uint8)
