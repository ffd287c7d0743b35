"""Tracklets of people. A tracklet shows one person who passes one camera, and has one feature, a start and an end."""

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
        return Tracklets(self.cameras[rows], self.starts[rows], self.ends[rows], self.features[rows])

    def followed_by(self, later: Tracklets) -> Tracklets:
        """Return the cameras and times of these tracklets and then of later tracklets, without features."""
        pairs = ((self.cameras, later.cameras), (self.starts, later.starts), (self.ends, later.ends))
        cameras, starts, ends = map(np.concatenate, pairs)
        return Tracklets(cameras, starts, ends, np.zeros((len(cameras), 0), np.float32))


def crop_quality(height: float, sharpness: float, visible: float, hidden: float) -> float:
    """Compute the weight of a crop in the feature of its tracklet.

    Args:
        height: height of the box in pixels.
        sharpness: variance of the Laplacian, see :func:`lreid.data.tracks.sharpness`.
        visible: share of the box that is inside the frame, in [0, 1].
        hidden: share of the box that is covered by boxes in front of it, in [0, 1].

    Returns:
        Weight in [0, 1], a product of one weight per argument.
    """
    return min(1.0, height / TALL) * sharpness / (sharpness + SHARP) * visible * (1 - hidden)


def robust_mean(features: np.ndarray, quality: np.ndarray) -> np.ndarray:
    """Compute the weighted geometric median of a tracklet's crops (Weiszfeld's algorithm; Vardi & Zhang, PNAS 2000).

    A few crops of another person change this median much less than the mean.

    Args:
        features: (n, D) floats, n ≥ 1, which this function scales to unit length.
        quality: (n,) weights ≥ 0; if all are 0, every crop counts the same.

    Returns:
        Unit vector (D,) float32.
    """
    units = features / np.linalg.norm(features, axis=1, keepdims=True).clip(SMALLEST)
    weights = np.asarray(quality, dtype=np.float64) if np.any(quality) else np.ones(len(units))
    middle = np.average(units, axis=0, weights=weights)
    for _ in range(ROUNDS):
        distances = np.linalg.norm(units - middle, axis=1).clip(1e-3)
        middle = np.average(units, axis=0, weights=weights / distances)
    return (middle / max(np.linalg.norm(middle), SMALLEST)).astype(np.float32)
