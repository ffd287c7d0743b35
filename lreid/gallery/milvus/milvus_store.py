"""Galleries in Milvus: a collection of rows, and a small one next to it with the facts about the whole gallery.

A row's key is a hash of its path, so writing it twice is the same as writing it once, and several processes may add.
Nothing but integers gets into a filter: paths are looked up by key.

Killed at any point, a gallery is as it was or has some more of the rows that were being added: names are written before
the rows that speak of them; a new gallery gets its alias, without which it is not found, last of all; threshold and
state are one row, replaced at once.
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
from lreid.identities import UNKNOWN

INDEXES = {"flat": ("FLAT", {}), "hnsw": ("HNSW", {"M": 32, "efConstruction": 64})}  # and how they are built
SEARCHES = {"flat": {}, "hnsw": {"ef": 128}}
LITE_FILTERED = 32768  # Lite's graph stops at the ``ef`` nearest images, allowed or not, where a server looks further
MOST = 16384  # images that Milvus finds for a query
FIELDS = {"identity": "ids", "camera": "cams", "time": "times", "path": "paths"}


class MilvusStore:
    """See :class:`lreid.gallery.store.Store`.

    Args:
        connection: to the database.
        name: alias under which the gallery is found.
        collection: its rows; what is known of it as a whole is in ``COLLECTION_meta``.
        where: how messages call the gallery.
        in_use: the alias points here, or will when it is complete; False for another version.
        about, width: description of the gallery, and width of its features.
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
        self._is_reserved = False  # while it is built

    # --- life --------------------------------------------------------------------------------------------------------

    @staticmethod
    def exists(connection: Connection, collection: str) -> bool:
        """Whether a gallery was begun under this name."""
        return Meta(connection, "", collection).exists()

    @staticmethod
    def drop(connection: Connection, name: str, collection: str) -> None:
        """Deletes the collections of a gallery."""
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
        """A new gallery in place of what a killed process may have left there."""
        if about.kind not in INDEXES:
            raise ArgumentError("kind", f"is {about.kind!r}, which is not for Milvus; use {' or '.join(INDEXES)}")
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
        """The gallery in a collection, which is loaded for searching."""
        connection("load_collection", collection)
        meta = Meta(connection, name, collection)
        store = cls(connection, name, collection, where, in_use, *meta.read(where))
        store.meta = meta
        return store

    def save(self, path: Any = None) -> None:
        """Writes names and header, and lets the alias point here once the gallery is whole."""
        if path is not None:
            raise InputError(f"{self.where}: is in Milvus; lreid search migrate makes a file of it")
        self._require_reserved()
        self.meta.write_names(self.about)
        self.meta.write_header(self.about, self.width)
        if self.connection.lite and self._has_written:  # which scans rows that are not in segments yet one by one
            with self.connection.writing(self.name):
                self.connection("flush", self.collection)
        if not self._is_reserved:
            return
        if self.in_use and self.about.whole:
            with self.connection.writing(self.name):
                self.connection("create_alias", self.collection, self.name)  # of several only one can do that
        if self.about.whole or not self.in_use:
            self.connection.release(self.collection)
            self._is_reserved = False

    def finish(self) -> None:
        """Marks the gallery as whole, and saves it."""
        self.about.whole = True
        self.save()

    def close(self) -> None:
        """Ends the connection."""
        self.connection.close()

    # --- rows --------------------------------------------------------------------------------------------------------

    def add(self, vectors: np.ndarray, labels: Rows) -> None:
        """Upserts rows under keys that are hashes of their paths; names go first."""
        self._require_current()
        self._require_reserved()
        keys, paths = _keys(labels.paths), [_encoded(path) for path in labels.paths]
        if len(set(keys.tolist())) < len(keys):  # one in 2^63 for each pair
            raise InputError(f"{self.where}: two paths have one key; rename one of these images")
        self.meta.write_names(self.about)  # before the rows that speak of them
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
        self._require_current()  # else they may be missing in the version that is in use now

    def remove(self, keys: np.ndarray) -> None:
        """Deletes rows, some thousand a request."""
        self._require_current()
        for part in parts_of(keys.tolist(), 4096):
            with self.connection.writing(self.name):
                self.connection("delete", self.collection, ids=part)
        self._has_written = True
        self._require_current()

    def count(self, where: Filter) -> int:
        """The number of images that a filter allows, as of now."""
        answer = self.connection(
            "query", self.collection, filter=expression(where), output_fields=["count(*)"], consistency_level="Strong"
        )
        return int(answer[0]["count(*)"])

    def keys_of(self, paths: Paths) -> np.ndarray:
        """Keys of paths, -1 where there is none."""
        keys = _keys(paths)
        there: dict[int, str] = {}
        for part in parts_of(keys.tolist(), 4096):
            rows = self.connection(
                "get", self.collection, ids=part, output_fields=["key", "path"], consistency_level="Strong"
            )
            there |= {row["key"]: row["path"] for row in rows}
        for key, path in zip(keys.tolist(), paths, strict=True):
            if there.get(key, _encoded(path)) != _encoded(path):
                raise InputError(f"{path}: has the key of {_decoded(there[key])}; rename the image")
        return np.where(np.isin(keys, list(there)), keys, -1)

    def labels(self) -> Rows:
        """Labels of all images, by ascending keys."""
        rows = sorted(self.connection.rows(self.collection, ["key", *FIELDS]), key=lambda row: row["key"])
        return _labels([row["key"] for row in rows], rows, (len(rows),))

    def vectors(self, keys: np.ndarray) -> np.ndarray:
        """Features of images, in requests of a size that a server takes."""
        by_key: dict[int, np.ndarray] = {}
        for part in parts_of(keys.tolist(), max(1, REQUEST // (4 * self.width))):
            rows = self.connection(
                "get", self.collection, ids=part, output_fields=["key", "vector"], consistency_level="Strong"
            )
            by_key |= {row["key"]: np.asarray(row["vector"], dtype=np.float32) for row in rows}
        require_keys(keys, np.array(list(by_key), dtype=np.int64))
        return np.array([by_key[key] for key in keys.tolist()], dtype=np.float32).reshape(-1, self.width)

    def nearest(self, vectors: np.ndarray, k: int, where: Filter) -> tuple[np.ndarray, Rows]:
        """The best images that a filter allows, found by the server."""
        if k > MOST:
            raise ArgumentError("k", f"is {k}; Milvus finds {MOST} images at most")
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
                # A search may be some seconds behind others, but not behind this process.
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
            raise InputError(f"{self.where}: was switched to another version in the meantime; run this again")


def expression(where: Filter) -> str:
    """A filter in Milvus's language. It holds names of fields and integers, nothing that anybody typed."""
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
    """A file name may hold bytes that are no text; Milvus keeps text only."""
    return json.dumps(str(path))[1:-1]


def _decoded(text: str) -> str:
    return json.loads(f'"{text}"')
