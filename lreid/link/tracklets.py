"""A tracklet: somebody whom one camera saw for a while, as one feature with a time and a quality."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SHARP = 100.0  # variance of the Laplacian at which a crop loses half of its weight
TALL = 128  # pixels from which a crop's height takes nothing off its weight
ROUNDS = 10  # of Weiszfeld's algorithm
SMALLEST = 1e-6


@dataclass(frozen=True)
class Tracklets:
    """N tracklets, one array per property.

    Attributes:
        cameras: (N,) int64, numbers of cameras from 0.
        starts, ends: (N,) float64 seconds, on one clock for all cameras; ``starts <= ends``.
        features: (N, D) float32 unit vectors.
    """

    cameras: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    features: np.ndarray

    def __len__(self) -> int:
        return len(self.cameras)

    def __getitem__(self, rows: np.ndarray | slice) -> Tracklets:
        return Tracklets(self.cameras[rows], self.starts[rows], self.ends[rows], self.features[rows])


def crop_quality(height: float, sharpness: float, visible: float, hidden: float) -> float:
    """The weight of a crop in its tracklet's feature.

    Args:
        height: of the box, pixels.
        sharpness: variance of the Laplacian, see :func:`lreid.data.tracks.sharpness`.
        visible: share of the box that is inside the frame, in [0, 1].
        hidden: share of the box that boxes in front of it cover, in [0, 1].

    Returns:
        In [0, 1]: the product of a weight for each of the four.
    """
    return min(1.0, height / TALL) * sharpness / (sharpness + SHARP) * visible * (1 - hidden)


def robust_mean(features: np.ndarray, quality: np.ndarray) -> np.ndarray:
    """The weighted geometric median of the crops of a tracklet, by Weiszfeld's algorithm (Vardi & Zhang, PNAS 2000).

    A few crops that show somebody else move it much less than they move the mean.

    Args:
        features: (n, D) floats, n ≥ 1; normalised here.
        quality: (n,) weights ≥ 0; all equal where none is above 0.

    Returns:
        (D,) float32 unit vector.
    """
    units = features / np.linalg.norm(features, axis=1, keepdims=True).clip(SMALLEST)
    weights = np.asarray(quality, dtype=np.float64) if np.any(quality) else np.ones(len(units))
    middle = np.average(units, axis=0, weights=weights)
    for _ in range(ROUNDS):
        distances = np.linalg.norm(units - middle, axis=1).clip(1e-3)
        middle = np.average(units, axis=0, weights=weights / distances)
    return (middle / max(np.linalg.norm(middle), SMALLEST)).astype(np.float32)
