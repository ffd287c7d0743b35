"""CCLIS: prototypes, weights of what was drawn, scores, selection, and the official faults as options."""

import math
from typing import Any

import albumentations as A
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from family import DIM, model, train
from synthetic_tasks import learn_replayed, replayed, synthetic_task
from torch import Tensor

from lreid.data.erasing import GrowingErasing
from lreid.data.images import Images, read_image
from lreid.data.loaders import Batch, TaskBatches, WithExemplars, batch_loader
from lreid.data.samplers import IdentitySampler
from lreid.data.transforms import Augment
from lreid.losses import prototype_relation_loss, relation_distillation_loss, sample_nce_loss
from lreid.methods import build_method
from lreid.methods.cclis import CCLIS

STEPS = [A.HorizontalFlip(p=0.5), GrowingErasing()]
AUGMENT = Augment(STEPS, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))


def cclis(seed: int = 0, **options: object) -> CCLIS:
    return build_method("cclis", model(seed), **options)


def in_second_task(**options: object) -> tuple[CCLIS, Batch]:
    """A method that has gone on from its teacher, and a batch of new images and exemplars."""
    method = cclis(**options)
    learn_replayed(method, 1)
    method.begin_task(synthetic_task(1))
    train(method, replayed(method, 1))
    return method, replayed(method, 1)[1]


def cosines(method: CCLIS, images: Tensor) -> Tensor:
    with torch.no_grad():
        vectors = F.normalize(method.network.head(method.model(images)))
        return (vectors @ F.normalize(method.prototypes.weight).T).double()


def sample_nce(scores: Tensor, labels: list[int], drawn: list[float], past: list[bool]) -> float:
    """Equation 10 at temperature 0.5; its own test compares it with loops."""
    current = {label for label, old in zip(labels, past, strict=True) if not old}
    return sample_nce_loss(scores, torch.tensor(labels), torch.tensor(drawn), current, temperature=0.5).item()


@pytest.mark.parametrize("weigh_current", [False, True])
def test_draw_weights_of_exemplars_enter_the_loss(weigh_current: bool) -> None:
    method, batch = in_second_task(exemplars=10, weigh_current=weigh_current)
    stored = method.memory.extras["weights"]
    stored[:] = np.linspace(0.05, 0.9, 10)
    value = method.loss(batch)["nce"].item()
    labels, rows = batch.labels.tolist(), batch.exemplars.tolist()
    drawn = [stored[row] if row >= 0 else 1 / 3 for row in rows]
    past = [weigh_current or label < 4 for label in labels]
    assert len(set(drawn)) > 3 and sum(past) == (20 if weigh_current else 8)
    expected = sample_nce(cosines(method, batch.images), labels, drawn, past)
    assert value == pytest.approx(expected, rel=1e-4)
    stored[batch.exemplars[batch.exemplars >= 0]] /= 4
    assert method.loss(batch)["nce"].item() > value + 0.01


def test_first_task_has_no_draw_weights() -> None:
    method = cclis()
    method.begin_task(synthetic_task(0))
    method.model.train()
    (batch,) = replayed(method, 0, steps=1)
    terms = method.loss(batch)
    assert set(terms) == {"nce"} and method.weights == {"distill": 0.6} and CCLIS.views == 1
    expected = sample_nce(cosines(method, batch.images), batch.labels.tolist(), [1.0] * 12, [False] * 12)
    assert terms["nce"].item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("options", [{"selection": "random"}, {"weighted": False}])
def test_unweighted_replay_has_no_draw_weights(options: dict[str, Any]) -> None:
    method, batch = in_second_task(**options)
    assert method.draw_weights(batch).tolist() == pytest.approx([1 / 3] * 12 + [0] * 8)
    labels = batch.labels.tolist()
    expected = sample_nce(cosines(method, batch.images), labels, [1.0] * 20, [False] * 20)
    assert method.loss(batch)["nce"].item() == pytest.approx(expected, rel=1e-4)


def test_distillation_covers_prototypes_of_past_classes() -> None:
    method, batch = in_second_task(distillation_temperature=0.3, teacher_temperature=0.15)
    value = method.loss(batch)["distill"].item()
    assert method.prototypes.weight.shape == (8, 128) and method.old_prototypes.shape == (4, 128)
    assert not method.teacher.training
    with torch.no_grad():
        old = F.normalize(method.teacher.head(method.teacher.model(batch.images))) @ method.old_prototypes.T
    new = cosines(method, batch.images)[:, :4]
    assert not torch.allclose(new.float(), old)
    expected = prototype_relation_loss(new, old, temperature=0.3, teacher_temperature=0.15)
    assert value == pytest.approx(expected.item(), rel=1e-4) and value > 0


def test_printed_relations_cover_prototypes_of_all_classes() -> None:
    """Equations 13 and 14 by loops: the previous model has the new prototypes as they were at the start of the task."""
    method = cclis(relation_classes="all", distillation_temperature=0.3, teacher_temperature=0.15)
    learn_replayed(method, 1)
    method.begin_task(synthetic_task(1))
    before = method.prototypes.weight.detach().clone()
    train(method, replayed(method, 1))
    batch = replayed(method, 1)[1]
    value = method.loss(batch)["distill"].item()
    with torch.no_grad():
        old = F.normalize(method.teacher.head(method.teacher.model(batch.images))) @ F.normalize(before).T
    new, total = cosines(method, batch.images), 0.0
    assert new.shape == old.shape == (20, 8)
    for student, teacher in zip(new.tolist(), old.tolist(), strict=True):
        q_new, q_old = ([math.exp(s / t) for s in row] for row, t in ((student, 0.3), (teacher, 0.15)))
        total -= sum(p / sum(q_old) * math.log(q / sum(q_new)) for p, q in zip(q_old, q_new, strict=True)) / 20
    assert value == pytest.approx(total, rel=1e-4)


