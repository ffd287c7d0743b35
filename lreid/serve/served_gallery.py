"""A gallery that many clients can search at the same time, and that one client at a time can change."""

import hashlib
import io
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from lreid.data.images import FORMATS, Size, decode, read_image
from lreid.errors import InputError, NotConfirmed
from lreid.gallery.faiss_store import FilePlace
from lreid.gallery.findings import findings
from lreid.gallery.gallery import Gallery, place_of
from lreid.gallery.gallery_file import stamp
from lreid.gallery.images import name_of, warn_of_scenes
from lreid.gallery.store import numbers_of
from lreid.models.fingerprint import fingerprint
from lreid.report.rendering import THUMBNAIL_HEIGHT, thumbnail
from lreid.utils.files import make_folder, only_one_process, write_atomically
from lreid.utils.identities import UNKNOWN, label_text, require_written
from lreid.utils.reading import read_bytes

MOST_PIXELS = 50_000_000  # maximum pixels of an uploaded image: 150 MB decoded
MOST_LETTERS = 200  # maximum length of a name
UNDOABLE = 20  # number of changes that can be undone
SUFFIX_OF = {"MPO": ".jpg", "HEIF": ".heic"}  # suffixes that differ from the name of the format


class Absent(InputError):
    """The gallery has no such image, identity or change."""


class Conflict(InputError):
    """The gallery already has the image to be added, or no longer has the image to be removed."""


class Unavailable(InputError):
    """The file of the gallery cannot be read or written at the moment."""


class Change(NamedTuple):
    """Images that a change added or removed, with everything that its undo needs.

    Attributes:
        added: whether the images were added; otherwise they were removed.
        labels: paths, identities, cameras and times, in the form of arguments of :meth:`lreid.gallery.Gallery.add`.
        features: (n, D) float32.
        files: contents of uploaded files, by path.
    """

    added: bool
    labels: tuple[Any, ...]
    features: np.ndarray
    files: dict[str, bytes]


