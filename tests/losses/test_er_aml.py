import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import dot, draw

from lreid.losses import er_aml_loss, er_aml_triplet_loss, sample_pairs


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def others(labels, classes, seed=0):
    """Another label for each."""
    steps = torch.randint(1, classes, (len(labels),), generator=generator(seed))
    return (torch.tensor(labels, dtype=torch.int64) + steps) % classes


def normalized(row):
    length = math.sqrt(dot(row, row)) + 1e-5
    return [x / length for x in row]


def supcon(anchors, positives, negatives, labels, negative_labels, temperature, base, denominator="all"):
    """The loss by nested loops."""
    candidates = [normalized(row) for row in (*positives, *negatives)]
    candidate_labels = [*labels, *negative_labels]
    total = 0.0
    for anchor, label in zip(anchors, labels, strict=True):
        scores = [dot(normalized(anchor), row) / temperature for row in candidates]
        counted = [denominator == "all" or own != label for own in candidate_labels]
        against = sum(math.exp(score) for score, each in zip(scores, counted, strict=True) if each)
        terms = [
            math.log(against / math.exp(score))
            for score, own in zip(scores, candidate_labels, strict=True)
            if own == label
        ]
        total += sum(terms) / len(terms)
    return total / max(len(labels), 1) * temperature / base


def triplet(anchors, positives, negatives, margin):
    """The loss by nested loops; torch adds 1e-6 to every difference."""
    total = 0.0
    for rows in zip(anchors, positives, negatives, strict=True):
        anchor, positive, negative = (normalized(row) for row in rows)
        own, other = (
            math.sqrt(sum((x - y + 1e-6) ** 2 for x, y in zip(anchor, row, strict=True)))
            for row in (positive, negative)
        )
        total += max(own - other + margin, 0)
    return total / max(len(anchors), 1)


@given(
    st.lists(st.integers(0, 4), max_size=9),
    st.integers(0, 99),
    st.floats(0.05, 2),
    st.floats(0.05, 2),
    st.floats(0, 10),
    st.sampled_from(["all", "negatives"]),
)
def test_loss_matches_loops(labels, seed, temperature, base, scale, denominator):
    features, negative_labels = draw(3, len(labels), 4, seed=seed, scale=scale), others(labels, 5, seed)
    loss = er_aml_loss(
        *features,
        torch.tensor(labels, dtype=torch.int64),
        negative_labels,
        temperature=temperature,
        base_temperature=base,
        denominator=denominator,
    )
    rows = (part.tolist() for part in features)
    expected = supcon(*rows, labels, negative_labels.tolist(), temperature, base, denominator)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(st.integers(0, 9), st.integers(0, 99), st.floats(0.01, 2))
def test_triplet_matches_the_loops(rows, seed, margin):
    features = draw(3, rows, 4, seed=seed)
    loss = er_aml_triplet_loss(*features, margin=margin)
    expected = triplet(*(part.tolist() for part in features), margin)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def allowed(labels, memory, negatives):
    """Rows that each image may draw as ``{row: (positives, negatives)}``, for images with both."""
    candidates, result = labels + memory, {}
    for row, label in enumerate(labels):
        positive = [i for i, other in enumerate(candidates) if other == label and i != row]
        negative = [
            i for i, other in enumerate(candidates) if other != label and (negatives == "all" or other in labels)
        ]
        if positive and negative:
            result[row] = positive, negative
    return result


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=10),
    st.lists(st.integers(0, 6), max_size=10),
    st.sampled_from(["incoming", "all"]),
    st.integers(0, 99),
)
def test_pairs_are_drawn_from_allowed_images(labels, memory, negatives, seed):
    expected = allowed(labels, memory, negatives)
    arguments = torch.tensor(labels), torch.tensor(memory, dtype=torch.int64)
    pairs = sample_pairs(*arguments, generator(seed), negatives=negatives)
    assert pairs.anchor.tolist() == list(expected)
    for (positives, others), positive, negative in zip(
        expected.values(), pairs.positive.tolist(), pairs.negative.tolist(), strict=True
    ):
        assert positive in positives and negative in others
    again = sample_pairs(*arguments, generator(seed), negatives=negatives)
    assert all(first.equal(second) for first, second in zip(pairs, again, strict=True))


@pytest.mark.parametrize("negatives", ["incoming", "all"])
def test_pairs_are_uniform(negatives):
    labels, memory = [1, 0, 1, 2, 3], [0, 4, 1, 1, 4, 2, 5, 2]
    expected, random = allowed(labels, memory, negatives), generator(5)
    assert list(expected) == [0, 1, 2, 3]  # 3 has no other image
    draws = [sample_pairs(torch.tensor(labels), torch.tensor(memory), random, negatives=negatives) for _ in range(1000)]
    statistic = freedom = 0.0
    for column, choices in enumerate(expected.values()):
        for rows, part in zip(choices, ("positive", "negative"), strict=True):
            drawn = torch.stack([getattr(pairs, part)[column] for pairs in draws]).tolist()
            mean = len(draws) / len(rows)
            statistic += sum((drawn.count(row) - mean) ** 2 / mean for row in rows)
            freedom += len(rows) - 1
    assert statistic < freedom + 4 * math.sqrt(2 * freedom)  # four standard deviations of chi-square
