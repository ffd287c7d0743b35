"""Training augmentation of whole batches."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lreid.devices import to_device
from lreid.errors import InputError, refuse_out_of_memory
from lreid.extras import Extra
from lreid.reading import parse_yaml, read_text

cv2 = Extra("cv2", "opencv")

ATTEMPTS = 100  # a tall rectangle may not fit into the image; then another ratio is tried


class Erasing(NamedTuple):
    """How often a rectangle of an image is erased, and what share of it: the same share, or one uniform in a range."""

    probability: float
    least: float
    most: float

    @classmethod
    def growing(cls, progress: float) -> Erasing:
        """More and more often, and larger, as a task goes on: the schedule of DMML's official code.

        Args:
            progress: share of the task's epochs that is done, in [0, 1]. With ``p = min(progress, 0.8)`` an image is
                hit with probability ``0.3 + 0.4 p``, and the rectangle covers ``0.1 + 0.3 p`` of it.
        """
        progress = min(progress, 0.8)
        area = 0.1 + 0.3 * progress
        return cls(0.3 + 0.4 * progress, area, area)

    @classmethod
    def steady(cls, probability: float) -> Erasing:
        """With one probability from 2 to 40 % of an image, as in BoT's official code (Zhong et al., AAAI 2020)."""
        return cls(probability, 0.02, 0.4)


def erased_box(height: int, width: int, erasing: Erasing, rng: random.Random) -> tuple[slice, slice] | None:
    """Draws the rectangle that is erased from an image, of an aspect ratio (height to width) uniform in [0.3, 1/0.3].

    Albumentations' own ``Erasing`` caps or fails on such areas (2.0.8).

    Args:
        height, width: of the image, in pixels.
        erasing: how often, and how much.
        rng: what is drawn from.

    Returns:
        Rows and columns of the rectangle; None where the image is left whole.
    """
    if rng.random() >= erasing.probability:
        return None
    share = erasing.least
    for _ in range(ATTEMPTS):
        if erasing.most > erasing.least:
            share = rng.uniform(erasing.least, erasing.most)
        area = share * height * width
        aspect = rng.uniform(0.3, 1 / 0.3)
        h, w = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
        if h < height and w < width:
            top, left = rng.randint(0, height - h), rng.randint(0, width - w)
            return slice(top, top + h), slice(left, left + w)
    return None


class Changes(NamedTuple):
    """What happens to the images of a batch; drawn on the CPU, so that it is the same wherever it is done.

    Attributes:
        flips: (n,) bool, which images are flipped.
        shifts: (n, 2) int64, pixels that each image is moved down and to the right, after the flip; what comes in at
            the edges is black.
        boxes: (n, 4) int64: top, bottom, left and right of what is erased; an empty box erases nothing.
    """

    flips: Tensor
    shifts: Tensor
    boxes: Tensor


