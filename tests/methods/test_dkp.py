"""DKP and DKP++: distributions, prototypes, and terms of rehearsed images."""

import pytest
import torch
import torch.nn.functional as F
from family import DIM, assert_terms, batch_normed, model
from fusing import begun, learn
from synthetic_tasks import synthetic_task

from lreid.data.loaders import Batch
from lreid.errors import ArgumentError
from lreid.losses import affinity_kl_loss, dkp_pkt_loss, dkp_prototypes, dkp_set_triplet_loss
from lreid.methods import build_method
from lreid.methods.dkp import DKP
from lreid.models import Embedder


def drawn_again(method: DKP, images: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    """Means and samples by the definition."""
    maps = method.model.backbone(images)
    means = F.normalize(maps.mean((2, 3)), dim=1)
    deviations = method.network.deviations(maps)
    noise = torch.randn(len(images), 6, DIM, generator=draws)
    return torch.stack([means, *(F.normalize(means + deviations * noise[:, n], dim=1) for n in range(6))], 1)


def softmax_of(method: DKP, features: torch.Tensor, batch: Batch) -> torch.Tensor:
    rows = torch.cat(list(features))  # (B * 7, dim)
    logits = batch_normed(rows) * method.network.neck.weight @ method.classifier.weight.T
    return F.cross_entropy(logits, batch.labels.repeat_interleave(7))


@pytest.mark.slow
def test_terms() -> None:
    method = build_method("dkp", model())
    batch = begun(method, 1)
    draws = torch.Generator()
    draws.set_state(method.generator.get_state())
    terms = method.loss(batch)
    assert set(terms) == {"softmax", "triplet", "transfer"}
    features = drawn_again(method, batch.images, draws)
    torch.testing.assert_close(features.norm(dim=2), torch.ones(12, 7))
    noise = torch.randn(4, DIM, generator=draws)
    transfer = dkp_pkt_loss(features[:, 0], method.prototypes["means"], method.prototypes["deviations"], noise)
    assert_terms(terms, triplet=dkp_set_triplet_loss(features, batch.labels))
    assert_terms(terms, 1e-4, softmax=softmax_of(method, features, batch), transfer=transfer)


@pytest.mark.slow
def test_terms_of_rehearsed_images() -> None:
    method = build_method("dkp_pp", model(), style_steps=2, style_batch=4)
    batch = begun(method, 1)
    states = [method.generator.get_state(), method.rehearser.generator.get_state()]
    terms = method.loss(batch)
    rehearsed = {"softmax_rehearsed", "triplet_rehearsed", "distill_rehearsed"}
    assert set(terms) == {"softmax", "triplet", "transfer", "triplet_both"} | rehearsed
    draws = torch.Generator()
    draws.set_state(states[0])
    method.rehearser.generator.set_state(states[1])
    images = method.rehearser.rehearse(batch.pixels)
    new = drawn_again(method, batch.images, draws)
    torch.randn(4, DIM, generator=draws)  # of the prototypes
    old = drawn_again(method, images, draws)
    distill = affinity_kl_loss(old[:, 0], method.teacher.model(images), reverse=True)
    assert_terms(terms, 1e-4, softmax_rehearsed=softmax_of(method, old, batch), distill_rehearsed=distill)
    both = dkp_set_triplet_loss(torch.cat([old, new], 1), batch.labels)  # the rehearsed mean comes first
    assert_terms(terms, triplet_rehearsed=dkp_set_triplet_loss(old, batch.labels), triplet_both=both)


def test_dkp_initial_rows_use_features_of_unit_length() -> None:
    method = build_method("dkp", model())
    learn(method, 1)
    method.begin_task(synthetic_task(1))
    records = synthetic_task(1).records
    features = torch.from_numpy(method.model.extract([record.path for record in records])).double()
    for label in range(4, 8):
        own = features[[record.pid == label for record in records]]
        expected = F.normalize(F.normalize(own, dim=1).mean(0), dim=0)
        torch.testing.assert_close(method.classifier.weight[label].double(), expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_only_prototypes_of_the_last_task_are_stored() -> None:
    method = build_method("dkp", model())
    learn(method, 2)
    task = synthetic_task(1)
    teacher = method.teacher  # the network as it was then
    with torch.no_grad():
        maps = teacher.model.backbone(teacher.model.ready([record.path for record in task.records]))
        means, deviations = F.normalize(maps.mean((2, 3)), dim=1), teacher.deviations(maps)
    labels = torch.tensor([record.pid for record in task.records])
    centers, spreads, _ = dkp_prototypes(means, deviations, labels)
    torch.testing.assert_close(method.prototypes["means"], centers)
    torch.testing.assert_close(method.prototypes["deviations"], spreads)


@pytest.mark.slow
def test_transfer_weight_0_stores_no_prototypes() -> None:
    plain = build_method("dkp", model(), transfer_weight=0.0)
    history = learn(plain, 2)
    assert plain.prototypes is None and all(set(terms) == {"softmax", "triplet"} for terms in history)


def test_dkp_refuses_networks_without_feature_maps() -> None:
    class Vectors(torch.nn.Module):
        dim = 8

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.new_zeros(len(images), 8)

    with pytest.raises(ArgumentError, match="Vectors returns vectors"):
        build_method("dkp", Embedder(Vectors(), height=32, width=16))
