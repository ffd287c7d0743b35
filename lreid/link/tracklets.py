"""Tracklets. A tracklet shows one person passing one camera, and has one feature, a start and an end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SHARP = 100.0  # variance of the Laplacian at which a crop gets half of the full weight for sharpness
TALL = 128  # minimum height of a crop with the full weight for height, pixels
ROUNDS = 10  # iterations of Weiszfeld's algorithm
SMALLEST = 1e-6


@dataclass(frozen=True)
class Tracklets:
    """N tracklets, one array per property.

    Attributes:
        cameras: (N,) int64, camera numbers from 0.
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

    def followed_by(self, later: Tracklets) -> Tracklets:
        """The cameras and times of these tracklets and then of later ones, without features."""
        pairs = ((self.cameras, later.cameras), (self.starts, later.starts), (self.ends, later.ends))
        cameras, starts, ends = map(np.concatenate, pairs)
        return Tracklets(cameras, starts, ends, np.zeros((len(cameras), 0), np.float32))


def crop_quality(height: float, sharpness: float, visible: float, hidden: float) -> float:
    """The weight of a crop in its tracklet's feature.

    Args:
        height: height of the box, pixels.
        sharpness: variance of the Laplacian, see :func:`lreid.data.tracks.sharpness`.
        visible: share of the box that is inside the frame, in [0, 1].
        hidden: share of the box that is covered by boxes in front, in [0, 1].

    Returns:
        Weight in [0, 1], the product of one weight per argument.
    """
    return min(1.0, height / TALL) * sharpness / (sharpness + SHARP) * visible * (1 - hidden)


def robust_mean(features: np.ndarray, quality: np.ndarray) -> np.ndarray:
    """The weighted geometric median of the crops of a tracklet, by Weiszfeld's algorithm (Vardi & Zhang, PNAS 2000).

    A few crops of a different person change the median much less than they change the mean.

    Args:
        features: (n, D) floats, n ≥ 1, which this function normalises.
        quality: (n,) weights ≥ 0; if all weights are 0, every crop counts the same.

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
