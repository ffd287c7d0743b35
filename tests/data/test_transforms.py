"""Augmentation: what is kept, what is erased, and how often."""

from __future__ import annotations

import numpy as np
import pytest

from lreid.data.transforms import Augment

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
