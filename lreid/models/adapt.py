"""BatchNorm statistics re-estimated on a gallery's own images, without labels and without training.

A model that was trained elsewhere normalises with the colours and light of its training domain. Statistics of the new
domain take that away: AdaBN (Li et al., Pattern Recognition 2018, arXiv 2016), one set for each camera in camera-based
BN (Zhuang et al., ECCV 2020; theirs also trains so). It looks at the test images, so figures are *transductive*.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from lreid.errors import InputError
from lreid.models.embedder import Embedder
from lreid.progress import images_done

FEWEST = 32  # a camera with fewer images has no statistics of its own: they would be those of a person or two

Statistics = dict[str, np.ndarray]  # running mean and variance of every BatchNorm layer, by their name in the model


def norm_statistics(
    model: Embedder, images: Sequence[str] | Sequence[np.ndarray], *, batch_size: int = 128, seed: int = 0
) -> Statistics:
    """Mean and variance at every BatchNorm layer over images; layers of :meth:`Embedder.freeze` keep theirs.

    They are averaged over batches, within which every layer already normalises with the batch's own statistics. The
    images are shuffled, as a gallery in order of identities would give batches of a few people, and cut into batches
    of nearly equal size, none of a single image, which has no variance.

    Args:
        model: stays as it is.
        images: n uint8 RGB images (H, W, 3), or paths.
        batch_size: the most images in a batch, but for batches of two and three where it is smaller.
        seed: of the shuffle.

    Returns:
        ``(C,)`` float32 arrays; the variance is the unbiased one.

    Raises:
        InputError: fewer than two images, one that cannot be read, or a model without BatchNorm.
    """
    if len(images) < 2:
        raise InputError(f"normalisation needs two images or more to adapt to, got {len(images)}")
    model = copy.deepcopy(model).eval()
    model.precision = None  # statistics are of the network as it extracts, not as it trains
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    if not layers:
        raise InputError(f"{model.name}: has no BatchNorm layer whose statistics could be adapted")
    for layer in layers:
        if layer in model.frozen_norms:
            continue
        layer.reset_running_stats()
        layer.momentum = None  # the plain average over batches
        layer.train()
    order = np.random.default_rng(seed).permutation(len(images))
    with torch.no_grad(), images_done(len(order), "adapting") as bar:
        for batch in np.array_split(order, min(math.ceil(len(order) / batch_size), len(order) // 2)):
            model._features([images[i] for i in batch], flip=False)
            bar.update(len(batch))
    return {name: state.cpu().numpy() for name, state in model.state_dict().items() if _is_statistic(name)}


def with_statistics(model: Embedder, statistics: Statistics) -> Embedder:
    """A copy of a model, in evaluation mode, that normalises with other statistics.

    Raises:
        InputError: they are of another architecture.
    """
    model = copy.deepcopy(model).eval()
    state = model.state_dict()
    own = {name: state[name].shape for name in state if _is_statistic(name)}
    if own != {name: array.shape for name, array in statistics.items()}:
        raise InputError(f"the adapted statistics are not of a {model.name} network; adapt this model again")
    model.load_state_dict({name: torch.from_numpy(array) for name, array in statistics.items()}, strict=False)
    return model


@dataclass(frozen=True)
class AdaptedNorm:
    """Statistics of a gallery, to extract the features of its images and of its queries with.

    Attributes:
        whole: over all images. Also used for a camera that has no statistics of its own.
        cameras: by camera; empty if the gallery was taken as a whole.
    """

    whole: Statistics
    cameras: dict[int, Statistics]

    @classmethod
    def estimate(
        cls,
        model: Embedder,
        images: Sequence[np.ndarray],
        cameras: np.ndarray | None = None,
        *,
        batch_size: int = 128,
        seed: int = 0,
    ) -> AdaptedNorm:
        """Statistics of a gallery as a whole or, with ``cameras``, of each camera as well.

        Args:
            model, images, batch_size, seed: of :func:`norm_statistics`.
            cameras: (n,) integers; cameras with fewer than ``FEWEST`` images and negative ones (not known) get no
                statistics of their own.
        """
        options = {"batch_size": batch_size, "seed": seed}
        by_camera = {}
        for camera in np.unique([] if cameras is None else cameras):
            members = np.flatnonzero(cameras == camera)
            if camera >= 0 and len(members) >= FEWEST:
                by_camera[int(camera)] = norm_statistics(model, _Subset(images, members), **options)
        return cls(norm_statistics(model, images, **options), by_camera)

    def extract(
        self,
        model: Embedder,
        images: Sequence[np.ndarray],
        cameras: np.ndarray | None = None,
        *,
        flip: bool = False,
        batch_size: int = 128,
    ) -> np.ndarray:
        """Features as of :meth:`Embedder.extract`, every image normalised for its camera.

        Args:
            model: the one that the statistics were estimated with.
            images: n uint8 RGB images (H, W, 3).
            cameras: (n,) integers; ``None`` takes the statistics of the whole gallery for all.
            flip, batch_size: of :meth:`Embedder.extract`.

        Returns:
            (n, dim) float32.
        """
        wanted = np.full(len(images), -1) if cameras is None else np.asarray(cameras)
        own = np.where(np.isin(wanted, list(self.cameras)), wanted, -1)  # -1: the whole gallery's
        features = np.empty((len(images), model.dim), np.float32)
        for camera in np.unique(own):
            members = np.flatnonzero(own == camera)
            adapted = with_statistics(model, self.cameras.get(int(camera), self.whole))
            features[members] = adapted.extract(_Subset(images, members), flip=flip, batch_size=batch_size)
        return features

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All statistics under names that say which set they are of, for a file."""
        sets = {"whole": self.whole} | {str(camera): each for camera, each in self.cameras.items()}
        return {f"norm/{of}/{name}": array for of, each in sets.items() for name, array in each.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> AdaptedNorm | None:
        """What :meth:`to_arrays` gave, among other arrays; None if there are no statistics."""
        sets: dict[str, Statistics] = {}
        for key, array in arrays.items():
            if key.startswith("norm/"):
                _, of, name = key.split("/", 2)
                sets.setdefault(of, {})[name] = array
        if not sets:
            return None
        whole = sets.pop("whole")
        return cls(whole, {int(camera): each for camera, each in sets.items()})


class _Subset(Sequence[np.ndarray]):
    """Some of many images, read when they are asked for."""

    def __init__(self, images: Sequence[np.ndarray], members: np.ndarray) -> None:
        self.images, self.members = images, members

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, index: int | slice) -> np.ndarray | list[np.ndarray]:
        if isinstance(index, slice):
            return [self.images[i] for i in self.members[index]]
        return self.images[self.members[index]]


def _is_statistic(name: str) -> bool:
    return name.endswith(("running_mean", "running_var"))
