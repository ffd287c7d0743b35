import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import golden_names, load_golden

from lreid.losses import er_aml_loss, er_aml_triplet_loss, sample_pairs


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def draw(rows, width=4, seed=0, scale=1.0):
    """Anchors, positives and negatives."""
    features = scale * torch.randn(3, rows, width, generator=generator(seed), dtype=torch.float64)
    return features.unbind()


def others(labels, classes, seed=0):
    """Another label for each."""
    steps = torch.randint(1, classes, (len(labels),), generator=generator(seed))
    return (torch.tensor(labels, dtype=torch.int64) + steps) % classes


def normalized(row):
    length = math.sqrt(sum(x * x for x in row)) + 1e-5
    return [x / length for x in row]


def supcon(anchors, positives, negatives, labels, negative_labels, temperature, base, only_negatives):
    """The loss by nested loops."""
    candidates = [normalized(row) for row in (*positives, *negatives)]
    candidate_labels = [*labels, *negative_labels]
    total = 0.0
    for anchor, label in zip(anchors, labels, strict=True):
        scores = [sum(x * y for x, y in zip(normalized(anchor), row, strict=True)) / temperature for row in candidates]
        terms = []
        for score, own in zip(scores, candidate_labels, strict=True):
            if own == label:
                below = [
                    other
                    for other, its in zip(scores, candidate_labels, strict=True)
                    if its != label or not only_negatives
                ]
                terms.append(math.log(sum(math.exp(other - score) for other in below)))
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


@pytest.mark.parametrize("name", golden_names("er_aml"))
def test_golden(name):
    hyper, arrays = load_golden(name)
    valid = ~arrays["invalid"]
    features = [arrays[key].requires_grad_() for key in ("hidden", "pos", "neg")]
    loss = er_aml_loss(
        *(rows[valid] for rows in features),
        arrays["y"][valid],
        arrays["y_neg"][valid],
        temperature=hyper["temperature"],
        base_temperature=hyper["base_temperature"],
    )
    loss.backward()
    torch.testing.assert_close(loss.detach(), arrays["loss"], rtol=1e-9, atol=0)
    for rows, key in zip(features, ("grad", "grad_pos", "grad_neg"), strict=True):
        expected = arrays.get(key, torch.zeros_like(rows))
        torch.testing.assert_close(rows.grad, expected, rtol=1e-9, atol=1e-12)


@given(
    st.lists(st.integers(0, 4), max_size=9),
    st.integers(0, 99),
    st.floats(0.05, 2),
    st.floats(0.05, 2),
    st.booleans(),
    st.floats(0, 10),
)
@settings(deadline=None, max_examples=60)
def test_matches_the_loops(labels, seed, temperature, base, only_negatives, scale):
    features, negative_labels = draw(len(labels), seed=seed, scale=scale), others(labels, 5, seed)
    loss = er_aml_loss(
        *features,
        torch.tensor(labels, dtype=torch.int64),
        negative_labels,
        temperature=temperature,
        base_temperature=base,
        denominator="negatives" if only_negatives else "all",
    )
    rows = (part.tolist() for part in features)
    expected = supcon(*rows, labels, negative_labels.tolist(), temperature, base, only_negatives)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(st.integers(0, 9), st.integers(0, 99), st.floats(0.01, 2))
@settings(deadline=None, max_examples=40)
def test_triplet_matches_the_loops(rows, seed, margin):
    features = draw(rows, seed=seed)
    loss = er_aml_triplet_loss(*features, margin=margin)
    expected = triplet(*(part.tolist() for part in features), margin)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


LABELS, NEGATIVE_LABELS = torch.tensor([0, 1, 0, 2]), torch.tensor([1, 0, 2, 5])


