"""Move a gallery to a new model and back, or to another place. The gallery can be searched during the move."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lreid.data.images import require_files
from lreid.data.records import Record
from lreid.errors import InputError, counted
from lreid.gallery.commands import add_images, missing_in, save_new
from lreid.gallery.gallery import Gallery, GalleryPlace, place_of
from lreid.gallery.images import Extraction, SearchImage, read_images, require_some
from lreid.gallery.store import GalleryRows
from lreid.utils.identities import UNKNOWN

if TYPE_CHECKING:  # commands that need no network start without torch
    from lreid.models.embedder import Embedder

logger = logging.getLogger("lreid")
FEWEST_KEPT_AT_ONCE = 1024  # minimum number of images per saved batch; a killed reindex loses at most one batch
SAMPLE, DEPTH = 64, 10  # number of queries, and of matches per query, that are compared after a move
SAME_SCORE = 1e-4


def reindex(
    where: str | Path, checkpoint: Path, *, skip_bad: bool = False, restart: bool = False, device: str = "auto"
) -> dict[str, int]:
    """Extract all images of a gallery with a new model, into a new version that then replaces the gallery.

    Until the new version replaces it, the old version can be searched and changed. If a call is killed, the next call
    continues the extraction. The old version is kept, so that :func:`roll_back` can restore it. The new version has no
    threshold, because a threshold is valid for one model only.

    Args:
        where: place of the gallery, see :func:`lreid.gallery.gallery.place_of`.
        checkpoint: checkpoint of the new model.
        skip_bad: whether to leave out images that can no longer be read.
        restart: whether to discard an unfinished version that an earlier call began with another model.
        device: see :func:`lreid.load_model`.

    Returns:
        The number of ``images`` in the gallery, and the number of images that were ``extracted`` by this call.

    Raises:
        InputError: an argument is invalid, or an image cannot be read. After such an error, the gallery is unchanged,
            and the next call reuses the extracted features.
    """
    from lreid.loading import load_model
    from lreid.models.fingerprint import fingerprint

    place = place_of(where)
    old = Gallery.load(place)
    model = load_model(checkpoint, device)
    if (mark := fingerprint(model)) == old.about.model and not old.maps:
        raise InputError(f"{where}: already contains features of this model")
    next_place = place.next()
    if restart and next_place.exists():
        next_place.delete()
    work = _Reindexing(model, skip_bad)
    if next_place.exists():
        new = Gallery.load(next_place, unfinished=True)
        if new.about.model != mark or new.maps:
            earlier = "a map" if new.maps else f"model {new.about.model}, not with {mark}"
            raise InputError(
                f"{next_place}: was begun with {earlier}; pass that checkpoint to continue, or restart=True to discard "
                "what exists"
            )
    else:
        _require_images(old, skip_bad)
        new = work.begin(next_place, old)
    before = new.images()
    # Other processes may add and remove images meanwhile.
    while work.catch_up(old := Gallery.load(place), new, before):
        before = new.images()
    new.finish()
    place.switch(old.store)
    try:
        work.catch_up(old, now := Gallery.load(place), before)  # images that others added just before the switch
        return {"images": len(now), "extracted": work.extracted}
    except InputError as error:
        raise InputError(f"{where}: done, but the last added images may be missing ({error}); add them") from None


def _require_images(gallery: Gallery, skip_bad: bool) -> None:
    """Refuse missing images before anything is extracted, and name the way that needs none of them."""
    try:
        if not skip_bad:
            require_files([Record(image.path, UNKNOWN, UNKNOWN) for image in gallery.images()])
    except InputError as error:
        raise InputError(f"{error}; lreid search reindex --map needs no image of the gallery") from None


def extract_beside(old: Gallery, model: Embedder, place: GalleryPlace, *, skip_bad: bool = False) -> Gallery:
    """Like :func:`reindex`, extract all images of a gallery with a new model, but into a gallery at another place."""
    work = _Reindexing(model, skip_bad)
    new = work.begin(place, old)
    work.catch_up(old, new, new.images())
    new.finish()
    return new


class _Reindexing:
    """Extract the images of a gallery in batches, for :func:`reindex`."""

    def __init__(self, model: Embedder, skip_bad: bool):
        self.model = model
        self.skip_bad = skip_bad
        self.skipped: set[str] = set()
        self.extracted = 0

    def begin(self, beside: GalleryPlace, old: Gallery) -> Gallery:
        """Create the new version with the first batch of images."""
        images, extraction = old.images(), Extraction.of(self.model.source)
        if not images:
            raise InputError(f"{old.where}: contains no images; add some")
        # Statistics per camera are stored under the numbers of the cameras.
        names = {"camera": dict(old.about.names.get("camera", {}))}
        if old.extraction.norm:
            from lreid.retrieval.camera_norm import CameraNorm

            _, pixels = read_images(images, self.model, names, skip_bad=self.skip_bad)
            require_some(pixels)
            norm = CameraNorm.estimate(extraction(self.model, pixels), pixels.camids)
            extraction = replace(extraction, norm=norm)
        for part in _parts(images):
            first, pixels = read_images(part, self.model, names, skip_bad=self.skip_bad)
            self._count(part, first, len(images))
            if first:
                break
        else:
            raise InputError(f"{old.where}: none of its images can be read; restore them")
        options = {"kind": old.about.kind, "shards": old.about.shards, "names": names, "whole": False}
        return save_new(beside, self.model, first, extraction(self.model, pixels), extraction, **options)

    def catch_up(self, old: Gallery, new: Gallery, have: Sequence[SearchImage]) -> bool:
        """Add and remove images until ``new`` has the same images as ``old``; return whether ``new`` has changed.

        Args:
            old, new: the gallery and its new version.
            have: images that ``new`` already contains.
        """
        wanted = old.images()
        current, had = set(wanted), set(have)
        removed = [image.path for image in have if image not in current]
        removed = [path for path, held in zip(removed, new.holds(removed), strict=True) if held]
        if removed:
            new.remove(removed)
            new.save()
        # An image that was in the new version, but no longer is, was removed by another process.
        missing = missing_in(new, [image for image in wanted if image not in had and image.path not in self.skipped])
        for part in _parts(missing, len(wanted)):
            self._count(part, add_images(new, self.model, part, skip_bad=self.skip_bad), len(wanted))
        return bool(removed or missing)

    def _count(self, part: Sequence[SearchImage], read: Sequence[SearchImage], total: int) -> None:
        self.skipped |= {image.path for image in part} - {image.path for image in read}
        self.extracted += len(read)
        if read:
            logger.info("%s extracted, of %d in the gallery", counted(self.extracted, "image"), total)


def roll_back(where: str | Path) -> str:
    """Replace the gallery by its version before the last :func:`reindex`.

    Calling :func:`reindex` with the same model later restores the newer version.

    Returns:
        Fingerprint of the previous model.

    Raises:
        InputError: there is no previous version.
    """
    place = place_of(where)
    if not place.previous().exists():
        raise InputError(f"{place}: has no previous version to go back to; check the name of the gallery")
    # Load the previous version before it replaces a usable gallery, so that a damaged version raises an error here.
    previous = Gallery.load(place.previous())
    with suppress(InputError):  # the current version may be damaged or missing
        if returning := {*previous.labels().paths} - {*Gallery.load(place).labels().paths}:
            logger.warning("%s: %d images return that were removed, such as %s", place, len(returning), min(returning))
    place.roll_back()
    return previous.about.model


def migrate(source: str | Path, target: str | Path, *, kind: str | None = None, shards: int = 1) -> tuple[int, float]:
    """Copy a gallery to another place, for example from a file to Milvus or back, and compare the copy with the source.

    Args:
        source: place of the gallery to copy; ``migrate`` leaves this gallery unchanged.
        target: place of the copy, where no gallery may exist.
        kind: kind of the copy, or None for the kind of the source.
        shards: number of parts of the copy's index, if the copy is a file.

    Returns:
        The number of images, and the share of ``SAMPLE * DEPTH`` compared matches that are the same in both galleries.
        This share is 1 unless one of the galleries has an approximate index.

    Raises:
        InputError: there is already a gallery at the target, the source has no features (``ivfpq``) or no images, or
            the copy differs. After such an error, there is no copy at the target.
    """
    place = place_of(target)
    if place.exists():
        raise InputError(f"{target}: already exists; choose a different name")
    old = Gallery.load(source)
    labels, about = old.labels(), old.about
    new = old.copied(place, kind=kind or about.kind, shards=shards)
    same = _share_of_same_matches(old, new, labels)
    if _rows(new.labels()) != _rows(labels) or same < (1 if about.kind == "flat" else 0.9):
        raise InputError(f"{target}: the copy differs ({same:.3f} of its matches are the same); the copy was deleted")
    new.finish()  # in a file, trains the approximate index
    return len(labels), _share_of_same_matches(old, new, labels, codes=True)


def _share_of_same_matches(old: Gallery, new: Gallery, labels: GalleryRows, *, codes: bool = False) -> float:
    """Compute the share of matches with the same score in two galleries; the order of equal scores does not matter.

    With ``codes``, a match that both galleries return counts as the same even if its scores differ, because codes give
    approximate scores.
    """
    chosen = np.random.default_rng(0).permutation(len(labels))[:SAMPLE]
    features, depth = old.features(labels.keys[chosen]), min(DEPTH, len(labels))
    one, other = (each.search(features, depth, model=old.about.model) for each in (old, new))
    same = np.abs(one.scores - other.scores) <= SAME_SCORE
    if codes:
        same |= np.array([np.isin(paths, wanted) for paths, wanted in zip(other.paths, one.paths, strict=True)])
    return float(same.mean())


def _rows(labels: GalleryRows) -> set[tuple[Any, ...]]:
    """Return path, identity, camera and time of each image."""
    return set(zip(labels.paths, labels.ids.tolist(), labels.cams.tolist(), labels.times.tolist(), strict=True))


def _parts(images: Sequence[SearchImage], total: int = 0) -> Iterator[Sequence[SearchImage]]:
    """Divide images into a few batches, because the whole gallery file is written after each batch."""
    step = max(FEWEST_KEPT_AT_ONCE, max(total, len(images)) // 16)
    return (images[start : start + step] for start in range(0, len(images), step))
