"""Samplers: select the images of each batch."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from torch.utils import data

from lreid.errors import ArgumentError

Passes = Literal["identities", "images"]


class Sampler(data.Sampler[list[int]]):
    """Draws the batches of a task, epoch by epoch, and appends exemplars to each batch.

    This is a sampler of torch whose items are whole batches. With ``DataLoader(…, batch_sampler=sampler)`` the loader
    asks the data set for each image of a batch; with ``DataLoader(…, sampler=sampler, batch_size=None)`` it asks once
    for all images of the batch.

    An epoch depends only on ``(seed, epoch)``, so any epoch can be repeated without the previous ones. Exemplars are
    added to the batches that would be drawn without exemplars. So the number of batches per epoch and the frequency of
    new images do not depend on the memory. The official code of iCaRL, Co2L and CCLIS instead shuffles exemplars and
    new images together, which gives more batches per epoch; here, batches are larger.

    Args:
        labels: class label of every image.
        seed: one integer or several, such as the run's seed and the number of the task.
        exemplars: class labels of exemplars, none of which is in ``labels``. The index of the first exemplar is
            ``len(labels)``.
        exemplar_share: share of exemplars in a batch, in [0, 1), if there are enough. 0 means natural frequency: on
            average an exemplar is drawn as often as an image of the task. A batch has at least one exemplar.
        steps: number of batches per epoch; 0 means one pass over the task. An epoch with more batches makes several
            passes.

    Attributes:
        batches_per_epoch: number of batches, the same in every epoch.
        num_support: number of support images per identity; in the batch of an episode they come first in the block of
            the identity.
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
        # Number of exemplars per image of the task.
        self.ratio = exemplar_share / (1 - exemplar_share) if exemplar_share else len(exemplars) / max(len(labels), 1)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch to iterate over, from 0."""
        self.at = epoch

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of the chosen epoch."""
        return iter([batch.tolist() for batch in self.epoch(self.at)])

    def __len__(self) -> int:
        return self.batches_per_epoch

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """The batches of one epoch, each as the indices of its images, with those of exemplars last."""
        rng = np.random.default_rng([*self.seed, epoch])
        batches = self.own_batches(rng)
        while len(batches) < self.batches_per_epoch:
            batches += self.own_batches(rng)
        batches = batches[: self.batches_per_epoch]
        if not self.stored:
            return batches
        return [np.concatenate(pair) for pair in zip(batches, self.exemplar_rows(rng), strict=True)]

    def own_batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        """The batches of one pass over the task, as indices of its images."""
        raise NotImplementedError

    def exemplar_rows(self, rng: np.random.Generator) -> np.ndarray:
        """The exemplars of every batch of an epoch, (batches, n).

        The exemplars of each identity are shuffled and cut into pairs, so that nearly every exemplar has a positive in
        its batch. The pairs are shuffled. No exemplar is drawn again before all others have been drawn.
        """
        pairs = _runs(self.stored, 2, rng)
        deck = np.concatenate([pairs[number] for number in rng.permutation(len(pairs))])
        return self._dealt(deck, self.images_per_batch)

    @property
    def images_per_batch(self) -> int:
        """Maximum number of images of the task in a batch."""
        raise NotImplementedError

    def _dealt(self, deck: np.ndarray, own: int) -> np.ndarray:
        """Take the entries of ``deck`` in turn for batches with ``own`` entries of the task each: (batches, n)."""
        count = min(max(round(self.ratio * own), 1), len(deck))
        return np.resize(deck, (self.batches_per_epoch, count))  # np.resize starts again at the end of the deck


