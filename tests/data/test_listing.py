"""Listing folders and CSV files: who is on an image, which camera took it, and what is left out."""

import os
from pathlib import Path

import pytest
from example_files import touch

from lreid.data.listing import Listed, camera_in, folders_test, list_labelled, numbered
from lreid.data.records import Record
from lreid.data.tables import csv_tests
from lreid.errors import InputError


def test_market_names_give_identity_and_camera(tmp_path: Path) -> None:
    names = ["0010_c2s1_000001_01.jpg", "0002_c1s1_000451_03.JPG", "0000_c3s1_1_1.jpg", "-1_c1s1_1_1.jpg"]
    touch(tmp_path, *names, "Thumbs.db", ".hidden.jpg", "sub/0002_c012_7.png")
    assert list_labelled(tmp_path) == [
        Listed(str(tmp_path / "0000_c3s1_1_1.jpg"), None, "3"),
        Listed(str(tmp_path / "0002_c1s1_000451_03.JPG"), "2", "1"),
        Listed(str(tmp_path / "0010_c2s1_000001_01.jpg"), "10", "2"),
        Listed(str(tmp_path / "sub/0002_c012_7.png"), "2", "12"),
    ]


def test_names_are_matched_as_a_whole(tmp_path: Path) -> None:
    touch(tmp_path, "0002_c12s1_000451_03.jpeg", "0002_c2_00030600_0.png", "0003_c1s1_000001_00.jpg")
    assert [image.camera for image in list_labelled(tmp_path)] == ["12", "2", "1"]
    touch(tmp_path, "0003_c1f7.jpg")
    with pytest.raises(InputError, match="0003_c1f7.jpg: .*other 3"):
        list_labelled(tmp_path)


@pytest.mark.parametrize(
    ("path", "camera"),
    [
        ("anna/c12.jpg", "12"),
        ("anna/cam_12/7.jpg", "12"),
        ("anna/0001_c12s3_7.jpg", "12"),
        ("anna/c0ffee.jpg", None),
        ("anna/cam1a.jpg", None),
        ("anna/c1s2b.jpg", None),
        ("anna/c12x_c3.jpg", "3"),
    ],
)
def test_camera_must_be_a_separate_part_of_a_path(path: str, camera: str | None) -> None:
    assert camera_in(path) == camera


def test_folder_names_that_are_not_unicode_are_escaped(tmp_path: Path) -> None:
    gbk = os.fsdecode("张三".encode("gbk"))
    touch(tmp_path, f"{gbk}/cam1_0.jpg", "ben/cam2_0.jpg")
    ben, zhang = list_labelled(tmp_path)
    assert zhang.identity == r"\udcd5\udcc5\udcc8\udcfd" and ben.identity == "ben"
    assert os.path.exists(zhang.path)
    own = folders_test(touch(tmp_path / "q", f"{gbk}/1.jpg"), touch(tmp_path / gbk, f"{gbk}/2.jpg"))
    assert own.name == zhang.identity and own.names.identities == {1: zhang.identity}


@pytest.mark.parametrize(
    ("paths", "warned"),
    [
        (["1/anna", "1/ben", "2/anna", "2/ben", "3/ben"], True),
        (["anna/cam1", "anna/cam2", "ben/cam1", "ben/cam2"], False),
        (["anna/a", "anna/b", "ben/c", "ben/d"], False),
        (["anna/x", "ben/x", "carl/x"], False),
        (["anna/x", "anna/y"], False),
    ],
)
def test_same_subfolders_of_all_identities_are_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, paths: list[str], warned: bool
) -> None:
    list_labelled(touch(tmp_path, *(f"{path}/0.jpg" for path in paths)))
    assert len(caplog.messages) == warned and ("(anna, ben)" in caplog.text) == warned


