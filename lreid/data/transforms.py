"""Augment whole batches of training images with albumentations pipelines."""

import os
import random
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lreid.errors import InputError, raise_if_out_of_memory
from lreid.utils.devices import to_device
from lreid.utils.extras import Extra
from lreid.utils.reading import parse_yaml, raise_if_unreadable, read_text

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # no network access on import
albumentations = Extra("albumentations", "albumentations")
cv2 = Extra("cv2", "opencv")


class Changes(NamedTuple):
    """Random parameters of a pipeline's last steps for one batch, drawn on the CPU and applied on any device.

    Attributes:
        flips: (n,) bool, whether each image is flipped.
        shifts: (n, 2) int64, the numbers of pixels by which each image moves down and to the right after the flip;
            uncovered pixels become black.
        boxes: (n, 4) int64: top, bottom, left and right of the erased rectangle; an empty rectangle erases nothing.
    """

    flips: Tensor
    shifts: Tensor
    boxes: Tensor


class Augment:
    """Augment and normalise images of the network's input size by the steps of an albumentations pipeline.

    The last steps of a pipeline may be a flip, padding with a random crop, and erasing. For the last steps,
    albumentations only draws the random parameters. This class applies the last steps itself, together with the
    normalisation, on the CPU or a GPU. On the CPU, the result is bitwise equal to albumentations' result, and this
    class is 1.7 times as fast (``tools/bench_loading.py``).

    Args:
        steps: transforms of albumentations in the order of application, which map uint8 images to uint8 images of the
            same size. The last transform may be a step of :mod:`lreid.data.erasing`, which is applied after the
            normalisation.
        mean, std: mean and standard deviation of RGB values in [0, 1], three each.
        name: name of the pipeline in error messages.

    Raises:
        InputError: the pipeline has an erasing step that is not the last step.
    """

    def __init__(
        self, steps: Iterable[Any] = (), *, mean: Sequence[float], std: Sequence[float], name: str = "the pipeline"
    ) -> None:
        self.steps, self.name = list(steps), name
        self.mean = 255 * np.array(mean, np.float32)  # (3,)
        self.scale = np.reciprocal(255 * np.array(std, np.float32))  # (3,)
        rest = self.steps.copy()
        self.erasing = rest.pop() if rest and _is_erasing(rest[-1]) else None
        self.fill = np.broadcast_to(np.float32(self.erasing.fill if self.erasing else 0), 3)  # normalised
        self.crop = rest.pop() if len(rest) > 1 and _is_shift(*rest[-2:]) else None
        self.pad = rest.pop().padding if self.crop else 0
        self.flip = rest.pop() if rest and type(rest[-1]) is albumentations.HorizontalFlip else None
        self.before = rest  # steps that albumentations applies
        for step in _with_inner(rest):
            if _is_erasing(step):
                raise InputError(
                    f"{name}: {type(step).__name__} is not the last step; move it to the end, since it erases after "
                    "the normalisation"
                )
        self._constants: dict[torch.device, tuple[Tensor, ...]] = {}  # mean, scale and fill on each device used so far

    def __call__(
        self, images: Sequence[np.ndarray], *, seed: int, progress: float, rows: slice = slice(None)
    ) -> np.ndarray:
        """Augment a batch for training.

        Args:
            images: n uint8 RGB images (H, W, 3), at least one.
            seed: seed of all random decisions for the batch.
            progress: share of the task's epochs that are finished, in [0, 1].
            rows: slice of the k images to return; random decisions do not depend on it.

        Returns:
            (k, 3, H, W) float32.

        Raises:
            InputError: a step fails, or does not return a uint8 image of the same size.
        """
        height, width, _ = images[0].shape
        images, changes = self.draw(images, seed=seed, progress=progress)
        flips, shifts, boxes = (each.tolist() for each in changes)
        mean, scale = np.tile(self.mean, (height, width, 1)), np.tile(self.scale, (height, width, 1))
        wanted = range(len(images))[rows]
        batch = np.empty((len(wanted), height, width, 3), np.float32)
        for number, row in zip(wanted, batch, strict=True):  # apply all steps while an image is in the CPU's cache
            image = images[number]
            flipped = cv2.flip(image, 1) if flips[number] else image
            row[:] = _shifted(flipped, *shifts[number]) if self.crop else flipped
            row -= mean
            row *= scale
            top, bottom, left, right = boxes[number]
            row[top:bottom, left:right] = self.fill
        return batch.transpose(0, 3, 1, 2)  # a view: channels last in memory, with which convolutions are faster

    def draw(self, images: Sequence[np.ndarray], *, seed: int, progress: float) -> tuple[Sequence[np.ndarray], Changes]:
        """Apply the first steps and draw parameters for the last steps; arguments and errors as in :meth:`__call__`."""
        generators = np.random.default_rng(seed), random.Random(seed)
        for step in self.steps:
            step.set_random_state(*generators)
        drawn = np.zeros((len(images), 7), np.int64)
        changed = []
        for image, row in zip(images, drawn, strict=True):
            changed.append(self._changed(image, self.before) if self.before else image)
            self._draw_last(row, image.shape, progress)
        flips, shifts, boxes = torch.from_numpy(drawn).split([1, 2, 4], 1)
        return changed, Changes(flips[:, 0].bool(), shifts, boxes)

    def _draw_last(self, row: np.ndarray, shape: tuple[int, ...], progress: float) -> None:
        """Choose flip, shift and erased box of an image at random, and write their parameters into a row (7,)."""
        height, width, channels = shape
        if self.flip:
            row[0] = self.flip.should_apply()
        if self.crop:
            padded = height + 2 * self.pad, width + 2 * self.pad, channels
            left, top, right, bottom = self.crop.get_params_dependent_on_data({"shape": padded}, {})["crop_coords"]
            if (bottom - top, right - left) != (height, width):
                raise self._misfit(f"uint8 {(bottom - top, right - left, channels)}", shape)
            row[1:3] = self.pad - top, self.pad - left
        if self.erasing and self.erasing.should_apply():
            data = {"progress": progress}
            row[3:] = self.erasing.get_params_dependent_on_data({"shape": shape}, data)["box"]

    def check(self, height: int, width: int) -> None:
        """Apply every step, whatever its probability, to a black image of the input size.

        Raises:
            InputError: a step fails, or does not return a uint8 image of the same size.
        """
        black = np.zeros((height, width, 3), np.uint8)
        for step in self.before:
            self._changed(black, [step], force_apply=True)
        self.draw([black], seed=0, progress=1.0)

    def left_to_device(
        self, images: Sequence[np.ndarray], *, seed: int, progress: float, rows: slice = slice(None)
    ) -> tuple[Tensor, Changes]:
        """Apply the first steps and draw parameters for :meth:`on_device`; arguments as in :meth:`__call__`."""
        images, changes = self.draw(images, seed=seed, progress=progress)
        return torch.from_numpy(np.stack(images[rows])), Changes(*(each[rows] for each in changes))

    def on_device(self, pixels: Tensor, changes: Changes) -> Tensor:
        """Apply the last steps and the normalisation on the images' device; equals :meth:`__call__` up to rounding.

        Args:
            pixels: (n, H, W, 3) uint8 images from :meth:`left_to_device`.
            changes: parameters of the last steps from :meth:`left_to_device`.

        Returns:
            (n, 3, H, W) float32, channels last in memory.
        """
        device = pixels.device
        flips, shifts, boxes = (each.to(device, non_blocking=True) for each in changes)
        if device not in self._constants:
            constants = (self.mean, self.scale, self.fill)
            self._constants[device] = tuple(to_device(torch.tensor(each), device) for each in constants)
        mean, scale, fill = self._constants[device]  # (3,)
        rows, columns = (torch.arange(size, device=device) for size in pixels.shape[1:3])
        images = torch.where(flips[:, None, None, None], pixels.flip(2), pixels)
        if self.crop:
            images = _all_shifted(images, rows - shifts[:, :1], columns - shifts[:, 1:])
        images = (images.float() - mean) * scale  # (n, H, W, 3)
        top, bottom, left, right = boxes.T[..., None]  # (n, 1) each
        inside_rows = (rows >= top) & (rows < bottom)  # (n, H)
        inside_columns = (columns >= left) & (columns < right)  # (n, W)
        erased = inside_rows[:, :, None] & inside_columns[:, None, :]  # (n, H, W)
        return torch.where(erased[..., None], fill, images).permute(0, 3, 1, 2)

    def _changed(self, image: np.ndarray, steps: Iterable[Any], **options: Any) -> np.ndarray:
        data: dict[str, Any] = {"image": image.copy()}  # a copy, as the images of a cache are read-only
        for step in steps:
            try:
                data = step(**data, **options)
            except Exception as error:
                raise_if_out_of_memory(error, self.name)
                reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
                raise InputError(
                    f"{self.name}: {type(step).__name__} fails on a uint8 image {image.shape} ({reason}); "
                    "change or remove this step"
                ) from None
        changed = data["image"]
        made = f"{getattr(changed, 'dtype', type(changed).__name__)} {np.shape(changed)}"
        if made != f"uint8 {image.shape}":
            raise self._misfit(made, image.shape)
        return changed

    def _misfit(self, made: str, shape: tuple[int, ...]) -> InputError:
        return InputError(
            f"{self.name}: turns one uint8 image {shape} into {made}, but must keep number, type and size; "
            "leave out Normalize and ToTensorV2, and crop to the size of the images"
        )


