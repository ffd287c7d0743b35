"""Link recordings into a folder, correct identities, and delete data.

The folder contains ``identities.json``, ``people.gallery`` (features of the crops, under their paths in the folder),
``tracklets/CAMERA/START/TRACK/`` (crops and boxes), ``tracks/`` (MOT files with identities) and ``index.html``. A
change takes effect at the moment when ``identities.json`` is written. A command writes new files before
``identities.json`` and deletes old files after it. A command that fails deletes the files that ``identities.json`` does
not mention. After a command was killed, the next command deletes such files.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lreid.data.images import Images
from lreid.data.records import Record as ImageRecord
from lreid.data.tracker_boxes import NoTracks
from lreid.data.tracks import Choice
from lreid.data.videos import shown
from lreid.errors import InputError, NotConfirmed, counted
from lreid.files import (
    files_below,
    list_folder,
    make_folder,
    only_one_process,
    remove_leftovers,
    sync_below,
    write_text,
)
from lreid.gallery import Gallery
from lreid.gallery.store import place_of
from lreid.identities import UNKNOWN
from lreid.link.constraints import least_times
from lreid.link.cutting import BOXES, Clip, Cut, cut
from lreid.link.offline import Rule, impostors, link
from lreid.link.online import OnlineLinker
from lreid.link.page import write_page
from lreid.link.record import FILE, Json, Record
from lreid.link.tracklets import Tracklets, robust_mean
from lreid.search.named_gallery import NamedGallery, extract, flips

if TYPE_CHECKING:  # commands that need no network start without torch
    from lreid.models.embedder import Embedder

logger = logging.getLogger("lreid")

GALLERY, CROPS, TRACKS, PAGE = "people.gallery", "tracklets", "tracks", "index.html"
DAY = 86_400  # seconds
CROPS_OF_EACH = Choice(every=1.0, most=8)


@dataclass(frozen=True)
class Options:
    """Settings of linking.

    Attributes:
        rule: rule that decides which tracklets are linked.
        standardise: whether to standardise features: per recording or, if ``delay`` is given, per camera over all
            recordings so far.
        delay: None to link all tracklets at once. With a number, lreid links online; the number is the maximum time in
            seconds from the end of a tracklet to the decision about its identity.
    """

    rule: Rule = Rule()  # noqa: RUF009 (frozen)
    standardise: bool = True
    delay: float | None = None


def add(
    folder: Path,
    clips: Sequence[Clip],
    travel: Sequence[tuple[str, str, float]] = (),
    *,
    checkpoint: Path | None = None,
    options: Options = Options(),
    choice: Choice = CROPS_OF_EACH,
    keep_days: float | None = None,
    device: str = "auto",
) -> Record:
    """Link the tracklets of new recordings with each other and with the tracklets in the folder.

    A recording without tracklets is left out of the record, with a warning.

    Args:
        folder: output folder, see :mod:`lreid.link.commands`; it is created if it does not exist. Tracklets of people
            whom ``lreid search`` enrolled in its gallery get the names of these people.
        clips, travel: recordings and travel times, from :func:`lreid.link.cutting.read_cameras`.
        checkpoint: checkpoint of the model, or None for the model of the folder's gallery.
        choice: rules that select the boxes whose crops are stored.
        keep_days: number of days after which tracklets are deleted.
        device: see :func:`lreid.load_model`.

    Raises:
        InputError: an argument is invalid, or no recording has tracklets; nothing changes.
    """
    _require_days(keep_days)
    if keep_days is not None and any(clip.start == 0 for clip in clips):
        raise InputError("--keep-days needs the time of each recording; give each camera its start")
    with _changing(folder, f"add {', '.join(clip.name for clip in clips)}", new=True) as (record, later):
        cuts: list[Cut] = []
        empty: dict[str, NoTracks] = {}
        named, model, flip = _opened(folder, checkpoint, device)  # raises errors before the videos are read
        for clip in clips:
            _require_later(record, clip)
        for clip in clips:
            try:
                cuts += (clip_cuts := cut(clip, folder / CROPS, choice))
            except NoTracks as error:  # a camera may see nobody
                empty[clip.name] = error
                continue
            end = max(each.end for each in clip_cuts)
            row = {
                "name": clip.name,
                "camera": clip.camera,
                "video": shown(clip.video),
                "start": clip.start,
                "end": end,
            }
            record.content["clips"].append(row)
        if empty and not cuts:
            raise next(iter(empty.values()))
        for name, error in empty.items():
            logger.warning("%s: left out, because nobody was seen (%s)", name, error)
        given = {frozenset(each[:2]): [*each] for each in [*record.content["travel"], *travel]}
        record.content["travel"] = [*given.values()]
        earlier = len(record.tracklets)
        for each in sorted(cuts, key=lambda cut: (cut.start, cut.end, cut.key)):
            camera = each.key.split("/")[0]
            record.tracklets.append(
                {"key": each.key, "camera": camera, "start": each.start, "end": each.end, "identity": 0}
                | {"score": None, "why": "", "crops": each.crops}
            )
        _require_threshold(record, record.tracklets[earlier:], record.tracklets[:earlier], named, options)
        named = _with_features(folder, record.tracklets[earlier:], named, checkpoint, model, flip)
        for clip in clips:
            if clip.name not in empty:
                sync_below(folder / CROPS / clip.name, folder)
        _link(record, named, record.tracklets[earlier:], record.tracklets[:earlier], options)
        later(named)
    if keep_days is not None:
        remove(folder, keep_days=keep_days)
    return Record.read(folder)


def relink(folder: Path, options: Options = Options()) -> Record:
    """Link all tracklets again, for example with a new threshold, but keep the user's corrections.

    A new identity gets the number of the old identity with which it shares the most tracklets. The number of an
    enrolled person goes only to tracklets that are similar to the person's images, or that a user has merged with this
    person. If a person was enrolled since the last command, the person's tracklets keep their old number, and the
    number gets the person's name.

    Raises:
        InputError: there are no tracklets, a threshold cannot be calibrated, or corrections contradict each other.
    """
    with _changing(folder, "relink") as (record, later):
        if not record.tracklets:
            raise InputError(f"{folder}: has no tracklets to link; add recordings with lreid link add")
        named = NamedGallery.load(folder / GALLERY)
        old = {each["key"]: each["identity"] for each in record.tracklets}
        fresh = record.content["next"]
        _link(record, named, record.tracklets, [], options)
        counts = Counter((each["identity"], old[each["key"]]) for each in record.tracklets)
        people, names = {name for _, name in _enrolled(named)}, record.content["names"]
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
        later(named)
    return record


def correct(folder: Path, action: str, change: Callable[[Record], object]) -> Record:
    """Apply a user's correction, such as :meth:`Record.merge`, or undo the last correction."""
    with _changing(folder, action) as (record, _):
        change(record)
    return record


