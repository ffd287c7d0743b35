"""Place of a gallery in Milvus: an alias ``NAME``, and a collection ``NAME_v1``, ``NAME_v2`` … for each model."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lreid.errors import ArgumentError, InputError
from lreid.gallery.milvus.client import Connection, connect
from lreid.gallery.milvus.milvus_store import MilvusStore
from lreid.gallery.store import SCHEME, About, Rows

ADDRESS = re.compile(r"(?P<uri>https?://[^/\s]+|.+?\.db)(?:/(?P<name>[^/]*))?")
DEFAULT = "gallery"  # default name of a gallery
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


@dataclass(frozen=True)
class MilvusPlace:
    """A :class:`lreid.gallery.store.Place` in Milvus.

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
        if not NAME.fullmatch(name):
            raise InputError(f"{text}: {name!r} is not a valid name for a gallery; use only letters, digits and _")
        return cls(match["uri"], name)

    def __str__(self) -> str:
        version = {0: "", 1: " (next version)", -1: " (previous version)"}.get(self.step, f" (version {self.step:+})")
        named = "" if self.name == DEFAULT else f"/{self.name}"
        return f"{SCHEME}{self.uri}{named}{version}"

    def exists(self) -> bool:
        """Whether a gallery of this name exists. The check does not create a database of Milvus Lite."""
        if self.uri.endswith(".db") and not Path(self.uri).exists():
            return False
        connection = connect(self.uri)
        if self.step == 0:
            return self._current(connection) is not None
        collection = self._collection(connection)
        return collection is not None and MilvusStore.exists(connection, collection)

    def load(self, memory_map: bool = False) -> MilvusStore:
        """Open the gallery to which the alias points, or its next or previous version."""
        if memory_map:
            raise ArgumentError("memory_map", f"is for files; {self} is in Milvus")
        if not self.exists():
            if Path(self.uri).exists() or not self.uri.endswith(".db"):
                left = MilvusStore.exists(connect(self.uri), f"{self.name}_v1") and self.step == 0
                if left:
                    raise InputError(f"{self}: is not complete; repeat the command that builds it")
            raise InputError(f"{self}: no such gallery; build one first")
        connection = connect(self.uri)
        collection = self._collection(connection)
        if collection is None:
            raise InputError(f"{self}: was deleted while it was opened; run this again")
        return MilvusStore.load(connection, self.name, collection, str(self), self.step == 0)

    def build(self, vectors: np.ndarray, labels: Rows, about: About) -> MilvusStore:
        """Create a gallery in a new collection, to which the alias points as soon as the gallery is complete."""
        if about.shards != 1:
            raise ArgumentError(
                "shards", f"is {about.shards}; it applies only to files, because Milvus distributes a gallery itself"
            )
        if self.exists():
            raise InputError(f"{self}: already exists")
        connection = connect(self.uri)
        collection = self._collection(connection) or f"{self.name}_v1"
        return MilvusStore.build(connection, self.name, collection, str(self), self.step == 0, vectors, labels, about)

    def bytes(self) -> None:
        """Return None, because the server does not report sizes."""

    def delete(self) -> None:
        """Delete the collections of this version."""
        connection = connect(self.uri)
        collection = self._collection(connection)
        if collection is not None:
            MilvusStore.drop(connection, self.name, collection)

    def others(self) -> list[MilvusPlace]:
        """All other versions, found by the version numbers in names of collections."""
        connection = connect(self.uri)
        current = self._current(connection)
        if current is None:
            return []
        versions = [re.fullmatch(rf"{self.name}_v(\d+)", each) for each in connection("list_collections")]
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

    def switch(self, current: MilvusStore) -> None:
        """Make the alias point to the next version, unless another process has changed the alias."""
        connection = connect(self.uri)
        if self._current(connection) != current.collection:
            raise InputError(f"{self}: another process has switched versions in the meantime; nothing was changed")
        self._point_to(connection, self.next()._collection(connection))

    def roll_back(self) -> None:
        """Make the alias point to the previous version."""
        if not self.previous().exists():
            raise InputError(f"{self}: has no previous version to go back to; check the name of the gallery")
        connection = connect(self.uri)
        self._point_to(connection, self.previous()._collection(connection))

    def _point_to(self, connection: Connection, collection: str | None) -> None:
        with connection.writing(self.name):
            connection("alter_alias", collection, self.name)

    def _current(self, connection: Connection) -> str | None:
        """Return the collection to which the alias points."""
        if not connection("has_collection", self.name):
            return None
        collection = connection("describe_alias", self.name)["collection_name"]
        if not re.fullmatch(rf"{self.name}_v\d+", collection):
            raise InputError(f"{self}: {collection} is not a gallery of lreid; choose another name")
        return collection

    def _collection(self, connection: Connection) -> str | None:
        """Return the name of this version's collection, which need not exist."""
        current = self._current(connection)
        if current is None:
            return None
        return f"{self.name}_v{_version(current) + self.step}"


def _version(collection: str) -> int:
    return int(collection.rpartition("_v")[2])
