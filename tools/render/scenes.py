"""Make the places where people are seen: domains, their cameras, their light, and boxes that form streets and halls."""

import math
import random
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from lreid.utils.extras import Extra
from render.people import Colour, Fashion, make_fashion
from render.sensors import Sensor, make_sensor

cv2 = Extra("cv2", "opencv")

PLACES = ("street", "hall", "park", "square", "car park", "station")
TEXTURES = (
    *("plain", "asphalt", "slabs", "tiles", "grass", "brick", "plaster", "windows", "shop", "panels", "wood"),
    *("foliage", "bars"),
)
SIDE = 256  # side of a texture, pixels
_GROUND = {
    "street": ("asphalt", "slabs"),
    "hall": ("tiles", "plain", "slabs"),
    "park": ("grass", "asphalt"),
    "square": ("slabs", "tiles"),
    "car park": ("asphalt",),
    "station": ("slabs", "tiles", "asphalt"),
}
_WALLS = {
    "street": ("brick", "plaster", "windows", "shop"),
    "hall": ("plaster", "panels", "shop", "plain"),
    "park": ("foliage", "foliage", "wood", "bars"),
    "square": ("windows", "plaster", "shop", "brick"),
    "car park": ("panels", "brick", "plain"),
    "station": ("panels", "shop", "plain", "windows"),
}
_INDOORS = ("hall", "station")


class Domain(NamedTuple):
    """Properties that the cameras and people of one domain share; ranges are (minimum, maximum).

    Args:
        name: name of the domain.
        seed: text that determines everything about the domain.
        place: one of :data:`PLACES`.
        fashion: fashion of its people.
        height, distance: height of cameras, and distance to people, decimetres.
        pixels: height of a person on the sensor.
        sun: strength of the direct light.
        cast: standard deviation of the cameras' white balances, and that of the domain's own.
        noise: standard deviation of the noise, grey levels.
        quality: JPEG quality of the cameras.
        blur: standard deviation of the blur, pixels on the sensor.
        jitter: error of the detector, as a share of a person's height.
        margin: margin of the detector around people, as a share of their height.
        walking: share of images in which the person walks.
        hidden: share of images in which something hides a part of the person.
        passers: share of images with another person.
        spread: standard deviation of the directions in which people pass one camera, radians.
    """

    name: str
    seed: str
    place: str
    fashion: Fashion
    height: tuple[float, float]
    distance: tuple[float, float]
    pixels: tuple[float, float]
    sun: tuple[float, float]
    cast: tuple[float, float, float]
    noise: tuple[float, float]
    quality: tuple[int, int]
    blur: tuple[float, float]
    jitter: float
    margin: float
    walking: float
    hidden: float
    passers: float
    spread: float


class Box(NamedTuple):
    """A box with centre and half sizes in decimetres, rotation about y, and appearance."""

    middle: tuple[float, float, float]
    half: tuple[float, float, float]
    turn: float
    texture: int
    colour: Colour
    scale: float  # repetitions of the texture per decimetre


class Camera(NamedTuple):
    """A camera that looks along z at a region around the origin of the ground.

    Args:
        eye: position, decimetres.
        roll: roll angle, radians.
        boxes: the surroundings, including the ground.
        sun: direction to the light, of unit length.
        light, sky, ground: colours of the direct light, and of the light from above and from below.
        backdrop: colour behind everything.
        heading: direction in which most people walk, radians about y; 0 is towards the camera.
        gain: factors of red, green and blue.
        contrast: exponent of the tone curve.
        saturation: factor of the saturation; 1 leaves colours unchanged.
        pixels: height of a person on the sensor.
        noise, blur, quality: properties of the sensor, as in :class:`Domain`.
        sensor: colours, tones and sharpness.
    """

    eye: tuple[float, float, float]
    roll: float
    boxes: tuple[Box, ...]
    sun: tuple[float, float, float]
    light: Colour
    sky: Colour
    ground: Colour
    backdrop: Colour
    heading: float
    gain: Colour
    contrast: float
    saturation: float
    pixels: float
    noise: float
    blur: float
    quality: int
    sensor: Sensor