class ServedGallery:
    """A gallery file in memory, with its model.

    A change reads the file again, writes a new file, and then replaces the gallery in memory. Searches therefore never
    wait for a change and never see an incomplete change. The server also notices when other processes change the file.
    Uploaded images are stored in the folder ``GALLERY.images`` next to the file, under names that are derived from
    their content.

    Args:
        where: the gallery file.
        checkpoint: the file of the gallery's model, if the file was moved.
        device: see :func:`lreid.utils.devices.pick_device`.

    Raises:
        InputError: the gallery is in Milvus, or the gallery or its model cannot be read.
    """

    def __init__(self, where: str, checkpoint: Path | None = None, device: str = "auto") -> None:
        place = place_of(where)
        if not isinstance(place, FilePlace):
            raise InputError(
                f"{where}: is not a file; copy the gallery to a file by lreid search migrate, and serve that"
            )
        self.path = place.path
        self.folder = place.uploads
        self._gallery = Gallery.load(self.path)
        self._model = self._gallery.load_network(checkpoint, device)
        self._fingerprint = fingerprint(self._model)
        self._reading, self._changing = threading.Lock(), threading.Lock()
        # A large image needs hundreds of megabytes, which the C library would keep for every thread that decodes one.
        self._decoder = ThreadPoolExecutor(1)
        self._undo: OrderedDict[str, Change] = OrderedDict()
        with suppress(NotConfirmed):  # another version may be damaged, and the folder read-only
            place.delete_uploads()  # of changes that were killed before or after the gallery was written

    def current(self) -> Gallery:
        """Return the current content of the gallery file, for searches only.

        Raises:
            Unavailable: the file is missing, damaged, or contains features of another model.
        """
        with self._reading, _available():
            if stamp(self.path) != getattr(self._gallery.store, "seen", None):
                self._gallery = self._read()
            return self._gallery

    def search(self, content: bytes, top: int = 10, camera: str | None = None) -> dict[str, Any]:
        """Search the gallery; return the result of :func:`lreid.gallery.findings.findings` and the threshold.

        Args:
            content: content of an image file.
            top: number of matches, 1 or more.
            camera: camera that took the image, or None if unknown.

        Raises:
            InputError: the image cannot be read.
        """
        gallery = self.current()
        about = gallery.about
        matches = gallery.search(self._features(gallery, content, camera), top, model=self._fingerprint)
        (finding,) = findings(matches, [""], [None], calibrated=about.threshold is not None)
        return finding | {"threshold": about.threshold, "false_accept_rate": about.false_accept_rate}

    def add(self, content: bytes, identity: str | None = None, camera: str | None = None) -> dict[str, Any]:
        """Add an image to the gallery, and store its file.

        Args:
            content: content of an image file.
            identity, camera: names of identity and camera, or None if unknown.

        Returns:
            The ``path`` of the image, the number of ``images`` in the gallery, and ``undo``, the name of the change for
            :meth:`undo`.

        Raises:
            Conflict: the gallery already contains the image.
            InputError: the image or a name is invalid; the gallery does not change.
        """
        path = str(self.folder / (hashlib.sha256(content).hexdigest()[:32] + _suffix(content)))
        labels = path, _name(identity, "identity"), _name(camera, "camera"), UNKNOWN
        features = self._features(self.current(), content, labels[2])
        change = Change(True, tuple([label] for label in labels), features, {path: content})
        with self._changed() as gallery:
            self._put(gallery, change)
        return {"path": path, "images": len(gallery), "undo": self._undoable(change)}

    def remove(self, path: str | None = None, identity: str | None = None) -> dict[str, Any]:
        """Remove one image, or all images of an identity. Image files are deleted only if they were uploaded.

        Returns:
            The number of ``removed`` images, the number of remaining ``images``, other ``versions`` of the gallery that
            may still have the removed images, and ``undo``, the name of the change for :meth:`undo`. The value of
            ``undo`` is None for an ``ivfpq`` gallery, which stores no features and therefore cannot restore images. The
            last 20 changes can be undone until the server stops.

        Raises:
            Absent: the gallery has no such image or identity.
            Unavailable: an uploaded file cannot be read; the gallery is unchanged.
            NotConfirmed: the images are removed, but a file cannot be deleted.
        """
        with self._changed() as gallery:
            labels = gallery.labels()
            chosen = labels.paths == path
            if path is None:
                chosen = np.array([name_of(each) == label_text(identity) for each in labels.ids], dtype=bool)
            if not chosen.any():
                raise Absent(f"{path or identity}: the gallery has no such {'identity' if path is None else 'image'}")
            doomed = labels[chosen]
            features, files = np.empty(0), {}
            if restorable := gallery.about.kind != "ivfpq":
                features = gallery.features(doomed.keys)
                with _available():
                    files = {each: read_bytes(each) for each in doomed.paths if self._uploaded(each)}
            self._take(
                gallery, change := Change(False, (doomed.paths, doomed.ids, doomed.cams, doomed.times), features, files)
            )
        undo = self._undoable(change) if restorable else None
        versions = [str(each) for each in FilePlace(self.path).others()]
        return {"removed": len(doomed), "images": len(gallery), "versions": versions, "undo": undo}

    def undo(self, change: str) -> dict[str, int]:
        """Undo one of the last changes, and return the number of ``images`` in the gallery.

        Raises:
            Absent: there is no such change, or it was already undone.
            Conflict: later changes make the undo impossible.
        """
        with self._changed() as gallery:
            if (undone := self._undo.get(change)) is None:
                name = change[:MOST_LETTERS]
                raise Absent(f"{name}: no such change, or it was already undone; the last {UNDOABLE} can be undone")
            (self._take if undone.added else self._put)(gallery, undone)
            self._undo.pop(change, None)
        return {"images": len(gallery)}

    def info(self) -> dict[str, Any]:
        """Return the properties of the gallery: counts, ``kind``, ``model``, threshold and false accept rate."""
        gallery = self.current()
        shown = ("kind", "model", "threshold", "false_accept_rate", "calibrated_on")
        properties = {name: getattr(gallery.about, name) for name in shown}
        return {"gallery": self.path.name} | gallery.counts() | properties

    def thumbnail(self, path: str) -> bytes:
        """Return a small JPEG of an image in the gallery; other files are never read.

        Raises:
            Absent: the gallery has no such image, or its file cannot be read.
        """
        if not self.current().holds([path])[0]:
            raise Absent("the gallery has no such image")
        try:
            return self._decoder.submit(lambda: thumbnail(read_image(path, within=8 * THUMBNAIL_HEIGHT))).result()
        except InputError:
            raise Absent("the file of this image is missing or damaged") from None

    def _features(self, gallery: Gallery, content: bytes, camera: str | None) -> np.ndarray:
        """Extract features ``(1, D)`` of an image, which is decoded as in ``lreid search``."""
        _suffix(content)
        extraction, number = gallery.extraction, label_text(camera or str(UNKNOWN))
        cameras = numbers_of(np.array([number], dtype=object), gallery.about.names.get("camera", {}))

        def extract() -> np.ndarray:  # in memory, because a process that is killed would leave a temporary file
            image = decode("the image", io.BytesIO(content))
            warn_of_scenes(Size(image.shape[0] * image.shape[1], image.shape[0] / image.shape[1]), self._model)
            return self._model.extract(image, flip=extraction.flip)

        try:
            features = self._decoder.submit(extract).result()
        except InputError as error:  # the advice in the message is meant for commands, so it is replaced
            raise type(error)(f"{str(error).partition('; ')[0]}; send another file") from None
        return extraction.norm(features, cameras) if extraction.norm else features

    def _read(self) -> Gallery:
        with _available():
            gallery = Gallery.load(self.path)
        if gallery.about.model != self._fingerprint:
            raise Unavailable(f"{self.path}: now has features of a different model; restart lreid serve")
        return gallery

    @contextmanager
    def _changed(self) -> Iterator[Gallery]:
        """Read the gallery file for a change; once the change is saved, searches use the changed gallery."""
        with self._changing:
            gallery = self._read()
            yield gallery
            with self._reading:
                self._gallery = gallery

    def _put(self, gallery: Gallery, change: Change) -> None:
        """Write the image files, then the gallery with their features."""
        paths = change.labels[0]
        if gallery.holds(paths).any():
            raise Conflict(f"{paths[0]}: is already in the gallery; remove it first")
        gallery.add(change.features, *change.labels, model=self._fingerprint)
        try:
            with _available():
                make_folder(self.folder)
                with only_one_process(self.folder):
                    for path, content in change.files.items():
                        try:
                            write_atomically(path, lambda file, content=content: file.write(content), private=True)  # type: ignore[misc]
                        except NotConfirmed:  # the gallery is not written, so nothing is done
                            raise OSError(f"{path}: the disk did not confirm it; check the disk") from None
                    gallery.save()
        except Unavailable:
            _delete(filter(self._uploaded, change.files))
            raise

    def _take(self, gallery: Gallery, change: Change) -> None:
        """Write the gallery without some images, then delete those of their files that were uploaded."""
        paths = change.labels[0]
        if not gallery.holds(paths).all():
            raise Conflict(f"{paths[0]}: is no longer in the gallery")
        gallery.remove(paths)
        with _available():
            gallery.save()
            FilePlace(self.path).delete_uploads(paths)

    def _uploaded(self, path: str) -> bool:
        """Whether the file of an image exists and was uploaded to this server."""
        return Path(path).parent == self.folder and os.path.exists(path)

    def _undoable(self, change: Change) -> str:
        """Store a change so that :meth:`undo` can revert it, and return its name."""
        self._undo[name := secrets.token_hex(16)] = change
        if len(self._undo) > UNDOABLE:
            self._undo.popitem(last=False)
        return name


