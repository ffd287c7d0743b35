import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import cross_entropy, draw, golden_names, load_golden, softmax

from lreid.losses import importance_scores, prototype_relation_loss, sample_nce_loss

LABELS = [0, 3, 0, 2, 1, 1, 3, 0]  # classes 0 and 1 are past ones, 2 and 3 current


def cosines(rows, classes, seed=0):
    return draw(rows, classes, seed=seed).tanh()


def sample_nce(scores, labels, weights, current, temperature):
    """The loss by nested loops; a weight of 0 counts as a factor of 1."""
    total = 0.0
    for own, row in zip(labels, scores, strict=True):
        denominator = 0.0
        for other, each, weight in zip(labels, scores, weights, strict=True):
            past = own not in current and other not in current and own != other
            factor = 1 / (weight * labels.count(other)) if past and weight > 0 else 1
            denominator += factor * math.exp(each[own] / temperature)
        total += math.log(denominator) - row[own] / temperature
    return total / len(labels)


def scores_of(cosines, labels, temperature, own_class=False):
    """The importance scores by nested loops, for two classes or more."""
    classes = len(cosines[0])
    columns = [
        softmax({row: values[column] for row, values in enumerate(cosines)}, temperature) for column in range(classes)
    ]
    return [
        sum(columns[c][row] for c in range(classes) if own_class or c != label) / (classes - 1)
        for row, label in enumerate(labels)
    ]


def golden_nce(name):
    """Hyper-parameters, arrays and the classes of the current task."""
    hyper, arrays = load_golden(name)
    first = hyper["target_task"] * hyper["cls_per_task"]
    return hyper, arrays, range(first, first + hyper["cls_per_task"])


@pytest.mark.parametrize("name", golden_names("cclis_samplence"))
def test_golden_sample_nce(name):
    hyper, arrays, current = golden_nce(name)
    scores, weights = arrays["output"].T.clone().requires_grad_(), arrays["importance_weight"]
    loss = sample_nce_loss(scores, arrays["label"], weights, current, temperature=hyper["temperature"])
    loss.backward()
    assert loss.dtype == torch.float32
    if name.endswith("zero_weight"):  # NaN in the official code
        expected = sample_nce(scores.tolist(), arrays["label"].tolist(), weights.tolist(), current, 0.5)
        assert loss.item() == pytest.approx(expected, rel=1e-6)
        assert scores.grad.isfinite().all()
        return
    torch.testing.assert_close(loss.double(), arrays["loss_oracle"], rtol=1e-6, atol=0, check_dtype=False)
    if name.endswith("hardcoded_bug"):  # right by default, and the official value without current classes
        scores.grad = None
        loss = sample_nce_loss(scores, arrays["label"], weights, [], temperature=hyper["temperature"])
        loss.backward()
    torch.testing.assert_close(loss.double(), arrays["loss"], rtol=1e-6, atol=0, check_dtype=False)
    torch.testing.assert_close(scores.grad, arrays["grad"].T, rtol=1e-5, atol=1e-7)


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=9),
    st.sets(st.integers(0, 4)),
    st.lists(st.sampled_from([0.0, 1e-4, 0.3, 1.0]), min_size=9, max_size=9),
    st.sampled_from([0.1, 0.5]),
    st.integers(0, 9),
)
def test_sample_nce_matches_the_loops(labels, current, weights, temperature, seed):
    scores, weights = cosines(len(labels), 5, seed), weights[: len(labels)]
    loss = sample_nce_loss(scores, torch.tensor(labels), torch.tensor(weights), current, temperature=temperature)
    weights = torch.tensor(weights).tolist()  # in float32
    expected = sample_nce(scores.tolist(), labels, weights, current, temperature)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("filler", [0.0, -1.0, torch.nan, torch.inf])
def test_weights_of_current_classes_are_ignored(filler):
    scores, labels, weights = cosines(8, 4), torch.tensor(LABELS), 0.001 + 0.05 * cosines(1, 8)[0].abs()
    expected = sample_nce_loss(scores, labels, weights, [2, 3])
    assert sample_nce_loss(scores, labels, weights * 2, [2, 3]) != expected
    weights[labels > 1] = filler
    assert sample_nce_loss(scores, labels, weights, [2, 3]) == expected
    unused = torch.full((8,), filler)
    assert sample_nce_loss(scores, labels, unused, labels).isfinite()  # the first task
    assert sample_nce_loss(scores, labels.clamp(max=1), unused, [0]).isfinite()  # a single past class


@given(st.integers(1, 6), st.integers(0, 5), st.floats(0.05, 2), st.floats(0.05, 2), st.integers(0, 9))
def test_prototype_relation_matches_the_loops(rows, classes, temperature, teacher_temperature, seed):
    student, teacher = cosines(rows, classes, seed).requires_grad_(), cosines(rows, classes, seed + 1)
    temperatures = {"temperature": temperature, "teacher_temperature": teacher_temperature}
    loss = prototype_relation_loss(student, teacher, **temperatures)
    loss.backward()
    expected = cross_entropy(teacher.tolist(), student.tolist(), temperature, teacher_temperature) if classes else 0
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    if classes < 2:
        assert loss.item() == 0 and student.grad.eq(0).all()


@pytest.mark.parametrize("name", golden_names("cclis_scores"))
def test_scores_and_weights_equal_golden_cases(name):
    hyper, arrays = load_golden(name)
    classes = (hyper["target_task"] + 1) * hyper["cls_per_task"]
    seen, labels = arrays["output"].double().T[:, :classes], arrays["label"]
    scores = importance_scores(seen, labels, temperature=hyper["temperature"])
    passes = [scores] * (hyper["max_iter"] - 1)
    passes.append(importance_scores(seen, labels, temperature=hyper["temperature"], own_class=True))
    official = torch.stack(passes).mean(0)
    if classes == 1:  # divided by 0 in the official code
        assert torch.equal(scores, torch.full_like(scores, 1 / len(labels)))
        assert torch.equal(official, scores)
        return
    torch.testing.assert_close(scores, arrays["score_paper"], rtol=1e-9, atol=0)
    torch.testing.assert_close(official, arrays["score_oracle_code"], rtol=1e-9, atol=0)
    torch.testing.assert_close(official.float(), arrays["score"], rtol=1e-6, atol=0)


@given(st.lists(st.integers(0, 3), max_size=9), st.booleans(), st.sampled_from([0.1, 0.5]), st.integers(0, 9))
def test_scores_match_the_loops(labels, own_class, temperature, seed):
    values = cosines(len(labels), 4, seed)
    scores = importance_scores(values, torch.tensor(labels).long(), temperature=temperature, own_class=own_class)
    expected = scores_of(values.tolist(), labels, temperature, own_class) if labels else []
    assert scores.tolist() == pytest.approx(expected, rel=1e-9)