def make_domain(number: int, seed: int) -> Domain:
    """Make the domain with this number; successive numbers have different places."""
    text = f"{seed}/{number}"
    dice = random.Random(f"domain/{text}")
    place = PLACES[number % len(PLACES)]
    inside = place in _INDOORS
    low = dice.uniform(14, 40)
    near = dice.uniform(40, 90)
    pixels = dice.uniform(60, 200)
    noise = dice.uniform(0.5, 6)
    return Domain(
        name=f"{place.replace(' ', '-')}-{number}",
        seed=text,
        place=place,
        fashion=make_fashion(dice),
        height=(low, low + dice.uniform(4, 25)),
        distance=(near, near * dice.uniform(1.3, 2.5)),
        pixels=(pixels, pixels * dice.uniform(1.2, 2)),
        sun=(0.0, 0.5) if inside else dice.choice(((0.0, 0.3), (0.2, 0.9), (0.5, 1.3))),
        cast=(dice.uniform(0.01, 0.03), dice.gauss(0, 0.03), dice.gauss(0, 0.02)),
        noise=(0.3 * noise, noise),
        quality=(dice.randint(35, 70), 92),
        blur=(0.3, dice.uniform(0.5, 1.3)),
        jitter=dice.uniform(0.01, 0.04),
        margin=dice.uniform(0.01, 0.07),
        walking=dice.uniform(0.5, 0.95),
        hidden=dice.uniform(0.03, 0.15),
        passers=dice.uniform(0.05, 0.35),
        spread=dice.uniform(0.25, 1.0),
    )


def make_camera(domain: Domain, number: int) -> Camera:
    """Make the camera of a domain with this number, from 0."""
    dice = random.Random(f"camera/{domain.seed}/{number}")
    height, distance = dice.uniform(*domain.height), dice.uniform(*domain.distance)
    inside, high = domain.place in _INDOORS, dice.uniform(0.35, 1.35)
    azimuth, strength = dice.uniform(0, 2 * math.pi), dice.uniform(*domain.sun)
    warm = dice.gauss(domain.cast[1], domain.cast[0])
    tint = dice.gauss(domain.cast[2], 0.6 * domain.cast[0])
    day = dice.uniform(0.28, 0.8)
    sky = (day * 0.92, day, day * 1.12) if not inside else (day * 1.04, day, day * 0.92)
    shine = dice.uniform(0.85, 1.15)
    boxes = (*_surroundings(dice, domain.place, distance),)
    # Automatic exposure: upright surfaces have the same brightness, whatever the strength and direction of the light.
    facing = 0.2 + 0.25 * math.cos(high) * (1 + math.cos(azimuth))
    exposure = dice.uniform(0.7, 0.88) / (0.61 * day + facing * strength)
    saturation = dice.uniform(0.85, 1.1)
    return Camera(
        eye=(0.0, height, distance),
        roll=dice.gauss(0, 0.03),
        boxes=boxes,
        sun=(math.cos(high) * math.sin(azimuth), math.sin(high), math.cos(high) * math.cos(azimuth)),
        light=(strength * 1.05 * shine, strength, strength * 0.92 / shine),
        sky=sky,
        ground=(0.35 * day, 0.33 * day, 0.3 * day),
        backdrop=(day * 1.2, day * 1.25, day * 1.35) if not inside else (day * 0.5, day * 0.5, day * 0.5),
        heading=dice.choice((0.0, 0.0, math.pi, math.pi, 0.5 * math.pi, 1.5 * math.pi)) + dice.gauss(0, 0.3),
        gain=(exposure * (1 + warm), exposure * (1 + tint), exposure * (1 - warm)),
        contrast=dice.uniform(0.95, 1.15),
        saturation=saturation,
        pixels=dice.uniform(*domain.pixels),
        noise=dice.uniform(*domain.noise),
        blur=dice.uniform(*domain.blur),
        quality=dice.randint(*domain.quality),
        sensor=make_sensor(dice),
    )


