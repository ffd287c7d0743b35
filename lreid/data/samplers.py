"""Samplers: select the images of each batch."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from torch.utils import data

from lreid.errors import ArgumentError, require

Passes = Literal["identities", "images"]


class Sampler(data.Sampler[list[int]]):
    """Base class of samplers, which choose the images of each batch in each epoch and append exemplars.

    A sampler is a torch sampler that yields whole batches. ``DataLoader(…, batch_sampler=sampler)`` reads the images of
    a batch one by one. ``DataLoader(…, sampler=sampler, batch_size=None)`` reads all images of a batch at once.

    The batches of an epoch depend only on ``(seed, epoch)``, so no earlier epoch needs to be drawn first. Exemplars are
    appended to batches of task images, so a larger memory changes neither the number of batches per epoch nor how often
    a task image occurs. Only a stream (:class:`StreamSampler`) counts exemplars as part of a batch, as the official
    code of iCaRL, Co2L and CCLIS does.

    Args:
        labels: class label of every image.
        seed: one or several integers, such as the run's seed and the number of the task.
        exemplars: class labels of the exemplars, which must not occur in ``labels``. The image index of the first
            exemplar is ``len(labels)``.
        exemplar_share: share of exemplars in a batch, in [0, 1); it is lower if the memory is too small. With
            ``exemplar_share=0``, an exemplar is drawn as often as an image of the task on average, and a batch has at
            least one exemplar.
        steps: number of batches per epoch; 0 means one pass over the images of the task. If ``steps`` exceeds the
            number of batches in one pass, an epoch consists of several passes.

    Attributes:
        batches_per_epoch: number of batches, which is the same in every epoch.
        num_support: number of support images per identity. In an episode, the support images of an identity come before
            its query images.
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
        """Set the number of the epoch (from 0) whose batches iteration yields."""
        self.at = epoch

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of the epoch that was set by :meth:`set_epoch`."""
        return iter([batch.tolist() for batch in self.epoch(self.at)])

    def __len__(self) -> int:
        return self.batches_per_epoch

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """Return the batches of one epoch as image indices; exemplars that are appended come last in each batch."""
        rng = np.random.default_rng([*self.seed, epoch])
        batches = self.own_batches(rng)
        while len(batches) < self.batches_per_epoch:
            batches += self.own_batches(rng)
        batches = batches[: self.batches_per_epoch]
        if not self.stored:
            return batches
        return [np.concatenate(pair) for pair in zip(batches, self.exemplar_rows(rng), strict=True)]

    def own_batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Draw the batches of one pass over the task's images, as image indices."""
        raise NotImplementedError

    def exemplar_rows(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the exemplars for every batch of an epoch, as indices (batches, n).

        The exemplars of each identity are shuffled and cut into pairs, so that nearly every exemplar has a positive in
        its batch. The pairs are in random order. An exemplar is drawn again only after all other exemplars have been
        drawn.
        """
        pairs = _runs(self.stored, 2, rng)
        deck = np.concatenate([pairs[number] for number in rng.permutation(len(pairs))])
        return self._dealt(deck, self.images_per_batch)

    @property
    def images_per_batch(self) -> int:
        """Maximum number of images of the task in a batch."""
        raise NotImplementedError

    def _dealt(self, deck: np.ndarray, own: int) -> np.ndarray:
        """Deal the exemplars in ``deck`` in turn to all batches of ``own`` task images, as indices (batches, n)."""
        count = min(max(round(self.ratio * own), 1), len(deck))
        return np.resize(deck, (self.batches_per_epoch, count))  # np.resize starts again at the end of the deck


class IdentitySampler(Sampler):
    """Draw P x K batches, which contain K images of each of P identities.

    The argument ``passes`` defines one pass over the task:

    * ``identities``, as in DMML's official code: each identity occurs at most once. The identities are shuffled and cut
      into batches of P. The last identities, fewer than P, do not occur in this pass.
    * ``images``, as in BoT's official code: nearly every image occurs once. The images of each identity are shuffled
      and cut into groups of K; images that fill no group do not occur in this pass. A batch consists of one group from
      each of P identities. BoT's code draws the P identities of each batch at random, until fewer than P identities
      have groups left. lreid instead goes through the identities in random order and deals their groups to the batches
      in turn. With lreid's procedure, fewer groups remain unused, and every epoch has the same number of batches.

    If an identity has fewer than K images, some of its images occur several times.

    Args:
        identities: P, number of identities per batch.
        images: K, number of images per identity.
        task_name: name of the task, for messages.
        passes: ``"identities"`` or ``"images"``, see above.
        options: further arguments of :class:`Sampler`.

    Raises:
        ArgumentError: the task has fewer than P identities.
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
            # A batch has at most one group per identity, so n batches use at most n groups of an identity.
            most = groups.sum() // identities
            self.batches_per_pass = sum(np.minimum(groups, n).sum() >= n * identities for n in range(1, most + 1))
        self.batches_per_epoch = self.steps or self.batches_per_pass

    @property
    def images_per_batch(self) -> int:
        """Number of images in a batch, P * K."""
        return self.identities * self.images_each

    def own_batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Draw the batches of one pass, each (P * K,): one block of K images for each of P identities."""
        order, batches = self._order(rng), self.batches_per_pass
        if self.passes == "identities":
            return self._batches_of(self.images, np.resize(order, (batches, self.identities)), rng)
        groups = [group for identity in order for group in self._groups(rng.permutation(self.images[identity]))]
        # Group i goes to batch i modulo `batches`. The groups of an identity follow each other and are at most
        # `batches`, so they go to different batches.
        end = self.identities * batches
        return [np.concatenate(groups[batch:end:batches]) for batch in rng.permutation(batches)]

    def _order(self, rng: np.random.Generator) -> np.ndarray:
        return rng.permutation(len(self.images))

    def _batches_of(
        self, images: Sequence[np.ndarray], chosen: np.ndarray, rng: np.random.Generator
    ) -> list[np.ndarray]:
        """Draw a batch for each row of ``chosen``, which selects P of the identities in ``images``."""
        return [np.concatenate([self._drawn(images[identity], rng) for identity in row]) for row in chosen]

    def _drawn(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw K images of one identity."""
        return self._block(rng.permutation(rows))

    def _groups(self, shuffled: np.ndarray) -> list[np.ndarray]:
        """Cut the images of one identity into disjoint blocks of K images: one block or more, at most one per batch."""
        size = self.images_each
        count = min(max(len(shuffled) // size, 1), self.batches_per_pass)
        return [self._block(shuffled[number * size :][:size]) for number in range(count)]

    def _block(self, shuffled: np.ndarray) -> np.ndarray:
        return np.resize(shuffled, self.images_each)  # np.resize repeats an array that is too short


class CameraSampler(IdentitySampler):
    """Draw P x K batches: per identity, one random image and K - 1 of its images from other cameras.

    An identity occurs at most once per pass over the task. For each identity, the sampler draws one image, and K - 1
    images of the same identity from other cameras. If no other camera saw the identity, the K - 1 images are drawn from
    all its other images. If the identity has too few images, images are repeated. With ``passes="images"``, the number
    of batches per epoch is the number of the task's images divided by the batch size.

    Source: ``RandomMultipleGallerySampler`` in the official code of LSTKC, DKP and DASK. If an identity has a single
    image, the official sampler draws it once, which shifts the rest of the batch by K - 1 places. lreid's sampler draws
    it K times.

    If images come from several places, the background alone distinguishes most pairs of identities. With ``neighbours``
    above 1, a batch therefore consists of groups of ``neighbours`` identities from the same place, which the network
    can only distinguish by their appearance. Identities that do not fill a group at their place form groups at random.
    A place is a set of cameras: two cameras that saw the same identity belong to the same place.

    Args:
        cameras: camera of every image.
        neighbours: number of identities in a group from the same place; with 1, places are ignored.
        passes: ``"identities"`` or ``"images"``, which sets the number of batches per epoch, see above.
        options: further arguments of :class:`IdentitySampler`.

    Raises:
        ArgumentError: see :class:`IdentitySampler`, or P is not a multiple of ``neighbours``.
    """

    def __init__(
        self,
        labels: Sequence[int] | np.ndarray,
        *,
        cameras: Sequence[int] | np.ndarray,
        neighbours: int = 1,
        passes: Passes = "identities",
        **options: Any,
    ) -> None:
        super().__init__(labels, **options)
        require(self.identities % neighbours == 0, "neighbours", neighbours, f"a divisor of {self.identities}")
        self.cameras, self.neighbours = np.asarray(cameras), neighbours
        self.places = _connected([self.cameras[rows] for rows in self.images]) if neighbours > 1 else []
        if passes == "images" and not self.steps:
            self.batches_per_epoch = max(len(labels) // self.images_per_batch, 1)

    def _order(self, rng: np.random.Generator) -> np.ndarray:
        """Shuffle all identities; with ``neighbours`` above 1, keep the identities of a group together."""
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

    def _drawn(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw one image of an identity, and K - 1 of its images from other cameras: indices (K,)."""
        first = rng.choice(rows)
        others = rows[self.cameras[rows] != self.cameras[first]]
        if len(others) == 0:
            others = rows[rows != first] if len(rows) > 1 else rows
        repeated = len(others) < self.images_each  # K - 1 would suffice; the official code also compares with K
        return np.concatenate([[first], rng.choice(others, self.images_each - 1, replace=repeated)])


class EpisodeSampler(IdentitySampler):
    """Draw episodes: N identities with a few support and query images each (DMML, ICCV 2019; DwoPP, BMVC 2022).

    If an identity has too few images for an episode, some of its images occur several times. The official code repeats
    the list of images and draws supports and queries from it, so an image can be both support and query. lreid draws
    the queries first, and the supports from the remaining images. In lreid, an image is therefore both query and
    support only if it is the only image of its identity.

    Args:
        identities: N, number of identities per episode.
        num_support, num_query: numbers of support and query images per identity. In an episode, the supports of an
            identity come before its queries. Exemplars are drawn identity by identity, so ``exemplar_share`` is a share
            of identities.
        options: further arguments of :class:`IdentitySampler`.

    Raises:
        ArgumentError: the task has fewer than N identities.
    """

    def __init__(
        self, labels: Sequence[int] | np.ndarray, *, identities: int, num_support: int, num_query: int, **options: Any
    ) -> None:
        super().__init__(labels, identities=identities, images=num_support + num_query, **options)
        self.num_support, self.num_query = num_support, num_query

    def exemplar_rows(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the exemplars for every batch of an epoch: indices (batches, n), in one block per identity."""
        chosen = self._dealt(rng.permutation(len(self.stored)), self.identities)
        return np.stack(self._batches_of(self.stored, chosen, rng))

    def _block(self, shuffled: np.ndarray) -> np.ndarray:
        num_query = max(1, min(self.num_query, len(shuffled) - 1))  # number of different query images
        queries, supports = shuffled[:num_query], shuffled[num_query:]
        if len(supports) == 0:
            supports = queries
        return np.concatenate([np.resize(supports, self.num_support), np.resize(queries, self.num_query)])


class StreamSampler(Sampler):
    """Cut a stream of the task's images into segments; every image occurs once per pass.

    The images of each identity are cut into runs of up to ``correlation`` images, and the runs of all identities are
    shuffled. With ``correlation=1``, consecutive images are independent. With a large ``correlation``, the stream
    contains one identity after the other. Values above 1 are the strength of temporal correlation (STC) of Contrast
    Scoring (Wu et al., 2021), the number of consecutive images of one class "until a class change happens". Two runs in
    succession therefore have different identities, unless one identity has more than half of all runs.

    Exemplars count as part of a segment. By default, the stream is the union of the task's images and the exemplars, in
    which every image occurs once per pass (Co²L, ICCV 2021, Section 4). With ``exemplar_share``, this share of every
    segment is drawn from the memory (CCLIS, AAAI 2024, Appendix B: "in equal proportions"). A memory with fewer images
    than this share then repeats some of them within a segment.

    Args:
        segment: maximum number of images in a segment, the images of one step. The sizes of all segments in a pass
            differ by at most one image.
        correlation: maximum number of consecutive images of one identity.
        options: further arguments of :class:`Sampler`.
    """

    def __init__(self, labels: Sequence[int] | np.ndarray, *, segment: int, correlation: int, **options: Any) -> None:
        share = options.get("exemplar_share", 0)
        if share == 0:
            labels = [*labels, *options.pop("exemplars", ())]
        super().__init__(labels, **options)
        self.correlation = correlation
        own = segment - round(share * segment) if self.stored else segment
        self.batches_per_pass = -(-len(labels) // max(own, 1))
        self.batches_per_epoch = self.steps or self.batches_per_pass

    @property
    def images_per_batch(self) -> int:
        """Maximum number of images of the stream in a segment."""
        return -(-sum(map(len, self.images)) // self.batches_per_pass)

    @property
    def fewest_images(self) -> int:
        """Number of images of the stream in the shortest segment."""
        return sum(map(len, self.images)) // self.batches_per_pass

    def own_batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Draw the segments of one pass, as image indices."""
        runs = _runs(self.images, self.correlation, rng)
        order = rng.permutation(len(runs))
        if self.correlation > 1:
            counts = [-(-len(rows) // self.correlation) for rows in self.images]
            order = _without_equal_neighbours(order, np.repeat(np.arange(len(counts)), counts))
        return np.array_split(np.concatenate([runs[number] for number in order]), self.batches_per_pass)

    def _dealt(self, deck: np.ndarray, own: int) -> np.ndarray:
        return np.resize(deck, (self.batches_per_epoch, max(round(self.ratio * own), 1)))


def _by_label(labels: Sequence[int] | np.ndarray) -> list[np.ndarray]:
    """Return the image indices of each label, ordered by label."""
    order = np.argsort(labels, kind="stable")  # (n,)
    starts = np.unique(np.asarray(labels)[order], return_index=True)[1]
    return np.split(order, starts)[1:]  # the first part, before the first label, is empty


def _connected(cameras: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Group identities by place, given the cameras of each; cameras that saw the same identity share a place."""
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
    """Shuffle the image indices of each identity and cut them into runs of up to ``length`` images."""
    return [run for rows in identities for run in np.split(rng.permutation(rows), range(length, len(rows), length))]


def _without_equal_neighbours(order: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Reorder runs so that consecutive runs have different labels; change the given order as little as possible.

    Each step takes the first remaining run whose label differs from that of the previous run. If more than half of the
    remaining runs have one label, the step takes a run of this label instead. If more than half of all runs have one
    label, the result ends with several runs of this label.

    Args:
        order: (n,) numbers of the runs, in the given order.
        labels: (n,) labels of run 0, 1, ….
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
