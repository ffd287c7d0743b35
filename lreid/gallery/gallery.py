"""A gallery of images of known people, in a file or in Milvus: its features can be searched, saved and changed."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from lreid.errors import ArgumentError, InputError, require, rounded_up
from lreid.gallery.change import Change
from lreid.gallery.faiss_store import FaissStore, FilePlace
from lreid.gallery.images import (
    Extraction,
    Model,
    SearchImage,
    absolute,
    features_of,
    fingerprint_and_network,
    name_of,
    named,
)
from lreid.gallery.store import (
    EVERYTHING,
    LABELS,
    PLURAL,
    SCHEME,
    About,
    Files,
    Filter,
    GalleryRows,
    LabelNames,
    MapRecord,
    as_given,
    checked_labels,
    hash_of,
    names_of,
    numbers_of,
)
from lreid.utils.extras import Extra
from lreid.utils.files import real_path
from lreid.utils.identities import UNKNOWN, as_names, label_of, label_text, require_written, warn_of_spellings

if TYPE_CHECKING:
    import pandas

    from lreid.gallery.milvus_store import MilvusPlace, MilvusStore
    from lreid.models.embedder import Embedder

logger = logging.getLogger("lreid")

GalleryPlace: TypeAlias = "FilePlace | MilvusPlace"  # a gallery that exists or will exist
Store: TypeAlias = "FaissStore | MilvusStore"  # storage engines, which have the same methods
T = TypeVar("T")
RIGHT = {"ids": "labels().ids", "paths": "labels().paths", "names": "identities", "query": "search(images)"}
EMPTY_MATCHES = 10_000  # largest k for a gallery with fewer images, so that the empty matches fit into memory
BATCH = 16384  # rows that are copied to another place in one step
FEWEST_SCORES = 10  # a threshold on fewer impostor scores is uncertain
UNIT = 1e-6  # maximum deviation of the squared length from 1 up to which a vector is not normalised again


class Match(NamedTuple):
    """A gallery image that a search returns for a query; see :class:`Matches` for the values.

    Attributes:
        query: number of the query, from 0.
        rank: rank among the matches of the query, from 1.
    """

    query: int
    rank: int
    path: str
    identity: int | str | None
    camera: int | str | None
    time: int
    score: float
    known: bool


@dataclass(frozen=True)
class Matches:
    """The best gallery images for each query, best first.

        for match in gallery.search("my/new"):
            print(match.query, match.identity, match.score, match.path)

    If a query has fewer than k matches, the rest of its row has key -1, path "", score -inf and unknown labels.

    Attributes:
        scores: ``(Q, k)`` float32 cosine similarities.
        keys: ``(Q, k)`` int64 keys of the images in the gallery, see :meth:`Gallery.labels`.
        ids, cams: ``(Q, k)`` identities and cameras: int64 (-1 if unknown) if the gallery was built with integers, text
            (dtype object, ``None`` if unknown) if it was built with text.
        times: ``(Q, k)`` int64.
        paths: ``(Q, k)`` strings.
        known: ``(Q, k)`` bool, whether a match has an identity and its score reaches the gallery's threshold. Without a
            threshold, this is True for every match.
    """

    scores: np.ndarray
    keys: np.ndarray
    ids: np.ndarray
    cams: np.ndarray
    times: np.ndarray
    paths: np.ndarray
    known: np.ndarray

    @property
    def unknown(self) -> np.ndarray:
        """``(Q,)`` bool: True for queries for which no image with an identity reaches the threshold."""
        return self.known.sum(1) == 0

    def __iter__(self) -> Iterator[Match]:
        """Iterate over all matches: those of the first query, best first, then those of the second, and so on."""
        return itertools.starmap(Match, zip(*self.to_dict().values(), strict=True))

    def __getitem__(self, place: int) -> Match:
        return [*self][place]

    def __len__(self) -> int:
        return int((self.keys >= 0).sum())

    def _columns(self) -> dict[str, np.ndarray]:
        query, rank = np.nonzero(self.keys >= 0)
        names = ("paths", "ids", "cams", "times", "scores", "known")
        return {"query": query, "rank": rank + 1} | {name: getattr(self, name)[query, rank] for name in names}

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns of :meth:`to_frame` as lists; this needs no pandas."""
        return {name: column.tolist() for name, column in self._columns().items()}

    def to_frame(self) -> pandas.DataFrame:
        """Return a table of matches: attributes, number of the ``query`` (from 0), and ``rank`` (from 1)."""
        return Extra("pandas", "pandas").load().DataFrame(self._columns())

    def __repr__(self) -> str:
        queries, most = self.keys.shape
        return f"Matches({queries} queries, {most} images each at most, {int(self.unknown.sum())} queries unknown)"


