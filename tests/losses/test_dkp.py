import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import affinities, divergence, dot, draw, hardest_gaps, softmax, unit

from lreid.losses import dkp_pkt_loss, dkp_prototypes, dkp_set_triplet_loss

LABELS = st.lists(st.integers(0, 3), min_size=1, max_size=8)


def transfer(features, means, deviations, noise, relation_temperature, temperature):
    past = [
        unit([m + s * e for m, s, e in zip(*rows, strict=True)]) for rows in zip(means, deviations, noise, strict=True)
    ]
    relations = []
    for feature in map(unit, features):
        relations.append(softmax([dot(feature, each) for each in past], relation_temperature))
    return divergence(affinities(relations, temperature), affinities(features, temperature))


@given(LABELS, st.integers(1, 3), st.integers(0, 9))
def test_set_triplet_matches_the_loops(labels, samples, seed):
    features = draw(len(labels), 1 + samples, 4, seed=seed)
    loss = dkp_set_triplet_loss(features, torch.tensor(labels))
    means, anchors = features[:, 0].tolist(), features[:, 1:].flatten(0, 1).tolist()
    gaps = hardest_gaps(anchors, [label for label in labels for _ in range(samples)], means, labels)
    expected = sum(math.log1p(math.exp(gap)) for gap in gaps if gap is not None) / len(gaps)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-14)


@given(LABELS, st.integers(0, 9))
def test_prototypes_are_the_moments_of_the_mixture(labels, seed):
    means, deviations = draw(len(labels), 5, seed=seed) + 100, draw(len(labels), 5, seed=seed + 1).abs()
    centers, spreads, names = dkp_prototypes(means, deviations, torch.tensor(labels))
    assert names.tolist() == sorted(set(labels))
    for name, center, spread in zip(names.tolist(), centers.tolist(), spreads.tolist(), strict=True):
        rows = [row for row, label in enumerate(labels) if label == name]
        for d in range(5):
            mean = sum(means[row, d].item() for row in rows) / len(rows)
            moment = sum(deviations[row, d].item() ** 2 + (means[row, d].item() - mean) ** 2 for row in rows)
            assert center[d] == pytest.approx(mean) and spread[d] == pytest.approx(math.sqrt(moment / len(rows)))


@given(st.integers(1, 6), st.integers(1, 4), st.floats(0.05, 1), st.floats(0.05, 1), st.integers(0, 9))
def test_transfer_matches_the_loops(rows, past, relation_temperature, temperature, seed):
    features, (means, deviations, noise) = (
        draw(rows, 5, seed=seed),
        (draw(past, 5, seed=seed + each) for each in (1, 2, 3)),
    )
    options = {"relation_temperature": relation_temperature, "temperature": temperature}
    loss = dkp_pkt_loss(features, means, deviations, noise, **options)
    expected = transfer(*(each.tolist() for each in (features, means, deviations, noise)), **options)
    assert loss.item() == pytest.approx(expected, rel=1e-8, abs=1e-12)
