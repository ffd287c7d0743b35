"""The stream memory: fair, by its policy, never over its budget, and the same after a break."""

import io
import tracemalloc
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lreid.memory import POLICIES, StreamMemory

GOLDEN = Path(__file__).parents[1] / "golden"


def feed(memory: StreamMemory, count: int) -> None:
    """The next images, each with its number in the stream as pixel, label (modulo 7) and score (modulo 5)."""
    numbers = memory.seen + np.arange(count)
    images = np.zeros((count, 2, 1, 3), np.uint8)
    images[:] = numbers[:, None, None, None]
    memory.add(images, numbers % 7, scores=numbers % 5.0)


def numbers_in(memory: StreamMemory) -> list[int]:
    return [int(image[0, 0, 0]) for image in memory.images]


def kept(memory: StreamMemory) -> list[int]:
    return sorted(numbers_in(memory))


def chi_square(counts: list[int]) -> float:
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 for count in counts) / expected


@pytest.mark.parametrize("policy", ["reservoir", "random"])
def test_random_policy_keeps_images_with_equal_probability(policy: str) -> None:
    found: Counter[tuple[int, ...]] = Counter()
    for seed in range(1000):
        memory = StreamMemory(3, policy, seed=seed)
        feed(memory, 3)
        feed(memory, 3)
        found[tuple(kept(memory))] += 1
    assert set(found) == set(combinations(range(6), 3))
    assert chi_square(list(found.values())) < 43.8  # 19 degrees of freedom, p = 0.001


@given(segments=st.lists(st.integers(0, 9), max_size=8), budget=st.integers(0, 6), seed=st.integers(0, 99))
def test_reservoir_does_not_depend_on_batch_sizes(segments: list[int], budget: int, seed: int) -> None:
    """Nor on what is drawn in between. And it is Vitter's Algorithm R, image by image."""
    memory, numbers = StreamMemory(budget, seed=seed), []
    for count in segments:
        feed(memory, count)
        memory.draw(2)
    draws = np.random.default_rng(seed)
    for number in range(sum(segments)):
        place = int(draws.random() * (number + 1))
        if number < budget:
            numbers.append(number)
        elif place < budget:
            numbers[place] = number
    assert numbers_in(memory) == numbers


@given(
    segments=st.lists(st.integers(0, 12), max_size=8),
    budget=st.integers(0, 9),
    policy=st.sampled_from(POLICIES),
    seed=st.integers(0, 9),
)
def test_extras_stay_with_their_images_within_the_budget(
    segments: list[int], budget: int, policy: str, seed: int
) -> None:
    memory = StreamMemory(budget, policy, seed=seed)
    came: list[int] = []
    for step, count in enumerate(segments):
        before = set(kept(memory))
        feed(memory, count)
        came += [step] * count
        assert len(memory) == len(memory.images) == len(memory.labels) == min(budget, len(came))
        assert memory.nbytes == 6 * len(memory)
        numbers = np.array(numbers_in(memory), int)
        assert len(set(numbers)) == len(numbers)
        assert set(numbers) <= before | set(range(len(came) - count, len(came)))
        assert np.array_equal(memory.labels, numbers % 7)
        assert np.array_equal(memory.extras["numbers"], numbers)
        assert np.array_equal(memory.extras["scores"], numbers % 5)
        assert memory.ages.tolist() == [step + 1 - came[number] for number in numbers]
    assert memory.seen == len(came) and memory.steps == len(segments)


@given(segments=st.lists(st.integers(0, 12), max_size=8), budget=st.integers(0, 9))
def test_fifo_keeps_the_newest_and_scored_the_highest(segments: list[int], budget: int) -> None:
    newest, highest = StreamMemory(budget, "fifo"), StreamMemory(budget, "scored")
    for count in segments:
        feed(newest, count), feed(highest, count)
    everything = range(sum(segments))
    assert kept(newest) == list(everything)[max(0, len(everything) - budget) :]
    assert kept(highest) == sorted(sorted(everything, key=lambda number: (-(number % 5), number))[:budget])


@pytest.mark.parametrize("name", ["contrast_score_basic", "contrast_score_flip_invariant"])
def test_contrast_selection_equals_golden_cases(name: str) -> None:
    golden = np.load(GOLDEN / f"{name}.npz")
    size = len(golden["score_buffer"])
    memory, images = StreamMemory(size, "scored"), np.zeros((size, 1, 1, 3), np.uint8)
    for scores in (golden["score_buffer"], golden["score_incoming"]):
        memory.add(images, np.zeros(size, int), scores=scores)
    assert np.array_equal(np.sort(memory.extras["numbers"]), golden["selected"])