def rename(folder: Path, identity: str, name: str) -> Record:
    """Give an identity a name; ``unknown-NUMBER`` removes the name.

    Raises:
        InputError: :meth:`Record.name` raises an error, or the name to remove belongs to enrolled images.
    """

    def change(record: Record) -> None:
        old = record.name_of(number := record.find(identity))
        record.name(identity, name)
        if record.name_of(number) == f"unknown-{number}":
            images = [path for path, who in _enrolled(NamedGallery.load(folder / GALLERY)) if who == old]
            if images:
                raise InputError(
                    f"{old}: images such as {images[0]} are enrolled under this name; choose another name, or first "
                    f"delete these images with lreid search remove {folder / GALLERY} IMAGE ..."
                )

    return correct(folder, f"name {identity} {name}", change)


def remove(folder: Path, identity: str | None = None, *, keep_days: float | None = None) -> int:
    """Delete tracklets with their crops, features and boxes; this and earlier changes cannot be undone.

    Args:
        identity: number or name of the identity whose tracklets are deleted.
        keep_days: number of days after which tracklets are deleted.

    Returns:
        Number of deleted tracklets.

    Raises:
        InputError: the identity does not exist, or ``keep_days`` is negative.
    """
    _require_days(keep_days)
    with _changing(folder, "") as (record, later):
        named = NamedGallery.load(folder / GALLERY)
        oldest = -np.inf if keep_days is None else time.time() - keep_days * DAY
        number = None if identity is None else record.find(identity)
        doomed = {e["key"] for e in record.tracklets if e["identity"] == number or e["end"] < oldest}
        enrolled = [] if number is None else [p for p, name in _enrolled(named) if name == record.name_of(number)]
        if not doomed and not enrolled:
            return 0
        if number is not None:
            record.content["names"].pop(str(number), None)
        record.drop(doomed)
        later(named, enrolled)
    return len(doomed)