def _one_thread_at_a_time(cls: type[T]) -> type[T]:
    """Let each method wait until no other thread runs a method of the object; only one thread may use a faiss index."""

    def waiting(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(self: Any, *args: Any, **options: Any) -> Any:
            with self.lock:
                return method(self, *args, **options)

        return call

    for name, method in [*vars(cls).items()]:
        if isfunction(method) and not name.startswith("_"):
            setattr(cls, name, waiting(method))
    return cls


@_one_thread_at_a_time
class Gallery:
    """Features of images as unit vectors, with the identity, camera, time and path of each image.

    Create a gallery with :meth:`build`. ``Gallery(address)`` opens a saved gallery, like :meth:`load`. Identities and
    cameras are integers or text; searches return the type with which the gallery was built. This class checks all
    arguments and passes only numbers to its store. The number of a text label is a hash of the text, so that all
    processes use the same number. Several threads may use one gallery: a method waits until no other thread runs a
    method of the gallery.

    Attributes:
        store: the storage engine: faiss in this process, or Milvus.
        network: network that extracts features; None until it is needed.
        where: address of the gallery; error messages begin with it.
        lock: lock that every method holds.
    """

    store: Store
    where = "gallery in memory"

    def __init__(
        self, store: Store | str | os.PathLike[str], network: Embedder | None = None, where: str = where
    ) -> None:
        if isinstance(store, (str, os.PathLike)):
            where = os.fspath(store)
            store = Gallery.load(where).store
        self.store, self.network, self.where, self.lock = store, network, where, threading.RLock()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a gallery has no {name!r}" + (f"; use gallery.{RIGHT[name]}" if name in RIGHT else ""))

    def __len__(self) -> int:
        return self.store.count(EVERYTHING)

    def __iter__(self) -> Iterator[int | str]:
        """Iterate over :attr:`identities`."""
        return iter(self.identities)

    def __repr__(self) -> str:
        about = self.about
        threshold = "no threshold" if about.threshold is None else f"threshold {rounded_up(about.threshold)}"
        return f"Gallery({len(self)} images, {self.width} numbers each, {about.kind}, model {about.model}, {threshold})"

    def count(self, where: Filter) -> int:
        """Number of images that a filter allows."""
        return self.store.count(self._numbered(where))

    def _numbered(self, where: Filter) -> Filter:
        require(isinstance(where, Filter), "where", where, "a Filter, such as lreid.gallery.Filter(cameras=[1])")
        return where.numbered(self.number_of)

    def number_of(self, what: str, label: int | str) -> int:
        """Return the number by which the store knows a label.

        Args:
            what: ``identity`` or ``camera``.
            label: the label; an integer label is its own number.

        Raises:
            InputError: no image has this label (the message lists some labels of the gallery), or numbers are mixed
                with text.
        """
        if not isinstance(label, str):
            self._check_kind(what, np.array([label]))
            return label
        names, label = self.about.names.get(what, {}), label_text(label)
        number = next((number for number, name in names.items() if name == label), None)
        if number is None:
            examples = ", ".join(sorted(names.values())[:8]) + (" …" if len(names) > 8 else "") if names else "none"
            raise InputError(f"{self.where}: has no {what} {label!r} (it has {examples})")
        return number

    def counts(self) -> dict[str, int]:
        """Number of ``images``, ``identities`` and ``cameras``; unknown ones do not count."""
        labels = self.store.labels()
        identities, cameras = (len({*column.tolist()} - {UNKNOWN}) for column in (labels.ids, labels.cams))
        return {"images": len(labels), "identities": identities, "cameras": cameras}

    def images(self) -> list[SearchImage]:
        """All images with their labels, ordered by key."""
        labels = self.labels()
        rows = zip(labels.paths, labels.ids, labels.cams, labels.times.tolist(), strict=True)
        return [SearchImage(path, name_of(identity), name_of(camera), time) for path, identity, camera, time in rows]

    @property
    def about(self) -> About:
        """Description of the gallery: model, kind, threshold, names."""
        return self.store.about

    @property
    def threshold(self) -> float | None:
        """Cosine similarity below which a search returns "unknown", or None before :meth:`calibrate`."""
        return self.about.threshold

    @property
    def identities(self) -> list[int | str]:
        """Names or integers of all identities, in ascending order."""
        names = self.about.names.get("identity")
        return sorted(names.values() if names else {*self.store.labels().ids.tolist()} - {UNKNOWN})

    @property
    def change(self) -> Change | None:
        """The last :meth:`add`, :meth:`remove` or :meth:`rename`, which :meth:`undo` reverts; None without one."""
        return self.store.change

    @property
    def width(self) -> int:
        """Length of a feature."""
        return self.store.width

    @cached_property
    def extraction(self) -> Extraction:
        """How the features of the gallery were computed.

        Raises:
            InputError: the gallery was built from features, or by a network without a name.
        """
        try:
            return Extraction.from_arrays(self.about.extras, self.width)
        except (KeyError, IndexError, ValueError, TypeError):
            raise InputError(f"{self.where}: does not record its extraction; build it with lreid search") from None

    @property
    def maps(self) -> list[MapRecord]:
        """Maps that brought features of earlier models to the gallery's model, oldest first; empty if extracted."""
        return MapRecord.read(self.about.extras)

    def load_network(self, checkpoint: Path | None, device: str, *, any_model: bool = False) -> Embedder:
        """Load the gallery's network from its original file, or from ``checkpoint`` if given.

        Raises:
            InputError: the file is missing, or contains another model (unless ``any_model``).
        """
        from lreid.loading import load_model
        from lreid.models.fingerprint import fingerprint

        source = checkpoint or self.extraction.checkpoint
        network = load_model(source, device)
        if any_model or fingerprint(network) == self.about.model:
            return network
        raise InputError(
            f"{source}: is not the model whose features are in the gallery ({fingerprint(network)}, not "
            f"{self.about.model}); pass that model, build the gallery again, or use 'lreid search query --cross-model' "
            "if the two models were trained to be comparable"
        )

    def features(self, keys: np.ndarray) -> np.ndarray:
        """Return the unit vectors ``(N, D)`` float32 of images, by their keys; an ``ivfpq`` gallery stores none."""
        return self.store.vectors(np.asarray(keys, dtype=np.int64))

    def holds(self, paths: Files) -> np.ndarray:
        """Return ``(N,)`` bool: whether each of these images is in the gallery."""
        return self.store.keys_of(names_of(paths)) >= 0

    def labels(self) -> GalleryRows:
        """Return keys, identities, cameras, times and paths of all images, in the form of :class:`Matches`.

        For a gallery on a server, this method downloads the labels of all images.
        """
        return self._named(self.store.labels())

    @classmethod
    def build(
        cls,
        images: Any,
        paths: Files | None = None,
        ids: Any = None,
        cams: Any = None,
        times: Any = None,
        *,
        model: Model,
        at: str | Path | GalleryPlace | None = None,
        device: str = "cpu",
        **about: Any,
    ) -> Gallery:
        """Build a gallery of images.

            gallery = lreid.Gallery.build("my/images", model="zoo:people")
            gallery.search("my/new").to_frame()

        Args:
            images: N images in any form of :meth:`lreid.models.Embedder.extract`, or their features, an array or tensor
                of ``(N, D)`` floats. Features are scaled to unit length.
            paths: N different names of the images; by default, the absolute paths of their files.
            ids, cams: ``(N,)`` identities and cameras, all integers or all text, see :mod:`lreid.utils.identities`. A
                missing value or -1 means unknown; ``None`` means that all are unknown. If ``ids`` and ``cams`` are both
                ``None`` and ``images`` is a folder, lreid reads identities and cameras from the paths in it.
            times: ``(N,)`` integers in seconds; -1 means unknown, and ``None`` means that all are unknown.
            model: the network that computes the features. For images, pass the network or its name for
                :func:`lreid.load_model`; for features, pass the fingerprint of the network. The gallery accepts only
                features of the same network afterwards.
            at: place of the gallery, see :func:`lreid.gallery.gallery.place_of`; with ``None``, the gallery stays in
                memory until :meth:`save` names a file.
            device: see :meth:`load`.
            about: properties ``kind``, ``shards``, ``names``, ``extras`` and ``whole`` of
                :class:`lreid.gallery.store.About`. To fill the gallery in several steps, pass ``whole=False``, call
                :meth:`add` repeatedly, and then :meth:`finish`.

        Raises:
            InputError: the input is invalid, the kind is unknown, or the storage engine is not installed or not
                reachable.
        """
        images, paths, ids, cams = named(images, paths, ids, cams)
        made_by, network = fingerprint_and_network(images, model, {})
        description = About(made_by, **about)
        if network is not None and network.source:
            description.extras = Extraction(network.source).to_arrays() | description.extras
        vectors = _unit_vectors(features_of(images, network, {}), "gallery features")
        labels, description.names = checked_labels(len(vectors), ids, cams, times, names_of(paths), description.names)
        build = FaissStore.build if at is None else place_of(at).build
        where = cls.where if at is None else str(at)
        return cls(build(vectors, labels, description), network, where)._on(device)

    def add(
        self,
        images: Any,
        paths: Files | None = None,
        ids: Any = None,
        cams: Any = None,
        times: Any = None,
        *,
        model: Model | None = None,
    ) -> None:
        """Add images, with the same arguments as in :meth:`build`.

        The threshold does not change, so calibrate again after many additions.

        When this method returns, a gallery in Milvus has stored the images; a gallery in a file stores them in
        :meth:`save`.

        Raises:
            InputError: the input is invalid, a path is already in the gallery, the model is not the gallery's, or the
                gallery is memory-mapped.
        """
        images, paths, ids, cams = named(images, paths, ids, cams)
        vectors = self._vectors(images, model, "gallery features")
        for what, column in zip(LABELS, (ids, cams), strict=True):
            if column is not None:
                self._check_kind(what, as_names(column, f"gallery {PLURAL[what]}", len(vectors)))
        if ids is None and self._has_labels("identity"):
            logger.warning("%s: the added images have no identity; pass ids=[…] to name the people", self.where)
        labels, names = checked_labels(len(vectors), ids, cams, times, names_of(paths), self.about.names)
        present = self.holds(labels.paths)
        if present.any():
            raise InputError(f"{labels.paths[present][0]}: is already in the gallery; remove it first")
        with self._naming(names):
            self.store.add(vectors, labels)
        self.store.change = self._change("add", self.store.keys_of(labels.paths))

    @contextmanager
    def _naming(self, names: LabelNames) -> Iterator[None]:
        """Set the names of the gallery before a change that uses them, unless the change fails."""
        before, self.about.names = self.about.names, names
        try:
            yield
        except InputError:
            self.about.names = before
            raise

    def _change(self, action: str, keys: np.ndarray) -> Change | None:
        """Describe a change for :meth:`undo`; None in Milvus, in an unfinished gallery, or without stored features."""
        if not isinstance(self.store, FaissStore) or not self.about.whole:
            return None
        if (removal := action == "remove") and self.about.kind == "ivfpq":
            return None
        rows = self.store.labels()
        rows = rows[np.isin(rows.keys, keys)]
        if not removal:
            return Change.of(action, self._named(rows), np.empty((0, self.width), np.float32), {})
        files = FilePlace(self.store.path).read_uploads(rows.paths) if self.store.path else {}
        return Change.of(action, self._named(rows), self.features(rows.keys), files)

    def remove(self, paths: Files = (), *, identity: int | str | None = None) -> None:
        """Delete images with their features; an identity without remaining images loses its name.

        After a removal, an ``hnsw`` gallery of faiss is built again from the remaining images.

        Args:
            paths: names of images in the gallery. The name of an image that was added without a name is its absolute
                path, for which a relative path is accepted too.
            identity: identity whose images are deleted, too.

        Raises:
            InputError: a path or the identity is not in the gallery, or the gallery is memory-mapped; in these cases,
                nothing is removed.
        """
        doomed = sorted(set(names_of(paths)))
        keys = self.store.keys_of(doomed)
        keys = np.where(keys < 0, self.store.keys_of([absolute(path) for path in doomed]), keys)
        missing = next((path for path, key in zip(doomed, keys, strict=True) if key < 0), None)
        if missing is not None:
            raise InputError(f"{missing}: is not in the gallery; nothing was removed")
        keys = np.unique(keys if identity is None else np.append(keys, self.rows_of(identity).keys))
        change = self._change("remove", keys)
        self.store.remove(keys)
        self._drop_unused_names()
        self.store.change = change

    def rename(self, old: int | str, new: int | str, *, merge: bool = False) -> int:
        """Give all images of an identity another identity.

        Args:
            old: identity in the gallery.
            new: identity that it gets, of the same type.
            merge: whether ``new`` may be in the gallery; both are one identity then.

        Returns:
            Number of images of ``old``.

        Raises:
            InputError: ``old`` is not in the gallery, ``new`` is missing, equal, or in the gallery without ``merge``,
                or the gallery is memory-mapped; nothing is changed.
        """
        rows = self.rows_of(old)
        new = label_of(require_written(new, "new") if isinstance(new, str) else new, "new")
        require(new not in (UNKNOWN, label_text(old)), "new", new, "a different identity")
        if new in self.identities and not merge:
            raise InputError(f"{self.where}: already has an identity {new!r}; pass merge=True if both are one person")
        change = self._change("rename", rows.keys)
        self._relabel(rows, new)
        self.store.change = change
        return len(rows)

    def rows_of(self, identity: int | str) -> GalleryRows:
        """Return the images of an identity, with numbers as labels.

        Raises:
            InputError: no image has this identity.
        """
        number, labels = self.number_of("identity", label_of(identity, "identity")), self.store.labels()
        rows = labels[(labels.ids == number) & (labels.ids != UNKNOWN)]
        if not len(rows):
            raise InputError(f"{self.where}: has no identity {identity!r}")
        return rows

    def undo(self, change: Change | None = None) -> Change:
        """Revert the last :meth:`add`, :meth:`remove` or :meth:`rename`, in this process or see :meth:`save`.

        Args:
            change: an earlier :attr:`change` of the gallery, or None for the last change.

        Returns:
            The reverted change.

        Raises:
            InputError: there is no change, it was a removal from an ``ivfpq`` gallery, the gallery is in Milvus, or
                later changes make the undo impossible; nothing is changed.
        """
        if (change := change or self.change) is None:
            reason = "a file keeps the last add, remove or rename, except a removal from ivfpq; Milvus keeps none"
            raise InputError(f"{self.where}: has no change to undo ({reason})")
        paths, identities, *_ = change.labels
        if change.action == "remove":
            self.add(change.features, *change.labels, model=self.about.model)
            self.store.uploads = change.files
        elif change.action == "add":
            self.remove(paths)
        else:
            rows = self.store.labels()
            self._relabel(rows[np.isin(rows.paths, paths)], identities[0])
        self.store.change = None
        return change

    def _relabel(self, rows: GalleryRows, identity: int | str) -> None:
        """Give images another identity; an identity without remaining images loses its name."""
        names, number = self.about.names, int(self._numbers("identity", [identity], "identity", 1)[0])
        if isinstance(identity, str):
            names = names | {"identity": names.get("identity", {}) | {number: identity}}
        with self._naming(names):
            self.store.relabel(rows, number)
        self._drop_unused_names()

    def _drop_unused_names(self) -> None:
        if self.about.names.get("identity"):
            left = set(self.store.labels().ids.tolist())
            names = self.about.names["identity"]
            self.about.names["identity"] = {number: name for number, name in names.items() if number in left}

    def search(
        self,
        images: Any,
        k: int = 10,
        query_ids: Any = None,
        query_cams: Any = None,
        *,
        group: Any = None,
        model: Model | None = None,
        threshold: float | None = None,
        where: Filter = EVERYTHING,
        exclude_same_camera: bool = False,
        cross_model: bool = False,
    ) -> Matches:
        """Find the ``k`` nearest gallery images for each query, or for each group of queries.

        Args:
            images: Q images, or their features ``(Q, D)``, in the same forms as in :meth:`build`.
            k: number of matches per query, which may exceed the size of the gallery: missing matches are empty. From
                10,000 on, there are at most as many matches as images in the gallery.
            query_ids, query_cams: ``(Q,)`` integers or text, needed only with ``exclude_same_camera``.
            group: ``(Q,)`` integers or text, the same for the images of one person or track. Their scores are averaged,
                and the result has one row per group, in the order of :func:`lreid.gallery.gallery.groups_of`.
            model: the network that computes the features, as in :meth:`build`; for images, ``None`` means the network
                that built the gallery.
            threshold: cosine similarity for ``known``; ``None`` means the gallery's own threshold.
            where: filter that limits cameras, identities and times.
            exclude_same_camera: whether to exclude images from the query's camera that show the query's identity;
                without ``query_ids``, all images from the query's camera are excluded. For a query with an unknown
                camera or identity, no images are excluded.
            cross_model: whether to accept query features of another model, whose features must be comparable.

        Raises:
            InputError: the input is invalid, the features come from another model, or a name in the filter is not in
                the gallery.
        """
        require(isinstance(k, (int, np.integer)) and k >= 1, "k", k, "a number of matches per query, such as 10")
        k = min(int(k), max(len(self), EMPTY_MATCHES))
        fits = threshold is None or (isinstance(threshold, (int, float, np.number)) and -1 <= threshold <= 1)
        require(fits, "threshold", threshold, "a cosine similarity from -1 to 1")
        if exclude_same_camera and query_cams is None:
            raise ArgumentError("query_cams", "is missing; exclude_same_camera needs the cameras of the queries")
        where = self._numbered(where)
        vectors = self._vectors(images, model, "query features", cross_model=cross_model)
        groups = groups_of(group, len(vectors))
        if group is not None:  # the mean score is the score of the mean vector
            vectors = np.stack([vectors[rows].mean(0) for rows in groups])
        if not exclude_same_camera:
            return self._matches(*self.store.nearest(vectors, k, where), threshold)
        count = sum(map(len, groups))
        cams = self._numbers("camera", query_cams, "query cameras", count)
        if query_ids is None:
            excluded = [{*cams[rows].tolist()} - {UNKNOWN} for rows in groups]
            filters = [replace(where, not_cameras=(*where.not_cameras, *each)) for each in excluded]
        else:
            ids = self._numbers("identity", query_ids, "query identities", count)
            both = [zip(ids[rows], cams[rows], strict=True) for rows in groups]
            filters = [replace(where, not_both=(*where.not_both, *each)) for each in both]
        return self._matches(*self._search_each(vectors, k, filters), threshold)

    def calibrate(self, images: Any, ids: Any, *, model: Model | None = None, false_accept_rate: float = 0.01) -> float:
        """Set the threshold of the gallery for a false accept rate.

        Every labelled image serves as an impostor: the gallery is searched with it, but without the images of its
        identity. At most a share ``false_accept_rate`` of the impostors' best scores reaches the threshold. A larger
        gallery contains more people who look similar, so calibrate again after many additions.

        Args:
            images: Q images, or their features ``(Q, D)``, as in :meth:`build`; images outside the gallery are
                preferable.
            ids: ``(Q,)`` identities, integers or text as in the gallery. The gallery need not contain these identities.
                Images whose identity is missing or -1 are left out, because they may show an enrolled person.
            model: see :meth:`search`.
            false_accept_rate: share of impostors that may reach the threshold, in [0, 1). Use many more images than ``1
                / false_accept_rate``.

        Returns:
            The threshold, a cosine similarity; the gallery stores it too.

        Raises:
            InputError: the input is invalid, the model is not the gallery's, or the gallery or ``images`` have no
                identities.
        """
        return self.set_threshold(self.impostor_scores(images, ids, model=model), false_accept_rate)

    def set_threshold(self, scores: np.ndarray, false_accept_rate: float) -> float:
        """Set the threshold from the result ``(Q,)`` of :meth:`impostor_scores`, as :meth:`calibrate` does."""
        from lreid.retrieval.protocols import threshold_for  # loads torch

        scores = scores[np.isfinite(scores)]
        self.about.threshold = threshold_for(scores, false_accept_rate)
        self.about.false_accept_rate, self.about.calibrated_on = false_accept_rate, len(scores)
        return self.about.threshold

    def impostor_scores(self, images: Any, ids: Any, *, model: Model | None = None) -> np.ndarray:
        """Return the best score ``(Q,)`` of each image among the images of other people, see :meth:`calibrate`.

        The score of an image without an identity is -inf, and so is that of an image without impostors.
        """
        vectors = self._vectors(images, model, "calibration features")
        ids = self._numbers("identity", ids, "calibration identities", len(vectors))
        if not self._has_labels("identity"):
            raise InputError("the gallery's images have no identities; a threshold cannot be calibrated")
        labelled = ids != UNKNOWN
        if not labelled.any():
            raise InputError("calibration identities: all are unknown; a threshold needs images with an identity")
        filters = [Filter(not_identities=(one, UNKNOWN)) for one in ids[labelled]]
        scores = np.full(len(ids), -np.inf, np.float32)
        best, rows = self._search_each(vectors[labelled], 1, filters)
        scores[labelled] = np.where(rows.keys >= 0, best, -np.inf)[:, 0]
        return scores

    def save(self, path: str | Path | None = None, *, undoable: bool = False) -> None:
        """Save the gallery at its place, or write a gallery that is in memory to a file.

        Args:
            path: path of the file. An existing file is replaced only when the new file is complete.
            undoable: whether the file also stores what :meth:`undo` needs to revert the last change after
                :meth:`load`, such as features of removed images. The next :meth:`save` replaces or deletes it.

        Raises:
            InputError: the file cannot be written, or another process has changed it since this process read it.
        """
        if str(path).startswith(SCHEME):
            raise ArgumentError("path", f"is {str(path)!r}; save a file, then copy it with lreid search migrate")
        if path is not None:
            place_of(path)  # refuses addresses of the web
        self.store.save(path, undoable)

    def finish(self) -> None:
        """Complete a gallery that was built with ``whole=False``, and save it."""
        self.store.finish()

    def mapped(self, old: Model, new: Model, images: Any) -> Gallery:
        """Return a copy of the gallery in memory for a new model, with mapped instead of newly extracted features.

            gallery.mapped("task-05.pt", "task-10.pt", "new/images").save("people.gallery")

        See :class:`lreid.retrieval.feature_map.FeatureMap`. :attr:`maps` of the copy records how good the map is. If
        the gallery has a threshold, the copy gets a threshold that the same number of ``images`` reach with features of
        the new model in the copy, as with features of the old model in the gallery; it gets none if there are fewer
        than ``FEWEST_SCORES``.

        Args:
            old, new: the gallery's network and the new one, or their names for :func:`lreid.load_model`. Their features
                may have different lengths.
            images: two or more images that need not be in the gallery and need no labels, in any form of
                :meth:`lreid.models.Embedder.extract`.

        Raises:
            InputError: ``old`` is not the gallery's model, or ``new`` is; an image cannot be read; or the gallery
                stores compressed codes (``ivfpq``) or features that are standardised per camera.
        """
        images = list(images) if isinstance(images, Iterator) else images
        (before, old_network), (after, network) = (fingerprint_and_network(images, model, {}) for model in (old, new))
        if old_network is None or network is None:
            raise ArgumentError("images", "are features; pass images, which both models can extract")
        if after == self.about.model or before != self.about.model:
            fault = "the new model is already the gallery's" if before == self.about.model else "old is not its model"
            raise InputError(f"{self.where}: holds features of model {self.about.model}; {fault}, pass another one")
        if self.about.kind == "ivfpq" or any(name.startswith("norm/") for name in self.about.extras):
            stored = "compressed codes" if self.about.kind == "ivfpq" else "features that are standardised per camera"
            raise InputError(f"{self.where}: stores {stored}, which cannot be mapped; extract the images again")
        from lreid.retrieval.feature_map import FeatureMap  # loads torch

        extraction = Extraction.of(network.source) if network.source else Extraction("")
        features = features_of(images, old_network, self.about.extras)
        by = FeatureMap.fit(features, new_features := network.extract(images, flip=extraction.flip))
        maps = [*self.maps, MapRecord(before, len(features), by.cosine, by.baseline)]
        extras = MapRecord.to_arrays(maps) | (extraction.to_arrays() if network.source else {})
        copy = self.copied(None, by, model=after, extras=extras)
        if self.threshold is not None:
            named = Filter(not_identities=(UNKNOWN,))
            scores = self.search(features, 1, model=before, where=named).scores
            reached = int((scores >= np.float32(self.threshold)).sum())
            if FEWEST_SCORES <= reached < len(scores):
                scores = copy.search(new_features, 1, model=after, where=named).scores
                copy.set_threshold(scores[:, 0], reached / len(scores))
                copy.about.false_accept_rate = self.about.false_accept_rate
        return copy

    def copied(
        self, at: GalleryPlace | None, change: Callable[[np.ndarray], np.ndarray] = lambda same: same, **about: Any
    ) -> Gallery:
        """Copy all images, with features that ``change`` returns, to a place (unfinished) or, with ``None``, to memory.

        Args:
            about: properties of the copy that differ from those of the gallery: ``model``, ``extras``, ``kind``,
                ``shards``, see :class:`lreid.gallery.store.About`.
        """
        about = {name: getattr(self.about, name) for name in ("model", "extras", "kind", "shards", "names")} | about
        labels, step = self.labels(), BATCH if at is not None else max(len(self), 1)
        if not len(labels):
            raise InputError(f"{self.where}: contains no images; add some")

        def rows(start: int) -> tuple[Any, ...]:
            part = labels[start : start + step]
            return change(self.features(part.keys)), part.paths, part.ids, part.cams, part.times

        copy = Gallery.build(*rows(0), at=at, whole=at is None, **about)
        for start in range(step, len(labels), step):
            copy.add(*rows(start), model=about["model"])
        if copy.about.model == self.about.model:  # a threshold is valid for one model
            for name in ("threshold", "false_accept_rate", "calibrated_on"):
                setattr(copy.about, name, getattr(self.about, name))
        return copy

    def close(self) -> None:
        """Close the database, if the gallery is in one, so that another process can open it."""
        self.store.close()

    @classmethod
    def load(
        cls,
        where: str | Path | GalleryPlace,
        *,
        memory_map: bool = False,
        unfinished: bool = False,
        device: str = "cpu",
    ) -> Gallery:
        """Open a saved gallery.

        Args:
            where: address of the gallery, see :func:`lreid.gallery.gallery.place_of`.
            memory_map: whether to leave the features of a file on disk, where searches read only what they need. A
                memory-mapped gallery cannot be changed.
            unfinished: whether to accept a gallery that is not complete, for a caller that continues to fill it.
            device: ``cpu``, ``cuda`` or ``cuda:N``. On a GPU, searches without a filter and with up to 2048 matches per
                query use a copy of the index; faiss supports filters only on the CPU. The file that :meth:`save` writes
                does not depend on the device.

        Raises:
            InputError: the gallery is missing, truncated, from another version of lreid, not complete or not reachable;
                the file is not a gallery; or the GPU does not exist or does not support this kind of index.
        """
        place = place_of(where)
        gallery = cls(place.load(memory_map), where=str(where))
        if not (gallery.about.whole or unfinished):
            raise InputError(f"{place}: is not complete yet; repeat the command that builds it")
        return gallery._on(device)

    def _on(self, device: str) -> Gallery:
        if str(device) == "cpu":
            return self
        if not isinstance(self.store, FaissStore):
            raise ArgumentError("device", f"is {device}, but Milvus chooses its own device; use cpu")
        self.store.index.put_on(str(device))
        return self

    def _search_each(self, vectors: np.ndarray, k: int, filters: Sequence[Filter]) -> tuple[np.ndarray, GalleryRows]:
        """Search with one filter per query; queries with equal filters share a search."""
        rows: dict[Filter, list[int]] = {}
        for row, where in enumerate(filters):
            rows.setdefault(where, []).append(row)
        results = [self.store.nearest(vectors[members], k, where) for where, members in rows.items()]
        order = np.argsort(np.concatenate(list(rows.values())))
        scores, labels = zip(*results, strict=True)
        columns = (np.concatenate(each) for each in zip(*(vars(one).values() for one in labels), strict=True))
        return np.concatenate(scores)[order], GalleryRows(*columns)[order]

    def _matches(self, scores: np.ndarray, labels: GalleryRows, threshold: float | None) -> Matches:
        valid, threshold = labels.keys >= 0, self.about.threshold if threshold is None else threshold
        scores = np.where(valid, scores, -np.inf).astype(np.float32)
        recognised = valid
        if threshold is not None:  # it was calibrated on images with an identity, so it applies only to such images
            recognised = valid & (scores >= np.float32(threshold)) & (labels.ids != UNKNOWN)
        return Matches(scores, **vars(self._named(labels)), known=recognised)

    def _named(self, labels: GalleryRows) -> GalleryRows:
        """Return labels in which names replace numbers, if the gallery has names."""
        names = self.about.names
        ids, cams = as_given(labels.ids, names.get("identity")), as_given(labels.cams, names.get("camera"))
        return replace(labels, ids=ids, cams=cams)

    def _numbers(self, what: str, labels: Any, name: str, count: int) -> np.ndarray:
        """Return the numbers ``(N,)`` int64 of query labels; a text that is not in the gallery gets its hash."""
        given, names = as_names(labels, name, count), self.about.names.get(what, {})
        self._check_kind(what, given)
        if given.dtype == object:
            warn_of_spellings({*given, *names.values()}, name)
        return numbers_of(given, names)

    def _check_kind(self, what: str, given: np.ndarray) -> None:
        """Refuse text if the gallery has integer labels, and unknown integers if it has text labels."""
        names = self.about.names.get(what, {})
        if given.dtype == object and not names and self._has_labels(what):
            text = given[given != str(UNKNOWN)][0]
            raise InputError(f"{PLURAL[what]}: the gallery has integers, but {text!r} is text; give integers")
        if given.dtype == object or not names or any(number != hash_of(name) for number, name in names.items()):
            return
        unknown = given[~np.isin(given, [UNKNOWN, *names])]
        if len(unknown):
            text = next(iter(names.values()))
            raise InputError(
                f"{PLURAL[what]}: the gallery has text such as {text!r}, but {unknown[0]} is a number; give text"
            )

    def _has_labels(self, what: str) -> bool:
        labelled = Filter(not_identities=(UNKNOWN,)) if what == "identity" else Filter(not_cameras=(UNKNOWN,))
        return self.store.count(labelled) > 0

    def _vectors(self, images: Any, model: Model | None, name: str, *, cross_model: bool = False) -> np.ndarray:
        """Return unit vectors ``(N, D)`` of images or of features, as in :meth:`search`."""
        made_by, network = fingerprint_and_network(images, self.network if model is None else model, self.about.extras)
        if model is None:
            self.network = network
        if not cross_model and made_by != self.about.model:
            raise InputError(
                f"the gallery holds features of model {self.about.model}, these are of model {made_by}; index the "
                "images again with the new model, or search with cross_model=True if the models were trained to be "
                "comparable"
            )
        vectors = _unit_vectors(features_of(images, network, self.about.extras), name)
        if vectors.shape[1] != self.width:
            raise InputError(f"features have {vectors.shape[1]} numbers per row, but those of the gallery {self.width}")
        return vectors


def _unit_vectors(features: Any, name: str) -> np.ndarray:
    """Scale ``(N, D)`` rows to unit length, as float32; a zero vector stays zero."""
    if isinstance(features, np.ndarray) and features.ndim == 2 and features.dtype == np.float32 and len(features):
        squares = np.einsum("nd,nd->n", features, features)
        if (np.abs(squares - 1) < UNIT).all():  # true for the features of a gallery
            return features.copy()
    from lreid.retrieval.arrays import unit_array  # loads torch

    return unit_array(features, name)


def groups_of(group: Any, count: int) -> list[list[int]]:
    """Return the rows of each group of ``count`` queries, in the order in which the groups appear.

    Args:
        group: labels of the groups, see :meth:`Gallery.search`. A query with a missing label is its own group, and so
            is each query if ``group`` is None.
    """
    labels = np.full(count, UNKNOWN) if group is None else as_names(group, "group", count)
    rows: dict[Any, list[int]] = {}
    for row, label in enumerate(labels.tolist()):
        rows.setdefault((row,) if str(label) == str(UNKNOWN) else label, []).append(row)
    return list(rows.values())


def place_of(where: str | Path | GalleryPlace) -> GalleryPlace:
    """Convert the address of a gallery to its place.

    Args:
        where: a place, a file name, ``milvus:FILE.db`` for a database of Milvus Lite in this process, or
            ``milvus:http://host:port`` for a Milvus server or cluster. If the database has several galleries, the
            address must end in ``/NAME``.

    Raises:
        InputError: the address is not text, is a web address, or is an invalid Milvus address.
    """
    if not isinstance(where, (str, os.PathLike)) and hasattr(where, "build"):
        return where
    text = str(where)
    on_the_web = "://" in text and not text.startswith(SCHEME)
    if not isinstance(where, (str, os.PathLike)) or not text or "\0" in text or on_the_web:
        raise ArgumentError("gallery", f"is {text!r}; name a file, such as 'people.gallery'")
    if not text.startswith(SCHEME):
        return FilePlace(real_path(text))
    from lreid.gallery.milvus_store import MilvusPlace  # imported here, because galleries in files do not need pymilvus

    return MilvusPlace.parse(text)