class Augment:
    """Flips, shifts, normalises and erases images of the input size, after a pipeline of albumentations if given.

    An image goes through each step while it is in the processor's cache, straight into its row of the batch: about
    six times as fast as the same steps in albumentations, and equal to the last bit.

    Args:
        flip: probability of a horizontal flip.
        erasing: whether rectangles are erased; by itself growing ones, set to 0, the mean (:meth:`Erasing.growing`).
        erasing_probability: above 0, those of :meth:`Erasing.steady` instead. They are set to ``mean`` *after*
            normalisation, as in BoT's official code.
        pad: pixels by which an image is padded with black on every side before a crop of its size is taken.
        mean, std: of RGB values in [0, 1], three each.
        pipeline: a file that ``albumentations.save`` wrote, YAML or JSON; empty for none. It is given uint8 images and
            must give uint8 images of the same size.

    Raises:
        InputError: the file is missing or holds no pipeline.
    """

    def __init__(
        self,
        *,
        flip: float,
        erasing: bool,
        mean: Sequence[float],
        std: Sequence[float],
        pipeline: str | Path = "",
        erasing_probability: float = 0.0,
        pad: int = 0,
    ) -> None:
        self.flip, self.erasing, self.path = flip, erasing, pipeline
        self.erasing_probability, self.pad = erasing_probability, pad
        self.fill = np.array(mean if erasing_probability else (0, 0, 0), np.float32)  # (3,) normalised
        self.mean = 255 * np.array(mean, np.float32)  # (3,)
        self.scale = np.reciprocal(255 * np.array(std, np.float32))  # (3,)
        self.pipeline: Any = load_pipeline(pipeline) if pipeline else None
        self._constants: dict[torch.device, tuple[Tensor, ...]] = {}  # mean, scale and fill, where they were needed

    def __call__(
        self, images: Sequence[np.ndarray], *, seed: int, progress: float, rows: slice = slice(None)
    ) -> np.ndarray:
        """A batch for training.

        Args:
            images: n uint8 RGB images (H, W, 3), at least one.
            seed: decides the whole batch.
            progress: share of the task's epochs that is done, in [0, 1].
            rows: those that are wanted.

        Returns:
            (n, 3, H, W) float32, of k rows that are wanted (k, 3, H, W).

        Raises:
            InputError: the pipeline gives something else than uint8 images of the same size.
        """
        shape = height, width, _ = images[0].shape
        images = self.piped(images, seed=seed)
        flips, shifts, boxes = self.draw(len(images), height, width, seed=seed, progress=progress)
        mean, scale = np.tile(self.mean, (height, width, 1)), np.tile(self.scale, (height, width, 1))
        wanted = range(len(images))[rows]
        batch = np.empty((len(wanted), *shape), np.float32)  # (k, H, W, 3)
        for number, row in zip(wanted, batch, strict=True):
            image = images[number]
            flipped = cv2.flip(image, 1) if flips[number] else image
            row[:] = _shifted(flipped, *shifts[number].tolist()) if self.pad else flipped
            row -= mean
            row *= scale
            top, bottom, left, right = boxes[number]
            row[top:bottom, left:right] = self.fill
        return batch.transpose(0, 3, 1, 2)  # a view: channels last in memory, which convolutions like

    def draw(self, count: int, height: int, width: int, *, seed: int, progress: float) -> Changes:
        """What happens to a batch of ``count`` images; arguments as in :meth:`__call__`."""
        rng = random.Random(seed)
        flips = [rng.random() < self.flip for _ in range(count)]
        shifts = [[rng.randint(-self.pad, self.pad) if self.pad else 0 for _ in range(2)] for _ in range(count)]
        boxes = np.zeros((count, 4), np.int64)
        if self.erasing:
            if self.erasing_probability:
                erasing = Erasing.steady(self.erasing_probability)
            else:  # from the same seed, as albumentations does: so the published figures were made
                erasing, rng = Erasing.growing(progress), random.Random(seed)
            for row in boxes:
                box = erased_box(height, width, erasing, rng)
                if box is not None:
                    row[:] = box[0].start, box[0].stop, box[1].start, box[1].stop
        return Changes(torch.tensor(flips, dtype=torch.bool), torch.tensor(shifts), torch.from_numpy(boxes))

    def piped(self, images: Sequence[np.ndarray], *, seed: int) -> Sequence[np.ndarray]:
        """The images as the pipeline changes them; as they are where there is none."""
        if self.pipeline is None:
            return images
        self.pipeline.set_random_state(np.random.default_rng(seed), random.Random(seed))
        return [self._piped(image) for image in images]

    def left_to_device(
        self, images: Sequence[np.ndarray], *, seed: int, progress: float, rows: slice = slice(None)
    ) -> tuple[Tensor, Changes]:
        """What :meth:`on_device` makes the batch of :meth:`__call__` of; arguments and errors are those."""
        images = self.piped(images, seed=seed)
        changes = self.draw(len(images), *images[0].shape[:2], seed=seed, progress=progress)
        return torch.from_numpy(np.stack(images[rows])), Changes(*(each[rows] for each in changes))

    def on_device(self, pixels: Tensor, changes: Changes) -> Tensor:
        """What :meth:`__call__` does, by the device on which the pixels are: the same up to rounding.

        Args:
            pixels: (n, H, W, 3) uint8, through the pipeline already.
            changes: of :meth:`draw`; both are those of :meth:`left_to_device`.

        Returns:
            (n, 3, H, W) float32, channels last in memory.
        """
        device = pixels.device
        flips, shifts, boxes = (each.to(device, non_blocking=True) for each in changes)
        if device not in self._constants:
            constants = (self.mean, self.scale, self.fill)
            self._constants[device] = tuple(to_device(torch.from_numpy(each), device) for each in constants)
        mean, scale, fill = self._constants[device]  # (3,)
        rows, columns = (torch.arange(size, device=device) for size in pixels.shape[1:3])
        images = torch.where(flips[:, None, None, None], pixels.flip(2), pixels)
        if self.pad:
            images = _all_shifted(images, rows - shifts[:, :1], columns - shifts[:, 1:])
        images = (images.float() - mean) * scale  # (n, H, W, 3)
        top, bottom, left, right = boxes.T[..., None]  # (n, 1) each
        inside_rows = (rows >= top) & (rows < bottom)  # (n, H)
        inside_columns = (columns >= left) & (columns < right)  # (n, W)
        erased = inside_rows[:, :, None] & inside_columns[:, None, :]  # (n, H, W)
        return torch.where(erased[..., None], fill, images).permute(0, 3, 1, 2)

    def _piped(self, image: np.ndarray) -> np.ndarray:
        changed = self.pipeline(image=image.copy())["image"]  # a copy, as the images of a cache are read-only
        if changed.dtype != np.uint8 or changed.shape != image.shape:
            raise InputError(
                f"{self.path}: the pipeline makes {changed.dtype} {tuple(changed.shape)} of an image uint8 "
                f"{image.shape}; it must keep both: leave out Normalize and ToTensorV2, and resize after cropping"
            )
        return changed


