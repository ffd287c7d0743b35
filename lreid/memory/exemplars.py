"""A store of exemplars, as pixels or paths, and a memory in which all identities have equal shares."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from lreid.data.images import read_image


def budget_of(exemplars: int, exemplar_mib: float, *, height: int, width: int) -> int:
    """Compute the number of images that a memory may store.

    Args:
        exemplars: maximum number of images.
        exemplar_mib: maximum size of the pixels of all images in MiB; 0 means no limit.
        height, width: size in pixels of an image with three colour channels.
    """
    if exemplar_mib == 0:
        return exemplars
    return min(exemplars, int(exemplar_mib * 2**20) // (3 * height * width))


class ImagePaths(Sequence[np.ndarray]):
    """A sequence of images that are read from files on access, so that a memory stores only their paths.

    ``self[i]`` is (H, W, 3) uint8, RGB. A slice or an array of k indices returns (k, H, W, 3).

    Args:
        paths: paths of n image files, or addresses of synthetic images.
        height, width: size in pixels of the resized images.
    """

    def __init__(self, paths: Iterable[str], height: int, width: int) -> None:
        self.paths, self.height, self.width = list(paths), height, width

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int | slice | np.ndarray) -> np.ndarray:
        size = {"height": self.height, "width": self.width}
        rows = np.arange(len(self))[index]
        if rows.ndim == 0:
            return read_image(self.paths[rows], **size)
        read = [read_image(self.paths[row], **size) for row in rows]
        return np.stack(read) if read else np.empty((0, self.height, self.width, 3), np.uint8)


class ExemplarStore:
    """Store for a limited number of images with labels and other arrays; subclasses decide which images to keep.

    A store contains either pixels or the paths of :class:`ImagePaths`. If a store contains pixels, the image files are
    no longer needed. All pixels are in one array, in which new images overwrite removed images. Main memory therefore
    holds only one array of pixels and the new images.

    Args:
        budget: maximum number of images.
    """

    of_stream: ClassVar[bool] = False  # True for a memory that is filled batch by batch

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._clear()

    def __len__(self) -> int:
        return self._count

    @property
    def images(self) -> np.ndarray | ImagePaths:
        """Images (n, H, W, 3) uint8, RGB, or their paths; indexing returns pixels in both cases.

        The array of pixels is a view of the store, so adding images can change it.
        """
        if isinstance(self._images, ImagePaths):
            return ImagePaths(self._images.paths[: len(self)], self._images.height, self._images.width)
        return self._images[: len(self)]

    @property
    def labels(self) -> np.ndarray:
        """Class labels (n,) int64."""
        return self._labels[: len(self)]

    @property
    def extras(self) -> dict[str, np.ndarray]:
        """Named arrays stored with the images, (n,) or (n, K) floating point; callers may change the values.

        K can grow when images are added. Images that were stored with a smaller K are padded with NaN.
        """
        return {name: values[: len(self)] for name, values in self._extras.items()}

    @property
    def nbytes(self) -> int:
        """Size of the stored pixels or paths in bytes, without labels and extras."""
        if isinstance(self._images, ImagePaths):
            return sum(len(os.fsencode(path)) for path in self._images.paths[: len(self)])
        return self._images[: len(self)].nbytes

    def state_dict(self) -> dict[str, Any]:
        """Return the contents as plain values and tensors, which share memory with this store."""
        images: Any = self.images
        as_paths = isinstance(images, ImagePaths)
        return {
            "images": (images.paths, images.height, images.width) if as_paths else torch.from_numpy(images),
            "labels": torch.from_numpy(self.labels),
            "extras": {name: torch.from_numpy(values) for name, values in self.extras.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        images, labels = state["images"], state["labels"].numpy()
        images = ImagePaths(*images) if isinstance(images, tuple) else images.numpy()
        extras = {name: values.numpy() for name, values in state["extras"].items()}
        if len(labels) > self.budget:
            raise ValueError(f"the state holds {len(labels)} images, the budget is {self.budget}")
        self._clear()
        self._write(np.arange(len(labels)), images, labels, np.arange(len(labels)), extras)

    def _clear(self) -> None:
        self._count = 0
        self._images: Any = np.empty((0, 0, 0, 3), np.uint8)  # or ImagePaths
        self._labels = np.empty(self.budget, np.int64)
        self._extras: dict[str, np.ndarray] = {}

    def _keep(self, rows: np.ndarray) -> None:
        """Remove all images except the ascending ``rows`` (k,), without a second array of pixels."""
        images = self._images.paths if isinstance(self._images, ImagePaths) else self._images
        for new, old in enumerate(rows):
            images[new] = images[old]
        for values in (self._labels, *self._extras.values()):
            values[: len(rows)] = values[rows]
        self._count = len(rows)

    def _write(
        self, places: np.ndarray, images: Any, labels: np.ndarray, rows: np.ndarray, extras: dict[str, np.ndarray]
    ) -> None:
        """Copy ``rows`` (k,) of the new values to the distinct positions ``places`` (k,) of the store."""
        for place, row in zip(places, rows, strict=True):
            self._write_image(place, images, row)
        self._labels[places] = labels[rows]
        for name in extras | self._extras:
            self._write_extra(name, places, np.asarray(extras[name])[rows] if name in extras else None)
        self._count = max(self._count, 1 + max(places, default=-1))

    def _write_image(self, place: int, images: Any, row: int) -> None:
        as_paths, first = isinstance(images, ImagePaths), len(self._images) == 0
        if first and as_paths:
            self._images = ImagePaths([""] * self.budget, images.height, images.width)
        if as_paths != isinstance(self._images, ImagePaths):
            raise ValueError("a memory keeps either pixels or paths, not both")
        if as_paths:
            self._images.paths[place] = images.paths[row]
            return
        image = images[row]  # (H, W, 3)
        if first:
            self._images = np.empty((self.budget, *image.shape), np.uint8)
        if image.dtype != np.uint8 or image.shape != self._images.shape[1:]:
            raise ValueError(f"images must be uint8 {self._images.shape[1:]}, got {image.dtype} {image.shape}")
        self._images[place] = image

    def _write_extra(self, name: str, places: np.ndarray, values: np.ndarray | None) -> None:
        """Write ``values`` (k,) or (k, K), padded with NaN, to the rows ``places``; if None, write NaN only."""
        if values is None:
            self._extras[name][places] = np.nan
            return
        if not np.issubdtype(values.dtype, np.floating):
            values = values.astype(np.float64)
        held = self._extras.get(name)
        if held is None:
            held = np.full((self.budget, *values.shape[1:]), np.nan, values.dtype)
        if held.shape[1:] != values.shape[1:]:
            lacking = values.shape[1] - held.shape[1]
            held, values = (
                np.pad(each, ((0, 0), (0, max(more, 0))), constant_values=np.nan)
                for each, more in ((held, lacking), (values, -lacking))
            )
        self._extras[name] = held
        held[places] = values


class ExemplarMemory(ExemplarStore):
    """Memory of the best images of every identity, to which images are added at the end of a task.

    With a budget of M images and C identities so far, each identity has a share of ``M // C`` images. Identities of
    earlier tasks keep the best of their images (iCaRL, CVPR 2017, Algorithms 4 and 5). In a long sequence of tasks, ``M
    // C`` falls below two, the number of images that an episode or a triplet needs. The memory then stores ``least``
    images of each of ``M // least`` identities, a uniform sample of all identities. The sample consists of the
    identities with the smallest random numbers, each computed from the seed and the label. DwoPP's paper (BMVC 2022)
    gives every method 500 exemplars in total, but does not say how they are selected or shared among identities.

    With equal shares, a part of the budget can remain unused. With ``fill``, identities with more images get the unused
    part, one image at a time, in the order of their random numbers. As long as all identities are stored, ``fill`` then
    uses the entire budget, and shares of identities with enough images differ by at most one. With ``fill`` and
    ``random`` selection, the memory works like Co²L's memory (ICCV 2021). Co²L's official code rounds the share of
    every old identity at random and leaves the rest to new identities.

    The selection ``importance`` follows CCLIS (AAAI 2024). The selection draws images with probabilities in proportion
    to their scores. Every :meth:`add` also draws the stored images again, by new scores. For each image,
    ``extras["weights"]`` contains the image's score divided by the sum of its identity's scores, both from the last
    draw, as in CCLIS's official code. The weights of an identity sum to less than 1 if some of its images were removed.

    Args:
        budget: maximum number of images.
        least: minimum number of images per stored identity, if the identity has enough images.
        selection: rule that selects images of an identity, see :func:`~lreid.memory.select`.
        fill: whether identities with more images get the part of the budget that equal shares leave unused.
        seed: seed of all random choices.

    Attributes:
        images, labels, extras: see :class:`~lreid.memory.ExemplarStore`. Images are ordered by task, then by identity,
            then from best to worst. With ``importance``, images of an identity have no order.
        seen: number of identities added so far, including identities that are not stored.
    """

    def __init__(
        self, budget: int, *, least: int = 2, selection: str = "herding", fill: bool = False, seed: int = 0
    ) -> None:
        super().__init__(budget)
        self.least, self.selection, self.fill, self.seed = least, selection, fill, seed
        self.seen = 0

    def add(
        self,
        images: Sequence[np.ndarray],
        labels: np.ndarray,
        values: np.ndarray,
        *,
        kept_scores: np.ndarray | Sequence[float] = (),
    ) -> None:
        """Add the best images of new identities, after removing old images to make room.

        Args:
            images: n images (H, W, 3) uint8, or :class:`~lreid.memory.ImagePaths`; only selected images are read.
            labels: (n,) integers; every identity must be new.
            values: values for the selection: (n, D) features, or for ``importance`` (n,) scores of 0 or more.
            kept_scores: for ``importance``: scores (len(self),) of the images that are in the memory.
        """
        from lreid.memory.selection import draw_by_score, importance_weights, select

        labels = np.asarray(labels)
        new = np.unique(labels)
        if np.isin(new, self.labels).any():
            raise ValueError(f"identities {np.intersect1d(new, self.labels)} are in the memory already")
        extras, old_scores = {}, np.asarray(kept_scores)
        if self.selection == "importance":
            weights = importance_weights(old_scores, self.labels)
            extras["weights"] = importance_weights(values, labels)
            self._extras.setdefault("weights", np.empty(self.budget))[: len(self)] = weights
        self.seen += len(new)
        stay, come = [], []  # rows of the memory and of the new images
        for label, count in sorted(self._shares(labels).items()):
            rows = np.flatnonzero(self.labels == label)
            if len(rows) == 0:
                rows = np.flatnonzero(labels == label)
                come += rows[select(values[rows], count, self.selection, (self.seed, label))].tolist()
                continue
            if self.selection == "importance":
                rows = rows[draw_by_score(old_scores[rows], count, (self.seed, label, self.seen))]
            stay += rows[:count].tolist()
        self._keep(np.sort(np.array(stay, np.int64)))
        self._write(np.arange(len(stay), len(stay) + len(come)), images, labels, np.array(come, np.int64), extras)

    def state_dict(self) -> dict[str, Any]:
        """Return images, labels and extras, the number of identities seen, and the seed."""
        return super().state_dict() | {"seen": self.seen, "seed": self.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.seen, self.seed = state["seen"], state["seed"]

    def _shares(self, labels: np.ndarray) -> Counter[int]:
        """Compute the number of images that each identity may keep, from all stored and new images."""
        sizes = Counter(self.labels.tolist()) + Counter(labels.tolist())
        quota = max(self.budget // max(self.seen, 1), self.least)
        # Each identity has a random number in [0, 1); the identities with the smallest numbers are stored.
        rank_of = {label: np.random.default_rng([self.seed, label, 1]).random() for label in sizes}
        identities = sorted(sizes, key=rank_of.__getitem__)[: self.budget // quota]
        if not self.fill:
            return Counter({label: min(quota, sizes[label]) for label in identities})
        # Every identity gets its first image, then every identity gets its second image, and so on.
        places = sorted(((turn, rank, label) for rank, label in enumerate(identities) for turn in range(sizes[label])))
        return Counter(label for _, _, label in places[: self.budget])