@contextlib.contextmanager
def _changing(folder: Path, action: str, *, new: bool = False) -> Iterator[tuple[Record, Callable[..., None]]]:
    """Lock a folder, and yield its record and a function that stores changes of the record.

    The arguments of the yielded function are the gallery to save and, optionally, paths of enrolled images to delete.
    """
    if not new and not folder.is_dir():
        raise InputError(f"{folder}: no such folder; create it with lreid link add")
    with _refusing(folder), contextlib.ExitStack() as stack:
        if new:
            make_folder(folder)
        stack.enter_context(only_one_process(folder))
        record = Record() if new and not (folder / FILE).exists() else Record.read(folder)
        held: list[tuple[NamedGallery | None, Sequence[str]]] = [(None, ())]
        _sweep(folder, record)
        try:
            yield record, lambda named, enrolled=(): held.append((named, enrolled))
            if not record.changed:
                return
            named, enrolled = held[-1]
            named = named or NamedGallery.load(folder / GALLERY)
            if action and not record.remembered:
                record.remember(action)
            _label(named, record)
            _write_tracks(folder, record)
            write_page(folder / PAGE, record)
            record.write(folder)
        except BaseException:
            with contextlib.suppress(InputError, OSError):
                _sweep(folder, Record.read(folder) if (folder / FILE).exists() else Record())
            raise
        try:
            _sweep(folder, record, enrolled)
        except (InputError, OSError) as error:
            raise NotConfirmed(
                f"{folder / FILE}: done, but some old files could not be deleted ({error}); the next "
                "lreid link command for this folder tries again"
            ) from None


@contextlib.contextmanager
def _refusing(folder: Path) -> Iterator[None]:
    """Replace file errors of the operating system by one clear line.

    Raises:
        InputError: a file cannot be read or written, for example because the disk is full.
    """
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{error.filename or folder}: {error.strerror or error}; earlier links are not affected: free some space "
            "or correct the permissions, then repeat the command"
        ) from None


def _require_days(keep_days: float | None) -> None:
    if keep_days is not None and not keep_days >= 0:
        raise InputError(f"--keep-days is {keep_days:g}; give a number of days, 0 or more")


def _require_later(record: Record, clip: Clip) -> None:
    for other in record.content["clips"]:
        if other["camera"] == clip.camera and clip.start <= other["end"]:
            raise InputError(
                f"{clip.camera}: {clip.name} starts before {other['name']} of the same camera has ended; correct the "
                "start, and link recordings in the order of their times"
            )


def _opened(folder: Path, checkpoint: Path | None, device: str) -> tuple[NamedGallery | None, Embedder, bool]:
    """Return a folder's gallery (None if there is none yet), the model, and whether mirrored images are used."""
    place = place_of(folder / GALLERY)
    if not place.exists():
        if checkpoint is None:
            raise InputError(f"{folder / GALLERY}: does not exist yet; pass --checkpoint, such as zoo:people")
        from lreid.loading import load_model

        return None, load_model(checkpoint, device), flips(checkpoint)
    named = NamedGallery.load(place)
    if named.norm is not None:
        raise InputError(
            f"{named.where}: has adapted normalisation; build it without --adapt-norm, because linking standardises "
            "features itself"
        )
    return named, named.model(checkpoint, device), named.flip


