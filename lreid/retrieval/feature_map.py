"""A map from the features of an old model to those of a new one, for galleries whose images no longer exist.

A gallery that the old model built can then be searched by the new model, although no gallery image is extracted again.
The map is ridge regression with an intercept. It needs images that both models can read, but no labels and no image of
the gallery. Sources: Drift-Adapter (Vejendla, EMNLP 2025, arXiv 2509.23471) fits such adapters but maps the queries
into the old space; lambda-orthogonality (arXiv 2509.16664) maps galleries with regularised transforms.
BCT (Shen et al., CVPR 2020) and BT² (Zhou et al., ICCV 2023) train the new model to be compatible instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lreid.errors import InputError
from lreid.retrieval.arrays import unit_array

STRENGTHS = (0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True)
class FeatureMap:
    """An affine map from unit vectors of an old model to unit vectors of a new model.

    Attributes:
        weights: (D + 1, E) float32, for features of length D of the old model and length E of the new one; the last row
            is the intercept.
        cosine: mean cosine similarity, in [-1, 1], between the mapped and the new feature of a held-out image.
        baseline: the same for a constant map to the mean of the new features.
        strength: chosen strength of the ridge penalty, one of ``STRENGTHS``.
    """

    weights: np.ndarray
    cosine: float = float("nan")
    baseline: float = float("nan")
    strength: float = float("nan")

    @classmethod
    def fit(cls, old: Any, new: Any) -> FeatureMap:
        """Fit the map to features of the same images by both models, by ridge regression in float64.

        With A and B the centred unit vectors, the map is ``x -> (x - mean_old) W + mean_new``, with ``W = (A'A + s
        tr(A'A) / D I)^-1 A'B``. Of all ``STRENGTHS``, s is the one for which held-out images have the largest mean
        cosine similarity. Each image is held out once: its prediction by the map that is fitted to all other images
        follows in closed form from the leverages (PRESS: Allen, Technometrics 1974).

        Args:
            old, new: (n, D) and (n, E) floats, arrays or tensors, with n of 2 or more. n may be below D, and E may
                differ from D.

        Raises:
            InputError: the numbers of rows differ, there are fewer than two, or a value is not finite.
        """
        a, units = (unit_array(each, "features of the map").astype(np.float64) for each in (old, new))
        if len(a) != len(units) or len(a) < 2:
            raise InputError(f"features of the map: {len(a)} old and {len(units)} new rows; give the same two or more")
        mean_old, mean_new = a.mean(0), units.mean(0)
        a, b = a - mean_old, units - mean_new
        dual = len(a) < a.shape[1]  # the smaller one of AA' and A'A is decomposed
        squares, vectors = np.linalg.eigh(a @ a.T if dual else a.T @ a)
        squares = squares.clip(0)
        basis = vectors * np.sqrt(squares) if dual else a @ vectors  # (n, k): A in its principal axes
        projected, unit_ridge = basis.T @ b, max(squares.sum() / a.shape[1], np.finfo(float).tiny)

        def cosine(strength: float) -> float:
            shrunk = basis / (squares + strength * unit_ridge)
            leverages = 1 / len(a) + (shrunk * basis).sum(1)  # (n,)
            predictions = units - (b - shrunk @ projected) / (1 - leverages)[:, None]  # (n, E), each without its image
            return float((unit_array(predictions, "mapped features") * units).sum(1).mean())

        best, strength = max((cosine(strength), strength) for strength in STRENGTHS)
        inverse = (vectors / (squares + strength * unit_ridge)) @ vectors.T
        weights = a.T @ (inverse @ b) if dual else inverse @ (a.T @ b)  # (D, E)
        weights = np.vstack([weights, mean_new - mean_old @ weights]).astype(np.float32)
        return cls(weights, best, cosine(np.inf), strength)  # an infinite penalty leaves the intercept

    def __call__(self, features: Any) -> np.ndarray:
        """Map features (N, D) of the old model, and return (N, E) float32 unit vectors for the new one."""
        units = unit_array(features, "gallery features")
        return unit_array(units @ self.weights[:-1] + self.weights[-1], "mapped features")
