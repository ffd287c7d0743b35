import json
from dataclasses import replace

import numpy as np
import pytest
from matlab_files import WRITERS, cells
from PIL import Image

from lreid.data.datasets import cuhk03, spec_of
from lreid.errors import InputError

# people of two pairs of cameras with the numbers of their images; 1 to 5 are by view 1, 6 to 10 by view 2
PEOPLE = {(1, 1): (1, 2, 6), (1, 2): (1, 7, 10), (2, 1): (2, 6), (2, 2): (5,)}
FILES = [
    "1_001_1_01.png",
    "1_001_1_02.png",
    "1_001_2_06.png",
    "1_002_1_01.png",
    "1_002_2_07.png",
    "1_002_2_10.png",
    "2_001_1_02.png",
    "2_001_2_06.png",
    "2_002_1_05.png",
]
TRAIN = [4, 5, 6]  # of FILES, from 1
QUERY = [7, 1]
GALLERY = [2, 3, 8, 9]
LABELS = [1, 1, 1, 2, 2, 2, 3, 3, 4]


def colour(pair, person, number):
    """Each image in a colour of its own, taller than wide, so that swapped axes show."""
    return np.full((7, 3, 3), (pair, person, number), dtype=np.uint8)


def release():
    def person(pair, number):
        return [colour(pair, number, i) if i in PEOPLE[pair, number] else np.zeros((0, 0)) for i in range(1, 11)]

    pairs = [cells([person(pair, number) for number in (1, 2)]) for pair in (1, 2)]
    test_sets = [np.array([[1, 1], [2, 2]]), np.array([[1, 2], [2, 1]])]
    return {"detected": cells(pairs), "labeled": cells(pairs), "testsets": cells(test_sets)}


def config(version, file, names=FILES, train=TRAIN):
    WRITERS[version](
        file,
        {
            "train_idx": np.array([train]).T,
            "query_idx": np.array([QUERY]).T,
            "gallery_idx": np.array([GALLERY]).T,
            "labels": np.array([LABELS]).T,
            "filelist": cells(list(names)),
        },
    )


@pytest.fixture(params=WRITERS)
def root(request, tmp_path):
    """The release and the files of the new protocol, not yet prepared."""
    home = tmp_path / "cuhk03"
    (home / "cuhk03_release").mkdir(parents=True)
    WRITERS[request.param](home / "cuhk03_release/cuhk-03.mat", release())
    for boxes in ("detected", "labeled"):
        config(request.param, home / f"cuhk03_new_protocol_config_{boxes}.mat")
    return tmp_path


@pytest.mark.parametrize("boxes", ["detected", "labeled"])
def test_images_come_out_of_the_release(root, boxes):
    cuhk03.convert(root / "cuhk03")
    folder = root / "cuhk03" / f"images_{boxes}"
    assert sorted(path.name for path in folder.iterdir()) == FILES
    for (pair, person), numbers in PEOPLE.items():
        for number in numbers:
            file = folder / f"{pair}_{person:03d}_{1 if number <= 5 else 2}_{number:02d}.png"
            assert np.array_equal(np.array(Image.open(file)), colour(pair, person, number))
    assert json.loads((root / "cuhk03" / cuhk03.TEST_SETS).read_text()) == [[[1, 1], [2, 2]], [[1, 2], [2, 1]]]


def test_new_protocol(root):
    cuhk03.convert(root / "cuhk03")
    data_set = spec_of("cuhk03_detected").load(root)
    folder = root / "cuhk03/images_detected"
    assert data_set.name == "cuhk03_detected"
    assert data_set.train == (
        (str(folder / "1_002_1_01.png"), 2, 1),
        (str(folder / "1_002_2_07.png"), 2, 2),
        (str(folder / "1_002_2_10.png"), 2, 2),
    )
    assert [record[1:] for record in data_set.query] == [(1, 1), (3, 1)]
    assert [record[1:] for record in data_set.gallery] == [(1, 1), (1, 2), (3, 2), (4, 1)]
    assert "images_labeled" in spec_of("cuhk03_labeled").load(root).train[0].path
    (root / "cuhk03/cuhk03_new_protocol_config_labeled.mat").unlink()
    with pytest.raises(InputError, match="CUHK03: .* lacks cuhk03_new_protocol_config_labeled.mat"):
        spec_of("cuhk03_labeled").load(root)


def test_classic_protocol(root):
    cuhk03.convert(root / "cuhk03")
    first = spec_of("cuhk03_classic_detected").load(root)
    assert {record.pid for record in first.train} == {10002, 20001}
    assert [record[1:] for record in first.query] == [(10001, 1), (10001, 1), (10001, 2), (20002, 1)]
    assert first.gallery == first.query
    second = spec_of("cuhk03_classic_labeled").load(root, split=1)
    assert {record.pid for record in second.query} == {10002, 20001}
    with pytest.raises(InputError, match="classic_test_sets.json: .*2"):
        spec_of("cuhk03_classic_detected").load(root, split=2)
    shots = spec_of("cuhk03_classic_detected_single_shot").load(root)
    assert shots == replace(first, name="cuhk03_classic_detected_single_shot", single_shot=True)


def test_interrupted_preparation_resumes(root):
    unfinished = root / "cuhk03/.images_detected.unfinished.lreid"
    unfinished.mkdir()
    (unfinished / "1_001_1_01.png").write_bytes(b"made before")
    (unfinished / ".1_001_1_02.png.0123abcd.lreid").write_bytes(b"half")
    cuhk03.convert(root / "cuhk03")
    folder = root / "cuhk03/images_detected"
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert (folder / "1_001_1_01.png").read_bytes() == b"made before"  # not made twice
    assert Image.open(folder / "1_001_1_02.png").size == (3, 7)
    assert not unfinished.exists()
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    cuhk03.convert(root / "cuhk03")
    assert before == {path: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_unprepared_release_names_the_command(root):
    for name, missing in (
        ("cuhk03_detected", "images_detected/; .*cuhk-03.mat"),
        ("cuhk03_classic_labeled", "images_labeled/, classic_test_sets.json; "),
    ):
        with pytest.raises(InputError, match=f"lacks {missing}.* prepare cuhk03_"):
            spec_of(name).load(root)


@pytest.mark.parametrize(
    "change", [{"names": ["x.png", *FILES[1:]], "train": [1]}, {"names": FILES[1:]}, {"train": [99]}]
)
def test_other_annotations_raise_an_error(root, change):
    cuhk03.convert(root / "cuhk03")
    config("older", root / "cuhk03/cuhk03_new_protocol_config_detected.mat", **change)
    with pytest.raises(InputError, match="config_detected.mat: "):
        spec_of("cuhk03_detected").load(root)


def test_release_of_something_else_is_refused(root):
    WRITERS["older"](root / "cuhk03/cuhk03_release/cuhk-03.mat", {"other": np.ones(3)})
    with pytest.raises(InputError, match="cuhk-03.mat: "):
        cuhk03.convert(root / "cuhk03")
    assert not (root / "cuhk03/images_detected").exists()
