"""The folder of linked recordings: change it in one step, and keep its parts consistent with its record.

The folder contains ``identities.json``, ``people.gallery`` (features of the crops, under their paths in the folder),
``tracklets/CAMERA/START/TRACK/`` (crops and boxes), ``tracks/`` (MOT files with identities) and ``index.html``. A
change takes effect at the moment when ``identities.json`` is written. A command writes new files before
``identities.json`` and deletes old files after it. Before either, the command lists these files in a journal,
``.unfinished.lreid``. A command that fails deletes the files that are in the journal but not in ``identities.json``.
After a command was killed, the next command deletes such files. No command deletes other files.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lreid.errors import InputError, NotConfirmed
from lreid.gallery.gallery import Gallery, place_of
from lreid.link.cutting import BOXES
from lreid.link.page import write_identities_page
from lreid.link.record import RECORD_FILE, LinkRecord
from lreid.utils.files import (
    UNFINISHED,
    files_below,
    make_folder,
    only_one_process,
    remove_leftovers,
    require_own,
    write_text,
)
from lreid.utils.reading import read_text

GALLERY, CROPS, TRACKS, PAGE = "people.gallery", "tracklets", "tracks", "index.html"
JOURNAL = ".unfinished.lreid"
IN_TRACKLET = re.compile(rf"[0-9]+\.jpg|{re.escape(BOXES)}|{UNFINISHED.pattern}")  # names of lreid's files


@dataclass
class FolderChange:
    """A change of a folder.

    Attributes:
        record: the record, which the command changes.
        gallery: the gallery to save, if the command has changed or created it.
    """

    record: LinkRecord
    gallery: Gallery | None = None


@contextlib.contextmanager
def changing(folder: Path, action: str, *, new: bool = False) -> Iterator[FolderChange]:
    """Lock a folder, yield a change with its record, and store the change if the record has changed.

    Args:
        action: name of the change in the history; "" if the change itself rewrites the history.
        new: whether to create the folder if it does not exist.

    Raises:
        InputError: the folder does not exist, or a file cannot be read or written.
    """
    if not new and not folder.is_dir():
        raise InputError(f"{folder}: no such folder; create it with lreid link add")
    existed = folder.exists()
    try:
        if new:
            make_folder(folder)
        with only_one_process(folder):
            require_own(folder / PAGE)
            is_new = new and not (folder / RECORD_FILE).exists()
            yield from _store(folder, action, LinkRecord() if is_new else LinkRecord.read(folder))
    except OSError as error:
        raise InputError(
            f"{error.filename or folder}: {error.strerror or error}; earlier links are not affected: free some space "
            "or correct the permissions, then repeat the command"
        ) from None
    finally:
        if not existed:  # a command that failed has written nothing
            with contextlib.suppress(OSError):
                folder.rmdir()


def _store(folder: Path, action: str, record: LinkRecord) -> Iterator[FolderChange]:
    """Yield a change, then write new files, the record and, last, delete old files."""
    _sweep(folder, record)
    change, before = FolderChange(record), _paths(record)
    try:
        yield change
        if not record.changed:
            return
        if action:  # undo and removals have changed the history themselves
            record.remember(action)
        _label(change.gallery or Gallery.load(folder / GALLERY), record)
        _write_tracks(folder, record)
        write_identities_page(folder / PAGE, record)
        if changed := before ^ _paths(record):
            write_text(folder / JOURNAL, "\n".join(changed))
        record.write(folder)
    except BaseException:
        with contextlib.suppress(InputError, OSError):
            _sweep(folder, LinkRecord.read(folder) if (folder / RECORD_FILE).exists() else LinkRecord())
        raise
    try:
        _sweep(folder, record)
    except (InputError, OSError) as error:
        raise NotConfirmed(
            f"{folder / RECORD_FILE}: done, but some old files could not be deleted ({error}); the next lreid link "
            "command for this folder tries again"
        ) from None


def enrolled_images(gallery: Gallery) -> list[tuple[str, str]]:
    """Return the path and name of each enrolled image in the gallery."""
    images = ((image.path, image.identity) for image in gallery.images())
    return [(path, name) for path, name in images if name is not None and not path.startswith(f"{CROPS}/")]


def _label(gallery: Gallery, record: LinkRecord) -> None:
    """Give every crop in the gallery the name of its identity, rename enrolled people, and save the gallery."""
    names = {f"{CROPS}/{each['key']}": record.name_of(each["identity"]) for each in record.tracklets}
    labels, renamed = gallery.labels(), record.renamed
    rows = zip(labels.paths, labels.ids, strict=True)
    wanted = [names.get(str(path).rpartition("/")[0], renamed.get(name)) for path, name in rows]
    wrong = [row for row, name in enumerate(wanted) if name is not None and name != labels.ids[row]]
    if wrong:
        vectors, paths = gallery.features(labels.keys[wrong]), [str(labels.paths[row]) for row in wrong]
        gallery.remove(paths)
        model = gallery.about.model
        ids = [wanted[row] for row in wrong]
        gallery.add(vectors, paths, ids, labels.cams[wrong], labels.times[wrong], model=model)
    gallery.save()


def boxes_of(folder: Path, key: str) -> list[tuple[int, str]]:
    """Return the frame and the box (``left,top,width,height``) of each line of a tracklet's boxes."""
    with contextlib.suppress(FileNotFoundError):
        lines = (folder / CROPS / key / BOXES).read_text().splitlines()
        return [(int(frame), box) for frame, _, box in (line.partition(",") for line in lines)]
    return []


