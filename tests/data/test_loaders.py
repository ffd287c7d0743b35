"""Batches: in order, repeatable, and the same wherever a run is taken up again."""

import sys
import weakref
from pathlib import Path
from typing import Any

import albumentations as A
import numpy as np
import pytest
import torch
from PIL import Image

from lreid.data.erasing import GrowingErasing
from lreid.data.images import Images
from lreid.data.loaders import Batch, TaskBatches, WithExemplars, batch_loader
from lreid.data.records import Record
from lreid.data.samplers import EpisodeSampler
from lreid.data.synthetic import load_synthetic
from lreid.data.transforms import Augment
from lreid.errors import InputError

STEPS = [A.HorizontalFlip(p=0.5), GrowingErasing()]
AUGMENT = Augment(STEPS, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))


@pytest.fixture(scope="module")
def images() -> Images:
    drawn = load_synthetic("plaza", train_identities=7, test_identities=1, images_per_identity=5, distractors=0, seed=0)
    return Images(drawn.train, height=32, width=16)


def batches(images: Images, *, workers: int = 0, rows: slice = slice(None), **options: Any) -> list[Batch]:
    sampler = EpisodeSampler(images.pids, identities=3, num_support=2, num_query=1, seed=(4, 1))
    dataset = TaskBatches(images, sampler, AUGMENT, epochs=4, **options)
    dataset.rows = rows
    return list(batch_loader(dataset, workers=workers, pin_memory=False))


def same(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a.images, b.images) and torch.equal(a.labels, b.labels) for a, b in zip(one, other, strict=True)
    )


def test_batches_hold_the_images_of_their_labels(images: Images) -> None:
    drawn = batches(images)
    assert len(drawn) == 4 * 2  # epochs x episodes
    for batch in drawn:
        assert batch.images.shape == (9, 3, 32, 16) and batch.images.dtype == torch.float32
        assert batch.images.is_contiguous(memory_format=torch.channels_last)
        assert batch.labels.dtype == torch.int64 and batch.num_support == 2
        assert (batch.labels.view(3, 3) == batch.labels.view(3, 3)[:, :1]).all()

    plain = Augment(mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))
    sampler = EpisodeSampler(images.pids, identities=3, num_support=2, num_query=1, seed=(4, 1))
    batch = TaskBatches(images, sampler, plain, epochs=1)[0]
    known = {
        ((image / 255 - 0.5) / 0.2).astype(np.float32).tobytes(): pid
        for image, pid in zip(images[:], images.pids, strict=True)
    }
    rounded = [image.permute(1, 2, 0).contiguous().numpy() for image in batch.images]
    for image, label in zip(rounded, batch.labels, strict=True):
        nearest = min(known, key=lambda each: np.abs(np.frombuffer(each, np.float32) - image.ravel()).max())
        assert known[nearest] == label


@pytest.mark.parametrize("on_device", [False, True])
def test_process_receives_only_its_own_images(images: Images, on_device: bool) -> None:
    """The others of the batch are NaN, so that they cannot be learned from."""
    whole, part = batches(images, on_device=on_device), batches(images, on_device=on_device, rows=slice(1, None, 2))
    for one, other in zip(whole, part, strict=True):
        assert len(other.images) == 4 and len(one.images) == len(other.labels) == 9
        expected, found = (each.to(torch.device("cpu"), AUGMENT).images for each in (one, other))
        assert found.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(found[1::2], expected[1::2]) and found[::2].isnan().all()


def test_epochs_are_independent(images: Images) -> None:
    everything = batches(images)
    assert same(batches(images, first=6), everything[6:])
    assert same(everything, batches(images))
    assert not same(everything[:2], everything[2:4])


def test_workers_do_not_change_batches(images: Images) -> None:
    assert same(batches(images, workers=2), batches(images))


def test_exemplars_follow_the_images_of_the_task(images: Images) -> None:
    exemplars = np.arange(4, dtype=np.uint8)[:, None, None, None] * np.ones((1, 32, 16, 3), np.uint8)
    joined = WithExemplars(images, exemplars, np.array([-2, -2, -1, -1]))
    assert len(joined) == 39 and joined.pids.tolist() == [*images.pids, -2, -2, -1, -1]
    assert np.array_equal(joined[34], images[34]) and np.array_equal(joined[35], exemplars[0])
    assert np.array_equal(joined[38], exemplars[3])

    def drawn(workers: int = 0, first: int = 0) -> list[Batch]:
        sampler = EpisodeSampler(
            images.pids,
            identities=3,
            num_support=1,
            num_query=1,
            seed=(4, 1),
            exemplars=joined.pids[35:],
            exemplar_share=0.4,
        )
        dataset = TaskBatches(joined, sampler, AUGMENT, epochs=3, first=first)
        return list(batch_loader(dataset, workers=workers, pin_memory=False))

    everything = drawn()
    assert same(everything, drawn(workers=2))
    assert all(same(everything[first:], drawn(first=first)) for first in range(len(everything)))  # from any batch on
    for batch in drawn(0):
        assert [label < 0 for label in batch.labels] == [False] * 6 + [True] * 4


@pytest.mark.skipif(sys.platform != "linux", reason="forks only on Linux")
def test_workers_share_the_images(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(self: Images) -> None:
        raise AssertionError("copied for a worker")

    monkeypatch.setattr(Images, "__getstate__", copied, raising=False)
    assert len(batches(images, workers=2)) == 8


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_image_is_named_in_a_worker_too(tmp_path: Path, workers: int) -> None:
    for number in range(6):
        Image.new("RGB", (4, 4)).save(tmp_path / f"{number}.png")
    records = [Record(str(tmp_path / f"{number}.png"), number // 2, 0) for number in range(6)]
    images = Images(records, height=32, width=16, cache_gib=0.0)  # decoded when they are asked for
    (tmp_path / "4.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"4\.png"):
        batches(images, workers=workers)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_images_of_past_tasks_are_freed(tmp_path: Path, workers: int) -> None:
    for number in range(24):
        Image.new("RGB", (4, 4), (number, 0, 0)).save(tmp_path / f"{number}.png")

    def learn(task: int) -> tuple[weakref.ref, weakref.ref]:
        records = [Record(str(tmp_path / f"{number}.png"), number // 4, 0) for number in range(24)]
        images = Images(records, height=32, width=16)
        sampler = EpisodeSampler(images.pids, identities=3, num_support=1, num_query=1, seed=(0, task))
        dataset = TaskBatches(images, sampler, AUGMENT, epochs=1)
        for batch in batch_loader(dataset, workers=workers, pin_memory=False):
            assert len(batch.labels) == 6
        return weakref.ref(images), weakref.ref(images._cache)

    assert [ref for task in range(3) for ref in learn(task) if ref() is not None] == []
