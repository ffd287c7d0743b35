"""Batches: in order, repeatable, and the same wherever a run is taken up again."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lreid.data.images import Images
from lreid.data.loaders import Batch, TaskBatches, WithExemplars, batch_loader
from lreid.data.samplers import EpisodeSampler
from lreid.data.synthetic import load_synthetic
from lreid.data.transforms import Augment

AUGMENT = Augment(flip=0.5, erasing=True, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))


@pytest.fixture(scope="module")
def images() -> Images:
    drawn = load_synthetic(
        "plaza", train_identities=7, test_identities=1, images_per_identity=5, distractors=0, seed=0
    )
    return Images(drawn.train, height=32, width=16)


def batches(images: Images, *, workers: int = 0, **options: int) -> list[Batch]:
    sampler = EpisodeSampler(images.pids, identities=3, num_support=2, num_query=1, seed=(4, 1))
    dataset = TaskBatches(images, sampler, AUGMENT, epochs=4, **options)
    return list(batch_loader(dataset, workers=workers, pin_memory=False))


def same(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a.images, b.images) and torch.equal(a.labels, b.labels)
        for a, b in zip(one, other, strict=True)
    )


def test_batches_hold_the_images_of_their_labels(images: Images) -> None:
    drawn = batches(images)
    assert len(drawn) == 4 * 2  # epochs x episodes
    for batch in drawn:
        assert batch.images.shape == (9, 3, 32, 16) and batch.images.dtype == torch.float32
        assert batch.images.is_contiguous(memory_format=torch.channels_last)
        assert batch.labels.dtype == torch.int64 and batch.num_support == 2
        assert (batch.labels.view(3, 3) == batch.labels.view(3, 3)[:, :1]).all()

    plain = Augment(flip=0.0, erasing=False, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))
    sampler = EpisodeSampler(images.pids, identities=3, num_support=2, num_query=1, seed=(4, 1))
    batch = TaskBatches(images, sampler, plain, epochs=1)[0]
    known = {((image / 255 - 0.5) / 0.2).astype(np.float32).tobytes(): pid
             for image, pid in zip(images[:], images.pids, strict=True)}  # fmt: skip
    rounded = [image.permute(1, 2, 0).contiguous().numpy() for image in batch.images]
    for image, label in zip(rounded, batch.labels, strict=True):
        nearest = min(known, key=lambda each: np.abs(np.frombuffer(each, np.float32) - image.ravel()).max())
        assert known[nearest] == label


def test_later_epochs_do_not_need_the_ones_before(images: Images) -> None:
    everything = batches(images)
    assert same(batches(images, first_epoch=3), everything[6:])
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

    def drawn(workers: int) -> list[Batch]:
        sampler = EpisodeSampler(
            images.pids, identities=3, num_support=1, num_query=1, seed=(4, 1),
            exemplars=joined.pids[35:], exemplar_share=0.4,
        )  # fmt: skip
        dataset = TaskBatches(joined, sampler, AUGMENT, epochs=3)
        return list(batch_loader(dataset, workers=workers, pin_memory=False))

    assert same(drawn(0), drawn(2))
    for batch in drawn(0):
        assert [label < 0 for label in batch.labels] == [False] * 4 + [True] * 2