def _write_tracks(folder: Path, record: LinkRecord) -> None:
    """Write one MOT file per recording, in which the track numbers are identities."""
    lines: dict[str, list[tuple[int, int, str]]] = {clip["name"]: [] for clip in record.content["clips"]}
    for each in record.tracklets:
        boxes = boxes_of(folder, each["key"])
        lines[each["key"].rpartition("/")[0]] += [(frame, each["identity"], box) for frame, box in boxes]
    for name, rows in lines.items():
        text = "".join(f"{frame},{identity},{box},1,-1,-1,-1\n" for frame, identity, box in sorted(rows))
        write_text(folder / _mot_file(name), text)


def announce(folder: Path, names: Sequence[str]) -> None:
    """List the files of new recordings in the journal before they are written.

    Raises:
        InputError: files with the names of the new recordings exist already; they are not of lreid.
    """
    paths = {path for name in names for path in (f"{CROPS}/{name}", _mot_file(name))}
    require_own(*(folder / path for path in paths))
    write_text(folder / JOURNAL, "\n".join(paths))


def _mot_file(recording: str) -> str:
    return f"{TRACKS}/{recording.replace('/', '-')}.txt"


def _paths(record: LinkRecord) -> set[str]:
    """Return the files and folders that a record lists, relative to its folder."""
    clips = [clip["name"] for clip in record.content["clips"]]
    keys = [*clips, *(each["key"] for each in record.tracklets)]
    return {*(f"{CROPS}/{key}" for key in keys), *map(_mot_file, clips)}


def _sweep(folder: Path, record: LinkRecord) -> None:
    """Delete what the journal lists and the record does not: crops, features and MOT files."""
    remove_leftovers(folder)  # a temporary gallery of a killed process has features of people
    if not (folder / JOURNAL).exists():
        return
    doomed = sorted({*read_text(folder / JOURNAL).splitlines()} - _paths(record))
    place = place_of(folder / GALLERY)
    for each in [place, *place.others()] if place.exists() and doomed else []:
        gallery = Gallery.load(each, unfinished=True)
        paths = gallery.store.labels().paths.tolist()
        if outdated := [path for path in paths if path.startswith(tuple(f"{name}/" for name in doomed))]:
            gallery.remove(outdated)
            gallery.save()
    for path in (folder / name for name in doomed):
        of_tracklets = (file for file in files_below(path) if IN_TRACKLET.fullmatch(file.name))
        for file in [path] if path.is_file() else of_tracklets:
            file.unlink()
        for inner, *_ in os.walk(path, topdown=False):  # also folders that a killed command left empty
            with contextlib.suppress(OSError):  # the folder is gone already, or has other files
                os.removedirs(inner)
    (folder / JOURNAL).unlink()
