"""Bi-C2R's map of features: size, start, and what learning it does to a gallery."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lreid.apps.transfer import learn_transfer
from lreid.errors import InputError
from lreid.models import FeatureTransfer


def test_it_has_the_published_size() -> None:
    assert sum(each.numel() for each in FeatureTransfer(2048).parameters()) == 11_683_364


def test_it_begins_as_the_identity_or_as_the_official_one() -> None:
    torch.manual_seed(0)
    features = torch.randn(8, 16)
    transfer = FeatureTransfer(16)
    for mode in (True, False):
        torch.testing.assert_close(transfer.train(mode)(features), F.normalize(features, dim=1))
    assert (F.normalize(features, dim=1) * FeatureTransfer(16, identity=False)(features)).sum(1).mean() < 0.9


def test_a_block_matches_the_loops() -> None:
    torch.manual_seed(0)
    transfer = FeatureTransfer(8, identity=False).eval()
    block = transfer.blocks[0]
    torch.nn.init.normal_(block.captured)
    (x,) = torch.randn(1, 8)
    sums = sum(path(x[None])[0] for path in block.paths)
    attention = block.attention(x[None]).softmax(1)[0]
    captured = sum(a * vector for a, vector in zip(attention, block.captured, strict=True))
    w0, w1 = block.weights(x[None]).softmax(1)[0]
    torch.testing.assert_close(block(x[None])[0], x + w0 * sums + w1 * captured)


def test_migrated_features_are_sums_of_unit_length() -> None:
    torch.manual_seed(0)
    transfer = FeatureTransfer(8, identity=False).train()
    gallery = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    whole, half, none = (transfer.migrated(gallery, share=share) for share in (1.0, 0.5, 0.0))
    unit = gallery / np.linalg.norm(gallery, axis=1, keepdims=True)
    np.testing.assert_allclose(none, unit, atol=1e-6)
    sums = (whole + unit) / 2
    np.testing.assert_allclose(half, sums / np.linalg.norm(sums, axis=1, keepdims=True), atol=1e-6)
    assert transfer.training and transfer.migrated(gallery[:0]).shape == (0, 8)


def moved(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features of the same images by two models, of which the second turns those of the first a little."""
    drawn = np.random.default_rng(seed).normal(size=(count, 16))
    turn = np.linalg.qr(np.eye(16) + 0.3 * np.random.default_rng(9).normal(size=(16, 16)))[0]
    return drawn.astype(np.float32), (drawn @ turn).astype(np.float32)


def cosines(one: np.ndarray, other: np.ndarray) -> float:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(1) / lengths).mean())


@pytest.mark.slow
def test_a_learned_map_beats_the_identity_on_other_images() -> None:
    old, new = moved(400, 0)
    transfer = learn_transfer(old, new, steps=150)
    gallery, wanted = moved(50, 1)
    assert cosines(transfer.migrated(gallery), wanted) > cosines(gallery, wanted) + 0.05


def test_it_is_learned_from_a_seed() -> None:
    old, new = moved(20, 0)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    maps = [learn_transfer(old, new, steps=2, seed=seed).migrated(old) for seed in (0, 0, 1)]
    assert np.array_equal(maps[0], maps[1]) and not np.array_equal(maps[0], maps[2])
    assert torch.equal(torch.get_rng_state(), state)


def test_what_no_map_can_be_learned_of_is_told() -> None:
    old, new = moved(10, 0)
    with pytest.raises(InputError, match="features of 16 and 8 numbers: a map is learned between"):
        learn_transfer(old, new[:, :8])
    with pytest.raises(InputError, match="a map is learned of 8 images or more, got 7"):
        learn_transfer(old[:7], new[:7])
