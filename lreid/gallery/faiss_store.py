"""Galleries in this process: a faiss index and labels, in memory and in one file on disk."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np

from lreid.errors import ArgumentError, InputError, NotConfirmed
from lreid.gallery.change import Change
from lreid.gallery.gallery_file import (
    LABEL_COLUMNS,
    Stamp,
    read_gallery,
    require_gallery,
    stamp,
    unchanged,
    write_gallery,
)
from lreid.gallery.shards import Shards
from lreid.gallery.store import EVERYTHING, About, Filter, GalleryRows, Paths, require_keys
from lreid.utils.files import (
    hard_link,
    leftovers,
    make_folder,
    only_one_process,
    real_path,
    remove_leftovers,
    require_replaceable,
    sync_folder,
    write_atomically,
)
from lreid.utils.identities import UNKNOWN
from lreid.utils.reading import read_bytes

EXACT = {1: 1.0, 10: 1.0}  # recall of an exact index, by k
UPLOAD = re.compile(r"[0-9a-f]{32}\.[a-z0-9]+")  # names of uploaded images


@dataclass
class FaissStore:
    """Storage engine in the memory of this process. :class:`lreid.Gallery` checks all arguments before it calls it.

    Attributes:
        next_key: key that the next added image will get.
        path: path of the gallery's file, or None if it has no file yet.
        seen: result of ``gallery_file.stamp`` when the file was last read or written; None if there was no file.
        read_only: whether the file is memory-mapped, in which case images cannot be added or removed.
        change: the last change, or None if it cannot be undone.
        uploads: contents of images by file name, which :meth:`save` stores before the file that lists them.
    """

    index: Shards
    everything: GalleryRows
    about: About
    next_key: int
    path: Path | None = None
    seen: Stamp | None = None
    read_only: bool = False
    change: Change | None = None
    uploads: dict[str, bytes] = field(default_factory=dict)
    _by_path: dict[str, int] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Length D of a feature."""
        return self.index.width

    def count(self, where: Filter) -> int:
        """Number of images that a filter allows."""
        return int(self._allows(where).sum())

    @classmethod
    def build(cls, vectors: np.ndarray, labels: GalleryRows, about: About) -> FaissStore:
        """Create a store of ``(N, D)`` rows; with ``about.whole=False``, the index is ``flat`` until :meth:`finish`."""
        index = Shards.build(about.kind if about.whole else "flat", vectors, about.shards)
        labels = replace(labels, keys=np.arange(len(vectors)))
        if about.whole:
            about.recall = dict(EXACT) if about.kind == "flat" else index.recall(vectors)
        return cls(index, labels, about, len(vectors))

    def add(self, vectors: np.ndarray, labels: GalleryRows) -> None:
        """Add rows ``(N, D)`` float32 of unit length under the next free keys."""
        self._check_writable()
        keys = self.next_key + np.arange(len(vectors))
        self.index.add(vectors, keys)
        self.next_key += len(vectors)
        columns = zip(vars(self.everything).values(), vars(replace(labels, keys=keys)).values(), strict=True)
        self.everything = GalleryRows(*(np.concatenate(pair) for pair in columns))
        if self._by_path:
            self._by_path.update(zip(labels.paths, keys.tolist(), strict=True))

    def remove(self, keys: np.ndarray) -> None:
        """Delete rows; their keys are not reused."""
        self._check_writable()
        self.index.remove(keys)
        self.everything = self.everything[~np.isin(self.everything.keys, keys)]
        self._by_path = {}

    def relabel(self, rows: GalleryRows, identity: int) -> None:
        """Give rows of this store another identity."""
        self._check_writable()
        renamed = np.isin(self.everything.keys, rows.keys)
        self.everything = replace(self.everything, ids=np.where(renamed, identity, self.everything.ids))

    def keys_of(self, paths: Paths) -> np.ndarray:
        """Return the keys of paths, -1 for unknown paths; the first call builds a table of all paths."""
        if not self._by_path:
            self._by_path = dict(zip(self.everything.paths, self.everything.keys.tolist(), strict=True))
        return np.array([self._by_path.get(path, -1) for path in paths], dtype=np.int64)

    def labels(self) -> GalleryRows:
        """Labels of all images, ordered by key."""
        return self.everything

    def vectors(self, keys: np.ndarray) -> np.ndarray:
        """Return the features of images, in the precision of the index."""
        require_keys(keys, self.everything.keys)  # for a missing key, faiss would return the vector of another image
        return self.index.vectors(keys)

    def nearest(self, vectors: np.ndarray, k: int, where: Filter) -> tuple[np.ndarray, GalleryRows]:
        """Return the best images that a filter allows, for queries ``(Q, D)`` float32 of unit length.

        Returns:
            Cosine similarities ``(Q, k)``, best first, and labels of the same shape; missing results have numbers -1
            and paths "". The kind of index determines whether the search is exact.
        """
        if where == EVERYTHING:
            scores, keys = self.index.search(vectors, k)
        else:
            allowed = np.zeros(self.next_key, dtype=bool)
            allowed[self.everything.keys[self._allows(where)]] = True
            scores, keys = self.index.search(vectors, k, allowed)
        valid = keys >= 0
        rows = np.searchsorted(self.everything.keys, keys[valid])
        columns = []
        for column in list(vars(self.everything).values())[1:]:
            values = np.full(keys.shape, "" if column.dtype == object else UNKNOWN, dtype=column.dtype)
            values[valid] = column[rows]
            columns.append(values)
        return scores, GalleryRows(keys, *columns)

    def finish(self) -> None:
        """Train the requested kind of index on all rows, and save it."""
        about = replace(self.about, whole=True)  # the store stays unfinished if there are too few rows for the kind
        if about.kind == "flat":
            about.recall = dict(EXACT)
        elif self.index.kind != about.kind:
            keys = self.everything.keys
            full = FaissStore.build(self.vectors(keys), self.everything, about)
            self.index, self.everything = full.index, full.everything
            self.next_key, self._by_path = len(keys), {}
        self.about = about
        self.save()

    def save(self, path: str | Path | None = None, undoable: bool = False) -> None:
        """Write the file; it replaces an existing file only when the new file is complete.

        Once this method has returned, a power cut does not undo the change.

        Raises:
            NotConfirmed: the file was written, but the disk did not confirm it.
            InputError: the file cannot be written, or another process has created or changed it since it was read.
        """
        if path is None and self.path is None:
            raise ArgumentError("path", "is missing; a gallery that was built in memory needs a path to be saved")
        path = real_path(path or self.path or "")
        header = vars(self.about) | {
            "next_key": self.next_key,
            "recall": list(self.about.recall.items()),
            "names": {what: list(names.items()) for what, names in self.about.names.items()},
            "paths": self.everything.paths.tolist(),
        }
        del header["extras"]
        arrays = {name: getattr(self.everything, name) for name in LABEL_COLUMNS}
        extras = {f"extra_{name}": array for name, array in self.about.extras.items()}
        if self.change and undoable:
            extras |= self.change.to_arrays()
        seen, new = (self.seen, self.seen is None) if path == self.path else (None, False)
        with FilePlace(path).storing(self.uploads):
            self.seen = write_gallery(path, self.index.parts, header, arrays | extras, seen, new=new, read_back=True)
        self.path, self.uploads = path, {}
        sync_folder(path.parent, path)  # last, so that after an error a second attempt knows the new file

    @classmethod
    def load(cls, path: Path, memory_map: bool) -> FaissStore:
        """Read the file that :meth:`save` wrote."""
        indexes, header, arrays, seen = read_gallery(path, memory_map)
        columns = {name: arrays[name] for name in LABEL_COLUMNS}
        labels = GalleryRows(**columns, paths=np.array(header.pop("paths"), dtype=object))
        extras = {name[6:]: array for name, array in arrays.items() if name.startswith("extra_")}
        next_key = header.pop("next_key")
        header["recall"] = dict(header["recall"])
        header["names"] = {what: dict(names) for what, names in header["names"].items()}
        about = About(**header, extras=extras)
        index = Shards(about.kind if about.whole else "flat", indexes)
        return cls(index, labels, about, next_key, path, seen, memory_map, Change.read(arrays))

    def close(self) -> None:
        """Do nothing, because the file is not kept open."""

    def _allows(self, where: Filter) -> np.ndarray:
        return where.allows(self.everything.ids, self.everything.cams, self.everything.times)

    def _check_writable(self) -> None:
        if self.read_only:
            raise InputError("a memory-mapped gallery cannot be changed; load it with memory_map=False")


