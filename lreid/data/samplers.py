"""Samplers: select the images of each batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from torch.utils import data

from lreid.errors import ArgumentError

Passes = Literal["identities", "images"]


class Sampler(data.Sampler[list[int]]):
    """Draws the batches of a task, epoch by epoch, and appends exemplars to each.

    One of torch's, whose items are whole batches: ``DataLoader(…, batch_sampler=sampler)`` gives the images of each as
    a list, ``DataLoader(…, sampler=sampler, batch_size=None)`` asks for them all at once.

    An epoch depends only on ``(seed, epoch)``, so any epoch can be repeated without the previous ones. Exemplars are
    added to the batches: the images of the task are drawn as without exemplars, so the number of batches per epoch and
    the frequency of new images do not depend on the memory. The official codes of iCaRL, Co2L and CCLIS shuffle both
    together, which gives more batches; here batches are larger.

    Args:
        labels: class label of every image.
        seed: one integer or several, such as the run's seed and the number of the task.
        exemplars: class labels of exemplars, none of them in ``labels``. The index of the first one is
            ``len(labels)``.
        exemplar_share: share of exemplars in a batch, in [0, 1), if there are enough; 0 is natural frequency: on
            average an exemplar is seen as often as an image of the task. A batch has at least one.
        steps: number of batches per epoch; 0 means one pass over the task. An epoch with more batches makes several
            passes.

    Attributes:
        batches_per_epoch: the same in every epoch.
        num_support: support images per identity in a block, the first ones.
    """

    batches_per_epoch: int
    num_support = 0

    def __init__(
        self,
        labels: Sequence[int] | np.ndarray,
        *,
        seed: int | Sequence[int] = 0,
        exemplars: Sequence[int] | np.ndarray = (),
        exemplar_share: float = 0.0,
        steps: int = 0,
    ) -> None:
        self.seed, self.steps = (int(seed),) if isinstance(seed, (int, np.integer)) else tuple(seed), steps
        self.at = 0
        self.images = _by_label(labels)
        self.stored = [len(labels) + rows for rows in _by_label(exemplars)]
        # Exemplars for each image of the task.
        self.ratio = exemplar_share / (1 - exemplar_share) if exemplar_share else len(exemplars) / max(len(labels), 1)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch to iterate over, from 0."""
        self.at = epoch

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of the chosen epoch."""
        return iter([batch.tolist() for batch in self.epoch(self.at)])

    def __len__(self) -> int:
        return self.batches_per_epoch

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """The batches of one epoch: each the indices of its images, those of exemplars last."""
        rng = np.random.default_rng([*self.seed, epoch])
        batches = self.own_batches(rng)
        while len(batches) < self.batches_per_epoch:
            batches += self.own_batches(rng)
        batches = batches[: self.batches_per_epoch]
        if not self.stored:
            return batches
        return [np.concatenate(pair) for pair in zip(batches, self.exemplar_rows(rng), strict=True)]

    def own_batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        """The images of the task in the batches of one pass."""
        raise NotImplementedError

    def exemplar_rows(self, rng: np.random.Generator) -> np.ndarray:
        """The exemplars of every batch of an epoch, (batches, n).

        The images of an identity are shuffled and dealt in pairs, so that nearly every one has a positive, and the
        pairs are shuffled; no exemplar comes again before all others have.
        """
        pairs = _runs(self.stored, 2, rng)
        deck = np.concatenate([pairs[number] for number in rng.permutation(len(pairs))])
        return self._dealt(deck, self.images_per_batch)

    @property
    def images_per_batch(self) -> int:
        """Maximum number of images of the task in a batch."""
        raise NotImplementedError

    def _dealt(self, deck: np.ndarray, own: int) -> np.ndarray:
        """Takes exemplars from ``deck`` in turn, for each batch with ``own`` images of the task: (batches, n)."""
        count = min(max(round(self.ratio * own), 1), len(deck))
        return np.resize(deck, (self.batches_per_epoch, count))  # np.resize starts over where the deck ends


class IdentitySampler(Sampler):
    """P x K batches: P identities with K images each.

    A pass over the task, which is an epoch, is one of two ``passes``:

    * ``identities``, as in DMML's official code: each identity occurs at most once. They are shuffled and cut into
      batches, and those left over at the end sit the epoch out.
    * ``images``, as in BoT's: nearly every image occurs once. An identity's images are shuffled and cut into groups of
      K, what is left over sits the epoch out, and the groups are dealt to batches of P identities. There that is by
      chance until fewer than P identities have groups left; here by turns, identities in random order, which leaves
      over less and makes equally many batches in every epoch.

    An identity with fewer than K images shows some of them twice.

    Args:
        labels: class label of every image.
        identities: P, number of identities per batch.
        images: K, number of images per identity.
        task_name: name of the task, for messages.
        passes: see above.
        options: as in :class:`Sampler`.

    Raises:
        ArgumentError: there are fewer identities than a batch needs, or it would be empty.
    """

    def __init__(
        self,
        labels: Sequence[int] | np.ndarray,
        *,
        identities: int,
        images: int,
        task_name: str = "",
        passes: Passes = "identities",
        **options: Any,
    ) -> None:
        super().__init__(labels, **options)
        _require_positive(identities=identities, images=images)
        if len(self.images) < identities:
            raise ArgumentError(
                "identities",
                f"is {identities}, but task {task_name!r} has only {len(self.images)}; set it to {len(self.images)} or "
                "less, or make fewer tasks",
            )
        self.identities, self.images_each, self.passes = identities, images, passes
        self.batches_a_look = len(self.images) // identities
        if passes == "images":
            groups = np.array([max(len(rows) // images, 1) for rows in self.images])  # of each identity
            # At most one group of an identity per batch; this many batches can be filled.
            fits = [
                np.minimum(groups, count).sum() >= count * identities
                for count in range(1, groups.sum() // identities + 1)
            ]
            self.batches_a_look = sum(fits)
        self.batches_per_epoch = self.steps or self.batches_a_look

    @property
    def images_per_batch(self) -> int:
        """P * K."""
        return self.identities * self.images_each

    def own_batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Each batch (P * K,) in blocks of one identity."""
        order, batches = rng.permutation(len(self.images)), self.batches_a_look
        if self.passes == "identities":
            return [
                np.concatenate([self._block(rng.permutation(self.images[identity])) for identity in each])
                for each in np.resize(order, (batches, self.identities))
            ]
        groups = [group for identity in order for group in self._groups(rng.permutation(self.images[identity]))]
        # By turns: an identity has no more groups than there are batches, and they go to different ones.
        return [
            np.concatenate([groups[turn * batches + batch] for turn in range(self.identities)])
            for batch in rng.permutation(batches)
        ]

    def _groups(self, shuffled: np.ndarray) -> list[np.ndarray]:
        """Blocks of different images of an identity, one at least and one a batch at most."""
        size = self.images_each
        count = min(max(len(shuffled) // size, 1), self.batches_a_look)
        return [self._block(shuffled[number * size :][:size]) for number in range(count)]

    def _block(self, shuffled: np.ndarray) -> np.ndarray:
        return np.resize(shuffled, self.images_each)  # np.resize repeats an array to the length wanted


class CameraSampler(IdentitySampler):
    """P x K batches with one image per identity and K - 1 images of it from other cameras.

    A pass has every identity once, its first image drawn at random. The others are drawn among its images by other
    cameras, or, where it has none, among its other images; again and again where these are fewer than K. With
    ``passes="images"``, an epoch has as many batches as the images of the task would fill.

    Source: ``RandomMultipleGallerySampler`` of the official codes of LSTKC, DKP and DASK. There an identity with one
    image shows it once and moves all that follow in the batch; here it is shown K times.

    Where images come from several places, most pairs of two identities differ by the place alone. With ``neighbours``
    above 1 identities come in groups of this size from one place, so that only their looks differ; those left
    over at a place are dealt at random. A place is a set of cameras: two that saw the same identity belong to one.

    Args:
        labels: class label of every image.
        cameras: camera of every image.
        neighbours: identities of one place in a row; 1 is at random.
        options: as in :class:`IdentitySampler`.

    Raises:
        ArgumentError: as :class:`IdentitySampler`, or P is no multiple of ``neighbours``.
    """

    def __init__(
        self,
        labels: Sequence[int] | np.ndarray,
        *,
        cameras: Sequence[int] | np.ndarray,
        neighbours: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(labels, **options)
        _require_positive(neighbours=neighbours)
        if self.identities % neighbours:
            raise ArgumentError(
                "neighbours", f"is {neighbours}; it must divide the identities of a batch, {self.identities}"
            )
        self.cameras, self.neighbours = np.asarray(cameras), neighbours
        self.places = _connected([self.cameras[rows] for rows in self.images]) if neighbours > 1 else []
        self.batches_a_look = len(self.images) // self.identities
        if self.passes == "images" and not self.steps:
            self.batches_per_epoch = max(len(labels) // self.images_per_batch, 1)

    def own_batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Each batch (P * K,) in blocks of one identity."""
        order = self._order(rng)
        return [
            np.concatenate([self._across_cameras(self.images[identity], rng) for identity in each])
            for each in np.resize(order, (self.batches_a_look, self.identities))
        ]

    def _order(self, rng: np.random.Generator) -> np.ndarray:
        """All identities at random, in groups of neighbours."""
        if self.neighbours == 1:
            return rng.permutation(len(self.images))
        whole, left = [], []
        for place in self.places:
            shuffled, end = rng.permutation(place), len(place) - len(place) % self.neighbours
            whole.append(shuffled[:end])
            left.append(shuffled[end:])
        dealt = np.concatenate([*whole, rng.permutation(np.concatenate(left))])
        end = len(dealt) - len(dealt) % self.neighbours
        return np.concatenate([rng.permutation(dealt[:end].reshape(-1, self.neighbours)).ravel(), dealt[end:]])

    def _across_cameras(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One of an identity's images and K - 1 by other cameras, (K,)."""
        first = rng.choice(rows)
        others = rows[self.cameras[rows] != self.cameras[first]]
        if len(others) == 0:
            others = rows[rows != first] if len(rows) > 1 else rows
        repeated = len(others) < self.images_each  # K - 1 would do; the official code wants K
        return np.concatenate([[first], rng.choice(others, self.images_each - 1, replace=repeated)])


class EpisodeSampler(IdentitySampler):
    """Episodes of N identities with a few support and query images each (DMML, ICCV 2019; DwoPP, BMVC 2022).

    An identity with fewer images than an episode needs shows some of them twice. The official code then draws from the
    repeated list, so a query can also be a support; here the queries are set aside first, so this happens only for an
    identity with a single image.

    Args:
        labels: class label of every image.
        identities: N, number of identities per episode.
        num_support, num_query: number of images per identity. A block has the supports first; exemplars are also drawn
            in such blocks, so their share is a share of identities.
        options: further ones of :class:`IdentitySampler`.

    Raises:
        ArgumentError: there are fewer identities than an episode needs, or it would be empty.
    """

    def __init__(
        self, labels: Sequence[int] | np.ndarray, *, identities: int, num_support: int, num_query: int, **options: Any
    ) -> None:
        _require_positive(num_support=num_support, num_query=num_query)
        super().__init__(labels, identities=identities, images=num_support + num_query, **options)
        self.num_support, self.num_query = num_support, num_query

    def exemplar_rows(self, rng: np.random.Generator) -> np.ndarray:
        """The exemplars of every batch of an epoch, (batches, n): blocks of identities that are not in it."""
        chosen = self._dealt(rng.permutation(len(self.stored)), self.identities)
        return np.stack(
            [
                np.concatenate([self._block(rng.permutation(self.stored[identity])) for identity in each])
                for each in chosen
            ]
        )

    def _block(self, shuffled: np.ndarray) -> np.ndarray:
        num_query = max(1, min(self.num_query, len(shuffled) - 1))  # distinct ones
        queries, supports = shuffled[:num_query], shuffled[num_query:]
        if len(supports) == 0:
            supports = queries
        return np.concatenate([np.resize(supports, self.num_support), np.resize(queries, self.num_query)])


class StreamSampler(Sampler):
    """A single pass over a stream: segment after segment, with every image once per epoch.

    The images of an identity come in runs of up to ``correlation`` images, and the runs of all identities are
    shuffled. So 1 is a stream of independent images, and a large number shows one identity after the other. Above 1
    it is the strength of temporal correlation (STC) of Contrast Scoring (Wu et al., 2021), the number of consecutive
    images of one class "until a class change happens": within an epoch two runs of one identity never follow each
    other, unless an identity has more than half of all runs.

    Args:
        labels: class label of every image.
        segment: images of the task per step; those of an epoch are cut into segments of at most this size that differ
            by at most one.
        correlation: consecutive images of one identity.
        options: as in :class:`Sampler`.

    Raises:
        ArgumentError: a segment or a run of less than one image.
    """

    def __init__(self, labels: Sequence[int] | np.ndarray, *, segment: int, correlation: int, **options: Any) -> None:
        _require_positive(segment=segment, correlation=correlation)
        super().__init__(labels, **options)
        self.segment, self.correlation = segment, correlation
        self.batches_a_look = -(-len(labels) // segment)
        self.batches_per_epoch = self.steps or self.batches_a_look

    @property
    def images_per_batch(self) -> int:
        """Images of a segment."""
        return self.segment

    @property
    def fewest_images(self) -> int:
        """Images of the shortest segment."""
        return sum(map(len, self.images)) // self.batches_a_look

    def own_batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        """The segments of one pass."""
        runs = _runs(self.images, self.correlation, rng)
        order = rng.permutation(len(runs))
        if self.correlation > 1:
            counts = [-(-len(rows) // self.correlation) for rows in self.images]
            order = _without_equal_neighbours(order, np.repeat(np.arange(len(counts)), counts))
        return np.array_split(np.concatenate([runs[number] for number in order]), self.batches_a_look)


def _by_label(labels: Sequence[int] | np.ndarray) -> list[np.ndarray]:
    """The rows of each label, in ascending order of labels."""
    order = np.argsort(labels, kind="stable")  # (n,)
    starts = np.unique(np.asarray(labels)[order], return_index=True)[1]
    return np.split(order, starts)[1:]  # the first part is in front of all


def _connected(cameras: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Identities by place, of the cameras of the images of each; two that saw one identity are of one place."""
    places: list[tuple[set[int], list[int]]] = []  # cameras and identities
    for identity, own in enumerate(cameras):
        seen, members = set(own.tolist()), [identity]
        apart = []
        for place in places:
            if place[0] & seen:
                seen, members = seen | place[0], place[1] + members
            else:
                apart.append(place)
        places = [*apart, (seen, members)]
    return [np.sort(members) for _, members in places]


def _runs(identities: Sequence[np.ndarray], length: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Rows of each identity, shuffled and cut into runs of ``length``, identity after identity."""
    return [run for rows in identities for run in np.split(rng.permutation(rows), range(length, len(rows), length))]


def _without_equal_neighbours(order: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """A permutation of the runs in which no two of one label follow each other, as near as possible to a given one.

    Takes the next run of the given order that differs in label from the last one taken, except where a label has so
    many of the runs left that it must come now. Runs of a label with more than half of all runs follow each other at
    the end.

    Args:
        order: (n,) numbers of the runs.
        labels: (n,) label of each run, by its number.
    """
    left = np.bincount(labels)  # runs of each label
    waiting, taken, last = order.tolist(), [], -1
    while waiting:
        most = int(left.argmax())
        urgent = most != last and 2 * left[most] > len(waiting)
        place = next(
            (at for at, run in enumerate(waiting) if (labels[run] == most if urgent else labels[run] != last)), 0
        )
        run = waiting.pop(place)
        last = int(labels[run])
        left[last] -= 1
        taken.append(run)
    return np.array(taken, np.int64)


def _require_positive(**arguments: int) -> None:
    for name, value in arguments.items():
        if value < 1:
            raise ArgumentError(name, f"is {value}; must be 1 or more")
