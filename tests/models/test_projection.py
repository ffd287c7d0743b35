"""The projection head: its shape, and what stands in front of it."""

import torch

from lreid.models import Embedder, ProjectedEmbedder, ProjectionHead


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
