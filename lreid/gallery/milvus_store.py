"""Galleries in Milvus: an alias ``NAME``, and a collection ``NAME_v1``, ``NAME_v2`` … for each model.

The key of a row is a hash of its path. Writing a row twice therefore has the same effect as writing it once. Filters
contain only integers, because paths are found by their keys.

If a process is killed, the gallery is unchanged or contains some of the rows that the process was adding. Names are
written before rows that use them. A new gallery gets its alias last; without its alias, nobody can find it. The
threshold, and whether the gallery is complete, are in the same row, so that both are replaced in one step.
"""

from __future__ import annotations

import json
import re
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lreid.errors import ArgumentError, InputError
from lreid.gallery.change import Change
from lreid.gallery.milvus_client import REQUEST, TEXT, Connection, connect, slices_of
from lreid.gallery.milvus_meta import Meta
from lreid.gallery.store import EVERYTHING, SCHEME, About, Filter, GalleryRows, Paths, hash_of, require_keys
from lreid.utils.identities import UNKNOWN

ADDRESS = re.compile(r"(?P<uri>https?://[^/\s]+|.+?\.db)(?:/(?P<name>[^/]*))?")
DEFAULT = "gallery"  # default name of a gallery
VALID_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
INDEXES = {"flat": ("FLAT", {}), "hnsw": ("HNSW", {"M": 32, "efConstruction": 64})}  # index type and parameters by kind
SEARCHES = {"flat": {}, "hnsw": {"ef": 128}}
LITE_FILTERED = 32768  # with a filter, Lite considers only the ``ef`` nearest images; servers search further
MOST_RESULTS = 16384  # maximum number of images that Milvus returns per query
FIELDS = {"identity": "ids", "camera": "cams", "time": "times", "path": "paths"}


