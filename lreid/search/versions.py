"""Move a gallery to another model, back again, or to another place, while it can be searched all the time."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np

from lreid.data.records import Record
from lreid.devices import pick_device
from lreid.errors import InputError, counted
from lreid.gallery import Gallery
from lreid.gallery.places import place_of
from lreid.gallery.store import Labels, Place
from lreid.loading import load_model
from lreid.models import Embedder
from lreid.models.adapt import AdaptedNorm
from lreid.models.fingerprint import fingerprint
from lreid.retrieval import CameraNorm
from lreid.search.named_gallery import NamedGallery, extract, flips
from lreid.search.own_images import paths_of, read_records, require_some

logger = logging.getLogger("lreid")
FEWEST_KEPT_AT_ONCE = 1024  # images that are extracted before they are kept; a killed reindex loses no more
BATCH = 16384  # rows that move at once
SAMPLE, DEPTH = 64, 10  # queries and their matches that are compared after a move
SAME_SCORE = 1e-4


def reindex(
    where: str | Path, checkpoint: Path, *, skip_bad: bool = False, restart: bool = False, device: str = "auto"
) -> dict[str, int]:
    """Extracts all images of a gallery with another model, beside the gallery, and then takes its place.

    Until then the gallery is searched, and changed, as before. Killed, it goes on where it was when it is called again.
    The previous version stays for :func:`roll_back`. The threshold is the old model's and does not come along.

    Args:
        where: of the gallery, see :func:`lreid.gallery.places.place_of`.
        checkpoint: the new model.
        skip_bad: leave out images that cannot be read any more.
        restart: drop what an earlier call for another model has left.
        device: of :func:`lreid.devices.pick_device`.

    Returns:
        ``images`` in the gallery, and how many of them were ``extracted`` by this call.

    Raises:
        InputError: anything given does not fit, or an image cannot be read; the gallery stays as it was, and what was
            extracted is kept.
    """
    place = place_of(where)
    old = NamedGallery.load(place)
    model = load_model(checkpoint).to(pick_device(device))
    if fingerprint(model) == old.gallery.about.model:
        raise InputError(f"{where}: holds features of this model already")
    beside = place.next()
    if restart and beside.exists():
        beside.delete()
    work = _Reindexing(model, skip_bad)
    new = work.resume(beside) if beside.exists() else work.begin(beside, old, checkpoint)
    while True:
        old = NamedGallery.load(place)  # images and names may have come and gone meanwhile
        if not work.catch_up(old, new, new.gallery.store.labels()):
            break
    before = new.gallery.store.labels()
    new.keep_identities(before.ids)
    new.gallery.finish()
    place.switch(old.gallery.store)
    try:
        now = NamedGallery.load(place)
        work.catch_up(old, now, before)  # what others added in the moment before
        return {"images": len(now.gallery), "extracted": work.extracted}
    except InputError as error:
        raise InputError(
            f"{where}: done, but images that were added in the last moment may be missing ({error}); add them again"
        ) from None


class _Reindexing:
    """What stays the same from one batch of images to the next."""

    def __init__(self, model: Embedder, skip_bad: bool):
        self.model = model
        self.skip_bad = skip_bad
        self.skipped: set[str] = set()
        self.extracted = 0

    def resume(self, beside: Place) -> NamedGallery:
        new = NamedGallery.load(beside, unfinished=True)
        if new.gallery.about.model != fingerprint(self.model):
            raise InputError(
                f"{beside}: is there for model {new.gallery.about.model}, not for {fingerprint(self.model)}; give that "
                "checkpoint to go on, or drop it with --restart"
            )
        return new

    def begin(self, beside: Place, old: NamedGallery, checkpoint: Path) -> NamedGallery:
        labels, norm, flip = old.gallery.store.labels(), None, flips(checkpoint)
        if not len(labels):
            raise InputError(f"{old.where}: holds no images; add some")
        if old.norm:
            loaded = require_some(self._read(labels))
            norm = (
                CameraNorm.estimate(extract(self.model, loaded, flip), loaded.camids)
                if isinstance(old.norm, CameraNorm)
                else AdaptedNorm.estimate(self.model, loaded, loaded.camids if old.norm.cameras else None)
            )
        step = self._step(labels)
        batches = (self._read(labels[start : start + step]) for start in range(0, len(labels), step))
        first = next((batch for batch in batches if len(batch)), None)
        if first is None:
            raise InputError(f"{old.where}: not one of its images can be read any more; put them back")
        about = old.gallery.about
        gallery = Gallery.build(
            extract(self.model, first, flip, norm),
            paths_of(first),
            first.pids,
            first.camids,
            _times(first, labels),
            model=fingerprint(self.model),
            kind=about.kind,
            shards=about.shards,
            at=beside,
            names={what: dict(names) for what, names in about.names.items()},
            extras=NamedGallery.extras(checkpoint, flip, norm),
            whole=False,
        )
        gallery.save()
        self._count(first, len(labels))
        return NamedGallery(gallery, str(beside), checkpoint, flip, norm)

    def catch_up(self, old: NamedGallery, new: NamedGallery, have: Labels) -> bool:
        """Brings a gallery from what it has to what another one holds; whether there was anything to do."""
        wanted = old.gallery.store.labels()
        wanted_rows, had_rows = _rows(wanted), _rows(have)
        gone = have.paths[[row not in wanted_rows for row in had_rows]]
        gone = gone[new.gallery.holds(gone)] if len(gone) else gone
        if len(gone):
            new.gallery.remove(gone)
        new.identities.update(old.identities)  # before the images whose numbers they are
        new.cameras.update(old.cameras)
        missing = wanted[
            np.array([row not in had_rows and row[0] not in self.skipped for row in wanted_rows], dtype=bool)
        ]
        missing = missing[~new.gallery.holds(missing.paths)] if len(missing) else missing
        step = self._step(wanted)
        for start in range(0, len(missing), step):
            loaded = self._read(missing[start : start + step])
            if not len(loaded):
                continue
            new.gallery.add(
                new.extract(self.model, loaded),
                paths_of(loaded),
                loaded.pids,
                loaded.camids,
                _times(loaded, missing),
                model=fingerprint(self.model),
            )
            new.gallery.save()
            self._count(loaded, len(wanted))
        if len(gone):
            new.gallery.save()
        return bool(len(gone) or len(missing))

    def _step(self, labels: Labels) -> int:
        return max(FEWEST_KEPT_AT_ONCE, len(labels) // 16)  # a file is written anew each time

    def _read(self, labels: Labels) -> Any:
        records = [
            Record(path, int(pid), int(cam))
            for path, pid, cam in zip(labels.paths, labels.ids, labels.cams, strict=True)
        ]
        loaded = read_records(records, self.model, skip_bad=self.skip_bad)
        self.skipped.update(set(labels.paths) - set(paths_of(loaded)))
        return loaded

    def _count(self, loaded: Any, total: int) -> None:
        self.extracted += len(loaded)
        logger.info("%s extracted, of %d in the gallery", counted(self.extracted, "image"), total)


def roll_back(where: str | Path) -> str:
    """The version before the last :func:`reindex` takes the gallery's place; ``reindex`` with the same model redoes it.

    Returns:
        The fingerprint of the model in use again.

    Raises:
        InputError: there is no previous version.
    """
    place = place_of(where)
    # before it takes the place of one that can be used
    model = NamedGallery.load(place.previous()).gallery.about.model if place.previous().exists() else ""
    place.roll_back()
    return model


def migrate(source: str | Path, target: str | Path, *, kind: str | None = None, shards: int = 1) -> tuple[int, float]:
    """Copies a gallery to another place, for instance from a file to Milvus or back, and compares the two.

    Args:
        source: the gallery, which stays.
        target: a place without a gallery.
        kind: kind of the copy; None keeps the kind of the source.
        shards: number of parts of the copy, if it is a file.

    Returns:
        The number of images, and the share of the ``SAMPLE * DEPTH`` compared matches that have the same score: 1
        unless a kind is approximate.

    Raises:
        InputError: there is a gallery at the target already, the source has no features (``ivfpq``) or no images, or
            the copy differs. Then no gallery appears at the target.
    """
    place = place_of(target)
    if place.exists():
        raise InputError(f"{target}: is there already; choose another name")
    old = Gallery.load(source)
    labels, about = old.labels(), old.about
    if not len(labels):
        raise InputError(f"{source}: holds no images; add some")

    def rows(start: int) -> tuple[np.ndarray, ...]:
        part = labels[start : start + BATCH]
        return old.features(part.keys), part.paths, part.ids, part.cams, part.times

    new = Gallery.build(
        *rows(0),
        model=about.model,
        kind=kind or about.kind,
        shards=shards,
        at=place,
        names=about.names,
        extras=about.extras,
        whole=False,
    )
    for start in range(BATCH, len(labels), BATCH):
        new.add(*rows(start), model=about.model)
    new.about.threshold, new.about.false_accept_rate = about.threshold, about.false_accept_rate
    same = _share_of_same_matches(old, new, labels)
    if sorted(_rows(new.labels())) != sorted(_rows(labels)) or same < (1 if about.kind == "flat" else 0.9):
        raise InputError(f"{target}: the copy differs ({same:.3f} of its matches are the same); nothing was made")
    new.finish()
    return len(labels), same


def _share_of_same_matches(old: Gallery, new: Gallery, labels: Labels) -> float:
    """Up to ties, whose order has no meaning."""
    chosen = np.random.default_rng(0).permutation(len(labels))[:SAMPLE]
    features, depth = old.features(labels.keys[chosen]), min(DEPTH, len(labels))
    one, other = (each.search(features, depth, model=old.about.model) for each in (old, new))
    return float((np.abs(one.scores - other.scores) <= SAME_SCORE).mean())


def _rows(labels: Labels) -> dict[tuple[Any, ...], None]:
    """Path, identity, camera and time of each image, in order, and quick to look up."""
    columns = (labels.ids.tolist(), labels.cams.tolist(), labels.times.tolist())
    return dict.fromkeys(zip(labels.paths, *columns, strict=True))


def _times(loaded: Any, labels: Labels) -> np.ndarray:
    times = dict(zip(labels.paths, labels.times, strict=True))
    return np.array([times[path] for path in paths_of(loaded)], dtype=np.int64)
