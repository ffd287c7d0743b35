"""Augmentation: what is kept, what is erased, how often, and that it is what albumentations does."""

import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lreid.config import find_config
from lreid.data.erasing import GrowingErasing, RandomErasing
from lreid.data.transforms import Augment, load_pipeline
from lreid.errors import InputError

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
import albumentations as A

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(1, 256, (400, 64, 32, 3), dtype=np.uint8)
FLIP = A.HorizontalFlip(p=0.5)
RECIPES = ["flip", "flip-crop4", "flip-crop8-erase", "flip-crop10-erase", "flip-erase-growing"]


def of(*steps: A.BasicTransform) -> Augment:
    return Augment(steps, mean=MEAN, std=STD)


def shifted(pad: int) -> list[A.BasicTransform]:
    return [A.Pad(pad, p=1.0), A.RandomCrop(64, 32, p=1.0)]


def steps_of(name: str, height: int = 64, width: int = 32, mean: Sequence[float] = MEAN) -> list[Any]:
    return load_pipeline(
        find_config(f"augmentations/{name}"), {"INPUT.HEIGHT": height, "INPUT.WIDTH": width, "INPUT.MEAN": list(mean)}
    )


def normalised(images: np.ndarray) -> np.ndarray:
    return ((images / 255 - MEAN) / STD).transpose(0, 3, 1, 2)


def test_without_augmentation_it_only_normalises() -> None:
    batch = of()(IMAGES[:5], seed=0, progress=0.0)
    assert batch.dtype == np.float32 and batch.shape == (5, 3, 64, 32)
    np.testing.assert_allclose(batch, normalised(IMAGES[:5]), atol=1e-5)


@pytest.mark.parametrize("progress", [0.0, 0.5, 0.8, 1.0])
def test_erasing_follows_its_schedule(progress: float) -> None:
    """Share of images hit, area and aspect of the rectangle: DMML's official schedule."""
    batch = of(GrowingErasing())(IMAGES, seed=2, progress=progress)
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


