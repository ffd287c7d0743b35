"""Augmentation: what is kept, what is erased, and how often."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lreid.data.transforms import Augment, erased_box, load_pipeline
from lreid.data.transforms import Erasing as Erased
from lreid.errors import InputError

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
import albumentations as A

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(1, 256, (400, 64, 32, 3), dtype=np.uint8)


def normalised(images: np.ndarray) -> np.ndarray:
    return ((images / 255 - MEAN) / STD).transpose(0, 3, 1, 2)


def test_without_augmentation_it_only_normalises() -> None:
    batch = Augment(flip=0.0, erasing=False, mean=MEAN, std=STD)(IMAGES[:5], seed=0, progress=0.0)
    assert batch.dtype == np.float32 and batch.shape == (5, 3, 64, 32)
    np.testing.assert_allclose(batch, normalised(IMAGES[:5]), atol=1e-5)


def test_half_of_the_images_are_mirrored() -> None:
    batch = Augment(flip=0.5, erasing=False, mean=MEAN, std=STD)(IMAGES, seed=1, progress=0.0)
    plain, mirrored = normalised(IMAGES), normalised(IMAGES)[..., ::-1]
    is_plain = np.isclose(batch, plain, atol=1e-4).all((1, 2, 3))
    is_mirrored = np.isclose(batch, mirrored, atol=1e-4).all((1, 2, 3))
    assert (is_plain ^ is_mirrored).all()
    assert 160 < is_mirrored.sum() < 240  # 200 expected, deviation 10


@pytest.mark.parametrize("progress", [0.0, 0.5, 0.8, 1.0])
def test_erasing_follows_its_schedule(progress: float) -> None:
    """Share of images hit, area and aspect of the rectangle: DMML's official schedule."""
    batch = Augment(flip=0.0, erasing=True, mean=MEAN, std=STD)(IMAGES, seed=2, progress=progress)
    p = min(progress, 0.8)
    erased = (batch == 0).all(1) & (normalised(IMAGES) != 0).any(1)  # (B, H, W)
    hit = erased.any((1, 2))
    # One attempt in some does not fit, as the image is twice as high as wide, but a hundred are made.
    assert abs(hit.mean() - (0.3 + 0.4 * p)) < 0.08
    areas, aspects = [], []
    for mask in erased[hit]:
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        height, width = rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1
        assert mask.sum() == height * width  # one whole rectangle
        areas.append(height * width / mask.size)
        aspects.append(height / width)
    assert abs(np.mean(areas) - (0.1 + 0.3 * p)) < 0.01
    assert np.std(areas) < 0.02  # of the same area but for rounding
    assert min(aspects) > 0.25 and max(aspects) < 3.6
    unerased = ~erased[:, None].repeat(3, 1)
    np.testing.assert_allclose(batch[unerased], normalised(IMAGES)[unerased], atol=1e-5)


def test_a_batch_follows_from_its_seed() -> None:
    augment = Augment(flip=0.5, erasing=True, mean=MEAN, std=STD)
    first = augment(IMAGES[:20], seed=5, progress=0.3)
    augment(IMAGES[:7], seed=6, progress=0.9)
    assert np.array_equal(first, augment(IMAGES[:20], seed=5, progress=0.3))
    assert not np.array_equal(first, augment(IMAGES[:20], seed=6, progress=0.3))


