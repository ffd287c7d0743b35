"""VeRi-776 (Liu et al., A Deep Learning-Based Approach to Progressive Vehicle Re-ID, ECCV 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lreid.data.datasets.layout import find_home, read_folders
from lreid.data.records import DataSet, Record
from lreid.errors import InputError

FOLDERS = {"train": "image_train", "query": "image_query", "gallery": "image_test"}
EXAMPLE = "0001_c001_00016450_0.jpg"  # vehicle 1, camera 1
PATTERN = r"(?P<pid>-1|\d+)_c(?P<camid>\d+)"
TRACKS = "test_track.txt"


def load(root: Path, *, tracks: bool = False) -> DataSet:
    """Loads VeRi-776 from ``root/veri`` or ``root/VeRi``.

    Published counts: train 576 identities / 37778 images, query 200 / 1678, gallery 200 / 11579; 20 cameras,
    numbered 1 to 20.

    Args:
        root: where the data sets lie.
        tracks: rank the tracks of ``test_track.txt`` instead of single images, as the authors' figures do (see
            :func:`lreid.retrieval.evaluate_image_to_track`).

    Raises:
        InputError: a folder or file is missing or laid out differently, a file name is wrong, or a split is empty.
    """
    home = find_home(
        root,
        ["veri", "VeRi", "veri/VeRi"],
        folders=FOLDERS.values(),
        files=[TRACKS] if tracks else [],
        title="VeRi-776",
        source="its authors (https://vehiclereid.github.io/VeRi/, on request)",
    )
    data_set = read_folders("veri776", home, FOLDERS, PATTERN, EXAMPLE)
    if not tracks:
        return data_set
    return replace(data_set, name="veri776_tracks", tracks=_read_tracks(home / TRACKS, data_set.gallery))


def _read_tracks(file: Path, gallery: Sequence[Record]) -> tuple[int, ...]:
    """The line that each gallery image stands in; a line names a track and then its images."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    line_of = {name: number for number, line in enumerate(lines) for name in line.split()}
    names = [Path(record.path).name for record in gallery]
    missing = next((name for name in names if name not in line_of), None)
    if missing is not None:
        raise InputError(f"{file}: has no track of {missing}; get the file again, or remove the image")
    return tuple(line_of[name] for name in names)