def test_files_that_are_not_read_are_counted_by_suffix(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    touch(tmp_path, "anna/1.JPG", "anna/2.jfif", "ben/1.avif", "ben/2.psd", "ben/3.PSD", "ben/4", "Thumbs.db")
    assert [Path(image.path).name for image in list_labelled(tmp_path)] == ["1.JPG", "2.jfif", "1.avif"]
    (line,) = caplog.messages
    assert str(tmp_path) in line and "3 files" in line and ".psd: 2" in line and "no suffix: 1" in line


def test_folders_are_identities_unless_all_names_have_the_market_form(tmp_path: Path) -> None:
    touch(tmp_path, "bob/0002_c1.jpg", "alice/night/x.png", "alone.jpg", ".trash/y.jpg")
    touch(tmp_path, "zoe/camera 02/x.png")
    assert list_labelled(tmp_path) == [
        Listed(str(tmp_path / "alice/night/x.png"), "alice", None),
        Listed(str(tmp_path / "alone.jpg"), None, None),
        Listed(str(tmp_path / "bob/0002_c1.jpg"), "bob", "1"),
        Listed(str(tmp_path / "zoe/camera 02/x.png"), "zoe", "2"),
    ]


def test_folders_of_cameras_are_not_identities(tmp_path: Path) -> None:
    touch(tmp_path, "cam1/anna/x.jpg", "cam02/anna/c7.jpg", "cam1/stray.jpg")
    assert list_labelled(tmp_path) == [
        Listed(str(tmp_path / "cam02/anna/c7.jpg"), "anna", "2"),
        Listed(str(tmp_path / "cam1/anna/x.jpg"), "anna", "1"),
        Listed(str(tmp_path / "cam1/stray.jpg"), None, "1"),
    ]


@pytest.mark.parametrize(("splits", "better"), [(["query", "gallery"], "query"), (["train", "val"], "val")])
def test_folders_of_splits_are_not_identities(tmp_path: Path, splits: list[str], better: str) -> None:
    touch(tmp_path, *(f"{split}/anna/1.jpg" for split in splits))
    with pytest.raises(InputError, match=f"such as {tmp_path / better}") as raised:
        list_labelled(tmp_path)
    assert ("--data folder:" in str(raised.value)) == ("train" in splits)


@pytest.mark.parametrize("strays", [["cover.png"], ["cover.png", "z/back.png"]])
def test_stray_file_among_market_names_raises_an_error(tmp_path: Path, strays: list[str]) -> None:
    query = touch(tmp_path / "q", "0002_c1.jpg")
    gallery = touch(tmp_path / "g", "0002_c2.jpg", "0003_c2.jpg", *strays)
    with pytest.raises(InputError, match="g/cover.png: .*3 images .*0002_c1"):
        folders_test(query, gallery)
    if len(strays) == 1:
        with pytest.raises(InputError, match="g/cover.png: .*2 images"):
            list_labelled(gallery)


def test_links_to_folders_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    anna = touch(tmp_path / "elsewhere", "1.jpg", "more/2.jpg")
    folder = touch(tmp_path / "people", "ben/1.jpg")
    (folder / "anna").symlink_to(anna)
    (anna / "back").symlink_to(folder)
    (folder / "ben" / "self").symlink_to(folder / "ben")
    assert list_labelled(folder) == [
        Listed(str(folder / "anna/1.jpg"), "anna", None),
        Listed(str(folder / "anna/more/2.jpg"), "anna", None),
        Listed(str(folder / "ben/1.jpg"), "ben", None),
    ]


def test_folder_of_a_training_run_is_skipped(tmp_path: Path) -> None:
    touch(tmp_path, "anna/1.jpg", "runs/a/learning_curve.png", "runs/a/config.yaml", "runs/a/results.json")
    assert [listed.identity for listed in list_labelled(tmp_path)] == ["anna"]


def test_queries_in_the_gallery_are_counted(tmp_path: Path) -> None:
    folder = touch(tmp_path / "q", "anna/1.jpg", "anna/2.jpg", "ben/1.jpg", "stray.jpg")
    (tmp_path / "link").symlink_to(folder)
    for gallery in (folder, tmp_path / "link"):
        own = folders_test(folder, gallery)
        assert (own.in_gallery, len(own.query), len(own.gallery)) == (3, 3, 4)
        assert not own.has_cameras
    with pytest.raises(InputError, match="q/anna/1.jpg: .*anna.* q "):
        folders_test(folder, tmp_path)
    with pytest.raises(InputError, match="the query has no identity"):
        folders_test(touch(tmp_path / "nobody", "1.jpg"), tmp_path / "nobody")
    assert folders_test(touch(tmp_path / "r", "anna/1.jpg"), folder).in_gallery == 0
    named = touch(tmp_path / "named", "0002_c1.jpg", "0002_c2.jpg")
    assert folders_test(named, named).has_cameras


def test_two_folders_by_name(tmp_path: Path) -> None:
    query = touch(tmp_path / "q", "0010_c2_a.jpg", "0002_c7_a.jpg")
    gallery = touch(tmp_path / "g", "0002_c10_b.jpg", "0000_c2_b.jpg", "0010_c7_b.jpg", "-1_c1_b.jpg")
    own = folders_test(query, gallery)
    assert own.has_cameras and own.names.identities == {1: "2", 2: "10"} and own.name == "g"
    assert own.query == (Record(str(query / "0002_c7_a.jpg"), 1, 2), Record(str(query / "0010_c2_a.jpg"), 2, 1))
    assert own.gallery == (
        Record(str(gallery / "0000_c2_b.jpg"), 0, 1),
        Record(str(gallery / "0002_c10_b.jpg"), 1, 3),
        Record(str(gallery / "0010_c7_b.jpg"), 2, 2),
    )


def test_two_folders_use_the_same_labelling_rule(tmp_path: Path) -> None:
    query = touch(tmp_path / "q", "anna/0002_c1.jpg")
    gallery = touch(tmp_path / "g", "zoe/z.jpg", "anna/a.jpg", "stray.jpg")
    own = folders_test(query, gallery)
    assert not own.has_cameras and own.names.identities == {1: "anna", 2: "zoe"}
    assert [(record.pid, record.camid) for record in own.query] == [(1, -1)]
    assert [(record.pid, record.camid) for record in own.gallery] == [(1, -1), (0, -1), (2, -1)]


def test_csv_by_domain(tmp_path: Path) -> None:
    file = touch(tmp_path, "q.jpg") / "index.csv"
    file.write_text(
        "path,pid,camid,split,domain\nq.jpg,10,1,query,north\ng.jpg,9,2,gallery,north\nj.jpg,-1,2,gallery,north\n"
        "s.jpg,a,x,query,south\nt.jpg,a,y,gallery,south\n"
    )
    north, south = csv_tests(file)
    assert (north.name, south.name) == ("north", "south")
    assert north.names.identities == {1: "9", 2: "10"} and north.has_cameras
    assert north.query == (Record(str(tmp_path / "q.jpg"), 2, 1),)
    assert north.gallery == (Record(str(tmp_path / "g.jpg"), 1, 2),)
    assert south.gallery == (Record(str(tmp_path / "t.jpg"), 1, 2),)
    assert south.query == (Record(str(tmp_path / "s.jpg"), 1, 1),)
    file.write_text(file.read_text().replace("t.jpg,a,y,gallery", "t.jpg,a,y,query"))
    with pytest.raises(InputError, match="south .*gallery"):
        csv_tests(file)
    file.write_text(file.read_text().replace(",gallery", ",query"))
    with pytest.raises(InputError, match="gallery"):
        csv_tests(file)


def test_two_spellings_of_a_number_log_a_warning(tmp_path: Path, caplog) -> None:
    own = folders_test(touch(tmp_path / "q", "007/1.jpg"), touch(tmp_path / "g", "007/2.jpg", "7/3.jpg"))
    assert own.names.identities == {1: "007", 2: "7"}
    assert len(caplog.records) == 1 and "'007'" in caplog.text and "'7'" in caplog.text


def test_numbers_are_sorted_as_numbers() -> None:
    assert numbered(["10", "9", None, "9"]) == {"9": 1, "10": 2}
    assert numbered(["10", "9", "x"]) == {"10": 1, "9": 2, "x": 3}
    long = "1" * 5000  # Python makes no number of so many digits
    assert numbered(["9", long]) == {long: 1, "9": 2}


def test_faulty_folders_raise_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gone: "):
        list_labelled(tmp_path / "gone")
    with pytest.raises(InputError, match="0001_c1.jpg: is a file"):
        folders_test(touch(tmp_path, "0001_c1.jpg") / "0001_c1.jpg", tmp_path)
    with pytest.raises(InputError, match="empty: "):
        list_labelled(touch(tmp_path / "empty", "notes.txt"))
    with pytest.raises(InputError, match="query images except junk"):
        folders_test(touch(tmp_path / "q2", "-1_c1.jpg"), touch(tmp_path / "g2", "0001_c1.jpg"))
