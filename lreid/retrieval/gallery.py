"""A gallery: images of known people, kept as features in a faiss index, to be searched, saved and changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lreid.errors import InputError
from lreid.retrieval.arrays import as_features, as_labels, unit_rows
from lreid.retrieval.gallery_file import read_gallery, write_gallery
from lreid.retrieval.index import measure_recall, nearest, new_index, without
from lreid.retrieval.open_set import threshold_for

NOBODY = -1  # identity or camera that is not known


@dataclass(frozen=True)
class Matches:
    """The best images of the gallery for each query, best first.

    Where fewer than k images were found, a row ends with index, identity and camera -1, path "" and score -inf.

    Attributes:
        scores: ``(Q, k)`` float32, cosine similarity.
        indices: ``(Q, k)`` int64, rows of the gallery as it is now.
        ids, cams: ``(Q, k)`` int64.
        paths: ``(Q, k)`` strings.
        known: ``(Q, k)`` bool, whether the score reaches the gallery's threshold; without one, every image does.
    """

    scores: np.ndarray
    indices: np.ndarray
    ids: np.ndarray
    cams: np.ndarray
    paths: np.ndarray
    known: np.ndarray

    @property
    def unknown(self) -> np.ndarray:
        """``(Q,)`` bool: not even the best image reaches the threshold, so the query shows nobody known."""
        return ~self.known[:, 0]


@dataclass
class Gallery:
    """Images as unit vectors with identity, camera and path. Make one with :meth:`build` or :meth:`load`.

    Attributes:
        index: the faiss index. It knows an image by its key, which stays when others are removed.
        kind: ``flat`` (exact), ``hnsw`` or ``ivfpq``; see :mod:`lreid.retrieval.index`.
        model: fingerprint of the model that made the features.
        keys: ``(N,)`` int64, ascending.
        ids, cams: ``(N,)`` int64; -1 is not known.
        paths: ``(N,)`` strings, each once.
        next_key: key of the next image.
        recall: ``{k: recall@k}`` against exact search, measured when the gallery was built.
        threshold: cosine similarity below which a search answers "unknown"; ``None`` before :meth:`calibrate`.
        false_accept_rate: share of strangers that the threshold was set for.
        extras: arrays that travel with the gallery, for instance statistics its features were normalised with.
        read_only: memory-mapped, so images can neither be added nor removed.
    """

    index: Any
    kind: str
    model: str
    keys: np.ndarray
    ids: np.ndarray
    cams: np.ndarray
    paths: np.ndarray
    next_key: int
    recall: dict[int, float]
    threshold: float | None = None
    false_accept_rate: float | None = None
    extras: dict[str, np.ndarray] = field(default_factory=dict)
    read_only: bool = False

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def build(
        cls,
        features: Any,
        paths: Sequence[str],
        ids: Any = None,
        cams: Any = None,
        *,
        model: str,
        kind: str = "flat",
    ) -> Gallery:
        """A gallery of images.

        Args:
            features: ``(N, D)`` floats, array or tensor; normalised here.
            paths: N different names of images.
            ids, cams: ``(N,)`` integers; ``None`` if not known.
            model: fingerprint of the model that made the features; only its features can be added and searched.
            kind: ``flat``, ``hnsw`` or ``ivfpq``.

        Raises:
            InputError: unusable input, an unknown kind, or faiss is not installed.
        """
        vectors = _unit_vectors(features, "gallery features")
        ids, cams, paths = _check_labels(len(vectors), ids, cams, paths)
        index = new_index(kind, vectors)
        recall = {1: 1.0, 10: 1.0} if kind == "flat" else measure_recall(index, vectors)
        return cls(index, kind, model, np.arange(len(vectors)), ids, cams, paths, len(vectors), recall)

    def add(
        self, features: Any, paths: Sequence[str], ids: Any = None, cams: Any = None, *, model: str
    ) -> None:
        """Adds images. The threshold stays; calibrate anew if the gallery has grown much.

        Raises:
            InputError: unusable input, a path that is there already, another model, or a memory-mapped gallery.
        """
        self._check_writable()
        self._check_model(model)
        vectors = self._check_width(_unit_vectors(features, "gallery features"))
        ids, cams, paths = _check_labels(len(vectors), ids, cams, paths)
        known = set(self.paths.tolist())
        if twice := next((path for path in paths if path in known), None):
            raise InputError(f"{twice}: is in the gallery already; remove it first")
        keys = self.next_key + np.arange(len(vectors))
        self.index.add_with_ids(vectors, keys)
        self.next_key += len(vectors)
        self.keys = np.concatenate([self.keys, keys])
        self.ids = np.concatenate([self.ids, ids])
        self.cams = np.concatenate([self.cams, cams])
        self.paths = np.concatenate([self.paths, paths])

    def remove(self, paths: Sequence[str]) -> None:
        """Deletes images with their features, for instance ``gallery.paths[gallery.ids == 7]``.

        An ``hnsw`` gallery is built anew from what stays.

        Raises:
            InputError: a path that is not there (then nothing is removed), or a memory-mapped gallery.
        """
        self._check_writable()
        wanted = set(paths)
        drop = np.array([path in wanted for path in self.paths], dtype=bool)
        if missing := sorted(wanted - set(self.paths[drop])):
            raise InputError(f"{missing[0]}: is not in the gallery; nothing was removed")
        self.index = without(self.index, self.kind, self.keys, drop)
        self.keys, self.ids, self.cams = self.keys[~drop], self.ids[~drop], self.cams[~drop]
        self.paths = self.paths[~drop]

    def search(
        self,
        features: Any,
        k: int = 10,
        query_ids: Any = None,
        query_cams: Any = None,
        *,
        model: str,
        exclude_same_camera: bool = False,
        cross_model: bool = False,
    ) -> Matches:
        """The ``k`` images nearest to each query.

        Args:
            features: ``(Q, D)`` floats, array or tensor.
            k: images wanted; those beyond the gallery's size come out empty.
            query_ids, query_cams: ``(Q,)`` integers, needed for ``exclude_same_camera`` only.
            model: fingerprint of the model that made the features.
            exclude_same_camera: leave out images of the query's camera: those of the query's identity, or all
                of them if ``query_ids`` is not given.
            cross_model: search a gallery of another model all the same, for models that are trained to be
                comparable.

        Raises:
            InputError: unusable input, or features of another model.
        """
        if not cross_model:
            self._check_model(model)
        if k < 1:
            raise InputError(f"k = {k}: ask for at least one image")
        vectors = self._check_width(_unit_vectors(features, "query features"))
        if not exclude_same_camera:
            return self._matches(*nearest(self.index, self.kind, vectors, k))
        if query_cams is None:
            raise InputError("exclude_same_camera needs query_cams, the cameras of the queries")
        groups = [as_labels(query_cams, "query cameras", len(vectors))]
        if query_ids is not None:
            groups.append(as_labels(query_ids, "query identities", len(vectors)))

        def hidden(group: np.ndarray) -> np.ndarray:
            same = (self.cams == group[0]) & (self.cams != NOBODY)
            return same & (self.ids == group[1]) if len(group) == 2 else same

        return self._matches(*self._search_groups(vectors, k, np.stack(groups, axis=1), hidden))

    def calibrate(self, features: Any, ids: Any, *, model: str, false_accept_rate: float = 0.01) -> float:
        """Sets the threshold so that a stranger is taken for somebody known at the wanted rate.

        Every labelled image plays a stranger: it is searched in the gallery without its own identity, and the
        threshold is what at most ``false_accept_rate`` of them reach. A larger gallery has more look-alikes, so
        calibrate anew after many additions.

        Args:
            features: ``(Q, D)`` floats, array or tensor; better not the gallery's own images.
            ids: ``(Q,)`` integers; identities the gallery does not hold are welcome.
            model: fingerprint of the model that made the features.
            false_accept_rate: in [0, 1). Use many more than 1 / rate images.

        Returns:
            The threshold, a cosine similarity, which is also kept.

        Raises:
            InputError: unusable input, another model, or a gallery without identities.
        """
        self._check_model(model)
        vectors = self._check_width(_unit_vectors(features, "calibration features"))
        ids = as_labels(ids, "calibration identities", len(vectors))
        if not (self.ids != NOBODY).any():
            raise InputError(
                "the gallery's images have no identities; a threshold cannot be calibrated on it"
            )

        def hidden(group: np.ndarray) -> np.ndarray:
            return (self.ids == group[0]) | (self.ids == NOBODY)

        scores, keys = self._search_groups(vectors, 1, ids[:, None], hidden)
        self.threshold = threshold_for(scores[keys >= 0], false_accept_rate)
        self.false_accept_rate = false_accept_rate
        return self.threshold

    def save(self, path: str | Path) -> None:
        """Writes the gallery to one file; what was there is replaced when the new file is complete."""
        names = ("model", "kind", "next_key", "threshold", "false_accept_rate")
        header = {name: getattr(self, name) for name in names} | {"recall": list(self.recall.items())}
        arrays = {"keys": self.keys, "ids": self.ids, "cams": self.cams}
        extras = {f"extra_{name}": array for name, array in self.extras.items()}
        write_gallery(path, self.index, header | {"paths": self.paths.tolist()}, arrays | extras)

    @classmethod
    def load(cls, path: str | Path, *, memory_map: bool = False) -> Gallery:
        """Reads a gallery that :meth:`save` wrote.

        Args:
            path: the file.
            memory_map: leave the features on disk and let searches read what they touch; the gallery cannot be
                changed then.

        Raises:
            InputError: the file is missing, cut short, of another version or no gallery at all.
        """
        index, header, arrays = read_gallery(path, memory_map)
        extras = {
            name.removeprefix("extra_"): arrays.pop(name) for name in list(arrays) if name[:6] == "extra_"
        }
        header["recall"] = dict(header["recall"])
        header["paths"] = np.array(header["paths"], dtype=object)
        return cls(index=index, extras=extras, read_only=memory_map, **header, **arrays)

    def _search_groups(
        self, vectors: np.ndarray, k: int, groups: np.ndarray, hidden: Callable[[np.ndarray], np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores and keys, both ``(Q, k)``, where ``hidden`` says for a row of ``groups`` what to leave out."""
        scores = np.empty((len(vectors), k), dtype=np.float32)
        keys = np.empty((len(vectors), k), dtype=np.int64)
        distinct, group_of = np.unique(groups, axis=0, return_inverse=True)
        for number, group in enumerate(distinct):
            here = group_of.reshape(-1) == number
            allowed = np.zeros(self.next_key, dtype=bool)
            allowed[self.keys[~hidden(group)]] = True
            scores[here], keys[here] = nearest(self.index, self.kind, vectors[here], k, allowed)
        return scores, keys

    def _matches(self, scores: np.ndarray, keys: np.ndarray) -> Matches:
        found = keys >= 0
        indices = np.where(found, np.searchsorted(self.keys, keys), -1)
        scores = np.where(found, scores, -np.inf).astype(np.float32)

        def look_up(column: np.ndarray, missing: Any) -> np.ndarray:
            values = np.full(indices.shape, missing, dtype=column.dtype)
            values[found] = column[indices[found]]
            return values

        return Matches(
            scores=scores,
            indices=indices,
            ids=look_up(self.ids, NOBODY),
            cams=look_up(self.cams, NOBODY),
            paths=look_up(self.paths, ""),
            known=found if self.threshold is None else scores >= np.float32(self.threshold),
        )

    def _check_model(self, model: str) -> None:
        if model != self.model:
            raise InputError(
                f"the gallery holds features of model {self.model}, these are of model {model}; index the images "
                "again with the new model, or search with cross_model=True if the two were made comparable"
            )

    def _check_width(self, vectors: np.ndarray) -> np.ndarray:
        if vectors.shape[1] != self.index.d:
            raise InputError(f"features have {vectors.shape[1]} numbers a row, the gallery's {self.index.d}")
        return vectors

    def _check_writable(self) -> None:
        if self.read_only:
            raise InputError("a memory-mapped gallery cannot be changed; load it with memory_map=False")


def _unit_vectors(features: Any, name: str) -> np.ndarray:
    """``(N, D)`` float32 rows of length 1; a zero vector stays zero."""
    return unit_rows(as_features(features, name, "cpu").float(), name).numpy()


def _check_labels(
    count: int, ids: Any, cams: Any, paths: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if len(paths) != count:
        raise InputError(f"gallery paths: expected {count}, one a feature row, got {len(paths)}")
    if len(set(paths)) != count:
        raise InputError("gallery paths: some name comes twice; give every image a name of its own")
    unknown = np.full(count, NOBODY)
    ids = unknown if ids is None else as_labels(ids, "gallery identities", count)
    cams = unknown if cams is None else as_labels(cams, "gallery cameras", count)
    return ids, cams, np.array([str(path) for path in paths], dtype=object)
