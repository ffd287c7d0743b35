"""Co²L and DMML with its distillation: views, anchors, terms, teachers and limits."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from family import DIM, batches, model, train
from synthetic_tasks import learn, learn_from, steps_of, synthetic_task

from lreid.data.loaders import Batch
from lreid.losses import asymmetric_supcon_loss, dmml_loss, mean_squared_distillation_loss, relation_distillation_loss
from lreid.methods import build_method
from lreid.methods.co2l import Co2L
from lreid.models import Embedder


def co2l(seed: int = 0, **options: object) -> Co2L:
    return build_method("co2l", model(seed), **options)


def two_views(batch: Batch, seed: int = 0) -> Batch:
    """The images of a batch, and the same with noise behind them."""
    noise = torch.randn(batch.images.shape, generator=torch.Generator().manual_seed(seed))
    return batch._replace(
        images=torch.cat([batch.images, batch.images + 0.3 * noise]),
        labels=batch.labels.repeat(2),
        num_support=0,
        views=2,
    )


def learned(method: Co2L, tasks: int, *, exemplars: bool = True) -> list[dict[str, float]]:
    """Loss terms step by step over so many tasks."""
    return learn_from(method, tasks, lambda index: [two_views(batch) for batch in steps_of(index, exemplars)])


def in_second_task(**options: object) -> tuple[Co2L, Batch]:
    """A method that has gone on from its teacher, and a batch of new images and exemplars."""
    method = co2l(**options)
    learned(method, 1)
    method.begin_task(synthetic_task(1))
    train(method, [two_views(batch) for batch in steps_of(1, exemplars=True)])
    (batch,) = steps_of(1, exemplars=True, steps=1)
    return method, two_views(batch, seed=1)


def test_first_task_has_no_distillation() -> None:
    history = learned(co2l(), 1)
    assert all(set(terms) == {"supcon"} for terms in history)
    assert co2l().weights == {"distill": 1.0} and Co2L.views == 2


def test_exemplars_may_be_stored_without_replay() -> None:
    method = co2l(replay=False, exemplars=9)
    learned(method, 1, exemplars=False)
    assert method.exemplar_share is None and method.exemplars == 9
    assert co2l(exemplars=9).exemplar_share == 0 and co2l().memory.selection == "random"


@pytest.mark.slow
@pytest.mark.parametrize("asymmetric", [True, False])
def test_only_new_images_are_anchors(asymmetric: bool) -> None:
    method, batch = in_second_task(temperature=0.4, asymmetric=asymmetric)
    value = method.loss(batch)["supcon"].item()
    with torch.no_grad():
        vectors = F.normalize(method.network.head(method.model(batch.images))).double()
    assert batch.labels.unique().tolist() == list(range(8)) and len(batch.labels) == 48
    pairs = torch.stack([vectors[:24], vectors[24:]], 1)
    expected, other = (
        asymmetric_supcon_loss(pairs, batch.labels[:24], range(first, 8), temperature=0.4).item()
        for first in ((4, 0) if asymmetric else (0, 4))
    )
    assert value == pytest.approx(expected, rel=1e-4) != other


@pytest.mark.slow
@pytest.mark.parametrize("distillation", ["ird", "seed", "embedding", "projection"])
@pytest.mark.parametrize("in_training", [False, True])
def test_distillation_uses_the_previous_model_and_head(distillation: str, in_training: bool) -> None:
    method, batch = in_second_task(
        distillation=distillation,
        distillation_temperature=0.3,
        teacher_temperature=0.05,
        teacher_in_training=in_training,
    )
    value = method.loss(batch)["distill"].item()
    teacher = method.teacher
    assert teacher.model.training == in_training
    with torch.no_grad():
        new, old = method.model(batch.images), teacher.model(batch.images)
        assert not torch.allclose(new, old)
        if distillation in ("ird", "projection"):
            new, old = method.network.head(new), teacher.head(old)
        if distillation in ("ird", "seed"):
            new, old = F.normalize(new), F.normalize(old)
            expected = relation_distillation_loss(new, old, temperature=0.3, teacher_temperature=0.05)
        else:
            expected = mean_squared_distillation_loss(new, old)
    assert value == pytest.approx(expected.item(), rel=1e-4) and value > 0


def test_random_selection_extracts_no_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Embedder, "extract", None)
    method = co2l(exemplars=4)
    method.begin_task(synthetic_task(0))
    method.end_task(synthetic_task(0))
    assert method.exemplars == 4


def test_head_is_trained_but_not_used_for_retrieval() -> None:
    method = co2l()
    before = [parameter.clone() for parameter in method.network.head.parameters()]
    learned(method, 1)
    assert not any(torch.equal(*pair) for pair in zip(before, method.network.head.parameters(), strict=True))
    assert method.model.extract(np.zeros((1, 32, 16, 3), np.uint8)).shape == (1, method.model.dim)


def test_reid_head_removes_the_common_mean_of_features() -> None:
    features = torch.randn(6, DIM)
    moved = 2 * features + 5
    for reid_head in (True, False):
        head = co2l(reid_head=reid_head).network.head
        assert torch.allclose(head(moved), head(features), atol=1e-4) == reid_head


def test_dmml_ird_distils_the_relations_of_features() -> None:
    method = build_method("dmml_ird", model(), temperature=0.3, teacher_temperature=0.05)
    first = learn(method, 1, exemplars=False)
    assert set(first[-1]) == {"dmml"} and method.weights == {"distill": 1.0} and method.exemplars == 0
    train(method, batches(2, seed=1, first_class=4))
    (batch,) = batches(1, seed=9, first_class=4)
    terms = method.loss(batch)
    new, old = method.model(batch.images).detach(), method.teacher(batch.images)
    assert not torch.allclose(new, old) and not method.teacher.training
    expected = relation_distillation_loss(F.normalize(new), F.normalize(old), temperature=0.3, teacher_temperature=0.05)
    assert terms["distill"].item() == pytest.approx(expected.item(), rel=1e-4)
    assert terms["dmml"].item() == pytest.approx(dmml_loss(new, batch.labels, 2).item(), rel=1e-4)
