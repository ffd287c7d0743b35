"""PatchKD: patches, and what is kept of them."""

import pytest
import torch
from family import assert_terms, batch_normed, model
from fusing import begun

from lreid.losses import knowledge_distillation_loss, patchkd_conf_loss, patchkd_div_loss, patchkd_rd_loss
from lreid.methods import build_method
from lreid.models import PatchNet


def test_patch_positions_are_one_hot_with_a_gradient() -> None:
    torch.manual_seed(0)
    sampler, maps = PatchNet(8, 3), torch.randn(4, 8, 5, 2)
    theta = sampler(maps, torch.Generator().manual_seed(1))
    assert theta.shape == (4, 3, 5, 2)
    torch.testing.assert_close(theta.flatten(2).sort(2).values[..., -2:], torch.tensor([0.0, 1.0]).expand(4, 3, 2))
    assert theta.equal(sampler(maps, torch.Generator().manual_seed(1)))
    (theta * maps[:, :3]).sum().backward()
    assert sampler.scores[0].weight.grad.abs().max() > 0
    sampler.eval()
    scores = sampler.scores(maps).flatten(2)
    assert sampler(maps).flatten(2).argmax(2).equal(scores.argmax(2))


def test_patch_positions_are_drawn_by_their_scores() -> None:
    sampler = PatchNet(2, 1)
    with torch.no_grad():
        sampler.scores[3].weight.zero_()  # all positions alike
    theta = sampler(torch.randn(4000, 2, 2, 2), torch.Generator().manual_seed(0))
    assert (theta.mean(0).flatten() - 0.25).abs().max() < 0.03


def test_terms() -> None:
    method = build_method("patch_kd", model(neck=True))
    batch = begun(method, 1)
    draws = torch.Generator()
    draws.set_state(method.generator.get_state())
    terms = method.loss(batch)
    assert set(terms) == {"softmax", "triplet", "distill", "patch_distill", "relations", "confidence", "diversity"}
    maps, old_maps = method.model.backbone(batch.images), method.teacher.backbone(batch.images)
    places = method.sampler(maps, draws).flatten(2).argmax(2)  # (12, 3)
    rows = torch.arange(12)[:, None]
    new, old = (each.flatten(2).mT[rows, places] for each in (maps, old_maps))  # (12, 3, dim)
    neck = method.teacher.neck
    old_logits = neck(old.flatten(0, 1)) @ method.old_classifier.weight.T
    patches = new.flatten(0, 1)
    new_logits = (batch_normed(patches) * method.patch_neck.weight) @ method.patch_classifier.weight.T
    assert new_logits.shape == (36, 8) and old_logits.shape == (36, 4)
    distill = knowledge_distillation_loss(new_logits, old_logits, temperature=2.0)
    assert_terms(terms, 1e-4, patch_distill=distill, confidence=patchkd_conf_loss(old_logits))
    relations = patchkd_rd_loss(new, old) + patchkd_rd_loss(new.transpose(0, 1), old.transpose(0, 1))
    assert_terms(terms, 1e-3, relations=relations)
    neck = method.patch_neck  # which has seen these patches once
    normed = (patches - neck.running_mean) / (neck.running_var + 1e-5).sqrt() * neck.weight
    assert terms["diversity"].item() == pytest.approx(patchkd_div_loss(normed, 3).item(), rel=1e-3, abs=1e-4)


def test_which_parameters_each_term_trains() -> None:
    method = build_method("patch_kd", model(neck=True))
    batch = begun(method, 1)
    samplers = {"confidence", "diversity"}
    networks = {"patch_distill", "relations", "distill", "softmax", "triplet", "diversity"}
    for name, term in method.loss(batch).items():
        method.model.zero_grad(), method.sampler.zero_grad()
        term.backward(retain_graph=True)
        moved = [
            any(each.grad is not None and each.grad.abs().max() > 0 for each in part.parameters())
            for part in (method.model, method.sampler)
        ]
        assert moved == [name in networks, name in samplers], name


def test_sampler_has_its_own_rate() -> None:
    method = build_method("patch_kd", model(neck=True), sampler_rate=100.0)
    learned, sampler = method.parameters()
    assert (learned.get("rate_factor", 1.0), sampler["rate_factor"]) == (1.0, 100.0)
    assert (learned.get("first_task", 0), sampler["first_task"]) == (0, 1)  # whose schedule begins there
    assert {id(each) for each in sampler["params"]} == {id(each) for each in method.sampler.parameters()}