def _with_features(
    folder: Path, rows: Sequence[Json], named: NamedGallery | None, checkpoint: Path | None, model: Embedder, flip: bool
) -> NamedGallery:
    """Add features of the tracklets' crops to the gallery, without identities and without saving the gallery."""
    from lreid.models.fingerprint import fingerprint

    paths = [f"{CROPS}/{row['key']}/{name}" for row in rows for name in row["crops"]]
    cameras = [row["camera"] for row in rows for _ in row["crops"]]
    seconds = [int(row["start"]) for row in rows for _ in row["crops"]]
    records = [ImageRecord(str(folder / path), UNKNOWN, UNKNOWN) for path in paths]
    features = extract(model, Images(records, height=model.height, width=model.width), flip)
    ids = [f"{CROPS}/"] * len(paths)  # a name that no identity has; _label replaces this name
    if named is not None:
        named.gallery.add(features, paths, ids, cameras, seconds, model=fingerprint(model))
        return named
    assert checkpoint is not None
    place = place_of(folder / GALLERY)
    extras = NamedGallery.extras(checkpoint, flip, None)
    gallery = Gallery.build(features, paths, ids, cameras, seconds, model=fingerprint(model), at=place, extras=extras)
    return NamedGallery(gallery, str(folder / GALLERY), checkpoint, flip, None)


def _link(record: Record, named: NamedGallery, new: Sequence[Json], old: Sequence[Json], options: Options) -> None:
    """Assign identities to new tracklets, and record how similar each tracklet is to the others of its identity."""
    numbers = {record.name_of(each["identity"]): each["identity"] for each in old}
    numbers |= {name: int(number) for number, name in record.content["names"].items()}
    enrolled = _enrolled(named)
    for _, name in enrolled:
        if name not in numbers:
            numbers[name] = record.new_identity()
            record.content["names"][str(numbers[name])] = name
    place, least = _travel(record)
    rows = [*old, *new]
    features, of_enrolled = _features(record, named, rows, [path for path, _ in enrolled], options, len(old))
    cameras = np.array([place[row["camera"]] for row in rows] + [len(place)] * len(enrolled))
    times = np.array([[row["start"], row["end"]] for row in rows] + [[-np.inf] * 2] * len(enrolled)).reshape(-1, 2)
    everything = Tracklets(cameras, times[:, 0], times[:, 1], np.concatenate([features, of_enrolled]))
    known_rows = np.r_[0 : len(old), len(rows) : len(everything)]
    earlier, fresh = everything[known_rows], everything[np.arange(len(old), len(rows))]
    numbered = [row["identity"] for row in old] + [numbers[name] for _, name in enrolled]
    order = sorted(set(numbered))
    identities = np.searchsorted(order, numbered).astype(np.int64)
    labels = _labels(record, fresh, earlier, identities, least, new, order, options)
    record.content["model"] = named.gallery.about.model
    sums = np.zeros((max([len(order), *(labels + 1).tolist()]), everything.features.shape[1]))
    np.add.at(sums, np.concatenate([identities, labels]), np.concatenate([earlier.features, fresh.features]))
    sizes = np.bincount(np.concatenate([identities, labels]), minlength=len(sums))
    created: dict[int, int] = {}
    for row, label, feature in zip(new, labels.tolist(), fresh.features, strict=True):
        others = int(sizes[label]) - 1
        score = float(sums[label] @ feature - feature @ feature) / others if others else None
        if label >= len(order) and label not in created:
            created[label] = record.new_identity()
        row["identity"] = created[label] if label >= len(order) else order[label]
        row["score"] = None if score is None else round(score, 4)
        row["why"] = f"{'new' if label >= len(order) else 'earlier'} identity, {counted(others, 'other tracklet')}"


def _travel(record: Record) -> tuple[dict[str, int], np.ndarray]:
    """Number the cameras, and return the user's travel times; all enrolled images count as one more camera."""
    place = {name: number for number, name in enumerate(dict.fromkeys(e["camera"] for e in record.content["clips"]))}
    times = [(place[a], place[b], seconds) for a, b, seconds in record.content["travel"] if {a, b} <= place.keys()]
    return place, least_times(len(place) + 1, times)


