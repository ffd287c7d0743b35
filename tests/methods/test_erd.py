"""ERD: its two parts, its terms, and DMML-FT where it has no exemplars."""

import pytest
import torch
from family import assert_terms, model
from synthetic_tasks import learn, steps_of

from lreid.losses import dmml_loss, erd_losses
from lreid.methods import build_method


@pytest.mark.parametrize("whole_batch", [True, False])
def test_erd_terms_cover_previous_and_current_part(whole_batch: bool) -> None:
    method = build_method("erd", model(), temperature=2.0, whole_batch=whole_batch)
    learn(method, 2, exemplars=True)
    (batch,) = steps_of(2, exemplars=True, steps=1)  # identities 8 .. 11, 0 .. 3, 4 .. 7
    previous = method.previous_part(batch.labels)
    assert batch.labels[previous].unique().tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.labels[~previous].unique().tolist() == [6, 7, 8, 9, 10, 11]
    method.model.train()
    terms = method.loss(batch)
    student, teacher = method.model(batch.images), method.teacher(batch.images)
    expected = erd_losses(student, teacher, batch.labels, 2, previous, temperature=2.0)
    for name, value in zip(("distill", "align"), expected, strict=True):
        assert terms[name].item() == pytest.approx(value.item()) and value > 0
    rows = torch.ones_like(previous) if whole_batch else ~previous
    assert_terms(terms, 1e-6, dmml=dmml_loss(student[rows], batch.labels[rows], 2))
    assert method.weights == {"distill": 0.5, "align": 0.5}


def test_few_exemplars_give_a_small_previous_part() -> None:
    method = build_method("erd", model(), exemplars=2)
    learn(method, 1, exemplars=False)
    (kept,) = set(method.memory.labels.tolist())
    (batch,) = steps_of(1, exemplars=True, steps=1)
    batch = batch._replace(images=batch.images[:15], labels=torch.cat([batch.labels[:12], torch.full((3,), kept)]))
    assert method.previous_part(batch.labels).tolist() == [False] * 12 + [True] * 3
    terms = method.loss(batch)
    assert terms["distill"].item() == terms["align"].item() == 0  # a single class, a single anchor


def test_erd_defaults_equal_the_official_code() -> None:
    method = build_method("erd", model())
    assert method.memory.selection == "nearest" and method.memory.budget == 500
    assert method.exemplar_share == 0.6
