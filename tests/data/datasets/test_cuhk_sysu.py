import numpy as np
import pytest
from matlab_files import cells, write_old
from PIL import Image

from lreid.data.datasets import cuhk_sysu, spec_of
from lreid.data.prepare import prepare
from lreid.data.records import SPLITS
from lreid.errors import InputError

SCENES = {f"s{number}.jpg": (number * 20, 100, 50) for number in range(1, 8)}


def box(scene, left, top, width, height, hard=0, **more):
    return {"imname": scene, "idlocate": np.array([[left, top, width, height]]), "ishard": np.array([[hard]])} | more


TRAIN = [
    {"idname": "p3", "nAppear": 2, "scene": [box("s1.jpg", 0, 0, 10, 20), box("s2.jpg", 5, 5, 8, 16, hard=1)]},
    {"name": "p11", "number": 1, "scenes": [box("s1.jpg", 30, 2, 6, 12)]},  # one scene only
]
EMPTY = {"imname": "s6.jpg", "idlocate": np.zeros((0, 0)), "ishard": np.zeros((0, 0))}
TEST = [
    {
        "Query": box("s3.jpg", 1, 2, 10, 20, idname="p7"),
        "Gallery": [box("s4.jpg", 0, 0, 12, 24), box("s5.jpg", 3, 3, 4, 8, hard=1), EMPTY],
    },
    {"Query": box("s5.jpg", 9, 9, 7, 14, idname="p8"), "Gallery": [box("s7.jpg", 2, 2, 9, 18)]},
]


def structs(items):
    """A struct array as MATLAB writes it: one record, every field an array or text."""
    array = np.empty((1, len(items)), dtype=[(name, object) for name in items[0]])
    for i, item in enumerate(items):
        for name, value in item.items():
            array[name][0, i] = (
                structs(value) if isinstance(value, list) else (structs([value]) if isinstance(value, dict) else value)
            )
    return array


@pytest.fixture
def root(tmp_path):
    home = tmp_path / "cuhk-sysu/CUHK-SYSU"
    (home / "Image/SSM").mkdir(parents=True)
    (home / "annotation/test/train_test").mkdir(parents=True)
    for name, colour in SCENES.items():
        Image.new("RGB", (60, 40), colour).save(home / "Image/SSM" / name, quality=100)
    write_old(home / "annotation/test/train_test/Train.mat", {"Train": cells([structs([person]) for person in TRAIN])})
    write_old(home / "annotation/test/train_test/TestG50.mat", {"TestG50": structs(TEST)})
    return tmp_path


def test_crops_have_the_names_of_the_code_of_aka(root):
    prepare("cuhk_sysu", root)
    home = root / "cuhk-sysu/CUHK-SYSU/cuhksysu4reid"
    found = {split: sorted(path.name for path in (home / split).iterdir()) for split in SPLITS}
    assert found == {
        "train": ["00003_s1_0000000_0.jpg", "00003_s2_0000001_1.jpg", "00011_s1_0000002_0.jpg"],
        "query": ["00007_s3_0000000_0.jpg", "00008_s5_0000001_0.jpg"],
        "gallery": ["00007_s4_0000000_0.jpg", "00007_s5_0000001_1.jpg", "00008_s7_0000002_0.jpg"],
    }
    crop = Image.open(home / "train/00003_s2_0000001_1.jpg")
    assert crop.size == (8, 16)
    assert np.abs(np.array(crop).astype(int) - SCENES["s2.jpg"]).max() <= 6


def test_loads_with_cameras_apart(root):
    prepare("cuhk_sysu", root)
    data_set = spec_of("cuhk_sysu").load(root)
    assert [record[1:] for record in data_set.train] == [(3, 0), (3, 0), (11, 0)]
    assert [record[1:] for record in data_set.query] == [(7, 0), (8, 0)]
    assert [record[1:] for record in data_set.gallery] == [(7, 1), (7, 1), (8, 1)]
    assert {record.camid for record in spec_of("cuhk_sysu").load(root, cameras="same").gallery} == {0}
    crops = root / "cuhk-sysu/CUHK-SYSU/cuhksysu4reid"
    often = cuhk_sysu.read(crops, min_images=2)  # in training only
    assert ({record.pid for record in often.train}, len(often.query)) == ({3}, 2)
    crops.rename(root / "cuhksysu4reid")  # where others put crops that they made
    (root / "cuhk-sysu").rename(root / "elsewhere")
    assert [r[1:] for r in spec_of("cuhk_sysu").load(root).gallery] == [r[1:] for r in data_set.gallery]


def test_interrupted_conversion_resumes(root):
    gone = root / "cuhk-sysu/CUHK-SYSU/Image/SSM/s5.jpg"
    kept = gone.read_bytes()
    gone.unlink()
    with pytest.raises(InputError, match="s5.jpg: no such scene"):
        prepare("cuhk_sysu", root)
    home = root / "cuhk-sysu/CUHK-SYSU"
    assert not (home / "cuhksysu4reid").exists()  # a half is not taken for a whole
    with pytest.raises(InputError, match="run: .* prepare cuhk_sysu --root"):
        spec_of("cuhk_sysu").load(root)
    made = {p: p.stat().st_mtime_ns for p in (home / ".cuhksysu4reid.unfinished.lreid").rglob("*.jpg")}
    assert made
    gone.write_bytes(kept)
    prepare("cuhk_sysu", root)
    for path, time in made.items():
        assert (home / "cuhksysu4reid" / path.parent.name / path.name).stat().st_mtime_ns == time
    assert len(spec_of("cuhk_sysu").load(root).gallery) == 3


def test_faults_are_named(root):
    file = root / "cuhk-sysu/CUHK-SYSU/annotation/test/train_test/TestG50.mat"
    write_old(file, {"TestG100": np.ones(3)})
    with pytest.raises(InputError, match="TestG50.mat: "):
        prepare("cuhk_sysu", root)
    file.unlink()
    with pytest.raises(InputError, match="CUHK-SYSU: .* lacks annotation/test/train_test/TestG50.mat"):
        prepare("cuhk_sysu", root)