def _require_threshold(
    record: Record, new: Sequence[Json], old: Sequence[Json], named: NamedGallery | None, options: Options
) -> None:
    """Check that there is a threshold, or that new tracklets can calibrate one, before features are extracted.

    Raises:
        InputError: there is no threshold, and none can be calibrated.
    """
    if options.rule.threshold is not None:
        return
    if options.delay is None:
        place, least = _travel(record)

        def passages(rows: Sequence[Json]) -> Tracklets:
            cameras, starts, ends = ([row[name] for row in rows] for name in ("camera", "start", "end"))
            numbers = np.array([place[camera] for camera in cameras], dtype=np.int64)
            return Tracklets(numbers, np.array(starts), np.array(ends), np.zeros((len(rows), 0), np.float32))

        identities = np.array([row["identity"] for row in old])
        impostors(passages(new), options.rule.travel(passages(old), identities, least))
    elif record.content["threshold"] is None:
        raise InputError("--online has no data to calibrate on yet; link one day without it first, or pass --threshold")
    elif named and record.content["model"] not in (None, named.gallery.about.model):
        raise InputError(
            "--online has no threshold for the gallery's new model yet; link one day without it first, or pass "
            "--threshold"
        )


def _labels(
    record: Record,
    fresh: Tracklets,
    earlier: Tracklets,
    identities: np.ndarray,
    least: np.ndarray,
    rows: Sequence[Json],
    order: Sequence[int],
    options: Options,
) -> np.ndarray:
    """Link new tracklets, all at once or online; return their labels, and record the threshold."""
    if options.delay is None:
        index = {row["key"]: number for number, row in enumerate(rows)}
        must = [[index[key] for key in group if key in index] for group in record.content["same"]]
        cannot = [(index[a], index[b]) for a, b in record.content["apart"] if a in index and b in index]
        # In a relink, the tracklets still have the numbers of the enrolled people from whom the user separated others.
        both = [*cannot, *((b, a) for a, b in cannot)]
        strangers = [(b, order.index(number)) for a, b in both if (number := rows[a]["identity"]) in order]
        links = link(
            fresh,
            least,
            options.rule,
            earlier=earlier,
            identities=identities,
            must=must,
            cannot=cannot,
            strangers=strangers,
        )
        record.content["threshold"] = links.threshold
        return links.labels
    threshold = record.content["threshold"] if options.rule.threshold is None else options.rule.threshold
    record.content["threshold"] = threshold
    linker = OnlineLinker(options.rule.travel(earlier, identities, least), threshold, earlier, identities)
    labels = np.zeros(len(fresh), np.int64)
    step = np.floor(fresh.ends / options.delay) if options.delay > 0 else fresh.ends
    for each in np.unique(step):
        labels[step == each] = linker.add(fresh[np.flatnonzero(step == each)])
    return labels


