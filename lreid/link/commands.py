"""Link recordings into a folder, correct identities, and delete data."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lreid.data.images import Images
from lreid.data.records import Record
from lreid.data.tracker_boxes import NoTracks
from lreid.data.tracks import Choice
from lreid.data.videos import shown
from lreid.errors import InputError, counted, require
from lreid.gallery import commands
from lreid.gallery.gallery import Gallery, place_of
from lreid.gallery.images import Extraction
from lreid.link.assign import LinkOptions, assign, stored_threshold
from lreid.link.cutting import Clip, cut
from lreid.link.folder import CROPS, GALLERY, announce, boxes_of, changing, enrolled_images
from lreid.link.record import Json, LinkRecord
from lreid.utils.files import sync_below
from lreid.utils.identities import UNKNOWN

if TYPE_CHECKING:  # commands that need no network start without torch
    from lreid.models.embedder import Embedder

logger = logging.getLogger("lreid")

DAY = 86_400  # seconds
CROPS_OF_EACH = Choice(every=1.0, most=8)
DEFAULT_OPTIONS = LinkOptions()


def add_recordings(
    folder: Path,
    clips: Sequence[Clip],
    travel: Sequence[tuple[str, str, float]] = (),
    *,
    checkpoint: Path | None = None,
    options: LinkOptions = DEFAULT_OPTIONS,
    choice: Choice = CROPS_OF_EACH,
    keep_days: float | None = None,
    device: str = "auto",
) -> LinkRecord:
    """Link the tracklets of new recordings with each other and with the tracklets in the folder.

    A recording without tracklets is left out of the record, with a warning.

    Args:
        folder: output folder, see :mod:`lreid.link.folder`; it is created if it does not exist. Tracklets of people
            whom ``lreid search`` enrolled in its gallery get the names of these people.
        clips, travel: recordings and travel times, from :func:`lreid.link.cutting.read_cameras`.
        checkpoint: checkpoint of the model, or None for the model of the folder's gallery.
        choice: rules that select the boxes whose crops are stored.
        keep_days: number of days after which tracklets are deleted.
        device: see :func:`lreid.load_model`.

    Raises:
        InputError: an argument is invalid, or no recording has tracklets; nothing changes.
    """
    require(keep_days is None or keep_days >= 0, "--keep-days", keep_days, "a number of days, 0 or more")
    if keep_days is not None and any(clip.start == 0 for clip in clips):
        raise InputError("--keep-days needs the time of each recording; give each camera its start")
    with changing(folder, f"add {', '.join(clip.name for clip in clips)}", new=True) as change:
        record = change.record
        new: list[Json] = []
        empty: dict[str, NoTracks] = {}
        # Everything that may be wrong is found before the videos are read.
        gallery, network, extraction = _opened(folder, checkpoint, device)
        if options.delay is not None and options.threshold is None:
            of_model = gallery.about.model if gallery else "", extraction.checkpoint
            if stored_threshold(record, *of_model, options)[0] is None:
                raise InputError("--online has no threshold yet; link one day without it first, or pass --threshold")
        for clip in clips:
            _require_later(record, clip)
        announce(folder, [clip.name for clip in clips])
        for clip in clips:
            try:
                tracklets = cut(clip, folder / CROPS, choice)
            except NoTracks as error:  # a camera may see nobody
                empty[clip.name] = error
                continue
            new += tracklets
            row = {"name": clip.name, "camera": clip.camera, "video": shown(clip.video), "start": clip.start}
            record.content["clips"].append({**row, "end": max(each["end"] for each in tracklets)})
        if empty and not new:
            raise next(iter(empty.values()))
        for name, error in empty.items():
            logger.warning("%s: left out, because nobody was seen (%s)", name, error)
        given = {frozenset(each[:2]): [*each] for each in [*record.content["travel"], *travel]}
        record.content["travel"] = [*given.values()]
        old = record.tracklets.copy()
        new.sort(key=lambda each: (each["start"], each["end"], each["key"]))
        record.tracklets.extend(new)
        gallery = _with_features(folder, new, gallery, network, extraction)
        for clip in clips:
            if clip.name not in empty:
                sync_below(folder / CROPS / clip.name, folder)
        assign(record, gallery, new, old, options)
        change.gallery = gallery
    if keep_days is not None:
        remove_tracklets(folder, keep_days=keep_days)
    return LinkRecord.read(folder)


def relink(folder: Path, options: LinkOptions = DEFAULT_OPTIONS) -> LinkRecord:
    """Link all tracklets again, for example with a new threshold, but keep the user's corrections.

    A new identity gets the number of the old identity with which it shares the most tracklets. The number of an
    enrolled person goes only to tracklets that are similar to the person's images, or that a user has merged with this
    person. If a person was enrolled since the last command, the person's tracklets keep their old number, and the
    number gets the person's name.

    Raises:
        InputError: there are no tracklets, a threshold cannot be calibrated, or corrections contradict each other.
    """
    with changing(folder, "relink") as change:
        record = change.record
        if not record.tracklets:
            raise InputError(f"{folder}: has no tracklets to link; add recordings with lreid link add")
        gallery = Gallery.load(folder / GALLERY)
        old = {each["key"]: each["identity"] for each in record.tracklets}
        fresh = record.content["next"]
        assign(record, gallery, record.tracklets, [], options)
        counts = Counter((each["identity"], old[each["key"]]) for each in record.tracklets)
        people, names = {name for _, name in enrolled_images(gallery)}, record.content["names"]
        enrolled = {int(number) for number, name in names.items() if name in people}
        merged = {key for group in record.content["same"] for key in group}
        confirmed = {(each["identity"], old[each["key"]]) for each in record.tracklets if each["key"] in merged}
        numbers: dict[int, int] = {}
        for (new, before), _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            taken = before in numbers.values() or (before in enrolled and (new, before) not in confirmed)
            taken |= str(new) in names and str(before) in names
            if new >= fresh and new not in numbers and not taken:
                numbers[new] = before
                if str(new) in names:  # enrolled since the last command
                    names[str(before)] = names.pop(str(new))
        for each in record.tracklets:
            each["identity"] = numbers.get(each["identity"], each["identity"])
        change.gallery = gallery
    return record


def correct(folder: Path, action: str, correction: Callable[[LinkRecord], object]) -> LinkRecord:
    """Apply a user's correction, such as :meth:`LinkRecord.merge`, or undo the last correction."""
    with changing(folder, action) as change:
        correction(change.record)
    return change.record