def _is_erasing(step: Any) -> bool:
    return type(step).__module__ == "lreid.data.erasing"  # not isinstance: importing the class loads albumentations


def _is_shift(pad: Any, crop: Any) -> bool:
    """Whether two steps together shift an image: black padding on all sides, then a random crop."""
    return (
        (type(pad), type(crop)) == (albumentations.Pad, albumentations.RandomCrop)
        and isinstance(pad.padding, int)
        and (pad.p, pad.border_mode, pad.fill) == (1.0, cv2.BORDER_CONSTANT, 0)
        and (crop.p, crop.pad_if_needed) == (1.0, False)
    )


def _with_inner(steps: Iterable[Any]) -> Iterator[Any]:
    for step in steps:
        yield step
        yield from _with_inner(getattr(step, "transforms", ()))


def _shifted(image: np.ndarray, down: int, right: int) -> np.ndarray:
    """Shift an image (H, W, 3) by a number of pixels; uncovered pixels become 0."""
    height, width, _ = image.shape
    moved = np.zeros_like(image)
    rows, columns = max(height - abs(down), 0), max(width - abs(right), 0)  # size of the part that stays in the image
    moved[max(down, 0) :, max(right, 0) :][:rows, :columns] = image[max(-down, 0) :, max(-right, 0) :][:rows, :columns]
    return moved


