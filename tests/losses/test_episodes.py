import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import split

from lreid.losses.episodes import prototype_logits, split_episode


@given(st.lists(st.integers(-3, 5), min_size=1, max_size=30), st.integers(1, 4))
def test_split_matches_loops(labels, num_support):
    expected = split(labels, num_support)
    queries = [(row, place) for place, (_, rows) in enumerate(expected.values()) for row in rows]
    if not queries:
        with pytest.raises(ValueError, match="no query"):
            split_episode(torch.tensor(labels), num_support)
        return
    episode = split_episode(torch.tensor(labels), num_support)
    assert list(zip(episode.query.tolist(), episode.target.tolist(), strict=True)) == queries
    for support, weight, (rows, _) in zip(episode.support, episode.weight, expected.values(), strict=True):
        assert support[: len(rows)].tolist() == rows
        assert set(support[len(rows) :].tolist()) <= {rows[-1]}
        assert weight.tolist() == [1 / len(rows)] * len(rows) + [0] * (num_support - len(rows))


def test_cosine_of_zero_features_has_a_finite_gradient():
    features = torch.zeros(4, 3, dtype=torch.float64)
    features[1, 0] = 2.0  # the query of class 0; every support and the other query are zero
    features.requires_grad_()
    logits = prototype_logits(features, split_episode(torch.tensor([0, 0, 1, 1]), 1), "cosine")
    logits.sum().backward()
    assert logits.tolist() == [[0, 0], [0, 0]]
    assert features.grad.abs().max() <= 1