def test_co2l_distillation_can_replace_prd() -> None:
    method, batch = in_second_task(distillation="ird")
    value = method.loss(batch)["distill"].item()
    with torch.no_grad():
        new, old = (F.normalize(each(batch.images).projections) for each in (method.network, method.teacher))
    expected = relation_distillation_loss(new, old, temperature=0.2, teacher_temperature=0.1)
    assert value == pytest.approx(expected.item(), rel=1e-4)


def test_prototypes_have_unit_length_and_their_own_rate() -> None:
    method, batch = in_second_task(prototype_rate=0.25)
    network, prototypes = method.parameters()
    assert prototypes["rate_factor"] == 0.25 and "rate_factor" not in network
    assert [each.shape for each in prototypes["params"]] == [(8, 128)]
    assert len(network["params"]) == len(list(method.model.parameters())) + 4
    with torch.no_grad():
        method.prototypes.weight.mul_(3)
    method.loss(batch)
    assert method.prototypes.weight.norm(dim=1).tolist() == pytest.approx([1] * 8)


@pytest.mark.parametrize("leak", [False, True])
def test_importance_scores_are_means_over_augmented_passes(leak: bool) -> None:
    """Against Equation 12 pass by pass, over the images of the task and the memory together."""
    method, _ = in_second_task(passes=3, score_leak=leak)
    method.augment = lambda pixels, seed: torch.from_numpy(AUGMENT(pixels, seed=seed, progress=1.0))
    given: list[Tensor] = []
    extract = method.model.extract
    method.model.extract = lambda images: given.append(images.clone()) or extract(images)
    method.normalise_prototypes()
    values = method.exemplar_values(synthetic_task(1))
    assert len(given) == 6 and not torch.equal(given[0], given[1])  # task and memory, three passes each
    assert method.model.training
    method.model.eval()
    labels = torch.tensor([each.pid for each in synthetic_task(1).records] + method.memory.labels.tolist())
    expected = torch.zeros(24, dtype=torch.float64)
    for number in range(3):
        scores = cosines(method, torch.cat([given[number], given[3 + number]]))  # (24, 8)
        p = (scores / 0.5).softmax(0)
        own = 1.0 if leak and number == 2 else 0.0
        for j, y in enumerate(labels.tolist()):
            terms = [p[j, i].item() * (own if i == y else 1) for i in range(8)]
            expected[j] += sum(terms) / 7 / 3
    found = np.concatenate([values["values"], values["kept_scores"]])
    assert found == pytest.approx(expected.numpy(), rel=1e-4)


def test_images_without_importance_are_not_drawn() -> None:
    method = cclis(exemplars=4)
    method.begin_task(synthetic_task(0))
    scores = np.tile([0.0, 0.0, 1.0], 4)
    method.exemplar_values = lambda task: {"values": scores, "kept_scores": np.empty(0)}
    method.end_task(synthetic_task(0))
    best = [read_image(each.path, height=32, width=16) for each in synthetic_task(0).records[2::3]]
    assert np.array_equal(method.memory.images, np.stack(best))
    assert method.memory.extras["weights"].tolist() == [1.0] * 4


def test_batches_contain_the_memory_rows_of_exemplars() -> None:
    images = Images(synthetic_task(1).records, height=32, width=16)
    stored = Images(synthetic_task(0).records, height=32, width=16)
    everything = WithExemplars(images, stored[:], stored.pids)
    sampler = IdentitySampler(images.pids, identities=3, images=2, seed=(0, 1), exemplars=stored.pids)
    plain = Augment(mean=(0, 0, 0), std=(1 / 255, 1 / 255, 1 / 255))
    seen = set()
    for views in (1, 2):
        dataset = TaskBatches(everything, sampler, plain, epochs=12, views=views)
        for batch in batch_loader(dataset, workers=0, pin_memory=False):
            assert batch.exemplars.shape == batch.labels.shape == (12 * views,)  # as many as there are new ones
            assert ((batch.exemplars >= 0) == (batch.labels < 4)).all()
            for image, row in zip(batch.images, batch.exemplars.tolist(), strict=True):
                seen.add(row)
                if row >= 0:
                    assert np.array_equal(image.permute(1, 2, 0).numpy(), stored[row])
    assert seen == {*range(-1, 12)}
    alone = IdentitySampler(images.pids, identities=3, images=2, seed=(0, 1))
    assert TaskBatches(images, alone, plain, epochs=1)[0].exemplars.tolist() == [-1] * 6


def test_initial_reid_prototypes_are_mean_projections() -> None:
    method = cclis(reid_head=True)
    method.begin_task(synthetic_task(0))
    records, (neck, *head) = synthetic_task(0).records, method.network.head
    features = torch.from_numpy(method.model.extract([record.path for record in records])).double()
    projections = (features - features.mean(0)) / (features.var(0, unbiased=False) + neck.eps).sqrt()
    for layer in head:
        projections = layer.double()(projections)
    for label in range(4):
        mean = projections[[record.pid == label for record in records]].mean(0)
        torch.testing.assert_close(
            method.prototypes.weight[label].double(), F.normalize(mean, dim=0), rtol=1e-3, atol=1e-4
        )


def test_reid_scores_use_running_statistics() -> None:
    method, _ = in_second_task(exemplars=17, reid_head=True)
    neck, features = method.network.head[0], torch.randn(5, DIM)
    before = neck.running_mean.clone()
    alone = torch.cat([method.class_scores(each[None]) for each in features])
    torch.testing.assert_close(method.class_scores(features), alone)
    method.exemplar_values(synthetic_task(1))
    assert neck.training and neck.running_mean.equal(before)
