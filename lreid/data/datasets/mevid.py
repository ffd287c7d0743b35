"""MEVID (Davila et al., Multi-view Extended Videos with Identities for Video Person Re-Identification, WACV 2023).

    datasets/mevid/
    ├── bbox_train/0103/    0103O020C424T000F00009.jpg …   (person, outfit, camera, tracklet, frame)
    ├── bbox_test/0201/     0201O003C330T004F00192.jpg …
    ├── train_name.txt, test_name.txt   one image per line
    ├── track_train_info.txt, track_test_info.txt   per tracklet: first and last image, person, outfit, camera
    ├── query_IDX.txt       line numbers of the queries in track_test_info.txt, from 0; the others are the gallery
    └── outfit_dates.txt   not published, for `mevid-dates`: person, outfit and date per line, such as 103 20 2018-03-07

MEVID shows 158 consenting actors in 598 outfits and 8,092 tracklets. The archives are `mevid-v1-bbox-train.tgz` (30
GB), `mevid-v1-bbox-test.tgz` (13 GB) and `mevid-v1-annotation-data.zip`. `lreid data prepare mevid --frames 16` reads
the archives as streams and writes up to 16 frames per tracklet. Queries and gallery entries are tracklets; the feature
of a tracklet is the mean over its frames. The authors compute their figures from all frames. `EVAL.OUTFITS` limits
matches to images in the query's outfit or in other outfits. In the benchmarks `mevid-dates` and `mevid-sites`, a person
may occur in several tasks. The release does not say on which date a person wore an outfit.
"""

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lreid.data.layout import read_lines
from lreid.data.records import DataSet, Frame
from lreid.data.spec import Layout, Spec, published
from lreid.errors import InputError
from lreid.utils.files import describe_folder
from lreid.utils.identities import JUNK
from lreid.utils.reading import naming_damage

SPLITS = ("train", "test")
MOST = 1e9  # limit of the numbers in a list; the file of names has 10 million lines
QUERIES, DATES = "query_IDX.txt", "outfit_dates.txt"
TEXTS = (*(name.format(split) for split in SPLITS for name in ("{}_name.txt", "track_{}_info.txt")), QUERIES)
NAME = re.compile(r"(?P<pid>\d{4})O(?P<outfit>\d{3})C(?P<camid>\d+)T\d{3}F\d{5}\.jpg")


class Tracklet(NamedTuple):
    """One line of ``track_train_info.txt`` or ``track_test_info.txt``.

    Attributes:
        number: number of the line, from 0.
        first, last: line numbers of the tracklet's first and last image in the file of names, counted from 0. For an
            empty tracklet, ``last`` is below ``first``.
        pid: number of the person, -1 for junk.
        outfit, camid: outfit and camera.
    """

    number: int
    first: int
    last: int
    pid: int
    outfit: int
    camid: int


def read(home: Path) -> DataSet:
    """Read MEVID with all frames that exist on disk; cameras are numbered as in the release.

    Raises:
        InputError: a line is malformed or contradicts another file, or no frame of a tracklet exists.
    """
    train, test = (_frames(home, split) for split in SPLITS)
    queries = {query for (query,) in _rows(home / QUERIES, 1)}
    if outside := queries - set(range(len(_rows(home / "track_test_info.txt", 5)))):
        raise InputError(f"{home / QUERIES}: {min(outside)} is no line of track_test_info.txt; download it again")
    return DataSet(
        "mevid",
        tuple(train),
        tuple(frame for frame in test if frame.tracklet in queries),
        tuple(frame for frame in test if frame.tracklet not in queries),
        tracklets=True,
        dates=_dates(home / DATES) if (home / DATES).exists() else {},
    )


def _frames(home: Path, split: str) -> list[Frame]:
    """List the existing frames of a split, tracklet by tracklet."""
    folder = home / f"bbox_{split}"
    files_of = {person.name: set(os.listdir(person)) for person in folder.iterdir() if person.is_dir()}
    frames, lacking = [], {}
    for tracklet, names in _named_tracklets(home, split):
        person = f"{tracklet.pid:04d}"
        existing = [name for name in names if name in files_of.get(person, ())]
        paths = (f"{folder}/{person}/{name}" for name in existing)
        frames += [Frame(path, tracklet.pid, tracklet.camid, tracklet.outfit, tracklet.number) for path in paths]
        if not existing:
            lacking[tracklet.number] = names[0]
    if lacking:
        number, name = next(iter(lacking.items()))
        raise InputError(
            f"{folder}: has no frame of {len(lacking)} tracklets, such as {name} of line {number + 1} in "
            f"track_{split}_info.txt; run: lreid data prepare mevid --root {home.parent}"
        )
    return frames


