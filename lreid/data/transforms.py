"""Training augmentation of whole batches."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from lreid.errors import InputError

ATTEMPTS = 100  # a tall rectangle may not fit into the image; then another ratio is tried


def erased_box(height: int, width: int, *, progress: float, rng: random.Random) -> tuple[slice, slice] | None:
    """Draws the rectangle that is erased from an image: more and more often, and larger, as a task goes on.

    The schedule is that of DMML's official code: with ``p = min(progress, 0.8)`` an image is hit with probability
    ``0.3 + 0.4 p``, and the rectangle covers ``0.1 + 0.3 p`` of it, with an aspect ratio (height to width)
    uniform in [0.3, 1/0.3]. Albumentations' own ``Erasing`` caps or fails on such areas (2.0.8).

    Args:
        height, width: of the image, in pixels.
        progress: share of the task's epochs that is done, in [0, 1].
        rng: what is drawn from.

    Returns:
        Rows and columns of the rectangle; None where the image is left whole.
    """
    progress = min(progress, 0.8)
    if rng.random() >= 0.3 + 0.4 * progress:
        return None
    area = (0.1 + 0.3 * progress) * height * width
    for _ in range(ATTEMPTS):
        aspect = rng.uniform(0.3, 1 / 0.3)
        h, w = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
        if h < height and w < width:
            top, left = rng.randint(0, height - h), rng.randint(0, width - w)
            return slice(top, top + h), slice(left, left + w)
    return None


class Augment:
    """Mirrors, normalises and erases images of the input size, after a pipeline of albumentations if one is given.

    An image goes through each step while it is in the processor's cache, straight into its place in the batch: about
    six times as fast as the same steps in albumentations, and equal to the last bit.

    Args:
        flip: probability of a horizontal flip.
        erasing: whether rectangles are set to 0, the mean (:func:`erased_box`).
        mean, std: of RGB values in [0, 1], three each.
        pipeline: a file that ``albumentations.save`` wrote, YAML or JSON; empty for none. It is given uint8 images and
            must give uint8 images of the same size.

    Raises:
        InputError: the file is missing or holds no pipeline.
    """

    def __init__(
        self, *, flip: float, erasing: bool, mean: Sequence[float], std: Sequence[float],
        pipeline: str | Path = "",
    ) -> None:  # fmt: skip
        self.flip, self.erasing, self.path = flip, erasing, pipeline
        self.mean = 255 * np.array(mean, np.float32)  # (3,)
        self.scale = np.reciprocal(255 * np.array(std, np.float32))  # (3,)
        self.pipeline = load_pipeline(pipeline) if pipeline else None

    def __call__(self, images: Sequence[np.ndarray], *, seed: int, progress: float) -> np.ndarray:
        """A batch for training.

        Args:
            images: n uint8 RGB images (H, W, 3), at least one.
            seed: decides the whole batch.
            progress: share of the task's epochs that is done, in [0, 1].

        Returns:
            (n, 3, H, W) float32.

        Raises:
            InputError: the pipeline gives something else than uint8 images of the same size.
        """
        shape = height, width, _ = images[0].shape
        # Both from the same seed, as albumentations seeds its transforms: so the published figures were made.
        flips, boxes = random.Random(seed), random.Random(seed)
        if self.pipeline is not None:
            self.pipeline.set_random_state(np.random.default_rng(seed), random.Random(seed))
        mean, scale = np.tile(self.mean, (height, width, 1)), np.tile(self.scale, (height, width, 1))
        batch = np.empty((len(images), *shape), np.float32)  # (n, H, W, 3)
        for image, row in zip(images, batch, strict=True):
            if self.pipeline is not None:
                image = self._piped(image)
            row[:] = cv2.flip(image, 1) if flips.random() < self.flip else image
            row -= mean
            row *= scale
            box = erased_box(height, width, progress=progress, rng=boxes) if self.erasing else None
            if box is not None:
                row[box] = 0
        return batch.transpose(0, 3, 1, 2)  # a view: channels last in memory, which convolutions like

    def _piped(self, image: np.ndarray) -> np.ndarray:
        changed = self.pipeline(image=image.copy())["image"]  # a copy, as the images of a cache are read-only
        if changed.dtype != np.uint8 or changed.shape != image.shape:
            raise InputError(
                f"{self.path}: INPUT.PIPELINE makes {changed.dtype} {tuple(changed.shape)} of an image uint8 "
                f"{image.shape}; it must keep both: leave out Normalize and ToTensorV2, and resize after cropping"
            )
        return changed


def load_pipeline(path: str | Path) -> Any:
    """Reads what ``albumentations.save`` wrote, YAML or JSON.

    Raises:
        InputError: the file is missing, no pipeline, or holds an unknown transform or argument.
    """
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # no look at the network on import
    import albumentations  # here, since it is slow to load and most runs do without

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # an argument that it does not know
            return albumentations.load(path, data_format="yaml")  # JSON is YAML
    except OSError as error:
        raise InputError(f"{path}: INPUT.PIPELINE cannot be read ({error.strerror})") from None
    except Exception as error:  # albumentations looks nothing over before it builds
        reason = " ".join(str(error).split())
        raise InputError(
            f"{path}: INPUT.PIPELINE is no pipeline of albumentations ({type(error).__name__}: {reason}); "
            "write it with albumentations.save(pipeline, path, data_format='yaml')"
        ) from None