class IdentitySampler(Sampler):
    """P x K batches: P identities with K images each.

    ``passes`` defines a pass over the task:

    * ``identities``, as in DMML's official code: each identity occurs at most once. The identities are shuffled and cut
      into batches. Identities left over, fewer than P, do not occur in this pass.
    * ``images``, as in BoT's official code: nearly every image occurs once. The images of each identity are shuffled
      and cut into groups of K; images left over do not occur in this pass. A batch consists of groups of P identities.
      BoT's code draws these identities at random until fewer than P have groups left. lreid gives the groups to the
      batches in turn, identity after identity in random order. This leaves fewer groups over, and every epoch has the
      same number of batches.

    An identity with fewer than K images shows some of them several times.

    Args:
        labels: class label of every image.
        identities: P, number of identities per batch.
        images: K, number of images per identity.
        task_name: name of the task, for messages.
        passes: ``"identities"`` or ``"images"``, see above.
        options: further arguments of :class:`Sampler`.

    Raises:
        ArgumentError: there are fewer identities than a batch needs, or a batch would be empty.
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
        self.batches_per_pass = len(self.images) // identities
        if passes == "images":
            groups = np.array([max(len(rows) // images, 1) for rows in self.images])  # number of groups per identity
            # A batch has at most one group of an identity, so it gives `count` batches at most `count` groups.
            fits = [
                np.minimum(groups, count).sum() >= count * identities
                for count in range(1, groups.sum() // identities + 1)
            ]
            self.batches_per_pass = sum(fits)
        self.batches_per_epoch = self.steps or self.batches_per_pass

    @property
    def images_per_batch(self) -> int:
        """P * K."""
        return self.identities * self.images_each

    def own_batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        """The batches of one pass, each (P * K,): P blocks of K images of one identity."""
        order, batches = rng.permutation(len(self.images)), self.batches_per_pass
        if self.passes == "identities":
            return [
                np.concatenate([self._block(rng.permutation(self.images[identity])) for identity in each])
                for each in np.resize(order, (batches, self.identities))
            ]
        groups = [group for identity in order for group in self._groups(rng.permutation(self.images[identity]))]
        # Group i goes to batch i modulo `batches`. The groups of an identity follow each other and are at most
        # `batches`, so they go to different batches.
        return [
            np.concatenate([groups[turn * batches + batch] for turn in range(self.identities)])
            for batch in rng.permutation(batches)
        ]

    def _groups(self, shuffled: np.ndarray) -> list[np.ndarray]:
        """The blocks of K images of one identity, without common images: at least one, and at most one per batch."""
        size = self.images_each
        count = min(max(len(shuffled) // size, 1), self.batches_per_pass)
        return [self._block(shuffled[number * size :][:size]) for number in range(count)]

    def _block(self, shuffled: np.ndarray) -> np.ndarray:
        return np.resize(shuffled, self.images_each)  # np.resize repeats an array that is too short


class CameraSampler(IdentitySampler):
    """P x K batches with one random image per identity, and K - 1 images of the identity from other cameras.

    A pass has every identity once. For each identity, one image is drawn at random, and K - 1 images are drawn from
    those of other cameras. If there are none, they are drawn from the other images of the identity. If there are too
    few images, some are repeated. With ``passes="images"``, an epoch has as many batches as the images of the task
    would fill.

    Source: ``RandomMultipleGallerySampler`` of the official code of LSTKC, DKP and DASK. If an identity has a single
    image, the official sampler draws it once, which shifts the rest of the batch by K - 1 places. This sampler draws it
    K times.

    If images come from several places, the backgrounds suffice to distinguish most pairs of identities. With
    ``neighbours`` above 1, a batch consists of groups of this many identities from one place, so that the network must
    use the appearance. Identities left over at a place are grouped at random. A place is a set of cameras: two cameras
    that saw the same identity belong to the same place.

    Args:
        labels: class label of every image.
        cameras: camera of every image.
        neighbours: number of identities per group from one place; 1 ignores the places.
        options: further arguments of :class:`IdentitySampler`.

    Raises:
        ArgumentError: as in :class:`IdentitySampler`, or P is not a multiple of ``neighbours``.
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
        self.batches_per_pass = len(self.images) // self.identities
        if self.passes == "images" and not self.steps:
            self.batches_per_epoch = max(len(labels) // self.images_per_batch, 1)

    def own_batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        """The batches of one pass, each (P * K,): P blocks of K images of one identity."""
        order = self._order(rng)
        return [
            np.concatenate([self._across_cameras(self.images[identity], rng) for identity in each])
            for each in np.resize(order, (self.batches_per_pass, self.identities))
        ]

    def _order(self, rng: np.random.Generator) -> np.ndarray:
        """All identities in random order; with ``neighbours``, groups of one place follow each other."""
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
        """One image of an identity and K - 1 images from other cameras, (K,)."""
        first = rng.choice(rows)
        others = rows[self.cameras[rows] != self.cameras[first]]
        if len(others) == 0:
            others = rows[rows != first] if len(rows) > 1 else rows
        repeated = len(others) < self.images_each  # K - 1 would suffice; the official code also compares with K
        return np.concatenate([[first], rng.choice(others, self.images_each - 1, replace=repeated)])


class EpisodeSampler(IdentitySampler):
    """Episodes of N identities with a few support and query images each (DMML, ICCV 2019; DwoPP, BMVC 2022).

    An identity with fewer images than an episode needs shows some of them several times. The official code then draws
    queries and supports from the repeated list, so the same image can be both. Here the queries are chosen first and
    the supports from the remaining images, so an image is both only if its identity has no other.

    Args:
        labels: class label of every image.
        identities: N, number of identities per episode.
        num_support, num_query: number of support and of query images per identity. The block of an identity has the
            supports first. Exemplars are drawn in such blocks, too, so ``exemplar_share`` is a share of identities.
        options: further arguments of :class:`IdentitySampler`.

    Raises:
        ArgumentError: there are fewer identities than an episode needs, or an episode would be empty.
    """

    def __init__(
        self, labels: Sequence[int] | np.ndarray, *, identities: int, num_support: int, num_query: int, **options: Any
    ) -> None:
        _require_positive(num_support=num_support, num_query=num_query)
        super().__init__(labels, identities=identities, images=num_support + num_query, **options)
        self.num_support, self.num_query = num_support, num_query

    def exemplar_rows(self, rng: np.random.Generator) -> np.ndarray:
        """The exemplars of every batch of an epoch, (batches, n), in blocks of one identity of an earlier task."""
        chosen = self._dealt(rng.permutation(len(self.stored)), self.identities)
        return np.stack(
            [
                np.concatenate([self._block(rng.permutation(self.stored[identity])) for identity in each])
                for each in chosen
            ]
        )

    def _block(self, shuffled: np.ndarray) -> np.ndarray:
        num_query = max(1, min(self.num_query, len(shuffled) - 1))  # number of different query images
        queries, supports = shuffled[:num_query], shuffled[num_query:]
        if len(supports) == 0:
            supports = queries
        return np.concatenate([np.resize(supports, self.num_support), np.resize(queries, self.num_query)])


class StreamSampler(Sampler):
    """Shows the images of a task as a stream, cut into segments, with every image once per pass.

    The images of each identity are cut into runs of up to ``correlation`` consecutive images, and the runs of all
    identities are shuffled. With 1 the images are independent; with a large number, the stream shows one identity after
    the other. A ``correlation`` above 1 is the strength of temporal correlation (STC) of Contrast Scoring (Wu et al.,
    2021): the number of consecutive images of one class "until a class change happens". So within a pass, two runs of
    one identity never follow each other, unless an identity has more than half of all runs.

    Args:
        labels: class label of every image.
        segment: maximum number of images of the task per step. The segments of a pass differ by at most one image.
        correlation: maximum number of consecutive images of one identity.
        options: further arguments of :class:`Sampler`.

    Raises:
        ArgumentError: ``segment`` or ``correlation`` is below 1.
    """

    def __init__(self, labels: Sequence[int] | np.ndarray, *, segment: int, correlation: int, **options: Any) -> None:
        _require_positive(segment=segment, correlation=correlation)
        super().__init__(labels, **options)
        self.segment, self.correlation = segment, correlation
        self.batches_per_pass = -(-len(labels) // segment)
        self.batches_per_epoch = self.steps or self.batches_per_pass

    @property
    def images_per_batch(self) -> int:
        """Maximum number of images in a segment."""
        return self.segment

    @property
    def fewest_images(self) -> int:
        """Number of images in the shortest segment."""
        return sum(map(len, self.images)) // self.batches_per_pass

    def own_batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        """The segments of one pass."""
        runs = _runs(self.images, self.correlation, rng)
        order = rng.permutation(len(runs))
        if self.correlation > 1:
            counts = [-(-len(rows) // self.correlation) for rows in self.images]
            order = _without_equal_neighbours(order, np.repeat(np.arange(len(counts)), counts))
        return np.array_split(np.concatenate([runs[number] for number in order]), self.batches_per_pass)


def _by_label(labels: Sequence[int] | np.ndarray) -> list[np.ndarray]:
    """The rows of each label, in ascending order of labels."""
    order = np.argsort(labels, kind="stable")  # (n,)
    starts = np.unique(np.asarray(labels)[order], return_index=True)[1]
    return np.split(order, starts)[1:]  # the first part, before the first label, is empty


def _connected(cameras: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Group identities by place; two cameras that saw the same identity belong to the same place.

    Args:
        cameras: cameras of the images of each identity.
    """
    places: list[tuple[set[int], list[int]]] = []  # cameras and identities of each place
    for identity, own in enumerate(cameras):
        seen, members = set(own.tolist()), [identity]
        separate = []
        for place in places:
            if place[0] & seen:
                seen, members = seen | place[0], place[1] + members
            else:
                separate.append(place)
        places = [*separate, (seen, members)]
    return [np.sort(members) for _, members in places]


def _runs(identities: Sequence[np.ndarray], length: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Shuffle the rows of each identity and cut them into runs of ``length``, identity after identity."""
    return [run for rows in identities for run in np.split(rng.permutation(rows), range(length, len(rows), length))]


def _without_equal_neighbours(order: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Reorder runs so that no two runs of one label follow each other, with few changes of the given order.

    Each step takes the first remaining run, in the given order, whose label differs from that of the previous run. If a
    label has more than half of the remaining runs, the step takes a run of this label instead. If a label has more than
    half of all runs, some of its runs follow each other at the end.

    Args:
        order: (n,) numbers of the runs.
        labels: (n,) label of each run, by its number.
    """
    left = np.bincount(labels)  # number of runs of each label that are left
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