class Erasing(A.ImageOnlyTransform):
    """The erasing as a step of albumentations, which seeds and applies it."""

    def __init__(self, progress: float) -> None:
        super().__init__(p=1.0)
        self.progress = progress

    def get_params_dependent_on_data(self, params: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
        height, width = params["shape"][:2]
        return {"box": erased_box(height, width, Erased.growing(self.progress), self.py_random)}

    def apply(self, img: np.ndarray, box: tuple[slice, slice] | None, **_: Any) -> np.ndarray:
        img = img.copy()
        if box is not None:
            img[box] = 0
        return img


@pytest.mark.parametrize("shape", [(64, 32), (33, 47)])
@pytest.mark.parametrize("flip", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("mean", "std"), [(MEAN, STD), ((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))])
def test_equal_to_albumentations_to_the_last_bit(
    shape: tuple[int, int], flip: float, mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    images = RNG.integers(0, 256, (40, *shape, 3), dtype=np.uint8)
    images.flags.writeable = False
    augment = Augment(flip=flip, erasing=True, mean=mean, std=std)
    for seed, progress in ((0, 0.0), (7, 0.4), (2**32 - 1, 1.0)):
        compose = A.Compose([A.HorizontalFlip(p=flip), A.Normalize(mean=mean, std=std), Erasing(progress)])
        compose.set_random_seed(seed)
        expected = np.stack([compose(image=image)["image"] for image in images]).transpose(0, 3, 1, 2)
        batch = augment(images, seed=seed, progress=progress)
        assert batch.strides == expected.strides  # channels last
        np.testing.assert_array_equal(batch, expected)


def saved(folder: Path, *steps: A.BasicTransform, name: str = "mine.yaml") -> Path:
    A.save(A.Compose(list(steps)), folder / name, data_format=name.rpartition(".")[2])
    return folder / name


@pytest.mark.parametrize("name", ["mine.yaml", "mine.json"])
def test_a_pipeline_comes_before_flip_and_erasing(tmp_path: Path, name: str) -> None:
    images = IMAGES[:20].copy()
    images.flags.writeable = False
    path = saved(tmp_path, A.InvertImg(p=1.0), name=name)
    options = {"flip": 0.5, "erasing": True, "mean": MEAN, "std": STD}
    batch = Augment(**options, pipeline=path)(images, seed=3, progress=0.5)
    np.testing.assert_array_equal(batch, Augment(**options)(255 - images, seed=3, progress=0.5))
    assert batch.transpose(0, 2, 3, 1).flags.c_contiguous


def test_a_pipeline_follows_from_the_seed_and_its_steps_differ(tmp_path: Path) -> None:
    path = saved(tmp_path, A.HorizontalFlip(p=0.5), A.VerticalFlip(p=0.5))
    augment = Augment(flip=0.0, erasing=False, mean=(0, 0, 0), std=(1, 1, 1), pipeline=path)
    first = augment(IMAGES, seed=5, progress=0.0)
    np.testing.assert_array_equal(first, augment(IMAGES, seed=5, progress=0.0))
    assert not np.array_equal(first, augment(IMAGES, seed=6, progress=0.0))
    plain = (IMAGES / np.float32(255)).transpose(0, 3, 1, 2)
    kinds = [plain, plain[..., ::-1], plain[..., ::-1, :], plain[..., ::-1, ::-1]]
    counts = [np.isclose(first, kind, atol=1e-5).all((1, 2, 3)).sum() for kind in kinds]
    assert sum(counts) == 400 and min(counts) > 60  # of one coin for both, two kinds would be missing


PIPELINES = {
    "empty": ("", "TypeError"),
    "no pipeline": ("a: 1", "KeyError"),
    "unknown transform": ("transform: {__class_fullname__: Nope, p: 1.0}", "Nope"),
    "unknown argument": ("transform: {__class_fullname__: Rotate, p: 1.0, limmit: 3}", "limmit"),
    "value out of range": ("transform: {__class_fullname__: Rotate, p: 5}", "less than or equal to 1"),
    "broken": ("{{", "flow node"),
}


@pytest.mark.parametrize("how", PIPELINES)
def test_a_bad_pipeline_is_named(tmp_path: Path, how: str) -> None:
    content, reason = PIPELINES[how]
    (tmp_path / "mine.yaml").write_text(content)
    with pytest.raises(InputError, match=f"mine.yaml: is no pipeline.*{reason}") as error:
        Augment(flip=0.5, erasing=False, mean=MEAN, std=STD, pipeline=tmp_path / "mine.yaml")
    assert "\n" not in str(error.value)


def of_version_1(*steps: dict) -> str:
    """What albumentations 1.3.1 saved: classes by their full names, and ``always_apply`` in each."""
    full = [{"always_apply": False, "p": 1.0} | step for step in steps]
    for step in full:
        step["__class_fullname__"] = f"albumentations.augmentations.transforms.{step['__class_fullname__']}"
    compose = {"__class_fullname__": "Compose", "p": 1.0, "transforms": full, "bbox_params": None}
    more = {"keypoint_params": None, "additional_targets": {}, "is_check_shapes": True}
    return json.dumps({"__version__": "1.3.1", "transform": compose | more})


def test_a_pipeline_of_an_earlier_version_is_read_where_it_means_the_same(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    brightness = {"brightness_limit": [-0.2, 0.2], "contrast_limit": [-0.2, 0.2], "brightness_by_max": True}
    path.write_text(of_version_1({"__class_fullname__": "RandomBrightnessContrast", "p": 0.5} | brightness))
    images = list(IMAGES[:20])
    options = {"flip": 0.0, "erasing": False, "mean": MEAN, "std": STD}
    same = saved(tmp_path, A.RandomBrightnessContrast(p=0.5))
    np.testing.assert_array_equal(
        Augment(**options, pipeline=path)(images, seed=3, progress=0),
        Augment(**options, pipeline=same)(images, seed=3, progress=0),
    )
    invert = {"__class_fullname__": "InvertImg", "always_apply": True, "p": 0.0}
    path.write_text(of_version_1(invert))  # always, whatever p
    piped = Augment(**options, pipeline=path).piped(images, seed=0)
    np.testing.assert_array_equal(piped, [255 - image for image in images])
    choice = [invert, {"__class_fullname__": "VerticalFlip", "p": 1.0}]  # the second always, as p is a weight
    path.write_text(of_version_1({"__class_fullname__": "OneOf", "transforms": choice}))
    piped = Augment(**options, pipeline=path).piped(images, seed=0)
    np.testing.assert_array_equal(piped, [image[::-1] for image in images])


@pytest.mark.parametrize(
    ("step", "differs"),
    [
        ({"__class_fullname__": "Rotate", "limit": [-5, 5], "value": None}, "value"),
        ({"__class_fullname__": "JpegCompression", "quality_lower": 50}, "JpegCompression"),
        ({"__class_fullname__": "SomeOf", "n": 1, "transforms": []}, "SomeOf"),
    ],
)
def test_what_differs_from_an_earlier_version_is_named(tmp_path: Path, step: dict, differs: str) -> None:
    (tmp_path / "mine.json").write_text(of_version_1(step))
    with pytest.raises(InputError, match=f"mine.json: .*1.3.1.*{A.__version__}.*{differs}"):
        load_pipeline(tmp_path / "mine.json")


@pytest.mark.parametrize(
    "text", ["transform: {__class_fullname__: A,\n p: 1,\n p: 2}\n", '{"transform": {\n"p": 1,\n"p": 0.5}}']
)
def test_a_key_that_stands_twice_in_a_pipeline_is_refused_with_both_lines(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(InputError, match=r"mine.yaml: .*\bp .*line 2 .*line 3\b"):
        Augment(flip=0.5, erasing=False, mean=MEAN, std=STD, pipeline=tmp_path / "mine.yaml")


def test_a_missing_pipeline_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none.yaml: cannot be read as a pipeline"):
        Augment(flip=0.5, erasing=False, mean=MEAN, std=STD, pipeline=tmp_path / "none.yaml")


@pytest.mark.parametrize("step", [A.Normalize(p=1.0), A.CenterCrop(16, 16, p=1.0)])
def test_a_pipeline_must_keep_size_and_kind(tmp_path: Path, step: A.BasicTransform) -> None:
    augment = Augment(flip=0.5, erasing=False, mean=MEAN, std=STD, pipeline=saved(tmp_path, step))
    with pytest.raises(InputError, match=r"mine.yaml: the pipeline makes .* it must keep both"):
        augment(IMAGES[:2], seed=0, progress=0.0)


@pytest.mark.parametrize("progress", [0.0, 0.9])
def test_a_device_makes_the_same_batch(progress: float) -> None:
    augment = Augment(flip=0.5, erasing=True, mean=MEAN, std=STD)
    expected = augment(IMAGES, seed=7, progress=progress)
    changes = augment.draw(len(IMAGES), *IMAGES[0].shape[:2], seed=7, progress=progress)
    batch = augment.on_device(torch.from_numpy(np.stack(IMAGES)), changes)
    assert batch.shape == expected.shape and batch.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(batch.numpy(), expected, rtol=1e-6, atol=1e-6)
    assert changes.flips.any() and (changes.boxes[:, 1] > 0).any()


def test_a_part_of_the_rows_is_that_of_the_whole() -> None:
    augment = Augment(flip=0.5, erasing=True, mean=MEAN, std=STD)
    whole = augment(IMAGES, seed=7, progress=0.5)
    rows = slice(1, None, 3)
    np.testing.assert_array_equal(augment(IMAGES, seed=7, progress=0.5, rows=rows), whole[rows])
    left = augment.left_to_device(IMAGES, seed=7, progress=0.5, rows=rows)
    np.testing.assert_allclose(augment.on_device(*left).numpy(), whole[rows], rtol=1e-6, atol=1e-6)


def test_padding_and_a_crop_move_the_image() -> None:
    """Against the image with a border that is cut out where its first pixel went."""
    augment = Augment(flip=0.5, erasing=False, mean=MEAN, std=STD, pad=5)
    batch = augment(IMAGES, seed=3, progress=0.0)
    changes = augment.draw(len(IMAGES), 64, 32, seed=3, progress=0.0)
    assert changes.shifts.unique(dim=0).shape[0] > 100 and set(changes.shifts.unique().tolist()) == set(range(-5, 6))
    both = torch.stack([changes.flips, changes.shifts[:, 0] > 0], 1).float()
    assert abs(torch.corrcoef(both.T)[0, 1]) < 0.2  # drawn apart
    for image, flip, (down, right), row in zip(IMAGES, changes.flips, changes.shifts.tolist(), batch, strict=True):
        padded = np.pad(image[:, ::-1] if flip else image, ((5, 5), (5, 5), (0, 0)))
        crop = padded[5 - down : 69 - down, 5 - right : 37 - right]
        np.testing.assert_allclose(row, normalised(crop[None])[0], atol=1e-5)


def test_an_image_may_be_moved_out_of_sight() -> None:
    augment = Augment(flip=0.0, erasing=False, mean=MEAN, std=STD, pad=100)
    batch = augment(IMAGES[:50], seed=0, progress=0.0)
    gone = (augment.draw(50, 64, 32, seed=0, progress=0.0).shifts.abs() >= torch.tensor([64, 32])).any(1).numpy()
    assert gone.any() and not gone.all()
    black = normalised(np.zeros((1, 64, 32, 3)))[0]
    assert [np.allclose(row, black, atol=1e-5) for row in batch] == gone.tolist()


def test_steady_erasing_is_that_of_bot() -> None:
    """Half of the images, 2 to 40 % of each, with the mean values of RGB, written after normalisation."""
    augment = Augment(flip=0.0, erasing=True, erasing_probability=0.5, mean=MEAN, std=STD)
    for progress in (0.0, 1.0):
        batch = augment(IMAGES, seed=2, progress=progress)
        erased = ~np.isclose(batch, normalised(IMAGES), atol=1e-5).all(1)  # (B, H, W)
        assert abs(erased.any((1, 2)).mean() - 0.5) < 0.08
        shares = erased.mean((1, 2))[erased.any((1, 2))]
        assert shares.min() >= 0.018 and shares.max() <= 0.42 and abs(shares.mean() - 0.19) < 0.03
        filled = batch.transpose(0, 2, 3, 1)[erased]  # (pixels, 3)
        assert (filled == np.array(MEAN, np.float32)).all()


@pytest.mark.parametrize("pad", [0, 10, 70])
def test_a_device_pads_and_fills_as_the_processor_does(pad: int) -> None:
    augment = Augment(flip=0.5, erasing=True, erasing_probability=0.5, pad=pad, mean=MEAN, std=STD)
    expected = augment(IMAGES, seed=7, progress=0.0)
    changes = augment.draw(len(IMAGES), 64, 32, seed=7, progress=0.0)
    batch = augment.on_device(torch.from_numpy(np.stack(IMAGES)), changes)
    assert batch.shape == expected.shape and batch.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(batch.numpy(), expected, rtol=1e-6, atol=1e-6)
