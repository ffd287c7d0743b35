"""A gallery that many clients can search at the same time, and that one client at a time can change."""

import hashlib
import io
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from lreid.data.images import FORMATS, Size, decode, read_image
from lreid.errors import InputError, NotConfirmed
from lreid.gallery.change import Change
from lreid.gallery.faiss_store import FilePlace
from lreid.gallery.findings import findings
from lreid.gallery.gallery import Gallery, place_of
from lreid.gallery.gallery_file import stamp
from lreid.gallery.images import name_of, warn_of_scenes
from lreid.gallery.store import numbers_of
from lreid.models.fingerprint import fingerprint
from lreid.report.rendering import THUMBNAIL_HEIGHT, thumbnail
from lreid.utils.identities import UNKNOWN, label_text, require_written

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
        self.path, self._place = place.path, place
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

    def search(self, contents: Sequence[bytes], top: int = 10, camera: str | None = None) -> dict[str, Any]:
        """Search the gallery; return its threshold, and entries of :func:`lreid.gallery.findings.findings`.

        Args:
            contents: contents of image files of one person or track, whose scores are averaged.
            top: number of matches, 1 or more.
            camera: camera that took the images, or None if unknown.

        Raises:
            InputError: an image cannot be read.
        """
        gallery = self.current()
        about = gallery.about
        features = np.concatenate([self._features(gallery, content, camera) for content in contents])
        matches = gallery.search(features, top, model=self._fingerprint, group=[0] * len(features))
        (finding,) = findings(matches, [""], [None], calibrated=about.threshold is not None)
        answer = {name: finding[name] for name in ("identity", "unknown", "matches")}
        return answer | {"threshold": about.threshold, "false_accept_rate": about.false_accept_rate}

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
        path = str(self._place.uploads / (hashlib.sha256(content).hexdigest()[:32] + _suffix(content)))
        who, camera = _name(identity, "identity"), _name(camera, "camera")
        features = self._features(self.current(), content, camera)
        with self._changed() as gallery:
            if gallery.holds([path])[0]:
                raise Conflict(f"{path}: is already in the gallery; remove it first")
            gallery.add(features, [path], [who], [camera], model=self._fingerprint)
            gallery.store.uploads[Path(path).name] = content
            with _available():
                gallery.save(undoable=True)
        return {"path": path, "images": len(gallery), "undo": self._undoable(gallery)}

    def remove(self, path: str | None = None, identity: str | None = None) -> dict[str, Any]:
        """Remove one image, or all images of an identity. Image files are deleted only if they were uploaded.

        Returns:
            The number of ``removed`` images, the number of remaining ``images``, other ``versions`` of the gallery that
            may still have the removed images, and ``undo``, the name of the change for :meth:`undo`. The value of
            ``undo`` is None for an ``ivfpq`` gallery, which stores no features and therefore cannot restore images. The
            last 20 changes can be undone until the server stops, and the last one also later.

        Raises:
            Absent: the gallery has no such image or identity.
            Unavailable: an uploaded file cannot be read; the gallery is unchanged.
            NotConfirmed: the images are removed, but a file cannot be deleted.
        """
        with self._changed() as gallery:
            if path is not None:
                doomed = [path] * int(gallery.holds([path])[0])
            else:
                doomed = gallery.rows_of(_identity(gallery, identity)).paths.tolist()
            if not doomed:
                raise Absent(f"{path}: the gallery has no such image")
            with _available():
                gallery.remove(doomed)
                gallery.save(undoable=True)
                self._place.delete_uploads(doomed)
        versions = [str(each) for each in self._place.others()]
        undo = self._undoable(gallery)
        return {"removed": len(doomed), "images": len(gallery), "versions": versions, "undo": undo}

    def rename(self, old: str, new: str, *, merge: bool = False) -> dict[str, Any]:
        """Give an identity another name; with ``merge``, the name of another identity.

        Returns:
            The number of ``renamed`` images, and ``undo``, the name of the change for :meth:`undo`.

        Raises:
            Absent: the gallery has no identity ``old``.
            Conflict: the gallery already has an identity ``new``.
            InputError: the name is invalid.
        """
        with self._changed() as gallery:
            identity, name = _identity(gallery, old), _name(new, "new")
            if name in gallery.identities and not merge:
                raise Conflict(f"{name}: is already in the gallery; pass merge=true if both are one person")
            renamed = gallery.rename(identity, name or UNKNOWN, merge=merge)
            with _available():
                gallery.save(undoable=True)
        return {"renamed": renamed, "undo": self._undoable(gallery)}

    def identities(self) -> dict[str, int]:
        """Return the number of images of each identity, by its name."""
        ids = self.current().labels().ids
        return dict(sorted(Counter(name for each in ids if (name := name_of(each)) is not None).items()))

    def undo(self, change: str) -> dict[str, int]:
        """Undo one of the last changes, and return the number of ``images`` in the gallery.

        Raises:
            Absent: there is no such change, or it was already undone.
            Conflict: later changes make the undo impossible.
        """
        with self._changed() as gallery:
            last = gallery.change
            if (undone := last if last and last.name == change else self._undo.get(change)) is None:
                name = change[:MOST_LETTERS]
                raise Absent(f"{name}: no such change, or it was already undone; the last {UNDOABLE} can be undone")
            try:
                gallery.undo(undone)
            except InputError as error:
                raise Conflict(str(error)) from None
            with _available():
                gallery.save(undoable=True)
                self._place.delete_uploads()
            self._undo.pop(change, None)
        return {"images": len(gallery)}

    def info(self) -> dict[str, Any]:
        """Return the properties of the gallery: counts, ``kind``, ``model``, threshold, and the last change to undo."""
        gallery = self.current()
        shown = ("kind", "model", "threshold", "false_accept_rate", "calibrated_on")
        properties = {name: getattr(gallery.about, name) for name in shown}
        undo = gallery.change.name if gallery.change else None
        return {"gallery": self.path.name} | gallery.counts() | properties | {"undo": undo}

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

    def _undoable(self, gallery: Gallery) -> str | None:
        """Keep the last change so that :meth:`undo` can revert it after later ones, and return its name."""
        if gallery.change is None:
            return None
        self._undo[gallery.change.name] = gallery.change
        if len(self._undo) > UNDOABLE:
            self._undo.popitem(last=False)
        return gallery.change.name


@contextmanager
def _available() -> Iterator[None]:
    """Raise :class:`Unavailable` if a file cannot be read or written, so that the client can try again later."""
    try:
        yield
    except NotConfirmed:
        raise
    except (InputError, OSError) as error:
        raise Unavailable(str(error)) from None


def _identity(gallery: Gallery, name: str | None) -> int | str:
    """Return an identity of the gallery by its name."""
    for identity in gallery.identities:
        if str(identity) == label_text(name):
            return identity
    raise Absent(f"{name}: the gallery has no such identity")


def _suffix(content: bytes) -> str:
    """Choose the file suffix of an image by the format in its header, and refuse other contents and large images."""
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            kind, (width, height) = str(image.format), image.size
    except Image.DecompressionBombError:
        raise InputError(f"the image has far too many pixels; send one of at most {MOST_PIXELS:,} pixels") from None
    except Exception:  # PIL can raise almost any exception
        raise InputError(
            "the file is not an image of a known format; send a JPEG or PNG file (curl -d alters it, --data-binary not)"
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