@dataclass(frozen=True)
class FilePlace:
    """Place of a gallery in a file; its other versions are FILE.next and FILE.previous.

    Attributes:
        path: the file, not a symbolic link to it, which a change of the gallery would replace.
    """

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        """Whether the file exists."""
        return self.path.exists()

    def load(self, memory_map: bool = False) -> FaissStore:
        """Read the gallery from the file."""
        return FaissStore.load(self.path, memory_map)

    def build(self, vectors: np.ndarray, labels: GalleryRows, about: About) -> FaissStore:
        """Create a gallery in memory, which is written to the file when it is saved."""
        store = FaissStore.build(vectors, labels, about)
        store.path = self.path
        return store

    def delete(self) -> None:
        """Delete the file so that no power cut undoes the deletion; refuse a file that is not a gallery."""
        try:
            if self.path.exists():
                require_gallery(self.path)
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be deleted ({error.strerror})") from None
        sync_folder(self.path.parent, self.path)

    def others(self) -> list[FilePlace]:
        """``FILE.next`` and ``FILE.previous``, if they exist."""
        return [each for each in (self.next(), self.previous()) if each.exists()]

    @property
    def uploads(self) -> Path:
        """Folder in which ``lreid serve`` stores uploaded images, under names that are hashes of their content."""
        return self.path.with_name(f"{self.path.name}.images").absolute()

    def read_uploads(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Read those of some images that were uploaded, by file name."""
        files = (self.uploads / os.path.basename(path) for path in paths)
        return {file.name: read_bytes(file) for file in files if UPLOAD.fullmatch(file.name) and file.exists()}

    @contextlib.contextmanager
    def storing(self, files: Mapping[str, bytes]) -> Iterator[None]:
        """Store uploaded images, by file name, before a context that saves the gallery, and delete them if it fails."""
        try:
            with contextlib.ExitStack() as stack:
                if files:
                    make_folder(self.uploads)
                    stack.enter_context(only_one_process(self.uploads))  # delete_uploads waits
                for name, content in files.items():
                    write_atomically(self.uploads / name, methodcaller("write", content), private=True)
                yield
        except (InputError, OSError) as error:
            for name in files:
                with contextlib.suppress(OSError):  # delete_uploads tries again
                    (self.uploads / name).unlink()
            if isinstance(error, InputError) and not isinstance(error, NotConfirmed):
                raise
            reason = getattr(error, "strerror", "the disk does not confirm it")
            raise InputError(f"{self.uploads}: an image cannot be stored ({reason}); nothing was changed") from None

    def delete_uploads(self, removed: Iterable[str] = ()) -> None:
        """Delete uploaded images that were removed, or that no version of the gallery lists; other files stay.

        Raises:
            NotConfirmed: an image cannot be deleted, or a version cannot be read.
        """
        file = self.uploads
        try:
            with only_one_process(self.uploads):  # lreid serve holds this lock while it adds an image
                remove_leftovers(self.uploads)
                rows = [each.load().labels() for each in (self, *self.others())]
                listed = {os.path.basename(path) for labels in rows for path in labels.paths}
                listed -= {os.path.basename(path) for path in removed}
                for file in sorted(self.uploads.iterdir()):
                    if UPLOAD.fullmatch(file.name) and file.name not in listed:
                        file.unlink()
        except (FileNotFoundError, NotADirectoryError):  # nothing was uploaded
            pass
        except (InputError, OSError) as error:
            raise NotConfirmed(f"{file}: done, but the file may be left ({error}); delete it") from None

    def beside(self) -> list[str]:
        """The other versions, unfinished files of running or killed processes, and the folder of uploaded images."""
        unfinished = [leftovers(each.path.parent, each.path.name) for each in (self, self.next(), self.previous())]
        folder = [self.uploads] * self.uploads.exists()
        return [str(each) for each in (*self.others(), *itertools.chain(*unfinished), *folder)]

    def next(self) -> FilePlace:
        """``FILE.next``."""
        return FilePlace(self.path.with_name(f"{self.path.name}.next"))

    def previous(self) -> FilePlace:
        """``FILE.previous``."""
        return FilePlace(self.path.with_name(f"{self.path.name}.previous"))

    def switch(self, current: Any) -> None:
        """Rename the next version to this file, unless another process has changed this file since it was read."""
        self._take(self.next().path, self.previous().path, current.seen)

    def roll_back(self) -> None:
        """Rename the previous version to this file; the current version becomes the next one."""
        seen = stamp(self.path) if self.path.exists() else None
        self._take(self.previous().path, self.next().path, seen)

    def _take(self, chosen: Path, aside: Path, seen: Stamp | None) -> None:
        """Rename the chosen file to the name of this place, and the current file to ``aside``.

        If a call is killed, another call with the same arguments completes the renaming. A file that is not a gallery
        is never replaced. ``seen=None`` means that there must be no current file.
        """
        try:
            require_replaceable(self.path)
            if aside.exists():
                require_gallery(aside)
            remove_leftovers(self.path.parent, self.path.name)
            if seen is None:
                chosen.rename(self.path)
            else:
                with unchanged(self.path, seen):  # the lock prevents other processes from deleting ``aside``
                    second = hard_link(self.path)
                    try:
                        second.replace(aside)
                        chosen.replace(self.path)
                    finally:
                        with contextlib.suppress(OSError):
                            second.unlink()  # exists if an earlier attempt has already renamed the file
        except OSError as error:
            raise InputError(f"{self.path}: cannot be replaced ({error}); it was not changed") from None
        sync_folder(self.path.parent, self.path)
