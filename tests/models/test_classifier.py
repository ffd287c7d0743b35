"""Classifiers that grow, and the projection head of contrastive methods."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lreid.models import Embedder, ProjectedEmbedder, ProjectionHead
from lreid.models.classifier import ClassifyingEmbedder, CosineClassifier, GrowingClassifier


def features(rows: int = 5, dim: int = 8, seed: int = 1) -> Tensor:
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("kind", "std"), [(GrowingClassifier, 0.001), (CosineClassifier, 24**-0.5)])
def test_growing_keeps_old_weights_and_draws_new_ones(kind: type[GrowingClassifier], std: float) -> None:
    torch.manual_seed(3)
    classifier = kind(8, 2)
    old = classifier.weight.detach().clone()
    classifier.grow(3)
    torch.manual_seed(3)
    expected = torch.cat([torch.randn(2, 8), torch.randn(3, 8)]) * std
    assert len(classifier) == 5
    assert classifier.weight[:2].equal(old)
    assert classifier.weight.equal(expected)
    assert isinstance(classifier.weight, torch.nn.Parameter)


@pytest.mark.parametrize("kind", [GrowingClassifier, CosineClassifier])
def test_an_empty_classifier_can_grow(kind: type[GrowingClassifier]) -> None:
    classifier = kind(8)
    assert classifier(features()).shape == (5, 0)
    classifier.grow(4)
    assert classifier(features()).shape == (5, 4)


def test_linear_logits_are_dot_products() -> None:
    classifier = GrowingClassifier(8, 4)
    torch.testing.assert_close(classifier(features()), features() @ classifier.weight.T)


@given(st.integers(1, 5), st.integers(1, 6), st.floats(0.5, 30), st.floats(1e-3, 1e3), st.integers(0, 50))
@settings(deadline=None, max_examples=40)
def test_cosines_against_loops(rows: int, classes: int, scale: float, length: float, seed: int) -> None:
    classifier = CosineClassifier(3, classes, scale=scale).double()
    images = length * features(rows, 3, seed).double()
    logits = classifier(images)
    for i, image in enumerate(images.tolist()):
        for j, row in enumerate(classifier.weight.tolist()):
            dot = sum(x * y for x, y in zip(image, row, strict=True))
            cosine = dot / (math.hypot(*image) + 1e-5) / (math.hypot(*row) + 1e-5)
            assert logits[i, j].item() == pytest.approx(scale * cosine, rel=1e-9, abs=1e-12)


def test_the_gradient_of_a_cosine_is_finite_for_zeros() -> None:
    classifier = CosineClassifier(8, 4)
    with torch.no_grad():
        classifier.weight[0] = 0
    images = torch.zeros(2, 8, requires_grad=True)
    classifier(images).square().sum().backward()
    assert images.grad.isfinite().all() and classifier.weight.grad.isfinite().all()


def test_a_state_dict_with_more_identities_loads() -> None:
    one, other = (ClassifyingEmbedder(Embedder("small"), GrowingClassifier(256, classes)) for classes in (3, 5))
    one.load_state_dict(other.state_dict())
    assert len(one.classifier) == 5 and one.classifier.weight.equal(other.classifier.weight)
    images = torch.randn(2, 3, 64, 32)
    features, logits = one.eval()(images)
    assert features.equal(one.model(images)) and logits.equal(one.classifier(one.neck(features)))
    assert not one.neck.bias.requires_grad


def test_the_head_is_a_perceptron_with_one_hidden_layer() -> None:
    head = ProjectionHead(6, 4)
    features = torch.randn(5, 6)
    hidden = (features @ head[0].weight.T + head[0].bias).clamp(min=0)
    assert hidden.shape == (5, 6) and head.width == 4
    assert torch.allclose(head(features.clone()), hidden @ head[2].weight.T + head[2].bias, atol=1e-6)
    assert ProjectionHead(6)(features).shape == (5, 128)


def test_a_projected_embedder_returns_features_and_projections() -> None:
    model = Embedder("small", height=32, width=16).eval()
    network, images = ProjectedEmbedder(model), torch.randn(2, 3, 32, 16)
    features, projections = network(images)
    assert network.model is model and torch.equal(features, model(images))
    assert torch.equal(projections, network.head(features)) and projections.shape == (2, 128)