def merge(folder: Path, first: str, second: str) -> LinkRecord:
    """Merge two identities of one person, see :meth:`LinkRecord.merge`.

    Raises:
        InputError: :meth:`LinkRecord.merge` raises an error, or a frame shows both identities.
    """

    def merged(record: LinkRecord) -> None:
        of_one, of_other = (record.identities.get(record.find(each), []) for each in (first, second))
        for one, other in product(of_one, of_other):
            if one["camera"] != other["camera"] or one["end"] < other["start"] or other["end"] < one["start"]:
                continue
            frames = sorted(dict(boxes_of(folder, one["key"])).keys() & dict(boxes_of(folder, other["key"])).keys())
            if frames and one is not other:
                raise InputError(
                    f"{first} and {second}: {counted(len(frames), 'frame')} from {frames[0]} to {frames[-1]} show both "
                    f"{one['key']} and {other['key']}, so they are two people; first split the wrong tracklet off"
                )
        record.merge(first, second)

    return correct(folder, f"merge {first} {second}", merged)


def rename(folder: Path, identity: str, name: str) -> LinkRecord:
    """Give an identity a name; ``unknown-NUMBER`` removes the name.

    Raises:
        InputError: :meth:`LinkRecord.name` raises an error, or the name to remove belongs to enrolled images.
    """
    with changing(folder, f"name {identity} {name}") as change:
        record = change.record
        old = record.name_of(number := record.find(identity))
        record.name(identity, name)
        if record.name_of(number) == f"unknown-{number}":
            images = [path for path, who in enrolled_images(Gallery.load(folder / GALLERY)) if who == old]
            if images:
                raise InputError(
                    f"{old}: images such as {images[0]} are enrolled under this name; choose another name, or first "
                    f"delete these images with lreid search remove {folder / GALLERY} IMAGE ..."
                )
    return record