@pytest.mark.parametrize("denominator", ["all", "negatives"])
def test_gradient(denominator):
    features = [rows.clone().requires_grad_() for rows in draw(4)]
    assert torch.autograd.gradcheck(
        lambda *rows: er_aml_loss(*rows, LABELS, NEGATIVE_LABELS, denominator=denominator), features
    )
    assert torch.autograd.gradcheck(er_aml_triplet_loss, features)


def test_the_negative_of_one_is_a_positive_of_another():
    anchors, positives, negatives = draw(2)
    labels, negative_labels = torch.tensor([0, 1]), torch.tensor([1, 7])
    losses = []
    for negative in negatives[0], anchors[1]:  # the second anchor's best positive
        negatives[0] = negative
        losses.append(er_aml_loss(anchors, positives, negatives, labels, negative_labels))
    assert losses[1] < losses[0]


def no_anchor_losses(features):
    empty = torch.empty(0, dtype=torch.int64)
    yield er_aml_loss(*features, empty, empty)
    yield er_aml_loss(*features, empty, empty, denominator="negatives")
    yield er_aml_triplet_loss(*features)


def test_no_anchor_is_zero_with_a_gradient_of_zero():
    features = [rows.requires_grad_() for rows in draw(4)]
    for loss in no_anchor_losses([rows[:0] for rows in features]):
        loss.backward()
        assert loss.item() == 0
    assert all(rows.grad.eq(0).all() for rows in features)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e3, 1e15])
def test_float32_stays_finite(scale):
    features = [rows.float().requires_grad_() for rows in draw(4, scale=scale)]
    losses = er_aml_loss(*features, LABELS, NEGATIVE_LABELS, temperature=1e-3), er_aml_triplet_loss(*features)
    for loss in losses:
        loss.backward()
        assert loss.dtype == torch.float32 and loss.isfinite()
    assert all(rows.grad.isfinite().all() for rows in features)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype):
    features = [rows.to(dtype) for rows in draw(4)]
    for loss in er_aml_loss(*features, LABELS, NEGATIVE_LABELS), er_aml_triplet_loss(*features):
        assert loss.dtype == torch.float32


def test_bad_arguments():
    features = draw(4)
    with pytest.raises(ValueError, match="all of one shape"):
        er_aml_loss(features[0], features[1], features[2][:3], LABELS, NEGATIVE_LABELS)
    with pytest.raises(ValueError, match="all of one shape"):
        er_aml_triplet_loss(*(rows[0] for rows in features))
    with pytest.raises(ValueError, match="anchors must be"):
        er_aml_loss(*features, LABELS[:3], NEGATIVE_LABELS)
    with pytest.raises(ValueError, match="negatives must be"):
        er_aml_loss(*features, LABELS, NEGATIVE_LABELS[:3])
    with pytest.raises(ValueError, match="has the label of its anchor"):
        er_aml_loss(*features, LABELS, LABELS)
    with pytest.raises(ValueError, match="temperatures"):
        er_aml_loss(*features, LABELS, NEGATIVE_LABELS, temperature=0.0)
    with pytest.raises(ValueError, match="margin"):
        er_aml_triplet_loss(*features, margin=0.0)
    with pytest.raises(ValueError, match="denominator"):
        er_aml_loss(*features, LABELS, NEGATIVE_LABELS, denominator="positives")


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
@settings(deadline=None, max_examples=100)
def test_pairs_are_drawn_from_what_is_allowed(labels, memory, negatives, seed):
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


def test_every_call_draws_others():
    random = generator(3)
    arguments = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 1] * 5), random
    draws = [sample_pairs(*arguments) for _ in range(10)]
    assert all(not first.positive.equal(second.positive) for first, second in pairwise(draws))


def test_bad_arguments_of_the_pairs():
    with pytest.raises(ValueError, match="labels must be"):
        sample_pairs(torch.ones(2, 1), torch.ones(2), generator())
    with pytest.raises(ValueError, match="unknown negatives"):
        sample_pairs(torch.ones(2), torch.ones(2), generator(), negatives="none")
