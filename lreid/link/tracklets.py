"""Tracklets of people. A tracklet shows one person who passes one camera, and has one feature, a start and an end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ROUNDS = 10  # iterations of Weiszfeld's algorithm
EPSILON = 1e-6


@dataclass(frozen=True)
class Tracklets:
    """N tracklets, one array per property.

    Attributes:
        cameras: (N,) int64, camera numbers from 0.
        starts, ends: (N,) float64 times in seconds, on one clock for all cameras, with ``starts <= ends``.
        features: (N, D) float32 unit vectors.
    """

    cameras: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    features: np.ndarray

    def __len__(self) -> int:
        return len(self.cameras)

    def __getitem__(self, rows: np.ndarray | slice) -> Tracklets:
        return Tracklets(*(column[rows] for column in vars(self).values()))

    def followed_by(self, later: Tracklets) -> Tracklets:
        """Return these tracklets and then the later ones."""
        pairs = zip(vars(self).values(), vars(later).values(), strict=True)
        return Tracklets(*(np.concatenate(pair) for pair in pairs))


def robust_mean(features: np.ndarray, quality: np.ndarray) -> np.ndarray:
    """Compute the weighted geometric median of a tracklet's crops (Weiszfeld's algorithm; Vardi & Zhang, PNAS 2000).

    A few crops of another person change this median much less than the mean.

    Args:
        features: (n, D) floats, n ≥ 1, which this function scales to unit length.
        quality: (n,) weights ≥ 0; if all are 0, every crop counts the same.

    Returns:
        Unit vector (D,) float32.
    """
    units = features / np.linalg.norm(features, axis=1, keepdims=True).clip(EPSILON)
    weights = np.asarray(quality, dtype=np.float64) if np.any(quality) else np.ones(len(units))
    middle = np.average(units, axis=0, weights=weights)
    for _ in range(ROUNDS):
        distances = np.linalg.norm(units - middle, axis=1).clip(1e-3)
        middle = np.average(units, axis=0, weights=weights / distances)
    return (middle / max(np.linalg.norm(middle), EPSILON)).astype(np.float32)
