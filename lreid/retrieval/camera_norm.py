"""Features standardised per camera, which removes camera bias.

A camera's light, colours, background and angle shift the features of all its images in the same way, above all if the
model was not trained on similar cameras. Camera-specific feature normalisation removes such shifts without labels: it
subtracts each camera's mean and divides by its standard deviation (Song, Park & Lee, "Exploring the Camera Bias of
Person Re-identification", ICLR 2025). Means and standard deviations are computed from the test images, so results with
standardised features are *transductive*. Every camera must see many people, and all cameras must see similar people,
because a camera's mean otherwise describes its people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lreid.retrieval.arrays import unit_array
from lreid.utils.identities import as_labels

PRIOR = 20  # number of images as which the statistics of all cameras count in the statistics of each camera
LEAST_DEVIATION = 1e-6  # minimum standard deviation; it avoids a division by 0 where a dimension is equal in all images
ARRAY_PREFIX = "norm/features/"  # prefix of the arrays in a file


@dataclass(frozen=True)
class CameraNorm:
    """Mean and standard deviation of unit-length features per camera, with which new features are standardised.

    Song, Park & Lee compute a camera's statistics only from its own images. lreid adds ``PRIOR`` virtual images with
    the mean and variance of all cameras, so that a camera with few images needs no special case.

    Attributes:
        whole: mean and standard deviation (2, D) float32 over all images, which are used for new cameras.
        cameras: mean and standard deviation (2, D) float32 over the images of each camera, by number of the camera.
    """

    whole: np.ndarray
    cameras: dict[int, np.ndarray]

    @classmethod
    def estimate(cls, features: Any, cameras: Any) -> CameraNorm:
        """Estimate the statistics from images that represent what each camera sees.

        Args:
            features: (N, D) floats, array or tensor.
            cameras: (N,) integers. An image whose camera is missing or negative counts only for the statistics over all
                images.
        """
        units = unit_array(features, "features")
        labels = as_labels(cameras, "cameras", len(units))
        whole = _moments(units)
        by_camera = {}
        for camera in np.unique(labels[labels >= 0]):
            own = units[labels == camera]
            by_camera[int(camera)] = _statistics((len(own) * _moments(own) + PRIOR * whole) / (len(own) + PRIOR))
        return cls(_statistics(whole), by_camera)

    def __call__(self, features: Any, cameras: Any) -> np.ndarray:
        """Standardise features per camera: (x - mean) / standard deviation; compare the results by cosine similarity.

        Args:
            features: (n, D) floats, array or tensor.
            cameras: (n,) integers; images of new or unknown cameras are standardised by the statistics over all images.

        Returns:
            (n, D) float32.
        """
        units = unit_array(features, "features")
        labels = as_labels(cameras, "cameras", len(units))
        for camera in np.unique(labels):
            mean, deviation = self.cameras.get(int(camera), self.whole)
            members = labels == camera
            units[members] = (units[members] - mean) / deviation
        return units

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return all statistics as named arrays, which can be written to a file."""
        sets = {"whole": self.whole} | {str(camera): each for camera, each in self.cameras.items()}
        return {f"{ARRAY_PREFIX}{name}": array for name, array in sets.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], width: int) -> CameraNorm | None:
        """Read statistics for features of length ``width`` from arrays of :meth:`to_arrays`; None if there are none.

        Raises:
            KeyError, ValueError: the arrays are damaged.
        """
        sets = {key.removeprefix(ARRAY_PREFIX): array for key, array in arrays.items() if key.startswith(ARRAY_PREFIX)}
        if not sets:
            return None
        if any(array.shape != (2, width) for array in sets.values()):
            raise ValueError(f"not of {width} features")
        whole = sets.pop("whole")
        return cls(whole, {int(camera): each for camera, each in sets.items()})


def _moments(units: np.ndarray) -> np.ndarray:
    """Compute the means of features and of squared features, (2, D) float64."""
    squares = np.einsum("nd,nd->d", units, units, dtype=np.float64)
    return np.stack([units.mean(0, dtype=np.float64), squares / len(units)])


def _statistics(moments: np.ndarray) -> np.ndarray:
    """Compute mean and standard deviation (2, D) float32 from the result of :func:`_moments`."""
    mean, squares = moments
    return np.stack([mean, np.sqrt((squares - mean**2).clip(LEAST_DEVIATION**2))]).astype(np.float32)
