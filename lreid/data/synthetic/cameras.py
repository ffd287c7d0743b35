"""Render the view of a synthetic camera: background, occlusion, exposure and noise."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from lreid.data.synthetic.domains import DOMAINS, Domain
from lreid.data.synthetic.drawing import Dice
from lreid.utils.extras import Extra

cv2 = Extra("cv2", "opencv")


class Camera(NamedTuple):
    """A camera of a domain: its backgrounds, the sides of bodies that it shows, and its image quality."""

    backgrounds: tuple[np.ndarray, ...]  # (192, 192, 3) uint8 each, larger than any canvas
    views: tuple[str, ...]  # front, side and back, each as often as its weight
    scale: int  # size of bodies, in 256ths
    light: int  # per cent
    cast: tuple[int, ...]  # colour cast: brightness of the three channels, per cent
    contrast: int  # by how much the mid-tones are lifted, per cent
    blur: int  # width of the kernel, odd
    noise: int  # standard deviation, grey levels


@lru_cache(maxsize=256)
def camera_of(name: str, number: int) -> Camera:
    """Create a camera, all of whose properties depend only on the domain's name and the camera's number."""
    domain, dice = DOMAINS[name], Dice(name, "camera", number)
    favourite = dice.below(3)  # the side (front, side or back) whose weight is three times as large for this camera
    weights = [weight * (3 if i == favourite else 1) for i, weight in enumerate(domain.views)]
    return Camera(
        backgrounds=tuple(_background(domain, dice) for _ in range(domain.scenes)),
        views=("front",) * weights[0] + ("side",) * weights[1] + ("back",) * weights[2],
        scale=dice.between(200, 244),
        light=dice.between(*domain.light),
        cast=tuple(tint + dice.between(-domain.cast, domain.cast) for tint in domain.tint),
        contrast=dice.between(-30, 30),
        blur=2 * dice.between(0, domain.blur) + 1,
        noise=dice.between(0, domain.noise),
    )


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
