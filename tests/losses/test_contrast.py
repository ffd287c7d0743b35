import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import dot, draw, unit
from torch.nn import functional as F

from lreid.losses import contrast_scores, nt_xent_loss


def nt_xent(projections, temperature):
    """The loss by nested loops."""
    rows = [(image, view) for image in range(len(projections)) for view in (0, 1)]
    total = 0.0
    for image, view in rows:
        z = projections[image][view]
        to = {other: dot(z, projections[other[0]][other[1]]) / temperature for other in rows if other != (image, view)}
        total += math.log(sum(math.exp(value) for value in to.values())) - to[image, 1 - view]
    return total / len(rows)


@given(st.integers(1, 6), st.sampled_from([0.07, 0.5, 3.0]), st.integers(0, 9))
def test_nt_xent_matches_the_loops(images, temperature, seed):
    projections = F.normalize(draw(images, 2, 4, seed=seed), dim=2)
    loss = nt_xent_loss(projections, temperature=temperature)
    assert loss.item() == pytest.approx(nt_xent(projections.tolist(), temperature), rel=1e-9, abs=1e-12)


@given(st.integers(0, 6), st.integers(1, 5), st.floats(1e-6, 1e6), st.integers(0, 9))
def test_scores_do_not_depend_on_length(images, width, scale, seed):
    projections, flipped = draw(images, width, seed=seed), draw(images, width, seed=seed + 1)
    scores = contrast_scores(scale * projections, flipped)
    pairs = zip(projections.tolist(), flipped.tolist(), strict=True)
    assert scores.tolist() == pytest.approx([1 - dot(unit(a), unit(b)) for a, b in pairs], abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_scores_stay_in_their_range(dtype):
    projections = draw(200, 16).to(dtype)
    same, opposite = contrast_scores(projections, 2 * projections), contrast_scores(projections, -projections)
    assert same.dtype == opposite.dtype == torch.promote_types(dtype, torch.float32)
    assert (same >= 0).all() and (opposite <= 2).all()
    assert same.max().item() < 1e-12 and opposite.min().item() > 2 - 1e-12


def test_scores_of_zero_and_nan_projections():
    projections = draw(3, 4)
    projections[0], projections[1, 2] = 0, torch.nan
    scores = contrast_scores(projections, projections)
    assert scores[0] == 1 and scores[1].isnan() and scores[2] < 1e-12
