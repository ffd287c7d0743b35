"""VeRi-776 (Liu et al., A Deep Learning-Based Approach to Progressive Vehicle Re-ID, ECCV 2016).

    datasets/veri/
    ├── image_train/    0001_c001_00016450_0.jpg …   (37778 images)
    ├── image_query/    0002_c002_00030600_0.jpg …   (1678)
    ├── image_test/     0002_c003_00084340_0.jpg …   (11579)
    └── test_track.txt  for `veri776_tracks`: per track one line with its name and its images

`veri776` ranks gallery images. `veri776_tracks` ranks the tracks of `test_track.txt`, as the authors do.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from lreid.data.layout import read_folders
from lreid.data.records import DataSet, Record
from lreid.data.spec import Layout, Spec, published
from lreid.errors import InputError

FOLDERS = {"train": "image_train", "query": "image_query", "gallery": "image_test"}
EXAMPLE = "0001_c001_00016450_0.jpg"  # vehicle 1, camera 1
PATTERN = r"(?P<pid>-1|\d+)_c(?P<camid>\d+)_\d+_\d+"
TRACKS = "test_track.txt"


def read(home: Path, *, tracks: bool = False) -> DataSet:
    """Read VeRi-776; cameras are numbered 1 to 20.

    Args:
        tracks: whether to rank the tracks of ``test_track.txt`` instead of single images, as the authors do
            (:func:`lreid.retrieval.evaluate_image_to_track`).
    """
    data_set = read_folders("veri776", home, FOLDERS, PATTERN, EXAMPLE)
    if not tracks:
        return data_set
    return replace(data_set, name="veri776_tracks", tracks=_read_tracks(home / TRACKS, data_set.gallery))


def _read_tracks(file: Path, gallery: Sequence[Record]) -> tuple[int, ...]:
    """Read the track of each gallery image; a line of the file contains a track's name and its images."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    line_of = {name: number for number, line in enumerate(lines) for name in line.split()}
    names = [Path(record.path).name for record in gallery]
    missing = next((name for name in names if name not in line_of), None)
    if missing is not None:
        raise InputError(f"{file}: has no track of {missing}; download the file again, or remove the image")
    return tuple(line_of[name] for name in names)


_IMAGES = Spec(
    name="veri776",
    read=read,
    title="VeRi-776",
    source="https://vehiclereid.github.io/VeRi/",
    on_request=True,
    licence="research, non-commercial",
    layout=Layout(("veri", "VeRi", "veri/VeRi"), tuple(FOLDERS.values())),
    published=published(train=(576, 37778), query=(200, 1678), gallery=(200, 11579), cameras=20),
    remark="vehicles",
)
_TRACKS = replace(
    _IMAGES,
    name="veri776_tracks",
    read=partial(read, tracks=True),
    layout=replace(_IMAGES.layout, files=(TRACKS,)),
    remark="vehicles; ranks tracks",
)
SPECS = (_IMAGES, _TRACKS)