def remove_tracklets(folder: Path, identity: str | None = None, *, keep_days: float | None = None) -> int:
    """Delete tracklets with their crops, features and boxes; this and earlier changes cannot be undone.

    Args:
        identity: number or name of the identity whose tracklets are deleted.
        keep_days: number of days after which tracklets are deleted.

    Returns:
        Number of deleted tracklets.

    Raises:
        InputError: the identity does not exist, or ``keep_days`` is negative.
    """
    require(keep_days is None or keep_days >= 0, "--keep-days", keep_days, "a number of days, 0 or more")
    with changing(folder, "") as change:
        record = change.record
        gallery = Gallery.load(folder / GALLERY)
        oldest = -np.inf if keep_days is None else time.time() - keep_days * DAY
        number = None if identity is None else record.find(identity)
        doomed = {e["key"] for e in record.tracklets if e["identity"] == number or e["end"] < oldest}
        name = None if number is None else record.name_of(number)
        enrolled = [path for path, who in enrolled_images(gallery) if who == name]
        if not doomed and not enrolled:
            return 0
        if number is not None:
            record.content["names"].pop(str(number), None)
        record.drop(doomed)
        if enrolled:
            commands.remove(folder / GALLERY, enrolled, everywhere=True)
    return len(doomed)


def _require_later(record: LinkRecord, clip: Clip) -> None:
    for other in record.content["clips"]:
        if other["camera"] == clip.camera and clip.start <= other["end"]:
            raise InputError(
                f"{clip.camera}: {clip.name} starts before {other['name']} of the same camera has ended; correct the "
                "start, and link recordings in the order of their times"
            )


def _opened(folder: Path, checkpoint: Path | None, device: str) -> tuple[Gallery | None, Embedder, Extraction]:
    """Return a folder's gallery (None if there is none yet), its network, and how features are computed."""
    place = place_of(folder / GALLERY)
    if not place.exists():
        if checkpoint is None:
            raise InputError(f"{folder / GALLERY}: does not exist yet; pass --checkpoint, such as zoo:people")
        from lreid.loading import load_model

        network = load_model(checkpoint, device)
        return None, network, Extraction.of(network.source)
    gallery = Gallery.load(place)
    if gallery.extraction.norm is not None:
        raise InputError(
            f"{gallery.where}: has adapted normalisation; build it without --adapt-norm, because linking standardises "
            "features itself"
        )
    return gallery, gallery.load_network(checkpoint, device), gallery.extraction


def _with_features(
    folder: Path, rows: Sequence[Json], gallery: Gallery | None, network: Embedder, extraction: Extraction
) -> Gallery:
    """Add features of the tracklets' crops to the gallery, without identities and without saving the gallery."""
    paths = [f"{CROPS}/{row['key']}/{name}" for row in rows for name in row["crops"]]
    cameras = [row["camera"] for row in rows for _ in row["crops"]]
    seconds = [int(row["start"]) for row in rows for _ in row["crops"]]
    records = [Record(str(folder / path), UNKNOWN, UNKNOWN) for path in paths]
    features = extraction(network, Images(records, height=network.height, width=network.width))
    ids = [f"{CROPS}/"] * len(paths)  # a name that no identity has; changing() replaces it
    labels = paths, ids, cameras, seconds
    if gallery is None:
        extras = extraction.to_arrays()
        return Gallery.build(features, *labels, model=network, at=folder / GALLERY, extras=extras)
    gallery.add(features, *labels, model=network)
    return gallery
