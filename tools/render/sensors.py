"""Simulate how a camera changes colours, tones, sharpness and resolution; each camera has random but fixed properties.

Real cameras differ in more than their white balance. For example, the image of one camera is saturated, with a green
cast and sharpened edges, and the image of another is grey, hazy and soft. A model learns to ignore differences between
cameras only if it trains on images of the same person from several cameras.
"""

import math
import random
from typing import NamedTuple

import numpy as np

from lreid.utils.extras import Extra

cv2 = Extra("cv2", "opencv")

LUMA = np.array([0.299, 0.587, 0.114])


class Sensor(NamedTuple):
    """Fixed properties of a camera's sensor and image processor.

    Args:
        matrix: (3, 3), mixes red, green and blue.
        curve: 256 times three bytes, the tones of each channel for its values from 0 to 255.
        sharpen: strength of the edge enhancement; negative values, down to -0.8, blur.
        colour_blur: standard deviation of the blur of the chrominance, pixels of the sensor.
        interlaced: whether odd and even rows are exposed at different times.
    """

    matrix: tuple[tuple[float, ...], ...]
    curve: bytes
    sharpen: float
    colour_blur: float
    interlaced: bool


def make_sensor(dice: random.Random) -> Sensor:
    """Sample a camera's sensor at random, from nearly neutral to as bad as an old surveillance camera's."""
    strength = dice.betavariate(1.3, 1.2)
    saturation = math.exp(dice.gauss(0.05, 0.5) * strength)
    mixing = saturation * np.eye(3) + (1 - saturation) * LUMA
    crosstalk = np.array([[dice.gauss(0, 0.08 * strength) for _ in range(3)] for _ in range(3)])
    crosstalk -= crosstalk.mean(1, keepdims=True)  # grey stays grey, because the tone curves produce colour casts
    return Sensor(
        tuple(map(tuple, (mixing @ (np.eye(3) + crosstalk)).tolist())),
        _tones(dice, strength).tobytes(),
        sharpen=max(-0.8, dice.gauss(0.4, 0.9) * strength),
        colour_blur=max(0.0, dice.gauss(0.3, 1.2)) * strength,
        interlaced=dice.random() < 0.06,
    )


def _tones(dice: random.Random, strength: float) -> np.ndarray:
    """Sample tone curves (256, 3) uint8: gamma, contrast, black and white level, each partly shared by all channels."""

    def spread(common: float, own: float) -> np.ndarray:
        shared = dice.gauss(0, common)
        return strength * np.array([shared + dice.gauss(0, own) for _ in range(3)])

    tones = np.linspace(0, 1, 256)[:, None] ** np.exp(spread(0.25, 0.1))  # (256, 3)
    contrast = dice.uniform(0.0, 1.2)  # rendered images are flatter than photographs
    tones = (1 - contrast) * tones + contrast * tones**2 * (3 - 2 * tones)
    black, white = spread(0.08, 0.035), 1 + spread(0.12, 0.06)
    if dice.random() < 0.25:  # haze, or light in the lens
        black = black + strength * dice.uniform(0, 0.3)
    return (255 * (black + (white - black) * tones)).clip(0, 255).astype(np.uint8)


def develop(image: np.ndarray, sensor: Sensor, dice: random.Random) -> np.ndarray:
    """Apply the distortions of a sensor to an image.

    Args:
        image: (H, W, 3) uint8, RGB, in the sensor's pixels.
        sensor: sensor of the camera.
        dice: random number generator of this image.

    Returns:
        (H, W, 3) uint8, RGB.
    """
    if sensor.interlaced:
        moved = dice.choice((-2, -1, -1, 1, 1, 2))
        image = image.copy()
        image[1::2] = np.roll(image[1::2], moved, axis=1)
    image = cv2.transform(image, np.array(sensor.matrix, np.float32))  # clipped to [0, 255]
    image = cv2.LUT(image, np.frombuffer(sensor.curve, np.uint8).reshape(1, 256, 3))
    if sensor.colour_blur > 0.3:
        image = cv2.cvtColor(image, cv2.COLOR_RGB2YCrCb)
        image[..., 1:] = cv2.GaussianBlur(image[..., 1:], (0, 0), sensor.colour_blur)
        image = cv2.cvtColor(image, cv2.COLOR_YCrCb2RGB)
    soft = cv2.GaussianBlur(image, (0, 0), 1.0)
    return np.asarray(cv2.addWeighted(image, 1 + sensor.sharpen, soft, -sensor.sharpen, 0))
