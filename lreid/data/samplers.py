"""Which images a batch is made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lreid.errors import InputError


class EpisodeSampler:
    """Episodes of N identities with a few support and query images each (DMML, ICCV 2019; DwoPP, BMVC 2022).

    In every epoch each identity occurs at most once: identities are shuffled and cut into episodes, and those
    left over at the end sit the epoch out, as in the official code. Epochs are drawn from
    ``(seed, epoch)`` alone, so any of them can be had again without the ones before.

    An identity with fewer images than an episode takes shows some of them twice. The official code then
    draws from the list repeated, by which a query can be one of its own supports; here the queries are
    set aside first, so that this happens only to an identity with a single image.

    Args:
        labels: class label of every image.
        identities: N, identities an episode.
        num_support, num_query: images an identity.
        seed: of the run and this task.
        task_name: for the error.

    Raises:
        InputError: there are fewer identities than an episode needs.
    """

    def __init__(
        self, labels: Sequence[int], *, identities: int, num_support: int, num_query: int, seed: Sequence[int],
        task_name: str = "",
    ) -> None:  # fmt: skip
        if min(identities, num_support, num_query) < 1:
            raise InputError("EPISODE: IDENTITIES, SUPPORT and QUERY must be 1 or more")
        labels = np.asarray(labels)
        self.images = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        if len(self.images) < identities:
            raise InputError(
                f"EPISODE.IDENTITIES: an episode needs {identities} identities, but task {task_name!r} has only "
                f"{len(self.images)}; set it to {len(self.images)} or less, or make fewer tasks"
            )
        self.identities, self.num_support, self.num_query = identities, num_support, num_query
        self.seed = seed

    @property
    def episodes_per_epoch(self) -> int:
        return len(self.images) // self.identities

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """The episodes of one epoch: each the image indices (N * (num_support + num_query),) in blocks of one
        identity, its supports first."""
        rng = np.random.default_rng([*self.seed, epoch])
        order = rng.permutation(len(self.images))
        return [
            np.concatenate([self._block(rng, self.images[identity]) for identity in chosen])
            for chosen in order[: self.episodes_per_epoch * self.identities].reshape(-1, self.identities)
        ]

    def _block(self, rng: np.random.Generator, images: np.ndarray) -> np.ndarray:
        shuffled = rng.permutation(images)
        num_query = max(1, min(self.num_query, len(images) - 1))  # distinct ones
        queries, supports = shuffled[:num_query], shuffled[num_query:]
        if len(supports) == 0:
            supports = queries
        # np.resize repeats an array to the length wanted.
        return np.concatenate([np.resize(supports, self.num_support), np.resize(queries, self.num_query)])
