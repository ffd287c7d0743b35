"""The memory: never over its budget, evenly shared, and with the pixels that belong to its labels."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lreid.memory import SELECTIONS, ExemplarMemory, select


def identities(counts: list[int], first: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shuffled 2 x 1 images of so many identities, each with its label and its number within, and features."""
    labels = np.concatenate([np.full(n, first + i) for i, n in enumerate(counts)])
    numbers = np.concatenate([np.arange(n) for n in counts])
    rng = np.random.default_rng(first)
    order = rng.permutation(len(labels))
    labels, numbers = labels[order], numbers[order]
    images = np.zeros((len(labels), 2, 1, 3), np.uint8)
    images[..., 0], images[..., 1] = labels[:, None, None], numbers[:, None, None]
    return images, labels, rng.normal(size=(len(labels), 4)).astype(np.float32)


def fill(memory: ExemplarMemory, tasks: list[list[int]]) -> None:
    first = 0
    for counts in tasks:
        memory.add(*identities(counts, first))
        first += len(counts)


@given(
    tasks=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=6),
    budget=st.integers(0, 60),
    least=st.integers(1, 4),
    selection=st.sampled_from(SELECTIONS),
    seed=st.integers(0, 9),
)
def test_never_over_budget_and_evenly_shared(
    tasks: list[list[int]], budget: int, least: int, selection: str, seed: int
) -> None:
    memory = ExemplarMemory(budget, least=least, selection=selection, seed=seed)
    counts: list[int] = []
    for task in tasks:
        before = {label: memory.images[memory.labels == label] for label in np.unique(memory.labels)}
        memory.add(*identities(task, len(counts)))
        counts += task
        assert len(memory) == len(memory.images) == len(memory.labels) <= budget
        assert memory.labels.dtype == np.int64 and (np.diff(memory.labels) >= 0).all()
        if len(memory):
            assert (memory.images[..., 0] == memory.labels[:, None, None]).all()  # pixels of their label
            assert memory.images.dtype == np.uint8 and memory.images.shape[1:] == (2, 1, 3)
        quota = max(budget // len(counts), least)
        kept, images = np.unique(memory.labels, return_counts=True)
        assert len(kept) == (
            len(counts) if budget // len(counts) >= least else min(len(counts), budget // least)
        )
        for label, number in zip(kept, images, strict=True):
            assert number == min(quota, counts[label])
            own = memory.images[memory.labels == label]
            assert len(np.unique(own[..., 1])) == number  # no image twice
            if label in before:  # shrunk to its first ones
                assert np.array_equal(own, before[label][:number])
    assert memory.seen == len(counts)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_selected_images_are_kept_in_their_order(selection: str) -> None:
    memory = ExemplarMemory(9, selection=selection, seed=4)
    images, labels, features = identities([7, 8, 9])
    memory.add(images, labels, features)
    for label in range(3):
        rows = np.flatnonzero(labels == label)
        best = rows[select(features[rows], 3, selection, (4, label))]
        assert np.array_equal(memory.images[memory.labels == label], images[best])


def test_the_identities_that_stay_are_a_fair_sample_of_all_seen() -> None:
    """Each of 20 identities in four tasks stays in about half of 400 memories with room for ten."""
    stays = np.zeros(20)
    for seed in range(400):
        memory = ExemplarMemory(20, seed=seed)
        fill(memory, [[3] * 5] * 4)
        assert len(memory) == 20
        stays[np.unique(memory.labels)] += 1
    assert (np.abs(stays - 200) < 45).all()  # deviation 10


def test_who_stays_follows_from_the_seed_alone() -> None:
    """It does not matter in how many tasks the identities came."""
    kept = []
    for tasks in ([[4] * 12], [[4] * 3] * 4):
        memory = ExemplarMemory(10, seed=7)
        fill(memory, tasks)
        kept.append(np.unique(memory.labels).tolist())
    assert kept[0] == kept[1] and len(kept[0]) == 5


def test_only_the_chosen_images_are_looked_at() -> None:
    images, labels, features = identities([6, 6])

    class Counting(list):
        looked = 0

        def __getitem__(self, index):
            Counting.looked += 1
            return images[index]

    ExemplarMemory(5).add(Counting(images), labels, features)
    assert Counting.looked == 4


def test_an_identity_comes_once() -> None:
    memory = ExemplarMemory(10)
    memory.add(*identities([2, 2]))
    with pytest.raises(ValueError, match="in the memory already"):
        memory.add(*identities([2, 2], first=1))
    assert memory.seen == 2 and len(memory) == 4


def test_the_state_goes_through_a_file_and_back() -> None:
    memory, other = ExemplarMemory(9, seed=3), ExemplarMemory(9, seed=8)
    fill(memory, [[4, 4], [5]])
    file = io.BytesIO()
    torch.save(memory.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert np.array_equal(memory.images, other.images) and np.array_equal(memory.labels, other.labels)
    more = identities([4, 4, 4], first=3)
    memory.add(*more), other.add(*more)
    assert len(np.unique(memory.labels)) == 4  # some are dropped, by the seed that was loaded
    assert np.array_equal(memory.images, other.images) and np.array_equal(memory.labels, other.labels)
    empty = ExemplarMemory(9)
    empty.load_state_dict(ExemplarMemory(9).state_dict())
    assert len(empty) == 0


def test_impossible_options() -> None:
    for options in ({"budget": -1}, {"budget": 5, "least": 0}):
        with pytest.raises(ValueError, match="budget must be 0 or more and least 1 or more"):
            ExemplarMemory(**options)