def _surroundings(dice: random.Random, place: str, distance: float) -> list[Box]:
    def tone(low: float, high: float, colourful: float = 0.12) -> Colour:
        grey = dice.uniform(low, high)
        return tuple(max(0.01, grey * (1 + dice.gauss(0, colourful))) for _ in range(3))

    def look(kind: str) -> int:
        return TEXTURES.index(kind)

    ground = dice.choice(_GROUND[place])
    green = (dice.uniform(0.05, 0.12), dice.uniform(0.12, 0.25), dice.uniform(0.03, 0.07))
    floor = green if ground == "grass" else tone(0.05, 0.75, 0.1)
    boxes = [Box((0, -10, 0), (1500, 10, 1500), 0, look(ground), floor, dice.uniform(0.02, 0.06))]
    if dice.random() < 0.7:  # a path, a lane or a carpet
        turn, kind = dice.choice((0.0, math.pi / 2)) + dice.gauss(0, 0.2), dice.choice(("slabs", "asphalt", "tiles"))
        where = (dice.uniform(-20, 20), -0.95, dice.uniform(-20, 20))
        boxes.append(Box(where, (dice.uniform(8, 30), 1, 900), turn, look(kind), tone(0.04, 0.8, 0.2), 0.05))
    for _ in range(dice.randint(0, 4)):  # painted lines
        where = (dice.uniform(-40, 40), -0.9, dice.uniform(-60, 30))
        boxes.append(Box(where, (0.6, 1, 300), dice.choice((0.0, 1.57, 0.5)), 0, tone(0.5, 0.9, 0.05), 0.05))
    back = -dice.uniform(15, 90)
    for side in (0.0, *((-1.0, 1.0) if dice.random() < 0.6 else ())):  # walls behind the people and at the sides
        x, edge = side * dice.uniform(30, 60), 0.0
        while edge < 250:
            width, kind = dice.uniform(15, 70), dice.choice(_WALLS[place])
            tall = dice.uniform(18, 90) if place != "park" else dice.uniform(8, 40)
            leaves = kind == "foliage"
            colour = tuple(each * dice.uniform(0.5, 1.6) for each in green) if leaves else tone(0.03, 0.85, 0.25)
            for sign in (-1, 1):
                along = sign * (edge + width / 2)
                middle = (x, tall / 2, back + along) if side else (along, tall / 2, back - 6)
                half = (6, tall / 2, width / 2) if side else (width / 2, tall / 2, 6)
                boxes.append(Box(middle, half, 0, look(kind), colour, dice.uniform(0.02, 0.05)))
            edge += width
    for _ in range(dice.randint(4, 14)):  # objects at random positions
        x, z = dice.uniform(-60, 60), dice.uniform(back, 0.5 * distance)
        if abs(x) < 26 and z > -12:  # people walk here, and must not walk through objects
            x += math.copysign(26, x)
        boxes += _thing(dice, x, z, green, tone)
    return boxes


def _thing(dice: random.Random, x: float, z: float, green: Colour, tone: Callable[..., Colour]) -> list[Box]:
    kind, turn = dice.choice(("post", "tree", "car", "bench", "bin", "hedge", "sign")), dice.uniform(0, math.pi)
    plain, leaves = 0, TEXTURES.index("foliage")
    if kind == "post":
        return [Box((x, 25, z), (0.7, 25, 0.7), turn, plain, tone(0.05, 0.5, 0.1), 0.05)]
    if kind == "tree":
        wide = dice.uniform(6, 16)
        trunk = Box((x, 14, z), (1.2, 14, 1.2), turn, TEXTURES.index("wood"), (0.12, 0.08, 0.05), 0.05)
        return [trunk, Box((x, 28 + wide, z), (wide, wide, wide), turn, leaves, green, 0.05)]
    if kind == "car":
        colour, glass = tone(0.03, 0.7, 0.5), (0.03, 0.04, 0.05)
        wheels = Box((x, 3, z), (8.1, 2.9, 17), turn, plain, (0.02, 0.02, 0.02), 0.05)
        body = Box((x, 6.5, z), (8.5, 3.5, 21), turn, plain, colour, 0.05)
        roof = Box((x, 14.4, z), (6.9, 0.4, 9.5), turn, plain, colour, 0.05)
        return [wheels, body, roof, Box((x, 12, z), (7, 2.2, 10.5), turn, plain, glass, 0.05)]
    if kind == "bench":
        seat = Box((x, 4.5, z), (8, 0.4, 2.2), turn, TEXTURES.index("wood"), tone(0.1, 0.4), 0.05)
        return [seat, Box((x, 2, z), (7, 2, 0.5), turn, plain, tone(0.05, 0.2, 0.1), 0.05)]
    if kind == "bin":
        return [Box((x, 4.5, z), (2.5, 4.5, 2.5), turn, plain, tone(0.03, 0.5, 0.5), 0.05)]
    if kind == "hedge":
        return [Box((x, 5, z), (dice.uniform(6, 25), dice.uniform(3, 6), 3), turn, leaves, green, 0.06)]
    board = Box((x, 22, z), (4, 5, 0.3), turn, TEXTURES.index("shop"), tone(0.1, 0.8, 0.5), 0.1)
    return [board, Box((x, 9, z), (0.4, 9, 0.4), turn, plain, tone(0.2, 0.5, 0.1), 0.05)]


