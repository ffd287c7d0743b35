"""DER: stored images are held to the logits that they came with, and to nothing else."""

import numpy as np
import pytest
import torch
from family import task_of
from synthetic_tasks import synthetic_task
from test_er import learn, new, segments


@pytest.mark.slow
def test_der_terms_are_incoming_loss_and_logit_distance() -> None:
    method = new("der", exemplars=12)
    history = learn(method, 2)
    assert set(history[0]) == {"incoming"} and all(set(terms) == {"incoming", "logits"} for terms in history[1:])
    method.replay = 12  # all of them
    terms = method.loss(segments(1)[0])
    stored, images = method.memory.extras["logits"], method.memory.images
    with torch.no_grad():
        logits = method.logits(method.model.normalise(torch.from_numpy(images[np.arange(12)]))).double().numpy()
    known = ~np.isnan(stored)  # images of the first task came when there were four identities
    assert known.sum() < known.size
    squares = [(logits[row, column] - stored[row, column]) ** 2 for row, column in zip(*np.nonzero(known), strict=True)]
    assert terms["logits"].item() == pytest.approx(sum(squares) / len(squares), rel=1e-4)


def test_der_pp_adds_the_labels_of_stored_images() -> None:
    method = new("der_pp", exemplars=12)
    method.begin_task(task_of(0))
    (first, second, _) = segments(0)
    method.loss(first)
    method.end_step(first)
    assert list(method.loss(second)) == ["incoming", "replay", "logits"]
    assert new("der").weights["logits"] == 0.5


@pytest.mark.parametrize(("name", "reid_head"), [("der", True), ("der_pp", True), ("fdr", False)])
def test_logits_are_replaced_at_the_end_of_the_task(name: str, reid_head: bool) -> None:
    method = new(name, exemplars=10, reid_head=reid_head)
    method.begin_task(synthetic_task(0))
    for batch in segments(0):
        assert "logits" not in method.loss(batch)  # not yet to those of the first epoch
        method.end_step(batch)
    method.finish_task(synthetic_task(0))
    stored = method.memory.extras["logits"].copy()
    with torch.no_grad():
        features = method.model.eval()(method.model.normalise(torch.from_numpy(method.memory.images[np.arange(10)])))
        expected = method.class_scores(features).numpy()
    np.testing.assert_allclose(stored, expected, rtol=1e-4, atol=1e-4)
    method.model.train()
    method.end_task(synthetic_task(0))
    method.begin_task(synthetic_task(1))
    assert "logits" in method.loss(segments(1)[0])
    old = method.memory.labels < 4
    method.finish_task(synthetic_task(1))
    assert np.array_equal(method.memory.extras["logits"][old], stored[old], equal_nan=True)


def test_fdr_term_is_the_distance_of_class_probabilities() -> None:
    method = new("fdr", exemplars=12)
    learn(method, 1)
    method.finish_task(task_of(0))
    method.begin_task(task_of(1))
    method.replay = 12
    method.model.eval()
    value = method.loss(segments(1)[0])["logits"].item()
    stored = method.memory.extras["logits"]
    with torch.no_grad():
        logits = method.logits(method.model.normalise(torch.from_numpy(method.memory.images[np.arange(12)]))).numpy()
    assert logits.shape == (12, 8) and stored.shape == (12, 4)
    total = 0.0
    for row, past in zip(logits.astype(float), stored.astype(float), strict=True):
        p, q = np.exp(row) / np.exp(row).sum(), np.exp(past) / np.exp(past).sum()
        total += sum((p[k] - (q[k] if k < 4 else 0.0)) ** 2 for k in range(8)) ** 0.5 / 12
    assert value == pytest.approx(total, rel=1e-4)
