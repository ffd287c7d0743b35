"""Galleries in Milvus: a collection of rows, and a small collection of the properties of the gallery.

The key of a row is a hash of its path. Writing a row twice therefore has the same effect as writing it once, and
several processes may add rows. Filters contain only integers, because paths are found by their keys.

If a process is killed, the gallery is unchanged or contains some of the rows that the process was adding. Names are
written before rows that use them. A new gallery gets its alias last; without its alias, nobody can find it. The
threshold, and whether the gallery is complete, are in the same row, so that both are replaced in one step.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from lreid.errors import ArgumentError, InputError
from lreid.gallery.filters import EVERYTHING, Filter
from lreid.gallery.milvus.client import REQUEST, TEXT, Connection, parts_of
from lreid.gallery.milvus.meta import Meta
from lreid.gallery.store import About, Paths, Rows, hash_of, require_keys
from lreid.utils.identities import UNKNOWN

INDEXES = {"flat": ("FLAT", {}), "hnsw": ("HNSW", {"M": 32, "efConstruction": 64})}  # index type and parameters by kind
SEARCHES = {"flat": {}, "hnsw": {"ef": 128}}
LITE_FILTERED = 32768  # with a filter, Lite considers only the ``ef`` nearest images; servers search further
MOST = 16384  # maximum number of images that Milvus returns per query
FIELDS = {"identity": "ids", "camera": "cams", "time": "times", "path": "paths"}


class MilvusStore:
    """A :class:`lreid.gallery.store.Store` in Milvus.

    Args:
        collection: name of the collection with the rows; ``COLLECTION_meta`` contains the properties of the gallery.
        where: name of the gallery in error messages.
        in_use: whether this is the version in use, to which the alias points once the gallery is complete; False for
            the next and the previous version.
        about: properties of the gallery.
        width: length of a feature.
    """

    def __init__(
        self, connection: Connection, name: str, collection: str, where: str, in_use: bool, about: About, width: int
    ):
        self.connection = connection
        self.name = name
        self.collection = collection
        self.where = where
        self.in_use = in_use
        self.about = about
        self.width = width
        self.meta = Meta(connection, name, collection)
        self._has_written = False
        self._is_reserved = False  # True while this process builds the gallery

    # --- life --------------------------------------------------------------------------------------------------------

    @staticmethod
    def exists(connection: Connection, collection: str) -> bool:
        """Whether a gallery of this name exists, complete or incomplete."""
        return Meta(connection, "", collection).exists()

    @staticmethod
    def drop(connection: Connection, name: str, collection: str) -> None:
        """Delete the collections of a gallery."""
        with connection.writing(name):
            for each in (f"{collection}_meta", collection):
                connection("drop_collection", each)

    @classmethod
    def build(
        cls,
        connection: Connection,
        name: str,
        collection: str,
        where: str,
        in_use: bool,
        vectors: np.ndarray,
        labels: Rows,
        about: About,
    ) -> MilvusStore:
        """Create a gallery; first delete collections that a killed process may have left."""
        if about.kind not in INDEXES:
            raise ArgumentError("kind", f"is {about.kind!r}, which Milvus does not have; use {' or '.join(INDEXES)}")
        about.recall = {1: 1.0, 10: 1.0} if about.kind == "flat" else {}
        store = cls(connection, name, collection, where, in_use, about, vectors.shape[1])
        store._is_reserved = True
        store._require_reserved()
        try:
            cls.drop(connection, name, collection)
            connection.create(name, collection, list(FIELDS), store.width, INDEXES[about.kind])
            store.meta.create(about, store.width)
            store.add(vectors, labels)
        except BaseException:
            connection.release(collection)
            raise
        return store

    @classmethod
    def load(cls, connection: Connection, name: str, collection: str, where: str, in_use: bool) -> MilvusStore:
        """Open the gallery in a collection, and load the collection into memory for searches."""
        connection("load_collection", collection)
        meta = Meta(connection, name, collection)
        store = cls(connection, name, collection, where, in_use, *meta.read(where))
        store.meta = meta
        return store

    def save(self, path: Any = None) -> None:
        """Write the names and the header; if the gallery is complete, set the alias."""
        if path is not None:
            raise InputError(f"{self.where}: is in Milvus; lreid search migrate copies it to a file")
        self._require_reserved()
        self.meta.write_names(self.about)
        self.meta.write_header(self.about, self.width)
        if self.connection.lite and self._has_written:  # otherwise Lite scans new rows one by one in searches
            with self.connection.writing(self.name):
                self.connection("flush", self.collection)
        if not self._is_reserved:
            return
        if self.in_use and self.about.whole:
            with self.connection.writing(self.name):
                self.connection("create_alias", self.collection, self.name)  # only one of several processes succeeds
        if self.about.whole or not self.in_use:
            self.connection.release(self.collection)
            self._is_reserved = False

    def finish(self) -> None:
        """Mark the gallery as complete, and save it."""
        self.about.whole = True
        self.save()

    def close(self) -> None:
        """End the connection."""
        self.connection.close()

    # --- rows --------------------------------------------------------------------------------------------------------

    def add(self, vectors: np.ndarray, labels: Rows) -> None:
        """Write new names, then add or replace rows. The key of a row is a hash of its path."""
        self._require_current()
        self._require_reserved()
        keys, paths = _keys(labels.paths), [_encoded(path) for path in labels.paths]
        if len(set(keys.tolist())) < len(keys):  # has a probability of 2^-63 per pair of images
            raise InputError(f"{self.where}: two paths have the same key; rename one of these images")
        self.meta.write_names(self.about)  # before the rows that use the names
        longest = max(map(len, paths))
        if longest > TEXT:
            raise InputError(f"{self.where}: a path has {longest} bytes, more than {TEXT}; shorten it")
        columns = (keys, labels.ids, labels.cams, labels.times)
        rows = [
            {"key": key, "identity": identity, "camera": camera, "time": time, "path": path, "vector": vector}
            for key, identity, camera, time, path, vector in zip(
                *(column.tolist() for column in columns), paths, vectors, strict=True
            )
        ]
        step = max(1, REQUEST // (4 * self.width + longest + 64))
        for start in range(0, len(rows), step):
            self._require_reserved()
            with self.connection.writing(self.name):
                self.connection("upsert", self.collection, rows[start : start + step])
        self._has_written = True
        self._require_current()  # if the version has been switched, the current version may lack these rows

    def remove(self, keys: np.ndarray) -> None:
        """Delete rows, a few thousand per request."""
        self._require_current()
        for part in parts_of(keys.tolist(), 4096):
            with self.connection.writing(self.name):
                self.connection("delete", self.collection, ids=part)
        self._has_written = True
        self._require_current()

    def count(self, where: Filter) -> int:
        """Current number of images that a filter allows."""
        answer = self.connection(
            "query", self.collection, filter=expression(where), output_fields=["count(*)"], consistency_level="Strong"
        )
        return int(answer[0]["count(*)"])

    def keys_of(self, paths: Paths) -> np.ndarray:
        """Return the keys of paths, -1 for unknown paths."""
        keys = _keys(paths)
        stored: dict[int, str] = {}
        for part in parts_of(keys.tolist(), 4096):
            rows = self.connection(
                "get", self.collection, ids=part, output_fields=["key", "path"], consistency_level="Strong"
            )
            stored |= {row["key"]: row["path"] for row in rows}
        for key, path in zip(keys.tolist(), paths, strict=True):
            if stored.get(key, _encoded(path)) != _encoded(path):
                raise InputError(f"{path}: has the same key as {_decoded(stored[key])}; rename the image")
        return np.where(np.isin(keys, list(stored)), keys, -1)

    def labels(self) -> Rows:
        """Labels of all images, ordered by key."""
        rows = sorted(self.connection.rows(self.collection, ["key", *FIELDS]), key=lambda row: row["key"])
        return _labels([row["key"] for row in rows], rows, (len(rows),))

    def vectors(self, keys: np.ndarray) -> np.ndarray:
        """Download the features of images, in several requests because servers limit the size of a request."""
        by_key: dict[int, np.ndarray] = {}
        for part in parts_of(keys.tolist(), max(1, REQUEST // (4 * self.width))):
            rows = self.connection(
                "get", self.collection, ids=part, output_fields=["key", "vector"], consistency_level="Strong"
            )
            by_key |= {row["key"]: np.asarray(row["vector"], dtype=np.float32) for row in rows}
        require_keys(keys, np.array(list(by_key), dtype=np.int64))
        return np.array([by_key[key] for key in keys.tolist()], dtype=np.float32).reshape(-1, self.width)

    def nearest(self, vectors: np.ndarray, k: int, where: Filter) -> tuple[np.ndarray, Rows]:
        """Return the best images that a filter allows; the server searches for them."""
        if k > MOST:
            raise ArgumentError("k", f"is {k}; Milvus returns at most {MOST} images")
        parameters = {name: max(value, k) for name, value in SEARCHES[self.about.kind].items()}
        if "ef" in parameters and self.connection.lite and where != EVERYTHING:
            parameters["ef"] = LITE_FILTERED
        hits: list[list[dict[str, Any]]] = []
        for part in parts_of(vectors, max(1, min(256, 65536 // k))):
            hits += self.connection(
                "search",
                self.collection,
                data=part,
                filter=expression(where),
                limit=k,
                output_fields=list(FIELDS),
                anns_field="vector",
                search_params={"metric_type": "IP", "params": parameters},
                # A search may miss recent changes of other processes, but none of this process.
                consistency_level="Session" if self._has_written else "Bounded",
            )
        nothing = {"key": -1, "distance": -np.inf, "entity": {}}
        flat = [hit for row in hits for hit in [*row, *[nothing] * (k - len(row))]]
        shape = (len(vectors), k)
        scores = np.array([hit["distance"] for hit in flat], dtype=np.float32).reshape(shape)
        return scores, _labels([hit["key"] for hit in flat], [hit["entity"] for hit in flat], shape)

    def _require_reserved(self) -> None:
        if self._is_reserved:
            self.connection.reserve(self.name, self.collection, self)

    def _require_current(self) -> None:
        if self._is_reserved or not (self.in_use and self.about.whole):
            return
        now = self.connection("has_collection", self.name)
        now = now and self.connection("describe_alias", self.name)["collection_name"]
        if now and now != self.collection:
            raise InputError(f"{self.where}: was switched to a different version in the meantime; run this again")


def expression(where: Filter) -> str:
    """Convert a filter to an expression of Milvus that contains only field names and integers, no text of users."""
    parts = []
    for field, only, none in (
        ("camera", where.cameras, where.not_cameras),
        ("identity", where.identities, where.not_identities),
    ):
        if only is not None:
            parts.append(f"{field} in {[int(value) for value in only]}")
        if none:
            parts.append(f"{field} not in {[int(value) for value in none]}")
    if where.since is not None or where.until is not None:
        parts.append(f"time > {UNKNOWN}")
    if where.since is not None:
        parts.append(f"time >= {int(where.since)}")
    if where.until is not None:
        parts.append(f"time < {int(where.until)}")
    parts += [f"not (identity == {int(pid)} and camera == {int(cam)})" for pid, cam in where.not_both]
    return " and ".join(f"({part})" for part in parts) if where != EVERYTHING else ""


def _labels(keys: list[int], rows: list[dict[str, Any]], shape: tuple[int, ...]) -> Rows:
    numbers = {
        name: np.array([row.get(field, UNKNOWN) for row in rows], dtype=np.int64).reshape(shape)
        for field, name in FIELDS.items()
        if name != "paths"
    }
    paths = np.empty(len(rows), dtype=object)
    paths[:] = [_decoded(row["path"]) if row else "" for row in rows]
    return Rows(np.array(keys, dtype=np.int64).reshape(shape), **numbers, paths=paths.reshape(shape))


def _keys(paths: Iterable[str]) -> np.ndarray:
    return np.array([hash_of(_encoded(path)) for path in paths], dtype=np.int64)


def _encoded(path: str) -> str:
    """Encode a file name, which may contain bytes that are not UTF-8, as text for Milvus."""
    return json.dumps(str(path))[1:-1]


def _decoded(text: str) -> str:
    return json.loads(f'"{text}"')