def _features(
    record: Record, named: NamedGallery, rows: Sequence[Json], enrolled: Sequence[str], options: Options, earlier: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return unit features (N, D) of tracklets and (E, D) of enrolled images, standardised if requested."""
    labels = named.gallery.labels()
    vectors = named.gallery.features(labels.keys)
    index = {path: number for number, path in enumerate(labels.paths)}
    crops = [
        [index[path] for name in row["crops"] if (path := f"{CROPS}/{row['key']}/{name}") in index] for row in rows
    ]
    lacking = next((row["key"] for row, of in zip(rows, crops, strict=True) if not of), None)
    if lacking is not None:
        raise InputError(f"{named.where}: lacks the crops of {lacking}; remove that identity, or restore the gallery")
    if options.standardise:
        from lreid.retrieval.camera_norm import CameraNorm

        online = options.delay is not None and earlier > 0
        source = {each["name"]: each["camera"] if online else each["name"] for each in record.content["clips"]}
        numbers = {name: number for number, name in enumerate(dict.fromkeys(source.values()))}
        of_image = np.full(len(vectors), UNKNOWN)
        for row, of in zip(rows, crops, strict=True):
            of_image[of] = numbers[source[row["key"].rpartition("/")[0]]]
        past = np.concatenate(crops[:earlier] if online else crops).astype(np.int64)
        vectors = CameraNorm.estimate(vectors[past], of_image[past])(vectors, of_image)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12)
    means = [
        robust_mean(vectors[of], np.array([row["crops"][labels.paths[each].rpartition("/")[2]] for each in of]))
        for row, of in zip(rows, crops, strict=True)
    ]
    return np.stack(means), vectors[[index[path] for path in enrolled]]


def _enrolled(named: NamedGallery) -> list[tuple[str, str]]:
    """Return the path and name of each enrolled image in the gallery."""
    images = ((image.path, image.identity) for image in named.images())
    return [(path, name) for path, name in images if name is not None and not path.startswith(f"{CROPS}/")]


def _label(named: NamedGallery, record: Record) -> None:
    """Give every crop in the gallery the name of its identity, rename enrolled people, and save the gallery."""
    names = {f"{CROPS}/{each['key']}": record.name_of(each["identity"]) for each in record.tracklets}
    labels, renamed = named.gallery.labels(), record.renamed
    rows = zip(labels.paths, labels.ids, strict=True)
    wanted = [names.get(str(path).rpartition("/")[0], renamed.get(name)) for path, name in rows]
    wrong = [row for row, name in enumerate(wanted) if name is not None and name != labels.ids[row]]
    if wrong:
        vectors, paths = named.gallery.features(labels.keys[wrong]), [str(labels.paths[row]) for row in wrong]
        named.gallery.remove(paths)
        model = named.gallery.about.model
        ids = [wanted[row] for row in wrong]
        named.gallery.add(vectors, paths, ids, labels.cams[wrong], labels.times[wrong], model=model)
    named.gallery.save()


def _write_tracks(folder: Path, record: Record) -> None:
    """Write one MOT file per recording, in which the track numbers are identities."""
    lines: dict[str, list[tuple[int, int, str]]] = {clip["name"]: [] for clip in record.content["clips"]}
    for each in record.tracklets:
        with contextlib.suppress(FileNotFoundError):
            for line in (folder / CROPS / each["key"] / BOXES).read_text().splitlines():
                frame, _, box = line.partition(",")
                lines[each["key"].rpartition("/")[0]].append((int(frame), each["identity"], box))
    for name, boxes in lines.items():
        text = "".join(f"{frame},{identity},{box},1,-1,-1,-1\n" for frame, identity, box in sorted(boxes))
        write_text(folder / TRACKS / f"{name.replace('/', '-')}.txt", text)


def _sweep(folder: Path, record: Record, enrolled: Sequence[str] = ()) -> None:
    """Delete the given enrolled images, and all crops, features and MOT files that the record does not list."""
    keys = {each["key"] for each in record.tracklets}
    place = place_of(folder / GALLERY)
    remove_leftovers(folder)  # a temporary gallery of a killed process has features of people
    for each in [place, *place.others()] if place.exists() else []:
        named = NamedGallery.load(each, unfinished=True)
        paths = named.gallery.store.labels().paths.tolist()
        outdated = [
            path
            for path in paths
            if path.startswith(f"{CROPS}/") and path[len(CROPS) + 1 :].rpartition("/")[0] not in keys
        ]
        outdated += [path for path in enrolled if path in paths]
        if outdated:
            named.gallery.remove(outdated)
            named.gallery.save()
    # Files outside the folders CAMERA/START/TRACK are not lreid's; macOS writes .DS_Store into every folder it shows.
    inside = (file.relative_to(folder / CROPS).parts for file in files_below(folder / CROPS))
    for key in {"/".join(parts[:3]) for parts in inside if len(parts) > 3} - keys:
        doomed = folder / CROPS / key
        shutil.rmtree(doomed)
        with contextlib.suppress(OSError):  # raised if a folder still contains other tracklets
            doomed.parent.rmdir()
            doomed.parent.parent.rmdir()
    names = {f"{clip['name'].replace('/', '-')}.txt" for clip in record.content["clips"]}
    for file in list_folder(folder / TRACKS, "*.txt"):
        if file.name not in names:
            file.unlink()