class MilvusStore:
    """Storage engine in Milvus, with the methods of :class:`lreid.gallery.faiss_store.FaissStore`.

    Args:
        place: place of the gallery.
        collection: name of the collection with the rows; ``COLLECTION_meta`` contains the properties of the gallery.
        about: properties of the gallery; None reads them.
        width: length of a feature.
    """

    def __init__(self, place: MilvusPlace, collection: str, about: About | None = None, width: int = 0):
        self.place = place
        self.connection = connect(place.uri)
        self.collection = collection
        self.meta = Meta(self.connection, collection)
        self.about, self.width = (about, width) if about else self.meta.read(str(place))
        self.change: Change | None = None  # stays None, because changes in Milvus cannot be undone
        self.uploads: dict[str, bytes] = {}
        self._has_written = False
        self._unmark: Callable[[], Any] | None = None  # while this process builds the gallery, deletes its marker

    @classmethod
    def build(
        cls, place: MilvusPlace, collection: str, vectors: np.ndarray, labels: GalleryRows, about: About
    ) -> MilvusStore:
        """Create a gallery; first delete collections that a killed process may have left."""
        if about.kind not in INDEXES:
            raise ArgumentError("kind", f"is {about.kind!r}, which Milvus does not have; use {' or '.join(INDEXES)}")
        about.recall = {1: 1.0, 10: 1.0} if about.kind == "flat" else {}
        store = cls(place, collection, about, vectors.shape[1])
        store.connection.mark(place.name)
        store._unmark = weakref.finalize(store, store.connection.unmark, place.name)  # also when this process ends
        try:
            _drop(store.connection, collection)
            store.connection.create(collection, list(FIELDS), store.width, INDEXES[about.kind])
            store.meta.create(about, store.width)
            store.add(vectors, labels)
        except BaseException:
            store._unmark()
            raise
        return store

    def save(self, path: Any = None, undoable: bool = False) -> None:
        """Write the names and the header; if the gallery is complete, set the alias."""
        if path is not None:
            raise InputError(f"{self.place}: is in Milvus; lreid search migrate copies it to a file")
        with self._writing():
            self.meta.write_names(self.about)
            self.meta.write_header(self.about, self.width)
            if self.connection.lite and self._has_written:  # otherwise Lite scans new rows one by one in searches
                self.connection("flush", self.collection)
            if self._unmark and self.about.whole and not self.place.step:
                self.connection("create_alias", self.collection, self.place.name)
        if self._unmark and (self.about.whole or self.place.step):
            self._unmark()
            self._unmark = None

    def finish(self) -> None:
        """Mark the gallery as complete, and save it."""
        self.about.whole = True
        self.save()

    def close(self) -> None:
        """End the connection."""
        if self._unmark:
            self._unmark()
        self.connection.close()

    def add(self, vectors: np.ndarray, labels: GalleryRows) -> None:
        """Write new names, then add or replace rows. The key of a row is a hash of its path."""
        keys, paths = _keys(labels.paths), [_encoded(path) for path in labels.paths]
        longest = max(map(len, paths))
        if longest > TEXT:
            raise InputError(f"{self.place}: a path has {longest} bytes, more than {TEXT}; shorten it")
        columns = (column.tolist() for column in (keys, labels.ids, labels.cams, labels.times))
        names = ("key", *FIELDS, "vector")
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, paths, vectors, strict=True)]
        with self._writing():
            self.meta.write_names(self.about)  # before the rows that use the names
            for part in slices_of(rows, max(1, REQUEST // (4 * self.width + longest + 64))):
                self.connection("upsert", self.collection, part)
        self._has_written = True

    def remove(self, keys: np.ndarray) -> None:
        """Delete rows, a few thousand per request."""
        with self._writing():
            for part in slices_of(keys.tolist(), 4096):
                self.connection("delete", self.collection, ids=part)
        self._has_written = True

    def relabel(self, rows: GalleryRows, identity: int) -> None:
        """Give rows of this store another identity by writing them again, under the same keys."""
        self.add(self.vectors(rows.keys), replace(rows, ids=np.full(len(rows), identity)))

    def count(self, where: Filter) -> int:
        """Current number of images that a filter allows."""
        answer = self.connection(
            "query", self.collection, filter=expression(where), output_fields=["count(*)"], consistency_level="Strong"
        )
        return int(answer[0]["count(*)"])

    def keys_of(self, paths: Paths) -> np.ndarray:
        """Return the keys of paths, -1 for unknown paths."""
        keys = _keys(paths)
        stored = [row["key"] for row in self._rows_of(keys, ["key"], 4096)]
        return np.where(np.isin(keys, stored), keys, -1)

    def _rows_of(self, keys: np.ndarray, fields: list[str], most: int) -> Iterator[dict[str, Any]]:
        """Get the existing rows of keys, at most ``most`` per request because servers limit its size."""
        for part in slices_of(keys.tolist(), most):
            yield from self.connection(
                "get", self.collection, ids=part, output_fields=fields, consistency_level="Strong"
            )

    def labels(self) -> GalleryRows:
        """Labels of all images, ordered by key."""
        rows = sorted(self.connection.rows(self.collection, ["key", *FIELDS]), key=lambda row: row["key"])
        return _labels([row["key"] for row in rows], rows, (len(rows),))

    def vectors(self, keys: np.ndarray) -> np.ndarray:
        """Download the features of images."""
        rows = self._rows_of(keys, ["key", "vector"], max(1, REQUEST // (4 * self.width)))
        by_key = {row["key"]: np.asarray(row["vector"], dtype=np.float32) for row in rows}
        require_keys(keys, np.array(list(by_key), dtype=np.int64))
        return np.array([by_key[key] for key in keys.tolist()], dtype=np.float32).reshape(-1, self.width)

    def nearest(self, vectors: np.ndarray, k: int, where: Filter) -> tuple[np.ndarray, GalleryRows]:
        """Return the best images that a filter allows; the server searches for them."""
        if k > MOST_RESULTS:
            raise ArgumentError("k", f"is {k}; Milvus returns at most {MOST_RESULTS} images")
        parameters = {name: max(value, k) for name, value in SEARCHES[self.about.kind].items()}
        if "ef" in parameters and self.connection.lite and where != EVERYTHING:
            parameters["ef"] = LITE_FILTERED
        hits: list[list[dict[str, Any]]] = []
        for part in slices_of(vectors, max(1, min(256, 65536 // k))):
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

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Refuse a second writer, and a gallery that was switched to another version before or during the change."""
        self._require_current()
        if self._unmark:
            yield
        else:
            with self.connection.writing(self.place.name):
                yield
        self._require_current()  # if the version has been switched, the current version may lack these rows

    def _require_current(self) -> None:
        if not (self._unmark or self.place.step) and self.place.current() not in (None, self.collection):
            raise InputError(f"{self.place}: was switched to a different version in the meantime; run this again")


@dataclass(frozen=True)
class MilvusPlace:
    """Place of a gallery in Milvus.

    Attributes:
        step: 0 for the version to which the alias points, 1 for the next, -1 for the previous version.
    """

    uri: str
    name: str
    step: int = 0

    @classmethod
    def parse(cls, text: str) -> MilvusPlace:
        """Parse an address such as ``milvus:people.db`` or ``milvus:http://host:19530/people``.

        Raises:
            InputError: the address is invalid.
        """
        match = ADDRESS.fullmatch(text.removeprefix(SCHEME))
        if match is None:
            raise InputError(f"{text}: is not an address; write milvus:FILE.db or milvus:http://host:port/NAME")
        name = match["name"] or DEFAULT
        if not VALID_NAME.fullmatch(name):
            raise InputError(f"{text}: {name!r} is not a valid name for a gallery; use only letters, digits and _")
        return cls(match["uri"], name)

    def __str__(self) -> str:
        version = {0: "", 1: " (next version)", -1: " (previous version)"}.get(self.step, f" (version {self.step:+})")
        named = "" if self.name == DEFAULT else f"/{self.name}"
        return f"{SCHEME}{self.uri}{named}{version}"

    @property
    def connection(self) -> Connection:
        """Connection of this process to the database."""
        return connect(self.uri)

    def current(self) -> str | None:
        """Return the collection to which the alias points, or None if there is no gallery of this name."""
        if not self.connection("has_collection", self.name):
            return None
        collection = self.connection("describe_alias", self.name)["collection_name"]
        if not re.fullmatch(rf"{self.name}_v\d+", collection):
            raise InputError(f"{self}: {collection} is not a gallery of lreid; choose another name")
        return collection

    def collection(self) -> str | None:
        """Return the name of this version's collection, which need not exist; None if there is no gallery."""
        current = self.current()
        return None if current is None else f"{self.name}_v{_version(current) + self.step}"

    def exists(self) -> bool:
        """Whether a gallery of this name exists. The check does not create a database of Milvus Lite."""
        if self.uri.endswith(".db") and not Path(self.uri).exists():
            return False
        collection = self.collection()
        return collection is not None and (self.step == 0 or Meta(self.connection, collection).exists())

    def load(self, memory_map: bool = False) -> MilvusStore:
        """Open the gallery to which the alias points, or its next or previous version."""
        if memory_map:
            raise ArgumentError("memory_map", f"is for files; {self} is in Milvus")
        collection = self.collection() if self.exists() else None
        if collection is None:
            raise InputError(f"{self}: no such gallery, or it is not complete; repeat the command that builds it")
        self.connection("load_collection", collection)
        return MilvusStore(self, collection)

    def build(self, vectors: np.ndarray, labels: GalleryRows, about: About) -> MilvusStore:
        """Create a gallery in a new collection, to which the alias points as soon as the gallery is complete."""
        if about.shards != 1:
            raise ArgumentError("shards", f"is {about.shards}; Milvus distributes a gallery itself")
        if self.exists():
            raise InputError(f"{self}: already exists")
        return MilvusStore.build(self, self.collection() or f"{self.name}_v1", vectors, labels, about)

    def delete(self) -> None:
        """Delete the collections of this version."""
        if collection := self.collection():
            with self.connection.writing(self.name):
                _drop(self.connection, collection)

    def others(self) -> list[MilvusPlace]:
        """All other versions, found by the version numbers in names of collections."""
        current = self.current()
        if current is None:
            return []
        versions = [re.fullmatch(rf"{self.name}_v(\d+)", each) for each in self.connection("list_collections")]
        steps = sorted(int(match[1]) - _version(current) for match in versions if match)
        places = [replace(self, step=step) for step in steps if step != self.step]
        return [each for each in places if each.exists()]

    def beside(self) -> list[str]:
        """Only the other versions of the gallery, because Milvus leaves no unfinished files."""
        return [str(each) for each in self.others()]

    def next(self) -> MilvusPlace:
        """The version that is being built."""
        return replace(self, step=self.step + 1)

    def previous(self) -> MilvusPlace:
        """The version before this version."""
        return replace(self, step=self.step - 1)

    def switch(self, current: Any) -> None:
        """Make the alias point to the next version, unless another process has changed the alias."""
        if self.current() != current.collection:
            raise InputError(f"{self}: another process has switched versions in the meantime; nothing was changed")
        self._point_to(self.next())

    def roll_back(self) -> None:
        """Make the alias point to the previous version."""
        self._point_to(self.previous())

    def _point_to(self, version: MilvusPlace) -> None:
        with self.connection.writing(self.name):
            self.connection("alter_alias", version.collection(), self.name)


def _version(collection: str) -> int:
    return int(collection.rpartition("_v")[2])


def _drop(connection: Connection, collection: str) -> None:
    for each in (f"{collection}_meta", collection):
        connection("drop_collection", each)


def expression(where: Filter) -> str:
    """Convert a filter to an expression of Milvus that contains only field names and integers, no text of users."""
    parts = [f"{field} {comparison} {value}" for field, comparison, value in where.conditions()]
    parts += [f"not (identity == {int(pid)} and camera == {int(cam)})" for pid, cam in where.not_both]
    return " and ".join(f"({part})" for part in parts)


def _labels(keys: list[int], rows: list[dict[str, Any]], shape: tuple[int, ...]) -> GalleryRows:
    numbers = {
        name: np.array([row.get(field, UNKNOWN) for row in rows], dtype=np.int64).reshape(shape)
        for field, name in FIELDS.items()
        if name != "paths"
    }
    paths = np.empty(len(rows), dtype=object)
    paths[:] = [_decoded(row["path"]) if row else "" for row in rows]
    return GalleryRows(np.array(keys, dtype=np.int64).reshape(shape), **numbers, paths=paths.reshape(shape))


def _keys(paths: Iterable[str]) -> np.ndarray:
    return np.array([hash_of(_encoded(path)) for path in paths], dtype=np.int64)


def _encoded(path: str) -> str:
    """Encode a file name, which may contain bytes that are not UTF-8, as text for Milvus."""
    return json.dumps(str(path))[1:-1]


def _decoded(text: str) -> str:
    return json.loads(f'"{text}"')