def obstacle(dice: random.Random, eye: tuple[float, float, float], at: tuple[float, float]) -> Box:
    """Make an obstacle between a camera and a person at (x, z): a post, a low object, a rail or a bush."""
    near = dice.uniform(0.05, 0.16)
    aside = dice.choice((-1, 1)) * dice.uniform(0.5, 4)
    x, z = at[0] + near * (eye[0] - at[0]) + aside, at[1] + near * (eye[2] - at[1])
    grey = dice.uniform(0.03, 0.5)
    colour = tuple(grey * dice.uniform(0.6, 1.4) for _ in range(3))
    kind = dice.choice(("post", "low", "low", "rail", "bush"))
    low = dice.uniform(1.2, 2.8)
    shapes = {
        "post": ((x, 20.0, z), (dice.uniform(0.5, 1.6), 20.0, 0.6), 0),
        "low": ((x, low, z), (dice.uniform(3, 9), low, 2.0), TEXTURES.index(dice.choice(("plain", "wood", "shop")))),
        "rail": ((x, dice.uniform(8, 11), z), (40.0, 0.4, 0.3), 0),
        "bush": ((x, low, z), (dice.uniform(3, 8), low, 3.0), TEXTURES.index("foliage")),
    }
    middle, half, texture = shapes[kind]
    return Box(middle, half, dice.gauss(0, 0.3) if kind != "rail" else 0, texture, colour, 0.06)


@cache
def textures() -> np.ndarray:
    """Create the surfaces in :data:`TEXTURES`, (N, 256, 256, 4) uint8: a colour of mean brightness 128, and opacity."""
    made = [_surface(name, np.random.Generator(np.random.PCG64(i))) for i, name in enumerate(TEXTURES)]
    return np.stack(made)


def _surface(name: str, rng: np.random.Generator) -> np.ndarray:
    image = np.ones((SIDE, SIDE, 3), np.float32) * (1 + 0.22 * _cloud(rng, 4) + 0.1 * _cloud(rng, 32))[..., None]
    opacity = np.ones((SIDE, SIDE), np.float32)

    def cells(high: int, wide: int, gap: int, joint: float, spread: float, shifted: bool = False) -> None:
        for row, y in enumerate(range(0, SIDE, high)):
            for x in range(-(wide // 2) * (row % 2 * shifted), SIDE, wide):
                part = image[y + gap : y + high, max(x + gap, 0) : max(x + wide, 0)]
                part *= 1 + rng.normal(0, spread)
            image[y : y + gap] *= joint
        for x in range(0, SIDE, wide):
            image[:, x : x + gap] *= 1 if shifted else joint

    if name in ("asphalt", "grass"):
        image *= 1 + rng.normal(0, 0.18, (SIDE, SIDE, 1)).astype(np.float32)
    elif name == "slabs":
        cells(64, 64, 3, 0.7, 0.12)
    elif name == "tiles":
        cells(32, 32, 2, 0.6, 0.08)
    elif name == "brick":
        cells(16, 32, 2, 1.35, 0.16, shifted=True)
    elif name == "panels":
        cells(256, 64, 4, 0.5, 0.08)
    elif name == "bars":
        image[:, (np.arange(SIDE) // 8) % 2 == 0] *= 0.35
    elif name == "wood":
        cells(256, 32, 2, 0.5, 0.15)
        image *= 1 + 0.2 * np.sin(np.arange(SIDE) / 3 + 3 * _cloud(rng, 6))[..., None]
    elif name == "windows":
        for y in range(12, SIDE, 64):
            for x in range(10, SIDE, 64):
                glass = rng.uniform(0.15, 0.9) * np.array([0.85, 0.95, 1.1])
                image[y - 4 : y + 46, x - 4 : x + 44] *= 1.25
                image[y : y + 42, x : x + 40] = glass * (1 + 0.2 * rng.normal())
                image[y : y + 42, x + 19 : x + 21] = 1.1
    elif name == "shop":
        for _ in range(30):
            y, x = rng.integers(0, SIDE, 2)
            high, wide = rng.integers(10, 70, 2)
            image[y : y + high, x : x + wide] = rng.uniform(0.1, 1.8, 3)
            for line in range(int(y) + 4, int(y + high) - 4, 8):
                image[line : line + 2, x + 3 : x + wide - 3] *= 0.4
    elif name == "foliage":
        leaves = _cloud(rng, 40) + 0.6 * _cloud(rng, 90)
        image *= (1 + 0.7 * leaves)[..., None]
        opacity = (_cloud(rng, 24) + 0.5 * leaves > -0.9).astype(np.float32)
    return np.dstack([(128 * image).clip(0, 255), 255 * opacity]).astype(np.uint8)


def _cloud(rng: np.random.Generator, grains: int) -> np.ndarray:
    """Create smooth periodic noise (SIDE, SIDE) float32 with a standard deviation of about 1."""
    coarse = rng.normal(0, 1, (grains, grains)).astype(np.float32)
    coarse = np.pad(coarse, 2, mode="wrap")
    step = SIDE / grains
    places = (np.arange(SIDE, dtype=np.float32) + 0.5) / step + 1.5
    x, y = np.meshgrid(places, places)
    return np.asarray(cv2.remap(coarse, x, y, cv2.INTER_CUBIC))
