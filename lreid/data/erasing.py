"""Random erasing (Zhong et al., AAAI 2020) as steps of albumentations pipelines, in the forms that re-ID papers use.

``albumentations.Erasing`` (2.0.8) erases smaller rectangles than the papers' code, because it limits their area so that
every aspect ratio fits into the image. For images of 256 x 128 pixels and areas of 2 to 40 %, albumentations erases at
most 15 % of an image, and 8.5 % on average. The papers' code draws another rectangle if one does not fit, and erases
20.5 % on average.

In pipeline files, the steps have the names ``lreid.data.erasing.RandomErasing`` and
``lreid.data.erasing.GrowingErasing``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lreid.utils.extras import Extra

Transform: Any = Extra("albumentations", "albumentations").load().ImageOnlyTransform

ATTEMPTS = 100  # number of rectangles to draw until one fits into the image
NOTHING = (0, 0, 0, 0)
Rectangle = tuple[int, int, int, int]  # top, bottom, left and right, in pixels


class Erasing(Transform):
    """Erase a rectangle with a random aspect ratio and position; subclasses draw its size.

    Erasing must be the last step of a pipeline, because lreid normalises an image first, as the papers' code does.

    Args:
        ratio: range of the aspect ratio, height to width, above 0.
        fill: value of erased pixels in *normalised* units: one number, or three for red, green and blue.
        p: probability that an image gets a rectangle, in [0, 1].

    Raises:
        ValueError: a range is invalid, or ``fill`` has neither one nor three numbers.
    """

    def __init__(
        self, ratio: Sequence[float] = (0.3, 1 / 0.3), fill: float | Sequence[float] = 0.0, p: float = 1.0
    ) -> None:
        super().__init__(p=p)
        _check_range("ratio", ratio, float("inf"))
        if np.asarray(fill, np.float32).shape not in ((), (3,)):
            raise ValueError(f"fill is {fill}; it must be one number or three")
        self.ratio, self.fill = tuple(ratio), fill

    def box(self, height: int, width: int, least: float, most: float) -> Rectangle:
        """Draw a rectangle that covers a share between ``least`` and ``most`` of an image.

        Returns:
            The rectangle, or ``NOTHING`` if none of 100 drawn rectangles fits into the image.
        """
        random = self.py_random
        for _ in range(ATTEMPTS):
            area, ratio = random.uniform(least, most) * height * width, random.uniform(*self.ratio)
            h, w = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
            if h < height and w < width:
                top, left = random.randint(0, height - h), random.randint(0, width - w)
                return top, top + h, left, left + w
        return NOTHING

    def apply(self, img: np.ndarray, box: Rectangle, **params: Any) -> np.ndarray:
        """Return a copy of the image (H, W, 3) float32 in which ``fill`` replaces the pixels in ``box``."""
        top, bottom, left, right = box
        img = img.copy()
        img[top:bottom, left:right] = self.fill
        return img


class RandomErasing(Erasing):
    """Erase a random share of an image, drawn uniformly, as BoT's official code does (Luo et al., 2019).

    BoT's code writes the mean RGB values into the rectangle *after* the normalisation, so BoT's ``fill`` is ``(0.485,
    0.456, 0.406)``. In normalised units, the true mean colour would be 0.

    Args:
        scale: range of the share of the image to erase, in (0, 1).
        ratio, fill, p: as in :class:`Erasing`.

    Raises:
        ValueError: as in :class:`Erasing`.
    """

    def __init__(
        self,
        scale: Sequence[float] = (0.02, 0.4),
        ratio: Sequence[float] = (0.3, 1 / 0.3),
        fill: float | Sequence[float] = 0.0,
        p: float = 0.5,
    ) -> None:
        super().__init__(ratio=ratio, fill=fill, p=p)
        _check_range("scale", scale, 1.0)
        self.scale = tuple(scale)

    def get_params_dependent_on_data(self, params: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
        """Draw the rectangle ``box``; ``params["shape"]`` is the shape (H, W, …) of the image."""
        height, width, *_ = params["shape"]
        return {"box": self.box(height, width, *self.scale)}


class GrowingErasing(Erasing):
    """Erase more images and larger rectangles in later epochs of a task, as DMML's official code does.

    With ``q = min(progress, 0.8)``, a rectangle is erased in a share ``0.3 + 0.4 q`` of the images. The rectangle
    covers a share ``0.1 + 0.3 q`` of the image. Source: Chen et al., "Deep Meta Metric Learning", ICCV 2019.

    Args:
        ratio, fill: as in :class:`Erasing`.
        p: probability that the step is applied to an image at all, in [0, 1]. The share ``0.3 + 0.4 q`` refers only to
            images to which the step is applied.

    Raises:
        ValueError: as in :class:`Erasing`.
    """

    @property
    def targets_as_params(self) -> list[str]:
        """List the extra inputs of this step: ``progress``, the finished share of a task's epochs, in [0, 1]."""
        return ["progress"]

    def get_params_dependent_on_data(self, params: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
        """Draw the rectangle ``box`` for an image of shape ``params["shape"]`` at the progress ``data["progress"]``."""
        progress = min(data["progress"], 0.8)
        if self.py_random.random() >= 0.3 + 0.4 * progress:
            return {"box": NOTHING}
        height, width, *_ = params["shape"]
        share = 0.1 + 0.3 * progress
        return {"box": self.box(height, width, share, share)}


def _check_range(name: str, limits: Sequence[float], most: float) -> None:
    low, high = limits
    if not 0 < low <= high < most:
        raise ValueError(f"{name} is {[low, high]}; it must be two ascending numbers above 0 and below {most:g}")
