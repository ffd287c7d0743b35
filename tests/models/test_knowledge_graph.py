"""The graph against loops over every edge, and random numbers that stay its own."""

import io
import math

import pytest
import torch
from torch import Tensor

from lreid.models import KnowledgeGraph


def features(rows: int = 5, dim: int = 6, seed: int = 1) -> Tensor:
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def graph(vertices: int = 3, dim: int = 6, **options: float) -> KnowledgeGraph:
    return KnowledgeGraph(dim, vertices, seed=4, **options).double()


def by_hand(network: KnowledgeGraph, images: Tensor) -> Tensor:
    """The images' rows of the whole graph, edges between vertices included, by loops."""
    count, vertices = len(images), len(network.vertices)
    nodes = [*images, *network.vertices]

    def sigmoid_edge(one: Tensor, other: Tensor) -> Tensor:
        return 1 / (1 + (-(network.edge_weight * (one - other)).sum() - network.edge_bias).exp())

    def cross_edge(image: int, vertex: int) -> Tensor:
        closeness = [(-((x - network.vertices[vertex]) ** 2).sum() / (2 * network.sigma)).exp() for x in images]
        return closeness[image] / sum(closeness)

    rows = []
    for i in range(count + vertices):
        row = []
        for j in range(count + vertices):
            if i == j:
                row.append(torch.tensor(2.0, dtype=torch.float64))  # 1 of A and 1 of I
            elif i < count <= j:
                row.append(cross_edge(i, j - count))
            elif j < count <= i:
                row.append(cross_edge(j, i - count))
            else:
                row.append(sigmoid_edge(nodes[i], nodes[j]))
        mean = sum(weight * node for weight, node in zip(row, nodes, strict=True)) / sum(row)
        rows.append(torch.stack([(mean * column).sum() for column in network.weight.T]) + network.bias)
    return torch.tanh(torch.stack(rows))[:count]


@pytest.mark.parametrize(("rows", "vertices", "sigma"), [(5, 3, 2.0), (2, 1, 0.5), (3, 4, 7.0)])
def test_values_and_gradients_are_those_of_the_loops(rows: int, vertices: int, sigma: float) -> None:
    network = graph(vertices, sigma=sigma).eval()
    torch.nn.init.normal_(network.bias, generator=network.generator)
    images, weights = features(rows).requires_grad_(), features(rows, seed=2)
    values = []
    for function in (network, lambda x: by_hand(network, x.detach())):
        network.zero_grad()
        output = function(images)
        (weights * output).sum().backward()
        values.append([output.detach(), *(parameter.grad.clone() for parameter in network.parameters())])
    assert images.grad is None  # no gradient flows to the features
    for one, other in zip(*values, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_dropout_is_drawn_from_its_own_generator() -> None:
    network = graph(dropout=0.6)
    draws = torch.Generator()
    draws.set_state(network.generator.get_state())
    kept = torch.rand(8, 6, generator=draws) >= 0.6
    nodes = torch.cat([features(), network.vertices]) * kept / 0.4
    weights = network.edges(features())
    expected = torch.tanh(weights / weights.sum(1, keepdim=True) @ nodes @ network.weight)
    before = torch.get_rng_state()
    torch.testing.assert_close(network(features()), expected)
    assert not torch.equal(network(features()), expected)  # others the next time
    assert torch.equal(torch.get_rng_state(), before)


def test_the_seed_determines_the_weights_and_leaves_other_numbers() -> None:
    before = torch.get_rng_state()
    one, same, other = (KnowledgeGraph(6, 3, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.weight, same.weight) and not torch.equal(one.weight, other.weight)
    assert one.vertices.min() >= 0 and one.vertices.max() < 1


def test_the_state_dict_contains_the_generator() -> None:
    network, other = graph(), KnowledgeGraph(6, 3, seed=9).double()
    network(features())
    file = io.BytesIO()
    torch.save(network.state_dict(), file)
    other.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    for _ in range(2):
        assert torch.equal(network(features()), other(features()))


def test_the_tanh_is_not_saturated_at_first() -> None:
    """Weights of standard deviation 1, as in the official code, would saturate it."""
    network = KnowledgeGraph(256, 64, seed=0).eval()
    images = features(60, 256).float().abs()

    def slope() -> float:
        return (1 - network(images) ** 2).mean().item()

    assert slope() > 0.5
    network.weight.data *= math.sqrt(256)
    assert slope() < 0.1