def _shifted(image: np.ndarray, down: int, right: int) -> np.ndarray:
    """An image (H, W, 3) moved by so many pixels, 0 where nothing of it is left."""
    height, width, _ = image.shape
    moved = np.zeros_like(image)
    rows, columns = max(height - abs(down), 0), max(width - abs(right), 0)  # that are left
    moved[max(down, 0) :, max(right, 0) :][:rows, :columns] = image[max(-down, 0) :, max(-right, 0) :][:rows, :columns]
    return moved


def _all_shifted(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Images (n, H, W, 3) of which row i comes from ``rows`` (n, H), and column i from ``columns`` (n, W); else 0."""
    height, width = images.shape[1:3]
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None]  # (n, H, W)
    numbers = torch.arange(len(images), device=images.device)[:, None, None]
    taken = images[numbers, rows.clamp(0, height - 1)[:, :, None], columns.clamp(0, width - 1)[:, None]]
    return taken * inside[..., None]


def _of_version_2(step: dict[str, Any], *, weighted: bool = False) -> dict[str, Any]:
    """A step of a pipeline that an earlier version of albumentations saved, with ``always_apply`` as ``p=1``.

    Args:
        step: with its arguments, and the steps in it.
        weighted: it is one of several of which one is drawn, so that its ``p`` is a weight.

    Raises:
        ValueError: the installed version draws otherwise.
    """
    kind = step["__class_fullname__"].rpartition(".")[2]
    if kind == "SomeOf":
        raise ValueError("SomeOf drew its steps by their p as weights")
    changed = {name: value for name, value in step.items() if name != "always_apply"}
    if step.get("always_apply") and not weighted:
        changed["p"] = 1.0
    if "transforms" in step:
        changed["transforms"] = [_of_version_2(each, weighted=kind == "OneOf") for each in step["transforms"]]
    return changed


def load_pipeline(path: str | Path) -> Any:
    """Reads what ``albumentations.save`` wrote, YAML or JSON.

    Files of versions before 2 are read where they mean the same: of their arguments ``always_apply`` alone is replaced.

    Raises:
        InputError: the file is missing, no pipeline, or holds a transform or argument that is unknown, or that another
            version had.
    """
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # no look at the network on import
    albumentations = Extra("albumentations", "albumentations").load()
    version = ""
    try:
        content = parse_yaml(read_text(path), aliases=True)  # JSON is YAML
        version = str(content["__version__"]) if "__version__" in content else ""
        if version.startswith(("0.", "1.")):
            content["transform"] = _of_version_2(content["transform"])
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # an argument that it does not know
            return albumentations.from_dict(content)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read as a pipeline ({error.strerror}); check the path") from None
    except Exception as error:  # albumentations looks nothing over before it builds
        refuse_out_of_memory(error, path)
        reason = " ".join(str(error).split())
        if version.startswith(("0.", "1.")):
            raise InputError(
                f"{path}: was written by albumentations {version}, and {albumentations.__version__} is installed, "
                f"which differs ({type(error).__name__}: {reason}); write the pipeline for {albumentations.__version__}"
            ) from None
        raise InputError(
            f"{path}: is no pipeline of albumentations ({type(error).__name__}: {reason}); "
            "write it with albumentations.save(pipeline, path, data_format='yaml')"
        ) from None
