"""Samplers: which images a batch is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lreid.errors import ArgumentError


class IdentitySampler:
    """P x K batches: P identities with K images each.

    In every epoch each identity occurs at most once: identities are shuffled and cut into batches, and those left
    over at the end sit the epoch out. So an epoch is a look at every identity, as in DMML's official code; BoT's
    sampler uses up an identity's images within an epoch, which is the same over many epochs. Epochs are drawn
    from ``(seed, epoch)`` alone, so any of them can be had again without the ones before.

    An identity with fewer than K images shows some of them twice.

    Where there are exemplars, batches are drawn from their identities and those of the task alike, or with a fixed
    share of exemplars. An epoch has as many batches as without them, so that methods with and without exemplars
    see equally many images.

    Args:
        labels: class label of every image.
        identities: P, identities a batch.
        images: K, images an identity.
        seed: of the run and this task.
        task_name: for the error.
        exemplars: class labels of exemplars, none of them in ``labels``. The index of the first one is
            ``len(labels)``.
        exemplar_share: share of the P identities that are exemplars, in [0, 1), rounded down, as far as there are
            so many; they stand at the end of the batch. 0 draws all P from both alike.

    Raises:
        ArgumentError: there are fewer identities than a batch needs, or it would be empty.
    """

    num_support = 0  # supports of an identity in a block: the first so many images

    def __init__(
        self,
        labels: Sequence[int] | np.ndarray,
        *,
        identities: int,
        images: int,
        seed: Sequence[int],
        task_name: str = "",
        exemplars: Sequence[int] | np.ndarray = (),
        exemplar_share: float = 0.0,
    ) -> None:
        labels, exemplars = np.asarray(labels), np.asarray(exemplars)
        self.images = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        _require_positive(identities=identities, images=images)
        if len(self.images) < identities:
            raise ArgumentError(
                "identities",
                f"is {identities}, but task {task_name!r} has only {len(self.images)}; set it to {len(self.images)} or "
                "less, or make fewer tasks",
            )
        self.identities, self.images_each, self.seed = identities, images, seed
        self.batches_per_epoch = len(self.images) // identities
        self.own = len(self.images)  # identities of the task; those of the exemplars follow
        self.images += [len(labels) + np.flatnonzero(exemplars == label) for label in np.unique(exemplars)]
        self.exemplar_share = exemplar_share

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """The batches of one epoch: each the image indices (P * K,) in blocks of one identity."""
        rng = np.random.default_rng([*self.seed, epoch])
        return [
            np.concatenate([self._block(rng.permutation(self.images[identity])) for identity in chosen])
            for chosen in self._identities(rng)
        ]

    def _identities(self, rng: np.random.Generator) -> np.ndarray:
        """The identities of every batch of an epoch (batches, P)."""
        batches, old = self.batches_per_epoch, len(self.images) - self.own
        if self.exemplar_share == 0:
            return np.resize(rng.permutation(self.own + old), (batches, self.identities))
        share = min(int(self.exemplar_share * self.identities), old)
        own = np.resize(rng.permutation(self.own), (batches, self.identities - share))
        # np.resize starts over where the exemplars are fewer than an epoch needs.
        return np.hstack([own, np.resize(self.own + rng.permutation(old), (batches, share))])

    def _block(self, shuffled: np.ndarray) -> np.ndarray:
        return np.resize(shuffled, self.images_each)  # np.resize repeats an array to the length wanted


class EpisodeSampler(IdentitySampler):
    """Episodes of N identities with a few support and query images each (DMML, ICCV 2019; DwoPP, BMVC 2022).

    An identity with fewer images than an episode takes shows some of them twice. The official code then draws from
    the list repeated, by which a query can be one of its own supports; here the queries are set aside first, so
    that this happens only to an identity with a single image.

    Args:
        labels: class label of every image.
        identities: N, identities an episode.
        num_support, num_query: images an identity. A block holds the supports first.
        seed: of the run and this task.
        options: further ones of :class:`IdentitySampler`.

    Raises:
        ArgumentError: there are fewer identities than an episode needs, or it would be empty.
    """

    def __init__(
        self,
        labels: Sequence[int] | np.ndarray,
        *,
        identities: int,
        num_support: int,
        num_query: int,
        seed: Sequence[int],
        **options: Any,
    ) -> None:
        _require_positive(num_support=num_support, num_query=num_query)
        super().__init__(labels, identities=identities, images=num_support + num_query, seed=seed, **options)
        self.num_support, self.num_query = num_support, num_query

    def _block(self, shuffled: np.ndarray) -> np.ndarray:
        num_query = max(1, min(self.num_query, len(shuffled) - 1))  # distinct ones
        queries, supports = shuffled[:num_query], shuffled[num_query:]
        if len(supports) == 0:
            supports = queries
        return np.concatenate([np.resize(supports, self.num_support), np.resize(queries, self.num_query)])


class StreamSampler:
    """A single pass over a stream: segment after segment, every image once an epoch.

    The images of an identity come in runs of up to ``correlation`` in a row, and the runs of all identities are
    shuffled. So 1 is a stream of independent images, and a large number shows one identity after the other. That is
    the strength of temporal correlation of Contrast Scoring (Wu et al., 2021): images of one class in a row.

    Args:
        labels: class label of every image.
        segment: images a step; those of an epoch are cut into segments of at most this size that differ by one at most.
        correlation: images of an identity in a row.
        seed: of the run and this task.

    Raises:
        ArgumentError: a segment or a run of less than one image.
    """

    num_support = 0

    def __init__(
        self, labels: Sequence[int] | np.ndarray, *, segment: int, correlation: int, seed: Sequence[int]
    ) -> None:
        _require_positive(segment=segment, correlation=correlation)
        labels = np.asarray(labels)
        self.images = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        self.correlation, self.seed = correlation, seed
        self.batches_per_epoch = -(-len(labels) // segment)

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """The segments of one pass: each the indices of its images."""
        rng = np.random.default_rng([*self.seed, epoch])
        runs = [
            run
            for images in self.images
            for run in np.split(rng.permutation(images), range(self.correlation, len(images), self.correlation))
        ]
        stream = np.concatenate([runs[number] for number in rng.permutation(len(runs))])
        return np.array_split(stream, self.batches_per_epoch)


def _require_positive(**arguments: int) -> None:
    for name, value in arguments.items():
        if value < 1:
            raise ArgumentError(name, f"is {value}; must be 1 or more")
