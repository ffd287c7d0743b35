"""Make one image of one person: choose pose, place and other people, and simulate camera and detector."""

import math
import random
from collections.abc import Sequence

import numpy as np

from lreid.utils.extras import Extra
from render.poses import draw_angles
from render.renderer import Renderer, Standing, Subject, on_plane
from render.scenes import Camera, Domain, obstacle
from render.sensors import develop

cv2 = Extra("cv2", "opencv")


def photograph(
    renderer: Renderer, domain: Domain, camera: Camera, subject: Subject, others: Sequence[Subject], dice: random.Random
) -> np.ndarray:
    """Render the part of a camera's image that a person detector would cut out.

    Args:
        renderer: renderer for the size of the images.
        domain, camera: the place and its camera.
        subject: the person in the image.
        others: people who may appear, too.
        dice: random number generator of this image.

    Returns:
        (H, W, 3) uint8, RGB.
    """
    at = (dice.uniform(-22, 22), dice.uniform(-12, max(12, 0.3 * camera.eye[2])))
    standing = _standing(domain, subject, at, camera.heading + dice.gauss(0, domain.spread), dice)
    people = [standing]
    if others and dice.random() < domain.passers:
        away = dice.choice((dice.uniform(-40, -12), dice.uniform(-40, -12), dice.uniform(5, 9)))
        beside = (at[0] + dice.choice((-1, 1)) * dice.uniform(3.5, 9), at[1] + away)
        people.append(_standing(domain, dice.choice(others), beside, dice.uniform(0, 2 * math.pi), dice))
    obstacles = (obstacle(dice, camera.eye, at),) if dice.random() < domain.hidden else ()
    window = _detection(on_plane(camera, at, standing.outline()), domain, dice)
    pixels = round(min(max(24.0, camera.pixels * dice.uniform(0.7, 1.3)), renderer.height))
    image = renderer.draw(camera, people, window, obstacles, pixels)
    size = max(8, round(renderer.width * pixels / renderer.height)), pixels
    image = _sensed(cv2.resize(image, size, interpolation=cv2.INTER_AREA), camera, dice)
    return cv2.resize(image, (renderer.width, renderer.height), interpolation=cv2.INTER_LINEAR)


def _standing(
    domain: Domain, subject: Subject, at: tuple[float, float], heading: float, dice: random.Random
) -> Standing:
    person = subject.person
    loaded = {2: "L", 3: "R"}.get(person.bag, "")
    angles = draw_angles(dice, walking=domain.walking, stride=person.stride, swing=person.swing, loaded=loaded)
    return Standing(subject, subject.skeleton.matrices(angles), at, heading)


def _detection(
    box: tuple[float, float, float, float], domain: Domain, dice: random.Random
) -> tuple[float, float, float, float]:
    """Return the window that a detector returns for a true box; both are left, right, bottom, top."""
    left, right, bottom, top = box
    high = top - bottom
    wide = max(right - left, 0.36 * high)
    wide += dice.uniform(0.2, 1.0) * max(0.0, 0.5 * high - wide)  # some detectors prefer a fixed aspect ratio
    x = (left + right) / 2 + high * dice.gauss(0, domain.jitter)
    y = (bottom + top) / 2 + high * dice.gauss(0, domain.jitter)
    if dice.random() < 0.04:  # the detector misses legs or head
        y += high * dice.choice((-0.12, 0.2))
    grow = 1 + 2 * domain.margin * dice.uniform(0.4, 1.4) + dice.gauss(0, domain.jitter)
    return (x - grow * wide / 2, x + grow * wide / 2, y - grow * high / 2, y + grow * high / 2)


def _sensed(image: np.ndarray, camera: Camera, dice: random.Random) -> np.ndarray:
    """Add the blur, light, noise and compression of a camera to an image that has the sensor's resolution."""
    blur = camera.blur * dice.uniform(0.6, 1.4)
    image = cv2.GaussianBlur(image, (0, 0), blur)
    if dice.random() < 0.15:  # motion blur: somebody walks fast, or it is dark
        length = dice.choice((3, 3, 5))
        image = cv2.blur(image, (length, 1))
    rng = np.random.Generator(np.random.PCG64(dice.getrandbits(64)))
    light = dice.gauss(1, 0.05)
    grain = rng.standard_normal((*image.shape[:2], 3), np.float32)
    grain = 0.7 * grain.mean(2, keepdims=True) * math.sqrt(3) + 0.3 * grain
    image = (image * light + camera.noise * grain).clip(0, 255).astype(np.uint8)
    image = develop(image, camera.sensor, dice)
    quality = max(25, min(95, camera.quality + dice.randint(-8, 8)))
    _, stream = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return np.asarray(cv2.imdecode(stream, cv2.IMREAD_COLOR))
