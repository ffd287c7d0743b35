"""Every reader on a small tree of its published layout, in every place where it looks, and on trees with a fault.

A data set that is read without conversion is a row of ``TREES`` and, where no seed decides, of ``RECORDS``. Its faults
are rows of ``FAULTS``; the parts that a layout lacks are checked for every row.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from lreid.data.datasets import cuhk02, grid, lpw, spec_of
from lreid.errors import InputError

VIPER = [0, 1, 3, 7, 873]  # people with gaps, as published
ILIDS = {1: 2, 2: 3, 5: 4, 10: 8, 119: 2}  # images of each person
GRID = ([1, 3], [2, 4])  # people trained on in each partition
LPW_VIEWS = [(scene, view) for scene, views in lpw.VIEWS.items() for view in range(1, views + 1)]
MARKET = {
    "bounding_box_train": "0007_c3s3_077419_03 0002_c1s1_000451_03 0002_c2s1_000451_01 0000_c1s1_000151_09 -1_c1s1_1_9",
    "query": "0001_c1s1_001051_00 1501_c6s4_001877_00",
    "bounding_box_test": "1501_c4s6_052060_01 0001_c2s1_001976_01 0000_c1s1_000151_01 -1_c1s1_1_3 -1_c3s2_1_1",
}
DUKE = {
    "bounding_box_train": "0007_c3_f0077419 0001_c2_f0046182 0001_c8_f0044158",
    "query": "0005_c2_f0046985",
    "bounding_box_test": "0005_c5_f0051213 7139_c1_f0044158",
}
LPW_S2 = {
    "bounding_box_train": "0003_c4s2_000001_00",
    "query": "0001_c1s2_000001_00",
    "bounding_box_test": "0001_c2s2_000001_00 -1_c2s2_000002_00",
}
VERI = {
    "image_train": "0004_c012_00028630_0 0001_c001_00016450_0",
    "image_query": "0002_c002_00030600_0",
    "image_test": "0002_c020_00030600_0 -1_c003_00030600_0",
}
MSMT = {
    "train": ["0001/0001_000_15_0303morning_0015_0.jpg 1", "0000/0000_000_01_0303morning_0015_0.jpg 0"],
    "val": ["0000/0000_050_02_0303noon_0015_1.jpg 0"],
    "query": ["0000/0000_000_03_0302afternoon_0777_0.jpg 0"],
    "gallery": ["0001/0001_001_05_0302afternoon_0777_0.jpg 1", "0000/0000_001_04_0302afternoon_0777_0.jpg 0"],
}
VEHICLES = {
    "train_list.txt": "0000002 7\n0000001 7\n0000003 12\n",
    "test_list_800.txt": "0000011 20\r\n0000012 20\r\n0000013 20\r\n0000014 3\r\n0000015 3\n\n",
    "test_list_1600.txt": "0000011 20\n0000012 20\n0000013 20\n0000014 3\n",
    "test_list_2400.txt": "0000011 20\n0000012 20\n0000013 20\n0000014 3\n",
}
WILD_INFO = """id/image;Camera ID;Time;Model;Type;Color
00001/000001;12;2018-03-11 06:20:20;Volkswagen;SUV;white
00001/000002;174;2018-03-11 06:21:20;\u5927\u4f17;SUV;white
00002/000003;1
00002/000004;2;;;;
"""
WILD = {
    "vehicle_info.txt": WILD_INFO.encode("gbk"),
    "train_list.txt": "00001/000002\n00001/000001.jpg\n",
    **{f"test_{size}_query.txt": "00002/000003\n" for size in (3000, 5000, 10000)},
    **{f"test_{size}.txt": "00002/000004\n\n" for size in (3000, 5000, 10000)},
}
MSMT_FOLDERS = {"msmt17_v1": ("train", "test"), "msmt17_v2": ("mask_train_v2", "mask_test_v2")}


def in_folders(folders: dict[str, str], suffix: str = "jpg") -> list[str]:
    return [f"{folder}/{name}.{suffix}" for folder, names in folders.items() for name in names.split()]


def msmt(name: str) -> dict[str, str | bytes]:
    return {f"list_{split}.txt": "\n".join(lines) + "\n\n" for split, lines in MSMT.items()} | {
        f"{MSMT_FOLDERS[name][split in ('query', 'gallery')]}/{line.split()[0]}": b""
        for split, lines in MSMT.items()
        for line in lines
    }


def lists(content: dict[str, str | bytes], image: str) -> dict[str, str | bytes]:
    return {f"train_test_split/{name}": text for name, text in content.items()} | {image: b""}


# The images of each data set below its home, or its files with what they hold.
TREES: dict[str, list[str] | dict[str, str | bytes]] = {
    "cobra": [f"re_identification_youngstock/{side}/{cow}/{image}.png"
              for side in ("left", "right") for cow in ("ada", "bo", "cleo", "dora") for image in (1, 2, 3)],
    "cuhk01": [f"campus/{pid:04d}{image:03d}.png" for pid in range(1, 8) for image in (1, 2, 3, 4)],
    "cuhk02": [
        f"{pair}/cam{camera}/{pid:03d}_{image:04d}.png"
        for pair in cuhk02.PAIRS for camera in (1, 2) for pid in (1, 2) for image in (1, 2)
    ],
    "dukemtmc_reid": in_folders(DUKE),
    "grid": [
        *(f"probe/{pid:04d}_{pid}_25023_116_159_72_191.jpeg" for pid in (1, 2, 3, 4)),
        *(f"gallery/{pid:04d}_8_25024_116_159_72_191.jpeg" for pid in (1, 2, 3, 4)),
        *(f"gallery/0000_{camera}_1_2_3_4_5.jpeg" for camera in (5, 6, 7)),
    ],
    "ilids": [f"Persons/{pid:04d}{number:03d}.jpg" for pid, count in ILIDS.items() for number in range(1, count + 1)],
    "lpw": [
        *(f"scen{scene}/view{view}/{person}/{frame:05d}.jpg"
          for scene, view in LPW_VIEWS for person in (0, 12) for frame in (1, 2)),
        "scen1/view1/readme.txt",
        "scen2/view1/12/._00001.jpg",  # macOS leaves such files in archives
    ],
    "lpw_s2": in_folders(LPW_S2),
    "market1501": [
        *in_folders(MARKET), "bounding_box_train/Thumbs.db", "bounding_box_train/._0002_c1s1_000451_03.jpg",
    ],
    "mpdd": in_folders({"train": "0_c1s1_1 0_c2s1_2 3_c1s1_1", "query": "146_c1_s3_1", "gallery": "146_c2s1_1"}),
    "msmt17_v1": msmt("msmt17_v1"),
    "msmt17_v2": msmt("msmt17_v2"),
    "msmt17_v2+val": msmt("msmt17_v2"),
    "prid2011": [
        f"cam_{camera}/person_{pid:04d}.png" for camera, last in (("a", 385), ("b", 749))
        for pid in (1, 2, 3, 200, 201, last)
    ],
    "sensereid": in_folders({"test_probe": "00002_0 00001_0 00001_1", "test_gallery": "00001_1 00002_1 01717_0"}),
    "vehicleid_small": lists(VEHICLES, "image/x"),
    "vehicleid_large": lists(VEHICLES, "image/x"),
    "veri776": in_folders(VERI),
    "veri_wild_small": lists(WILD, "images/x"),
    "veri_wild_medium": lists(WILD, "images/x"),
    "veri_wild_large": lists(WILD, "images/x"),
    "viper": [
        *(f"cam_{camera}/{pid:03d}_{angle}.bmp" for camera, angle in (("a", 45), ("b", 90)) for pid in VIPER),
        "cam_a/Thumbs.db",
    ],
}  # fmt: skip
WILD_RECORDS = ([(1, 12), (1, 174)], [(2, 1)], [(2, 2)])
# Identity and camera of every training, query and gallery record: no junk, and distractors in the gallery alone.
RECORDS = {
    "cuhk02": (
        [(10000 * p + pid, 2 * p - 1 + c) for p in (1, 2, 3, 4) for c in (0, 1) for pid in (1, 1, 2, 2)],
        [(50001, 9)] * 2 + [(50002, 9)] * 2,
        [(50001, 10)] * 2 + [(50002, 10)] * 2,
    ),
    "dukemtmc_reid": ([(1, 2), (1, 8), (7, 3)], [(5, 2)], [(5, 5), (7139, 1)]),
    "lpw": (
        [(10000 * s + pid, c) for s, first, last in ((2, 4, 7), (3, 8, 11)) for c in range(first, last + 1)
         for pid in (0, 0, 12, 12)],
        [(10000, 2)] * 2 + [(10012, 2)] * 2,
        [(pid, c) for c in (1, 3) for pid in (10000, 10000, 10012, 10012)],
    ),
    "lpw_s2": ([(3, 4)], [(1, 1)], [(1, 2)]),
    "market1501": ([(2, 1), (2, 2), (7, 3)], [(1, 1), (1501, 6)], [(0, 1), (1, 2), (1501, 4)]),
    "mpdd": ([(1, 1), (1, 2), (4, 1)], [(147, 1)], [(147, 2)]),
    "msmt17_v1": ([(0, 1), (1, 15)], [(0, 3)], [(0, 4), (1, 5)]),
    "msmt17_v2": ([(0, 1), (1, 15)], [(0, 3)], [(0, 4), (1, 5)]),
    "msmt17_v2+val": ([(0, 1), (0, 2), (1, 15)], [(0, 3)], [(0, 4), (1, 5)]),
    "sensereid": ([], [(1, 0), (1, 1), (2, 0)], [(1, 1), (2, 1), (1717, 0)]),
    "veri776": ([(1, 1), (4, 12)], [(2, 2)], [(2, 20)]),
    "veri_wild_small": WILD_RECORDS,
    "veri_wild_medium": WILD_RECORDS,
    "veri_wild_large": WILD_RECORDS,
}  # fmt: skip


def write(file: Path, content: str | bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


def plant(root: Path, name: str, place: int = 0) -> Path:
    """Writes the tree of a data set into one of its homes, which is given back."""
    home, tree = root / spec_of(name).layout.homes[place], TREES[name]
    for file in tree:
        write(home / file, tree[file] if isinstance(tree, dict) else b"")
    if name == "grid":  # as published: a row of cells, each a struct whose third field lists the people trained on
        cells = np.empty((1, len(GRID)), dtype=object)
        for i, people in enumerate(GRID):
            cells[0, i] = {"gallery": [9], "probe": [9], "train": np.array([people])}
        scipy.io.savemat(home / grid.PARTITIONS, {"trainIdxAll": cells, "features": np.zeros((2, 2))})
    return home


@pytest.fixture
def planted(tmp_path: Path) -> Callable[[str], Path]:
    def planted(name: str) -> Path:
        plant(tmp_path, name)
        return tmp_path

    return planted


@pytest.mark.parametrize("name", RECORDS)
def test_identities_and_cameras_in_the_order_of_the_files(planted, name: str) -> None:
    data_set = spec_of(name).load(planted(name))
    splits = data_set.train, data_set.query, data_set.gallery
    assert data_set.name == name.removesuffix("+val")
    assert tuple([record[1:] for record in split] for split in splits) == RECORDS[name]
    for split in splits:
        assert [record.path for record in split] == sorted({record.path for record in split})
        assert all(Path(record.path).is_file() or "wild" in name for record in split)


@pytest.mark.parametrize(
    ("name", "place"), [(name, place) for name in TREES for place in range(len(spec_of(name).layout.homes))]
)
def test_every_location_is_found_and_missing_parts_are_named(tmp_path: Path, name: str, place: int) -> None:
    spec = spec_of(name)
    home = plant(tmp_path, name, place)
    data_set = spec.load(tmp_path)
    assert all(record.path.startswith(f"{home}/") for record in (*data_set.train, *data_set.query, *data_set.gallery))
    other = next((tmp_path / each for each in spec.layout.homes if not (tmp_path / each).exists()), None)
    if other:  # an incomplete folder does not hide a complete one
        other.mkdir(parents=True)
        assert spec.load(tmp_path) == data_set
        other.rmdir()
    for needed in (*spec.layout.folders, *spec.layout.files):
        (home / needed).rename(tmp_path / "away")
        mark = "/" * (needed in spec.layout.folders)
        with pytest.raises(InputError, match=f"{re.escape(spec.title)}: .* lacks .*{needed}{mark}"):
            spec.load(tmp_path)
        (home / needed).touch()  # a file is no folder
        if mark:
            with pytest.raises(InputError, match=f"lacks .*{needed}/"):
                spec.load(tmp_path)
        (home / needed).unlink()
        (tmp_path / "away").rename(home / needed)


@pytest.mark.parametrize("name", ["viper", "cobra", "cuhk01", "ilids", "prid2011", "vehicleid_small"])
def test_splits_are_decided_by_the_seed(planted, name: str) -> None:
    spec, root = spec_of(name), planted(name)

    def splits(seed: int) -> list:
        return [spec.load(root, split=split, seed=seed) for split in range(spec.splits)]

    assert splits(0) == splits(0) != splits(1)
    assert len({(split.query, split.gallery) for split in splits(0)}) > 2


@pytest.mark.parametrize(("name", "images"), [("viper", 1), ("cuhk01", 2)])
def test_odd_splits_swap_the_cameras_of_even_splits(planted, name: str, images: int) -> None:
    root = planted(name)
    even, odd = (spec_of(name).load(root, split=split) for split in (6, 7))
    trained, tested = ({record.pid for record in records} for records in (even.train, even.query))
    assert (odd.train, odd.query, odd.gallery) == (even.train, even.gallery, even.query)
    assert len(trained) == (len(trained) + len(tested)) // 2 and not trained & tested
    assert len(even.train) == 2 * images * len(trained)
    for camera, records in ((1, even.query), (2, even.gallery)):
        assert [(r.pid, r.camid) for r in records] == [(pid, camera) for pid in sorted(tested) for _ in range(images)]
    ends = {"viper": ({"45"}, {"90"}), "cuhk01": ({"001", "002"}, {"003", "004"})}[name]
    for end, records in zip(ends, (even.query, even.gallery), strict=True):
        assert {Path(record.path).stem.rpartition("_")[2][-len(min(end)) :] for record in records} == end


@pytest.mark.parametrize("split", range(10))
def test_ilids_has_a_query_and_a_gallery_image_of_every_tested_person(planted, split: int) -> None:
    data_set = spec_of("ilids").load(planted("ilids"), split=split)
    trained = {record.pid for record in data_set.train}
    assert len(trained) == 2 and len(data_set.train) == sum(ILIDS[pid] for pid in trained)
    tested = sorted(set(ILIDS) - trained)
    assert [record.pid for record in data_set.query] == [record.pid for record in data_set.gallery] == tested
    # The number of the image stands for the camera, so the two of a pair never share one.
    for query, match in zip(data_set.query, data_set.gallery, strict=True):
        assert query.camid != match.camid
        assert query.path.endswith(f"{query.pid:04d}{query.camid:03d}.jpg")


def test_cobra_queries_are_first_images_of_test_cows(planted) -> None:
    data_set = spec_of("cobra").load(planted("cobra"))
    sides = [(Path(each.path).parts[-3:], each.pid, each.camid) for each in data_set.query]
    tested = sorted({data_set.names.identities[each.pid] for each in data_set.gallery})
    numbers = {"ada": 1, "bo": 2, "cleo": 3, "dora": 4}
    assert sides == [((side, cow, "1.png"), numbers[cow], 0) for side in ("left", "right") for cow in tested]
    assert len(tested) == 2 and len(data_set.gallery) == 8 and len(data_set.train) == 12
    assert not {each.pid for each in data_set.train} & {numbers[cow] for cow in tested}


def test_prid_trains_and_tests_only_people_of_both_cameras(planted) -> None:
    data_set = spec_of("prid2011").load(planted("prid2011"))
    trained = {record.pid for record in data_set.train}
    assert len(trained) == 2 and len(data_set.train) == 4  # by both cameras
    assert trained | {record.pid for record in data_set.query} == {1, 2, 3, 200}
    assert {record.camid for record in data_set.query} == {1}
    # Camera B alone: people 201 and 749; 201 of camera A is somebody else and is not used.
    assert {record.pid for record in data_set.gallery} == {1, 2, 3, 200, 201, 749} - trained
    assert {record.camid for record in data_set.gallery} == {2}


@pytest.mark.parametrize("split", [0, 1])
def test_grid_has_published_partitions(planted, split: int) -> None:
    root = planted("grid")
    data_set, tested = spec_of("grid").load(root, split=split), GRID[1 - split]
    assert sorted({record.pid for record in data_set.train}) == GRID[split] and len(data_set.train) == 4
    assert [record[1:] for record in data_set.query] == [(pid, pid) for pid in tested]
    # Distractors stay in every gallery, each with its camera.
    assert [record[1:] for record in data_set.gallery] == [(0, 5), (0, 6), (0, 7), *((pid, 8) for pid in tested)]
    assert spec_of("grid").load(root, split=split, seed=2) == data_set


def test_vehicleid_has_a_gallery_of_one_image_per_vehicle(planted) -> None:
    root = planted("vehicleid_small")
    data_set, images = spec_of("vehicleid_small").load(root), root / "vehicleid/VehicleID_V1.0/image"
    assert data_set.name == "vehicleid_small"
    assert data_set.train == tuple((str(images / f"000000{i}.jpg"), pid, 0) for i, pid in ((1, 7), (2, 7), (3, 12)))
    assert sorted(record[1:] for record in data_set.gallery) == [(3, 1), (20, 1)]
    assert sorted(record[1:] for record in data_set.query) == [(3, 0), (20, 0), (20, 0)]
    assert len({record.path for record in data_set.query + data_set.gallery}) == 5
    assert len(spec_of("vehicleid_large").load(root).query) == 2  # the size chooses the list
    same = spec_of("vehicleid_small").load(root, cameras="same")
    assert {record.camid for record in same.query + same.gallery} == {0}


def test_tracks_of_veri_are_the_lines_of_their_file(planted) -> None:
    root = planted("veri776")
    for image in ("0002_c020_00030605_1.jpg", "0003_c001_00000001_0.jpg"):
        (root / "veri/image_test" / image).touch()
    file = root / "veri/test_track.txt"
    file.write_bytes(
        b"0003_c001_00000001 0003_c001_00000001_0.jpg caf\xe9.jpg \n"  # not UTF-8, and of no image that is there
        b"0002_c020_00030600 0002_c020_00030600_0.jpg 0002_c020_00030605_1.jpg \n"
    )
    data_set = spec_of("veri776_tracks").load(root)
    assert data_set.name == "veri776_tracks" and data_set.tracks == (1, 1, 0)
    assert data_set.gallery == spec_of("veri776").load(root).gallery and spec_of("veri776").load(root).tracks == ()
    file.write_text("0002_c020_00030600 0002_c020_00030600_0.jpg\n")
    with pytest.raises(InputError, match="test_track.txt: .*0002_c020_00030605_1.jpg"):
        spec_of("veri776_tracks").load(root)


# A data set, its files that are written again (None: removed, a folder is emptied), and the message about them.
FAULTS: list[tuple[str, dict[str, str | bytes | None], str]] = [
    *((name, {odd: b""}, f"{Path(odd).name}: unexpected name; expected {wanted}") for name, odd, wanted in (
        ("cuhk01", "campus/1.png", "one like 0001001.png"),
        ("dukemtmc_reid", "query/someone.jpg", "one like 0001_c2_f0046182.jpg"),
        ("market1501", "query/person2.jpg", "one like 0002_c1s1"),
        ("prid2011", "cam_b/0001.png", "one like person_0001.png"),
        ("veri776", "image_test/0002c020.jpg", "one like 0001_c001_"),
    )),
    ("lpw", {"scen2/view1/somebody/1.jpg": b""}, "somebody: unexpected name; expected the number of a person"),
    *(("market1501", {folder: None}, f"{folder}: no images for the .* split of market1501") for folder in MARKET),
    ("market1501", {"query": None, "query/-1_c1s1_000401_03.jpg": b""}, "no images for the query split"),
    ("sensereid", {"test_gallery": None}, "test_gallery: no images for the gallery split of sensereid"),
    ("viper", {"cam_b/007_90.bmp": None}, "VIPeR: person 7 is only in cam_a or cam_b"),
    ("ilids", {"Persons": None, "Persons/0001001.jpg": b"", "Persons/0002001.jpg": b""},
     "i-LIDS: person .* has a single image"),
    ("grid", {grid.PARTITIONS: b"not a file of MATLAB"}, "cannot be read as a MATLAB file"),
    *(("msmt17_v1", {"list_query.txt": f"{MSMT['query'][0]}\n{line}\n"}, "list_query.txt:2: unexpected line")
      for line in ("0000/0000_000_01_x.jpg", "0000/0000.jpg 0", "0000/0000_000_01_x.jpg zero")),
    ("msmt17_v1", {"list_train.txt": "\n"}, "MSMT17_V1: no images for the train split of msmt17_v1"),
    *(("vehicleid_small", {"train_test_split/test_list_800.txt": f"0000011 20\n{line}\n"},
       "test_list_800.txt:2: unexpected line") for line in ("0000011", "image 20", "0000011,20")),
    ("veri_wild_small", {"train_test_split/test_3000.txt": "00002/000004\n00002/000009\n"},
     "test_3000.txt: '00002/000009' is not in vehicle_info.txt"),
    ("veri_wild_small", {"train_test_split/vehicle_info.txt": "id/image;Camera ID\n00001/000001\n"},
     "vehicle_info.txt:2: unexpected line '00001/000001'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "message"), FAULTS)
def test_faults_are_named(tmp_path: Path, name: str, changes: dict, message: str) -> None:
    home = plant(tmp_path, name)
    for file, content in changes.items():
        if content is not None:
            write(home / file, content)
        elif (home / file).is_dir():
            shutil.rmtree(home / file)
            (home / file).mkdir()
        else:
            (home / file).unlink()
    with pytest.raises(InputError, match=message):
        spec_of(name).load(tmp_path)


def test_missing_partitions_are_named(planted) -> None:
    root = planted("grid")
    with pytest.raises(InputError, match="partitions.mat: .* 2 in trainIdxAll"):
        spec_of("grid").load(root, split=2)
    scipy.io.savemat(root / "grid/underground_reid" / grid.PARTITIONS, {"other": 1})
    with pytest.raises(InputError, match=" 0 in trainIdxAll"):
        spec_of("grid").load(root)


def test_a_missing_folder_names_place_source_and_what_is_there(tmp_path: Path) -> None:
    for i in range(30):
        (tmp_path / f"other{i:02d}").mkdir()
    with pytest.raises(InputError, match=f"{tmp_path}/market1501.*other00/, .*other07/ and 22 more"):
        spec_of("market1501").load(tmp_path)
    with pytest.raises(InputError, match="nowhere"):
        spec_of("market1501").load(tmp_path / "nowhere")
    plant(tmp_path, "msmt17_v1")
    with pytest.raises(InputError, match="MSMT17_V2"):  # the other version is no substitute
        spec_of("msmt17_v2").load(tmp_path)
