"""Store the properties of a gallery in Milvus, as rows of text in a small second collection."""

import base64
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from lreid.errors import InputError
from lreid.gallery.milvus_client import REQUEST, TEXT, Connection, slices_of
from lreid.gallery.store import About, hash_of
from lreid.utils.reading import require_not_newer

META_FORMAT = 1
HEADER_KEY = 0  # key of the only row that changes; other rows are added, or deleted with their names
ROW = 60000  # maximum bytes per row, below TEXT


class Meta:
    """Read and write the properties of a gallery, see :class:`lreid.gallery.store.About`."""

    def __init__(self, connection: Connection, collection: str):
        self.connection = connection
        self.collection = f"{collection}_meta"
        self._stored_names: dict[str, set[int]] = {}

    def exists(self) -> bool:
        """Whether the gallery exists, complete or incomplete."""
        if not self.connection("has_collection", self.collection):
            return False
        self.connection("load_collection", self.collection)
        return bool(self.connection("get", self.collection, ids=[HEADER_KEY], consistency_level="Strong"))

    def create(self, about: About, width: int) -> None:
        """Create the collection of a gallery that is not complete yet."""
        self.connection.create(self.collection, ["text"], 2, ("FLAT", {}))
        self._write(
            {"extra": extra, "part": part, "data": data}
            for extra, array in about.extras.items()
            for part, data in enumerate(slices_of(_encoded(array), ROW))
        )
        self.write_header(About(about.model, about.kind, about.recall, whole=False), width)

    def write_header(self, about: About, width: int) -> None:
        """Replace the row that contains the threshold, and whether the gallery is complete."""
        header = {name: value for name, value in vars(about).items() if name not in ("names", "extras")}
        header |= {"recall": list(about.recall.items()), "width": width, "format": META_FORMAT}
        self._write([header], HEADER_KEY)

    def write_names(self, about: About) -> None:
        """Add new names and delete removed ones. Several processes may write names at the same time."""
        for what, names in about.names.items():
            stored = self._stored_names.setdefault(what, set())
            if removed := stored - names.keys():
                self._delete_names(what, removed)
            new = [(number, name) for number, name in names.items() if number not in stored]
            self._write({"names": what, "of": part} for part in _rows_of(new))
            self._stored_names[what] = set(names)

    def read(self, where: str) -> tuple[About, int]:
        """Return the properties of a gallery and the length of its features."""
        self.connection("load_collection", self.collection)
        header: dict[str, Any] = {}
        names: dict[str, dict[int, str]] = {}
        pieces: dict[str, dict[int, str]] = {}
        for row in self.connection.rows(self.collection, ["key", "text"]):
            value = json.loads(row["text"])
            if row["key"] == HEADER_KEY:
                header = value
            elif "names" in value:
                names.setdefault(value["names"], {}).update(value["of"])
            else:
                pieces.setdefault(value["extra"], {})[value["part"]] = value["data"]
        require_not_newer(where, header.get("format"), META_FORMAT, "a gallery of another version of lreid")
        if header.pop("format", None) != META_FORMAT:
            raise InputError(f"{where}: a gallery of another version of lreid; build it again")
        extras = {extra: _decoded("".join(parts[n] for n in sorted(parts))) for extra, parts in pieces.items()}
        self._stored_names = {what: set(numbers) for what, numbers in names.items()}
        width, recall = header.pop("width"), dict(header.pop("recall"))
        return About(**header, recall=recall, names=names, extras=extras), width

    def _delete_names(self, what: str, removed: set[int]) -> None:
        for row in list(self.connection.rows(self.collection, ["key", "text"])):
            value = json.loads(row["text"])
            if value.get("names") != what or removed.isdisjoint(number for number, _ in value["of"]):
                continue
            rest = [pair for pair in value["of"] if pair[0] not in removed]
            self._write([{"names": what, "of": rest}] if rest else [])  # write names first, so that a kill loses none
            self.connection("delete", self.collection, ids=[row["key"]])

    def _write(self, values: Iterable[dict[str, Any]], key: int | None = None) -> None:
        texts = [json.dumps(value) for value in values]
        rows = [{"key": hash_of(text) if key is None else key, "text": text, "vector": [0.0, 0.0]} for text in texts]
        for part in slices_of(rows, REQUEST // TEXT):
            self.connection("upsert", self.collection, part)


def _encoded(array: np.ndarray) -> str:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return base64.b64encode(file.getvalue()).decode()


def _decoded(text: str) -> np.ndarray:
    return np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)


def _rows_of(names: list[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """Divide names into parts that each fit into a row."""
    part: list[tuple[int, str]] = []
    size = 0
    for pair in names:
        length = len(json.dumps(pair)) + 2
        if part and size + length > ROW:
            yield part
            part, size = [], 0
        part.append(pair)
        size += length
    if part:
        yield part
