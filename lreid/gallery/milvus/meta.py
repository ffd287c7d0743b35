"""Store the properties of a gallery in Milvus, as rows of text in a small second collection."""

import base64
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from lreid.errors import InputError
from lreid.gallery.milvus.client import REQUEST, TEXT, Connection, parts_of
from lreid.gallery.store import About, hash_of
from lreid.utils.reading import require_not_newer

FORMAT = 1
HEADER = 0  # key of the only row that changes; other rows are added, or deleted with their names
LONGEST = 60000  # maximum bytes per row, below TEXT


class Meta:
    """Read and write the properties of a gallery, see :class:`lreid.gallery.store.About`."""

    def __init__(self, connection: Connection, name: str, collection: str):
        self.connection = connection
        self.name = name
        self.collection = f"{collection}_meta"
        self._stored_names: dict[str, set[int]] = {}

    def exists(self) -> bool:
        """Whether the gallery exists, complete or incomplete."""
        if not self.connection("has_collection", self.collection):
            return False
        self.connection("load_collection", self.collection)
        return bool(self.connection("get", self.collection, ids=[HEADER], consistency_level="Strong"))

    def create(self, about: About, width: int) -> None:
        """Create the collection of a gallery that is not complete yet."""
        self.connection.create(self.name, self.collection, ["text"], 2, ("FLAT", {}))
        self._write(
            {"extra": extra, "part": part, "data": data}
            for extra, array in about.extras.items()
            for part, data in enumerate(parts_of(_encoded(array), LONGEST))
        )
        self.write_header(About(about.model, about.kind, about.recall, whole=False), width)

    def write_header(self, about: About, width: int) -> None:
        """Replace the row that contains the threshold, and whether the gallery is complete."""
        header = {name: value for name, value in vars(about).items() if name not in ("names", "extras")}
        header |= {"recall": list(about.recall.items()), "width": width, "format": FORMAT}
        self._write([header], HEADER)

    def write_names(self, about: About) -> None:
        """Add new names and delete removed ones. Several processes may write names at the same time."""
        for what, names in about.names.items():
            stored = self._stored_names.setdefault(what, set())
            if removed := stored - names.keys():
                self._delete_names(what, removed)
                stored -= removed
            new = [(number, name) for number, name in names.items() if number not in stored]
            self._write({"names": what, "of": part} for part in _short_parts(new))
            stored.update(number for number, _ in new)

    def read(self, where: str) -> tuple[About, int]:
        """Return the properties of a gallery and the length of its features.

        Raises:
            InputError: another version of lreid made the gallery.
        """
        self.connection("load_collection", self.collection)
        header: dict[str, Any] = {}
        names: dict[str, dict[int, str]] = {}
        pieces: dict[str, dict[int, str]] = {}
        for row in self.connection.rows(self.collection, ["key", "text"]):
            value = json.loads(row["text"])
            if row["key"] == HEADER:
                header = value
            elif "names" in value:
                names.setdefault(value["names"], {}).update(value["of"])
            else:
                pieces.setdefault(value["extra"], {})[value["part"]] = value["data"]
        require_not_newer(where, header.get("format"), FORMAT, "a gallery of another version of lreid")
        if header.pop("format", None) != FORMAT:
            raise InputError(f"{where}: a gallery of another version of lreid; build it again")
        extras = {extra: _decoded("".join(parts[n] for n in sorted(parts))) for extra, parts in pieces.items()}
        self._stored_names = {what: set(numbers) for what, numbers in names.items()}
        width, recall = header.pop("width"), dict(header.pop("recall"))
        return About(**header, recall=recall, names=names, extras=extras), width

    def _delete_names(self, what: str, gone: set[int]) -> None:
        for row in list(self.connection.rows(self.collection, ["key", "text"])):
            value = json.loads(row["text"])
            if value.get("names") != what or gone.isdisjoint(number for number, _ in value["of"]):
                continue
            rest = [pair for pair in value["of"] if pair[0] not in gone]
            self._write([{"names": what, "of": rest}] if rest else [])  # write names first, so that a kill loses none
            with self.connection.writing(self.name):
                self.connection("delete", self.collection, ids=[row["key"]])

    def _write(self, values: Iterable[dict[str, Any]], key: int | None = None) -> None:
        texts = [json.dumps(value) for value in values]
        rows = [{"key": hash_of(text) if key is None else key, "text": text, "vector": [0.0, 0.0]} for text in texts]
        for part in parts_of(rows, REQUEST // TEXT):
            with self.connection.writing(self.name):
                self.connection("upsert", self.collection, part)


def _encoded(array: np.ndarray) -> str:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return base64.b64encode(file.getvalue()).decode()


def _decoded(text: str) -> np.ndarray:
    return np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)


def _short_parts(names: list[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """Divide names into parts that each fit into a row."""
    part: list[tuple[int, str]] = []
    size = 0
    for number, name in names:
        length = len(json.dumps([number, name])) + 2
        if part and size + length > LONGEST:
            yield part
            part, size = [], 0
        part.append((number, name))
        size += length
    if part:
        yield part
