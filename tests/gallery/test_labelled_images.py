"""Whom a gallery's images are of: folders, lists and single files are read as for training, and never guessed at."""

from pathlib import Path

import pytest
from example_files import touch

from lreid.errors import InputError
from lreid.gallery.images import SearchImage, list_images, list_queries, who


def told(images: list[SearchImage]) -> list[tuple[str, str | None, str | None]]:
    return [(Path(image.path).name, image.identity, image.camera) for image in images]


def test_folders_of_cameras(tmp_path: Path) -> None:
    images = list_images([touch(tmp_path, "cam1/anna/x.jpg", "cam2/anna/y.jpg", "cam2/ben/z.jpg")], "gallery")
    assert told(images) == [("x.jpg", "anna", "1"), ("y.jpg", "anna", "2"), ("z.jpg", "ben", "2")]
    assert who(images) == "2 identities (anna, ben) by 2 cameras (1, 2)"


def test_a_list_in_a_folder_tells_more_than_its_folders(tmp_path: Path) -> None:
    """With splits, those that were asked for; without, all."""
    touch(tmp_path, "day1/x.jpg", "day2/y.jpg")
    (tmp_path / "index.csv").write_text("path,pid,camid\nday1/x.jpg,anna,north\nday2/y.jpg,ben,south\n")
    both = [("x.jpg", "anna", "north"), ("y.jpg", "ben", "south")]
    assert told(list_images([tmp_path], "gallery")) == told(list_images([tmp_path], "query")) == both
    (tmp_path / "index.csv").write_text("path,pid,split\nday1/x.jpg,anna,query\nday2/y.jpg,ben,gallery\n")
    assert told(list_images([tmp_path], "gallery")) == [("y.jpg", "ben", None)]
    with pytest.raises(InputError, match="index.csv: has no image of the split train"):
        list_images([tmp_path], "train")


def test_who_is_not_known_may_be_in_a_list(tmp_path: Path) -> None:
    lines = ["path,pid,camid", "a.jpg,,2", "b.jpg,anna,", "c.jpg,anna,-1.0", "d.jpg,-1.0,2"]
    (touch(tmp_path, "a.jpg") / "list.csv").write_text("\n".join(lines))
    images = list_images([tmp_path / "list.csv"], "gallery")
    assert told(images) == [("a.jpg", None, "2"), ("b.jpg", "anna", None), ("c.jpg", "anna", None)]
    (tmp_path / "list.csv").write_text("\n".join([*lines, "e.jpg,nan,2"]))
    with pytest.raises(InputError, match="list.csv:6: pid is 'nan'"):
        list_images([tmp_path / "list.csv"], "gallery")


def test_the_folder_of_one_person_and_single_files_name_nobody_by_themselves(tmp_path: Path) -> None:
    sources = [touch(tmp_path / "anna", "1.jpg", "2.jpg"), touch(tmp_path, "cam7_03.jpg") / "cam7_03.jpg"]
    images = list_images(sources, "gallery")
    assert told(images) == [("1.jpg", None, None), ("2.jpg", None, None), ("cam7_03.jpg", None, "7")]
    assert who(images) == "no named person (name folders after people, or pass --identity) by 1 camera (7)"
    images = list_images(sources, "gallery", identity="anna")
    assert {image.identity for image in images} == {"anna"} and who(images) == "1 identity (anna) by 1 camera (7)"
    assert who(list_images(sources[:1], "gallery", identity="anna")) == "1 identity (anna), cameras unknown"


def test_folders_that_stand_for_something_else_are_no_matter_where_it_is_said_who_is_there(tmp_path: Path) -> None:
    touch(tmp_path, "train/cam1/1.jpg", "query/2.jpg")
    with pytest.raises(InputError, match="query, train are splits, not identities"):
        list_images([tmp_path], "gallery")
    assert told(list_images([tmp_path], "gallery", identities=False)) == [("2.jpg", None, None), ("1.jpg", None, "1")]
    assert {image.identity for image in list_images([tmp_path], "gallery", identity="anna")} == {"anna"}


def test_an_image_that_is_listed_twice_keeps_its_name(tmp_path: Path) -> None:
    touch(tmp_path, "anna/night/1.jpg", "ben/2.jpg")
    for sources in ([tmp_path, tmp_path / "ben"], [tmp_path / "ben", tmp_path]):
        assert dict(each[:2] for each in told(list_images(sources, "gallery"))) == {"1.jpg": "anna", "2.jpg": "ben"}
    with pytest.raises(InputError, match=r"1.jpg: is named anna, but .*/anna names it night; pass folders that do not"):
        list_images([tmp_path, tmp_path / "anna"], "gallery")


def test_queries_keep_the_names_that_they_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(touch(tmp_path, "q/cam1/anna/1.jpg", "q/0002_c3.jpg", "c9/2.jpg", "r/a.jpg"))
    (tmp_path / "list.csv").write_text("path,pid,camid,split\nr/a.jpg,1,4,query\nr/b.jpg,1,5,gallery\n")
    with pytest.raises(InputError, match="gone.jpg: no such folder or file"):
        list_queries([Path("gone.jpg")])
    queries = list_queries([Path("q"), Path("c9/2.jpg"), Path("list.csv")])
    expected = {"q/0002_c3.jpg": "3", "q/cam1/anna/1.jpg": "1", "c9/2.jpg": None, "r/a.jpg": "4"}
    assert {query.path: query.camera for query in queries} == expected


def test_many_names_are_cut_short() -> None:
    images = [SearchImage(f"{number}.jpg", str(number), None) for number in range(12, 0, -1)]
    assert who(images) == "12 identities (1, 2, 3 …), cameras unknown"
