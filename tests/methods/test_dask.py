"""DASK: the style network, and the terms of rehearsed images."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from family import assert_terms, batch_normed, model
from fusing import begun, learn, steps_of
from synthetic_tasks import synthetic_task

from lreid.data.synthetic import draw
from lreid.losses import affinity_kl_loss, batch_hard_triplet_loss, dask_decode
from lreid.methods import build_method
from lreid.methods.dask import StyleRehearser
from lreid.models import StyleKernels

SHORT = {"style_steps": 2, "style_batch": 4}


def test_style_network_has_the_published_size() -> None:
    kernels = StyleKernels()
    layers = [each for each in kernels.modules() if isinstance(each, (torch.nn.Conv2d, torch.nn.Linear))]
    assert sum(each.numel() for layer in layers for each in layer.parameters()) == 1_105_348
    assert kernels(torch.rand(2, 3, 32, 16)).shape == (2, 84)


@pytest.mark.slow
def test_rehearser_learns_the_style_of_its_domain() -> None:
    errors = []
    for steps in (0, 30):
        rehearser = StyleRehearser(model(), style_steps=steps, style_batch=8)
        rehearser.learn(synthetic_task(0))
        pixels = torch.from_numpy(np.stack([draw(record.path) for record in synthetic_task(0).records]))[:, ::2, ::2]
        values = pixels.permute(0, 3, 1, 2).float() / 255
        target = rehearser.model.normalise(pixels)
        with torch.no_grad():
            errors.append(F.l1_loss(dask_decode(values, rehearser.kernels(values)), target).item())
    assert errors[1] < 0.8 * errors[0]


@pytest.mark.slow
def test_terms() -> None:
    method = build_method("dask", model(), **SHORT)
    batch = begun(method, 1)
    kept = method.rehearser.generator.get_state()
    terms = method.loss(batch)
    names = {"softmax", "triplet", "distill"}
    assert set(terms) == names | {f"{name}_rehearsed" for name in names}
    method.rehearser.generator.set_state(kept)
    rehearsed = method.rehearser.rehearse(batch.pixels)
    for images, ending in ((batch.images, ""), (rehearsed, "_rehearsed")):
        features = method.model(images)
        logits = batch_normed(features) * method.network.neck.weight @ method.classifier.weight.T
        distill = affinity_kl_loss(features, method.teacher.model(images))
        softmax = {f"softmax{ending}": F.cross_entropy(logits, batch.labels), f"distill{ending}": distill}
        assert_terms(terms, 1e-4, **softmax)
        assert_terms(terms, **{f"triplet{ending}": batch_hard_triplet_loss(features, batch.labels, margin=None)})
    weights = {name: method.weights.get(name, 1.0) for name in terms}
    assert weights == dict.fromkeys(names, 1.0) | {f"{name}_rehearsed": 4.5 for name in names}


def test_each_rehearsed_image_has_its_own_kernels() -> None:
    rehearser = StyleRehearser(model(), style_steps=1, style_batch=4)
    rehearser.learn(synthetic_task(0))
    (batch,) = steps_of(1, 1)
    draws = torch.Generator()
    draws.set_state(rehearser.generator.get_state())
    images = rehearser.rehearse(batch.pixels)
    flip = torch.rand(12, generator=draws) < 0.5
    values = batch.pixels.permute(0, 3, 1, 2).float() / 255
    values[flip] = values[flip].flip(-1)
    expected = dask_decode(values, rehearser.kernels(values))
    torch.testing.assert_close(images, expected.detach())
    assert 0 < flip.sum() < 12 and rehearser.kernels.training


def test_rehearsal_with_weight_0_draws_no_random_numbers() -> None:
    """With the terms of rehearsed images left out of the sum, classifiers draw the same rows."""
    one, other = (build_method("dask", model(), distillation_weight=0.0, **SHORT, rehearsal_weight=w) for w in (0.0, 1))
    learn(one, 1), learn(other, 1)
    torch.testing.assert_close(one.classifier.weight, other.classifier.weight, rtol=0, atol=0)


def test_rehearsed_images_are_cropped() -> None:
    plain, cropped = (StyleRehearser(model(), style_steps=0, style_batch=4, style_pad=pad) for pad in (0, 1))
    height, width = plain.model.height, plain.model.width
    pixels = torch.arange(height * width).reshape(1, height, width, 1).expand(64, -1, -1, 3) % 251
    identity = torch.zeros(3, 3, 3, 3)
    identity[range(3), range(3), 1, 1] = 1.0
    kernel = torch.cat([identity.flatten(), torch.zeros(3)])
    for rehearser in (plain, cropped):
        rehearser.kernels = lambda values: kernel.expand(len(values), -1)  # leaves images as they are
    image = pixels[0].permute(2, 0, 1) / 255  # (3, H, W)
    assert {bool(torch.equal(each, image)) for each in plain.rehearse(pixels.byte())} == {True, False}  # flipped or not
    padded = [F.pad(each, [1] * 4) for each in (image, image.flip(-1))]
    crops = [
        each[:, top : top + height, left : left + width] for each in padded for top in range(3) for left in range(3)
    ]
    found = [[torch.equal(each, crop) for crop in crops].index(True) for each in cropped.rehearse(pixels.byte())]
    assert len(set(found)) > 12