def _all_shifted(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Move the pixels of images (n, H, W, 3): row i comes from row ``rows[:, i]``, column j from ``columns[:, j]``.

    Pixels whose index is outside the image become 0.
    """
    height, width = images.shape[1:3]
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None]  # (n, H, W)
    numbers = torch.arange(len(images), device=images.device)[:, None, None]
    taken = images[numbers, rows.clamp(0, height - 1)[:, :, None], columns.clamp(0, width - 1)[:, None]]
    return taken * inside[..., None]


def load_pipeline(path: str | Path, values: Mapping[str, Any] | None = None) -> list[Any]:
    """Read the steps of a pipeline from a YAML or JSON file that ``albumentations.save`` wrote.

    Args:
        path: path of the file.
        values: values that replace names in the file, such as the name ``INPUT.HEIGHT``.

    Raises:
        InputError: the file is missing or is not a pipeline, or the installed version of albumentations lacks a
            transform or argument of the pipeline.
    """
    library = albumentations.load()
    version = ""
    try:
        text = read_text(path)
        if "lreid.data.erasing" in text:
            import lreid.data.erasing  # noqa: F401  # registers its steps with albumentations
        content = _filled(parse_yaml(text, aliases=True), values or {})  # YAML includes JSON
        version = str(dict(content).get("__version__", ""))
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # albumentations only warns about unknown arguments
            pipeline = library.from_dict(content)
        return list(pipeline.transforms) if type(pipeline) is library.Compose and pipeline.p >= 1 else [pipeline]
    except Exception as error:  # albumentations builds without checks, so any kind of exception may occur
        raise_if_unreadable(error, path, "pipeline")
        kind = "unknown or missing name" if isinstance(error, KeyError) else type(error).__name__
        reason = f"{kind}: {' '.join(str(error).split())}"
        if version and version != library.__version__:
            raise InputError(
                f"{path}: was written by albumentations {version}, and {library.__version__} is installed ({reason}); "
                f"write it again with {library.__version__}"
            ) from None
        raise InputError(
            f"{path}: is not a pipeline of albumentations ({reason}); "
            "write it with albumentations.save(pipeline, path, data_format='yaml')"
        ) from None


def _filled(content: Any, values: Mapping[str, Any]) -> Any:
    """Replace each name in the content of a file by its value."""
    if isinstance(content, dict):
        return {key: _filled(value, values) for key, value in content.items()}
    if isinstance(content, list):
        return [_filled(value, values) for value in content]
    return values.get(content, content) if isinstance(content, str) else content
