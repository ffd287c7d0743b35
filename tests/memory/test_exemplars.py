"""The memory: never over its budget, evenly shared, and with the pixels that belong to its labels."""

import io
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lreid.memory import SELECTIONS, ExemplarMemory, select
from lreid.memory.selection import importance_weights

GOLDEN = Path(__file__).parents[1] / "golden"


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


def scored(counts: list[int], first: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As :func:`identities`, with scores, which are the number of an image within its identity and 1."""
    images, labels, _ = identities(counts, first)
    return images, labels, 1.0 + images[:, 0, 0, 1]


def fill(memory: ExemplarMemory, tasks: list[list[int]]) -> None:
    for counts in tasks:
        if memory.selection == "importance":
            memory.add(*scored(counts, memory.seen), kept_scores=1.0 + np.arange(len(memory)))
        else:
            memory.add(*identities(counts, memory.seen))


@given(
    tasks=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=6),
    budget=st.integers(0, 60),
    least=st.integers(1, 4),
    selection=st.sampled_from(["herding", "nearest", "random"]),
    seed=st.integers(0, 9),
)
def test_memory_is_shared_evenly_within_the_budget(
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
        assert len(kept) == (len(counts) if budget // len(counts) >= least else min(len(counts), budget // least))
        for label, number in zip(kept, images, strict=True):
            assert number == min(quota, counts[label])
            own = memory.images[memory.labels == label]
            assert len(np.unique(own[..., 1])) == number  # no image twice
            if label in before:  # shrunk to its first ones
                assert np.array_equal(own, before[label][:number])
    assert memory.seen == len(counts)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_stored_images_keep_their_order(selection: str) -> None:
    memory = ExemplarMemory(9, selection=selection, seed=4)
    images, labels, values = (scored if selection == "importance" else identities)([7, 8, 9])
    memory.add(images, labels, values)
    for label in range(3):
        rows = np.flatnonzero(labels == label)
        best = rows[select(values[rows], 3, selection, (4, label))]
        assert np.array_equal(memory.images[memory.labels == label], images[best])


@pytest.mark.slow
def test_stored_identities_are_a_uniform_sample() -> None:
    stays = np.zeros(20)
    for seed in range(100):
        memory = ExemplarMemory(20, seed=seed)
        fill(memory, [[3] * 5] * 4)
        assert len(memory) == 20
        stays[np.unique(memory.labels)] += 1
    assert (np.abs(stays - 50) < 23).all()  # deviation 5


def test_stored_identities_depend_only_on_the_seed() -> None:
    """It does not matter in how many tasks the identities came."""
    kept = []
    for tasks in ([[4] * 12], [[4] * 3] * 4):
        memory = ExemplarMemory(10, seed=7)
        fill(memory, tasks)
        kept.append(np.unique(memory.labels).tolist())
    assert kept[0] == kept[1] and len(kept[0]) == 5


def test_only_selected_images_are_read() -> None:
    images, labels, features = identities([6, 6])

    class Counting(list):
        looked = 0

        def __getitem__(self, index):
            Counting.looked += 1
            return images[index]

    ExemplarMemory(5).add(Counting(images), labels, features)
    assert Counting.looked == 4


@pytest.mark.slow
@given(
    tasks=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=6),
    budget=st.integers(0, 60),
    least=st.integers(1, 3),
    selection=st.sampled_from(SELECTIONS),
    seed=st.integers(0, 9),
)
def test_filled_memory_has_shares_that_differ_by_one(
    tasks: list[list[int]], budget: int, least: int, selection: str, seed: int
) -> None:
    memory = ExemplarMemory(budget, least=least, selection=selection, fill=True, seed=seed)
    plain = ExemplarMemory(budget, least=least, selection=selection, seed=seed)
    counts: list[int] = []
    for task in tasks:
        fill(memory, [task]), fill(plain, [task])
        counts += task
        shares, even = Counter(memory.labels.tolist()), Counter(plain.labels.tolist())
        assert shares >= even and set(shares) == set(even) and len(memory) <= budget
        everybody = budget // len(counts) >= least  # else some identities are left out, with their images
        if everybody:
            assert len(memory) == min(budget, sum(counts))
        for label, share in shares.items():
            # Fewer than another's only where it has no more, or by one.
            assert share == counts[label] or share >= max(shares.values()) - 1 or not everybody
            own = memory.images[memory.labels == label]
            assert (own[..., 0] == label).all() and len(np.unique(own[..., 1])) == share


@pytest.mark.parametrize("selection", ["herding", "nearest", "random"])
def test_filled_memory_does_not_depend_on_task_boundaries(selection: str) -> None:
    """Nothing that later would have its place is dropped on the way."""
    counts = [9, 3, 8, 7, 1, 9, 6, 8, 9]
    whole = ExemplarMemory(31, selection=selection, fill=True, seed=2)
    parts = ExemplarMemory(31, selection=selection, fill=True, seed=2)
    drawn = identities(counts)
    whole.add(*drawn)
    for labels in ([0, 1], [2, 3, 4, 5], [6], [7, 8]):
        rows = np.isin(drawn[1], labels)
        parts.add(*(values[rows] for values in drawn))
    assert np.array_equal(whole.images, parts.images) and np.array_equal(whole.labels, parts.labels)
    assert len(whole) == 31


def test_importance_draws_by_scores_and_stores_weights() -> None:
    """Of an identity's four images with scores 1 to 4 one is kept, and it is each in its share of 2000 draws."""
    found: Counter[int] = Counter()
    for seed in range(20):
        memory = ExemplarMemory(100, least=1, selection="importance", seed=seed)
        memory.add(*scored([4] * 100))
        numbers = memory.images[:, 0, 0, 1]
        assert np.allclose(memory.extras["weights"], (1 + numbers) / 10)
        found.update(numbers.tolist())
    expected = {number: 200 * (1 + number) for number in range(4)}
    assert sum((found[n] - e) ** 2 / e for n, e in expected.items()) < 16.3  # 3 degrees of freedom, p = 0.001


def test_stored_images_are_drawn_again_by_new_scores() -> None:
    found: Counter[int] = Counter()
    for seed in range(10):
        memory = ExemplarMemory(200, least=1, selection="importance", seed=seed)
        memory.add(*scored([2] * 100))
        assert len(memory) == 200 and np.allclose(memory.extras["weights"], (1 + memory.images[:, 0, 0, 1]) / 3)
        new = 4.0 - 3 * memory.images[:, 0, 0, 1]  # 4 for an identity's first image, 1 for its second
        memory.add(*scored([1] * 100, 100), kept_scores=new)
        assert len(memory) == 200
        old = memory.labels < 100
        numbers = memory.images[old, 0, 0, 1]
        assert np.allclose(memory.extras["weights"][old], (4 - 3.0 * numbers) / 5)
        assert (memory.extras["weights"][~old] == 1).all()
        found.update(numbers.tolist())
    expected = {0: 800, 1: 200}
    assert sum((found[n] - e) ** 2 / e for n, e in expected.items()) < 10.8  # 1 degree of freedom, p = 0.001


def test_importance_without_scores_is_refused() -> None:
    memory = ExemplarMemory(9, selection="importance")
    with pytest.raises(ValueError, match=r"scores must be \(3,\)"):
        memory.add(*identities([3]))
    assert len(memory) == memory.seen == 0
    memory.add(*scored([3]))
    with pytest.raises(ValueError, match=r"scores must be \(3,\)"):
        memory.add(*scored([3], 1))
    assert len(memory) == 3 and memory.seen == 1


@pytest.mark.parametrize("name", sorted(file.stem for file in GOLDEN.glob("cclis_scores_*.npz")))
def test_importance_weights_equal_golden_cases(name: str) -> None:
    golden = np.load(GOLDEN / f"{name}.npz")
    if "weight_within_class" in golden and np.isfinite(golden["weight_within_class"]).all():
        weights = importance_weights(golden["score_oracle_code"], golden["label"])
        np.testing.assert_allclose(weights, golden["weight_within_class"], rtol=1e-6)


@given(st.lists(st.tuples(st.integers(-2, 3), st.sampled_from([0.0, 1e-30, 0.2, 3.0])), max_size=12))
def test_importance_weights_match_loops(images: list[tuple[int, float]]) -> None:
    labels, scores = np.array([label for label, _ in images], int), np.array([score for _, score in images])
    expected = []
    for label, score in images:
        own = [other for name, other in images if name == label]
        expected.append(score / sum(own) if sum(own) else 1 / len(own))
    assert importance_weights(scores, labels).tolist() == pytest.approx(expected, rel=1e-9)


def test_peak_memory_stays_within_the_budget() -> None:
    """Shrinking moves images in their places; beside them only those that come in are looked at, one at a time."""
    images = [np.zeros((64, 32, 3), np.uint8)] * 60
    memory = ExemplarMemory(200, selection="random")
    memory.add(images, np.arange(60) // 6, np.zeros((60, 1)))
    tracemalloc.start()
    for task in range(1, 6):
        memory.add(images, 10 * task + np.arange(60) // 6, np.zeros((60, 1)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(memory) == 180 and peak < 30 * images[0].nbytes


def test_identity_may_be_added_once() -> None:
    memory = ExemplarMemory(10)
    memory.add(*identities([2, 2]))
    with pytest.raises(ValueError, match="in the memory already"):
        memory.add(*identities([2, 2], first=1))
    assert memory.seen == 2 and len(memory) == 4


def test_state_survives_a_file() -> None:
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