def by_albumentations(
    steps: Sequence[Any], images: np.ndarray, *, seed: int, progress: float, mean: Sequence[float], std: Sequence[float]
) -> np.ndarray:
    """A batch made by the library's own transforms, one after the other, normalised before it is erased."""
    place = len(steps) - isinstance(steps[-1], RandomErasing | GrowingErasing)
    steps = [*steps[:place], A.Normalize(mean=mean, std=std, p=1.0), *steps[place:]]
    generators = np.random.default_rng(seed), random.Random(seed)
    for step in steps:
        step.set_random_state(*generators)
    batch = []
    for image in images:
        data = {"image": image, "progress": progress}
        for step in steps:
            data = step(**data)
        batch.append(data["image"])
    return np.stack(batch).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("shape", [(64, 32), (33, 47)])
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(("mean", "std"), [(MEAN, STD), ((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))])
def test_equal_to_albumentations_to_the_last_bit(
    shape: tuple[int, int], name: str, mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    images = RNG.integers(0, 256, (40, *shape, 3), dtype=np.uint8)
    images.flags.writeable = False
    steps = steps_of(name, *shape, mean)
    augment = Augment(steps, mean=mean, std=std)
    assert not augment.before  # all of it is applied with the normalisation
    for seed, progress in ((0, 0.0), (7, 0.4), (2**32 - 1, 1.0)):
        expected = by_albumentations(steps, images, seed=seed, progress=progress, mean=mean, std=std)
        batch = augment(images, seed=seed, progress=progress)
        assert batch.transpose(0, 2, 3, 1).flags.c_contiguous  # channels last
        np.testing.assert_array_equal(batch, expected)


def reference(draws: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draws of BoT's official code for images of 256 x 128, written down with numpy."""
    taken = []
    while len(taken) < draws:
        area, ratio = rng.uniform(0.02, 0.4) * 256 * 128, rng.uniform(0.3, 1 / 0.3)
        height, width = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if height < 256 and width < 128:
            taken.append((height, width, rng.integers(0, 256 - height + 1), rng.integers(0, 128 - width + 1)))
    height, width, top, left = np.array(taken).T
    shifts = rng.integers(-10, 11, (2, draws))
    return {"down": shifts[0], "right": shifts[1], "height": height, "width": width, "top": top, "left": left}


def test_draws_are_those_of_bots_official_code() -> None:
    """Moments and samples of 10^4 draws: rates within 4 deviations, distributions by Kolmogorov and Smirnov."""
    draws = 10_000
    black = [np.zeros((256, 128, 3), np.uint8)] * draws
    _, changes = Augment(steps_of("flip-crop10-erase", 256, 128), mean=MEAN, std=STD).draw(black, seed=0, progress=0.0)
    top, bottom, left, right = changes.boxes.numpy().T
    hit = bottom > 0
    for rate in (changes.flips.numpy(), hit):
        assert abs(rate.mean() - 0.5) < 4 * 0.5 / draws**0.5
    assert abs(np.corrcoef(np.stack([changes.flips, hit, *changes.shifts.T]))[np.triu_indices(4, 1)]).max() < 0.04
    ours = {"down": changes.shifts[:, 0].numpy(), "right": changes.shifts[:, 1].numpy()}
    ours |= {"height": (bottom - top)[hit], "width": (right - left)[hit], "top": top[hit], "left": left[hit]}
    for name, theirs in reference(draws, np.random.default_rng(1)).items():
        mine = ours[name]
        deviation = theirs.std() * (1 / len(mine) + 1 / draws) ** 0.5
        assert abs(mine.mean() - theirs.mean()) < 4 * deviation, name
        assert abs(mine.std() / theirs.std() - 1) < 0.04, name
        values = np.union1d(mine, theirs)
        shares = [np.searchsorted(np.sort(each), values, side="right") / len(each) for each in (mine, theirs)]
        assert np.abs(np.subtract(*shares)).max() < 2.2 * (1 / len(mine) + 1 / draws) ** 0.5, name  # p about 1e-4
        assert set(np.unique(mine)) <= set(range(int(theirs.min()) - 8, int(theirs.max()) + 9)), name


def saved(folder: Path, *steps: A.BasicTransform, name: str = "mine.yaml") -> Path:
    A.save(A.Compose(list(steps)), folder / name, data_format=name.rpartition(".")[2])
    return folder / name


@pytest.mark.parametrize("name", ["mine.yaml", "mine.json"])
def test_first_steps_come_before_flip_and_erasing(tmp_path: Path, name: str) -> None:
    images = IMAGES[:20].copy()
    images.flags.writeable = False
    steps = [A.InvertImg(p=1.0), FLIP, *shifted(5), RandomErasing(fill=MEAN)]
    batch = of(*load_pipeline(saved(tmp_path, *steps, name=name)))(images, seed=3, progress=0.5)
    np.testing.assert_array_equal(batch, of(*steps[1:])(255 - images, seed=3, progress=0.5))
    assert batch.transpose(0, 2, 3, 1).flags.c_contiguous


def test_a_pipeline_follows_from_the_seed_and_its_steps_differ() -> None:
    augment = Augment([A.HorizontalFlip(p=0.5), A.VerticalFlip(p=0.5)], mean=(0, 0, 0), std=(1, 1, 1))
    first = augment(IMAGES, seed=5, progress=0.0)
    np.testing.assert_array_equal(first, augment(IMAGES, seed=5, progress=0.0))
    assert not np.array_equal(first, augment(IMAGES, seed=6, progress=0.0))
    plain = (IMAGES / np.float32(255)).transpose(0, 3, 1, 2)
    kinds = [plain, plain[..., ::-1], plain[..., ::-1, :], plain[..., ::-1, ::-1]]
    counts = [np.isclose(first, kind, atol=1e-5).all((1, 2, 3)).sum() for kind in kinds]
    assert sum(counts) == 400 and min(counts) > 60  # of one coin for both, two kinds would be missing


def test_a_pipeline_that_is_only_sometimes_applied_stays_whole(tmp_path: Path) -> None:
    A.save(A.Compose([A.InvertImg(p=1.0), A.VerticalFlip(p=1.0)], p=0.5), tmp_path / "a.yaml", data_format="yaml")
    batch = of(*load_pipeline(tmp_path / "a.yaml"))(IMAGES, seed=0, progress=0.0)
    whole = [np.isclose(batch, normalised(each), atol=1e-4).all((1, 2, 3)) for each in (IMAGES, 255 - IMAGES[:, ::-1])]
    assert (whole[0] ^ whole[1]).all() and 160 < whole[0].sum() < 240


ERASING = "__class_fullname__: lreid.data.erasing"
PIPELINES = {
    "empty": ("", "TypeError"),
    "no pipeline": ("a: 1", "unknown or missing name"),
    "unknown transform": ("transform: {__class_fullname__: Nope, p: 1.0}", "unknown or missing name: 'Nope'"),
    "unknown argument": ("transform: {__class_fullname__: Rotate, p: 1.0, limmit: 3}", "limmit"),
    "value out of range": ("transform: {__class_fullname__: Rotate, p: 5}", "less than or equal to 1"),
    "erasing out of range": (f"transform: {{{ERASING}.RandomErasing, p: 0.5, scale: [1, 2]}}", "scale"),
    "erasing with an unknown argument": (f"transform: {{{ERASING}.GrowingErasing, p: 0.5, scale: 1}}", "scale"),
    "broken": ("{{", "flow node"),
}


@pytest.mark.parametrize("how", PIPELINES)
def test_a_bad_pipeline_is_named(tmp_path: Path, how: str) -> None:
    content, reason = PIPELINES[how]
    (tmp_path / "mine.yaml").write_text(content)
    with pytest.raises(InputError, match=f"mine.yaml: .*{reason}"):
        load_pipeline(tmp_path / "mine.yaml")
    with pytest.raises(InputError, match="none.yaml: "):
        load_pipeline(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "text", ["transform: {__class_fullname__: A,\n p: 1,\n p: 2}\n", '{"transform": {\n"p": 1,\n"p": 0.5}}']
)
def test_duplicate_key_in_a_pipeline_names_both_lines(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(InputError, match=r"mine.yaml: .*\bp .*line 2 .*line 3\b"):
        load_pipeline(tmp_path / "mine.yaml")


def test_a_pipeline_of_another_version_names_both_versions(tmp_path: Path) -> None:
    step = {"__class_fullname__": "Rotate", "always_apply": False, "p": 1.0}
    (tmp_path / "old.json").write_text(json.dumps({"__version__": "1.3.1", "transform": step}))
    with pytest.raises(InputError, match=rf"old.json: .*\b1.3.1\b.*{A.__version__}.*always_apply"):
        load_pipeline(tmp_path / "old.json")


class Twice(A.ImageOnlyTransform):
    def apply(self, img: np.ndarray, **_: Any) -> Any:
        return np.stack([img, img])


class Listed(A.ImageOnlyTransform):
    def apply_with_params(self, params: dict[str, Any], **data: Any) -> dict[str, Any]:
        return {"image": [data["image"]] * 2}


@pytest.mark.parametrize("call", [lambda augment: augment(IMAGES[:2], seed=0, progress=0.0), lambda a: a.check(64, 32)])
@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ([A.Normalize(p=1.0)], r"turns .* into float32 \(64, 32, 3\)"),
        ([A.CenterCrop(16, 16, p=1.0)], r"turns .* into uint8 \(16, 16, 3\)"),
        ([A.Pad(3, p=1.0)], r"turns .* into uint8 \(70, 38, 3\)"),
        ([A.ToGray(num_output_channels=1, p=1.0)], r"turns .* into uint8 \(64, 32\)"),
        ([Twice(p=1.0)], r"turns .* into uint8 \(2, 64, 32, 3\)"),
        ([Listed(p=1.0)], r"turns .* into list \(2, 64, 32, 3\)"),
        ([A.RandomCrop(512, 512, p=1.0)], "RandomCrop fails on .*exceeds image dimensions.*change or remove"),
        ([A.Mosaic(p=1.0)], "Mosaic fails on .*mosaic_metadata"),
    ],
    ids=range(8),
)
def test_a_pipeline_must_keep_number_size_and_kind(
    steps: list[A.BasicTransform], problem: str, call: Callable[[Augment], object]
) -> None:
    augment = Augment(steps, mean=MEAN, std=STD, name="mine.yaml")
    with pytest.raises(InputError, match=f"^mine.yaml: {problem}"):
        call(augment)


def test_check_applies_steps_whatever_their_probability() -> None:
    with pytest.raises(InputError, match="into float32"):
        of(A.ToFloat(p=1e-9), FLIP).check(64, 32)


@pytest.mark.parametrize("steps", [[RandomErasing(), FLIP], [A.OneOf([GrowingErasing(), A.Blur()]), FLIP]])
def test_erasing_must_be_the_last_step(steps: list[A.BasicTransform]) -> None:
    with pytest.raises(InputError, match=r"^the pipeline: (Random|Growing)Erasing is not the last step; move it"):
        of(*steps)


@pytest.mark.parametrize("progress", [0.0, 0.9])
@pytest.mark.parametrize(
    "steps",
    [
        [A.Transpose(p=0.0), FLIP, GrowingErasing()],
        *([FLIP, *shifted(pad), RandomErasing(fill=MEAN)] for pad in (0, 10, 70)),
    ],
    ids=range(4),
)
def test_a_device_makes_the_same_batch(steps: list[A.BasicTransform], progress: float) -> None:
    augment = of(*steps)
    expected = augment(IMAGES, seed=7, progress=progress)
    pixels, changes = augment.left_to_device(IMAGES, seed=7, progress=progress)
    batch = augment.on_device(pixels, changes)
    assert batch.shape == expected.shape and batch.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(batch.numpy(), expected, rtol=1e-6, atol=1e-6)
    assert changes.flips.any() and (changes.boxes[:, 1] > 0).any()


def test_rows_of_a_batch_equal_those_of_the_whole_batch() -> None:
    augment = of(A.RandomGamma(p=0.5), FLIP, GrowingErasing())
    whole = augment(IMAGES, seed=7, progress=0.5)
    rows = slice(1, None, 3)
    np.testing.assert_array_equal(augment(IMAGES, seed=7, progress=0.5, rows=rows), whole[rows])
    left = augment.left_to_device(IMAGES, seed=7, progress=0.5, rows=rows)
    np.testing.assert_allclose(augment.on_device(*left).numpy(), whole[rows], rtol=1e-6, atol=1e-6)


def test_shift_beyond_the_image_gives_black() -> None:
    augment = of(*shifted(100))
    batch = augment(IMAGES[:50], seed=0, progress=0.0)
    gone = (augment.draw(IMAGES[:50], seed=0, progress=0.0)[1].shifts.abs() >= torch.tensor([64, 32])).any(1).numpy()
    assert gone.any() and not gone.all()
    black = normalised(np.zeros((1, 64, 32, 3)))[0]
    assert [np.allclose(row, black, atol=1e-5) for row in batch] == gone.tolist()


def test_steady_erasing_is_that_of_bot() -> None:
    batch = of(RandomErasing(fill=MEAN))(IMAGES, seed=2, progress=1.0)
    erased = ~np.isclose(batch, normalised(IMAGES), atol=1e-5).all(1)  # (B, H, W)
    assert erased.any()
    assert (batch.transpose(0, 2, 3, 1)[erased] == np.array(MEAN, np.float32)).all()