def _named_tracklets(home: Path, split: str) -> Iterator[tuple[Tracklet, list[str]]]:
    """Yield each tracklet with the names of its images, but without empty tracklets and junk."""
    info, file = home / f"track_{split}_info.txt", home / f"{split}_name.txt"
    tracklets = [Tracklet(number, *row) for number, row in enumerate(_rows(info, 5))]
    start = 0  # line number of the next name
    # The file of names has millions of lines, so it is read once, in the order of the tracklets' first images.
    with open(file, encoding="utf-8", errors="replace") as lines:
        for tracklet in sorted(tracklets, key=lambda tracklet: tracklet.first):
            if tracklet.pid == JUNK or tracklet.last < tracklet.first:
                continue
            skipped = max(tracklet.first - start, 0)  # 0 for images of two tracklets, which lack labels below
            names = [line.strip() for line in islice(lines, skipped, max(tracklet.last + 1 - start, skipped))]
            start = tracklet.last + 1
            labels = [[int(each) for each in match.groups()] for match in map(NAME.fullmatch, names) if match]
            if len(labels) != tracklet.last + 1 - tracklet.first or any(each != [*tracklet[3:]] for each in labels):
                raise InputError(
                    f"{file}:{tracklet.first + 1}: expected names of images of person {tracklet.pid}, outfit "
                    f"{tracklet.outfit}, camera {tracklet.camid} (line {tracklet.number + 1} of {info.name}); "
                    "download both files again"
                )
            yield tracklet, names


def _rows(file: Path, columns: int) -> list[list[int]]:
    """Read the integers of each line, which numpy may have written as floats."""
    with naming_damage(file, f"has other lines than {columns} whole numbers", "download the file again"):
        values = np.loadtxt(file, usecols=range(columns), ndmin=2)
        if not ((values == values.round()) & (abs(values) < MOST)).all():  # NaN is unequal to itself
            raise ValueError("a number is a fraction, infinite or too large")
        return values.astype(np.int64).tolist()


def _dates(file: Path) -> dict[tuple[int, int], str]:
    """Read the date of each outfit; keys are pairs of person and outfit number."""
    lines = read_lines(file, r"(\d+)\s+(\d+)\s+(\d{4}-\d\d-\d\d)", "103 20 2018-03-07")
    return {(int(line[1]), int(line[2])): line[3] for line in lines}


def unpack_frames(archives: Sequence[Path], home: Path, frames: int) -> None:
    """Unpack all text files, and evenly spaced frames of each tracklet; skip files that exist.

    Raises:
        InputError: an archive is damaged, or a required file is in none of the archives.
    """
    from lreid.data.prepare import extract

    texts = {name: home / name for name in TEXTS if not (home / name).is_file()}
    for archive in sorted(archives, key=lambda archive: archive.stat().st_size if archive.exists() else 0):
        if texts:
            extract(archive, texts)
    if texts:
        raise InputError(
            f"{home}: lacks {', '.join(texts)}; put mevid-v1-annotation-data.zip there, or name it with --archive; "
            f"{describe_folder(home)}"
        )
    for split in SPLITS:
        wanted = {
            name: path
            for tracklet, names in _named_tracklets(home, split)
            for name in _spread(names, frames)
            if not (path := home / f"bbox_{split}" / f"{tracklet.pid:04d}" / name).is_file()
        }
        for archive in [each for each in archives if split in each.name] or archives:
            if wanted:
                extract(archive, wanted)
        if wanted:
            raise InputError(
                f"{home}: {len(wanted)} frames of bbox_{split} are in none of the archives, such as {min(wanted)}; put "
                f"the whole mevid-v1-bbox-{split}.tgz there, or name it with --archive, and run the command again"
            )


def _spread(names: Sequence[str], count: int) -> list[str]:
    """Choose ``count`` evenly spaced images of a tracklet, or all images of a shorter tracklet."""
    count = min(count, len(names))
    return [names[(2 * part + 1) * len(names) // (2 * count)] for part in range(count)]


SPECS = (
    Spec(
        name="mevid",
        read=read,
        title="MEVID",
        source="https://mevadata.org/",
        licence="video: CC BY 4.0; annotations: unknown, none is stated",
        layout=Layout(("mevid",), tuple(f"bbox_{split}" for split in SPLITS), TEXTS),
        unpack_frames=unpack_frames,
        published=published(train=(104, None)),
        remark="tracklets; outfits",
    ),
)