@contextmanager
def _available() -> Iterator[None]:
    """Raise :class:`Unavailable` if a file cannot be read or written, so that the client can try again later."""
    try:
        yield
    except NotConfirmed:
        raise
    except (InputError, OSError) as error:
        raise Unavailable(str(error)) from None


def _delete(paths: Iterable[str]) -> None:
    """Delete image files that the gallery does not contain.

    Raises:
        NotConfirmed: a file cannot be deleted.
    """
    for path in paths:
        try:
            Path(path).unlink(missing_ok=True)
        except OSError as error:
            raise NotConfirmed(f"done, but {path} cannot be deleted ({error.strerror}); delete it") from None


def _suffix(content: bytes) -> str:
    """Choose the file suffix of an image by the format in its header, and refuse other contents and large images."""
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            kind, (width, height) = str(image.format), image.size
    except Image.DecompressionBombError:
        raise InputError(f"the image has far too many pixels; send one of at most {MOST_PIXELS:,} pixels") from None
    except Exception:  # PIL can raise almost any exception
        raise InputError(
            "the body is not an image of a known format; send a JPEG or PNG file as the whole body, not as a form: "
            "curl --data-binary @FILE"
        ) from None
    if width * height > MOST_PIXELS:
        raise InputError(f"the image has {width} x {height} pixels; send one of at most {MOST_PIXELS:,} pixels")
    return SUFFIX_OF.get(kind, f".{kind.lower()}")


def _name(name: str | None, what: str) -> str | None:
    """Return a name without spaces around it; None if it is empty."""
    name = require_written(name.strip(), what) if name else None
    if name and (len(name) > MOST_LETTERS or not name.isprintable()):
        raise InputError(f"{what}: give a name of at most {MOST_LETTERS} printable characters")
    return name or None