@pytest.mark.parametrize(("name", "interval"), [("contrast_score_basic", 4), ("contrast_score_flip_invariant", 1)])
def test_lazy_scoring_equals_golden_cases(name: str, interval: int) -> None:
    golden = np.load(GOLDEN / f"{name}.npz")
    age, fresh = golden["age0"], golden["fresh_scores"]
    memory, order = StreamMemory(len(age), "scored"), []
    for wanted in range(age.max(), 0, -1):  # so that every image has its age
        items = np.flatnonzero(age == wanted)
        memory.add(np.zeros((len(items), 1, 1, 3), np.uint8), items, scores=fresh[0, items])
        order += items.tolist()
    assert np.array_equal(memory.ages, age[order])
    for step in range(len(fresh)):
        due = memory.due(interval) if step else np.arange(len(age))  # at first there are no scores
        assert np.array_equal(np.sort(memory.labels[due]), np.flatnonzero(golden["rescored"][step]))
        memory.extras["scores"][due] = fresh[step, memory.labels[due]]
        assert np.array_equal(memory.extras["scores"], golden["lazy_scores"][step, memory.labels])
        memory.add(np.zeros((0, 1, 1, 3), np.uint8), np.empty(0, int), scores=np.empty(0))


def test_images_are_due_after_the_interval() -> None:
    memory = StreamMemory(4, "scored")
    feed(memory, 2)
    rescored = []
    for _ in range(7):
        rescored.append(len(memory.due(3)))
        feed(memory, 0)
    assert rescored == [0, 0, 2, 0, 0, 2, 0]


def test_peak_memory_stays_within_budget_and_segment() -> None:
    """Pixels are written in place: adding takes no room beyond that of the incoming images."""
    for policy in POLICIES:
        memory = StreamMemory(100, policy)
        segment = np.zeros((10, 64, 32, 3), np.uint8)
        for step in range(30):
            if step == 1:
                tracemalloc.start()
                before = tracemalloc.get_traced_memory()[0]
            memory.add(segment, np.arange(10), scores=np.arange(10.0) + step)
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        assert peak < segment.nbytes


def test_draws_are_without_replacement_and_fair() -> None:
    memory = StreamMemory(14)
    feed(memory, 14)
    counts = np.zeros(14)
    for _ in range(1500):
        rows = memory.draw(4)
        assert len(set(rows.tolist())) == 4
        counts[rows] += 1
    assert chi_square(counts.tolist()) / (10 / 14) * 13 / 14 < 34.5  # 13 degrees of freedom, p = 0.001
    assert memory.draw(99).tolist() == memory.draw(14).tolist() == list(range(14))
    assert sorted(memory.draw(20, exclude=[0, 3])) == [row for row in range(14) if row % 7 not in (0, 3)]
    assert set(memory.labels[memory.draw(5, exclude=np.arange(6))]) == {6}
    assert len(StreamMemory(3).draw(2)) == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_restored_memory_continues_bit_for_bit(policy: str) -> None:
    memory, other = StreamMemory(8, policy, seed=3), StreamMemory(8, policy, seed=4)
    for count in (5, 6, 7):
        feed(memory, count)
    feed(other, 3)
    memory.draw(2)
    file = io.BytesIO()
    torch.save(memory.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    for count in (0, 4, 9):
        feed(memory, count), feed(other, count)
        assert np.array_equal(memory.draw(5), other.draw(5))
    one, two = memory.state_dict(), other.state_dict()
    for name in ("images", "labels"):
        assert torch.equal(one.pop(name), two.pop(name))
    for name, values in one.pop("extras").items():
        assert torch.equal(values, two["extras"].pop(name))
    assert two.pop("extras") == {} and one == two


def test_state_contains_only_stored_images() -> None:
    """Not of the room that is left."""
    memory, file = StreamMemory(1000), io.BytesIO()
    memory.add(np.zeros((2, 64, 32, 3), np.uint8), np.zeros(2, int))
    torch.save(memory.state_dict(), file)
    assert file.tell() < 2 * 64 * 32 * 3 + 10_000
    empty = StreamMemory(5)
    empty.load_state_dict(StreamMemory(5).state_dict())
    feed(empty, 2)
    assert kept(empty) == [0, 1]


def test_bad_stream_options_are_refused() -> None:
    with pytest.raises(ValueError, match="'lifo'"):
        StreamMemory(4, "lifo")
    with pytest.raises(ValueError, match="the policy scored needs scores"):
        StreamMemory(4, "scored").add(np.zeros((1, 1, 1, 3), np.uint8), np.zeros(1, int))


@given(labels=st.lists(st.integers(0, 4), max_size=40), count=st.integers(1, 12), each=st.integers(1, 5))
def test_draw_by_identity_limits_images_per_identity(labels: list[int], count: int, each: int) -> None:
    memory = StreamMemory(30)
    memory.add(np.zeros((len(labels), 2, 2, 3), np.uint8), np.array(labels, np.int64))
    rows = memory.draw(count, each=each, exclude=[4])
    drawn = memory.labels[rows].tolist()
    available = Counter(label for label in memory.labels.tolist() if label != 4)
    assert len(set(rows.tolist())) == len(rows) == min(count, sum(min(each, n) for n in available.values()))
    whole = [min(each, available[label]) for label in dict.fromkeys(drawn)]  # but for the last one, cut off by count
    assert [drawn.count(label) for label in dict.fromkeys(drawn)][:-1] == whole[:-1]
    assert all(drawn.count(label) <= each for label in drawn) and 4 not in drawn
