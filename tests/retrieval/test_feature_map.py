"""The map from old to new features against ridge regression in float64, which holds out one image after the other."""

import numpy as np
import pytest

from lreid.errors import InputError
from lreid.retrieval.feature_map import STRENGTHS, FeatureMap


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def ridge(a: np.ndarray, b: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    centred = a - a.mean(0)
    weights = np.linalg.solve(centred.T @ centred + penalty * np.eye(a.shape[1]), centred.T @ (b - b.mean(0)))
    return weights, b.mean(0) - a.mean(0) @ weights


@pytest.mark.parametrize(("images", "old", "new"), [(40, 6, 6), (40, 6, 9), (40, 9, 5), (7, 12, 8), (2, 5, 3)])
def test_map_equals_ridge_regression_with_the_best_held_out_strength(images: int, old: int, new: int) -> None:
    rng = np.random.default_rng(images + old)
    a = unit(rng.standard_normal((images, old)) + 1)
    b = unit(np.tanh(a @ rng.standard_normal((old, new))) + 0.3 * rng.standard_normal((images, new)))
    penalty = ((a - a.mean(0)) ** 2).sum() / old
    cosines = {}
    for strength in STRENGTHS:
        scores = []
        for row in range(images):
            weights, intercept = ridge(np.delete(a, row, 0), np.delete(b, row, 0), strength * penalty)
            scores.append(unit(a[row] @ weights + intercept) @ b[row])
        cosines[strength] = np.mean(scores)
    constants = [unit(np.delete(b, row, 0).mean(0)) @ b[row] for row in range(images)]
    by = FeatureMap.fit(3 * a, b.astype(np.float32))  # lengths do not matter
    assert by.cosine == pytest.approx(max(cosines.values()), abs=1e-5)
    assert cosines[by.strength] == pytest.approx(by.cosine, abs=1e-5)
    assert by.baseline == pytest.approx(np.mean(constants), abs=1e-5)
    weights, intercept = ridge(a, b, by.strength * penalty)
    others = rng.standard_normal((5, old)).astype(np.float32)
    mapped = by(others)
    assert mapped.dtype == np.float32
    np.testing.assert_allclose(mapped, unit(unit(others.astype(float)) @ weights + intercept), atol=2e-5)


def test_map_recovers_a_rotation() -> None:
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    features, others = rng.standard_normal((200, 8)), rng.standard_normal((5, 8))
    by = FeatureMap.fit(features, features @ rotation)
    assert by.strength == min(STRENGTHS) and by.cosine > 0.999
    np.testing.assert_allclose(by(others), unit(others @ rotation), atol=0.01)


def test_equal_images_map_to_their_mean() -> None:
    by = FeatureMap.fit(np.ones((4, 3)), np.array([[1.0, 0], [0, 1], [1, 0], [0, 1]]))
    np.testing.assert_allclose(by(np.ones((1, 3))), [[0.5**0.5, 0.5**0.5]], atol=1e-6)


@pytest.mark.parametrize(("old", "new"), [(3, 4), (1, 1)])
def test_rows_that_fit_no_map_are_refused(old: int, new: int) -> None:
    with pytest.raises(InputError, match="features of the map"):
        FeatureMap.fit(np.ones((old, 2)), np.ones((new, 2)))
