"""What is read off the names of one's own images: identities, cameras, and who is tested."""

import hashlib
import os
from pathlib import Path

import pytest
from example_files import touch
from PIL import Image

from lreid.data.custom import cameras_of, read_custom, source_of, splits_of, title_of
from lreid.data.datasets import Sources, load_datasets
from lreid.data.images import typical_size
from lreid.data.listing import Listed
from lreid.errors import InputError

PEOPLE = [f"person-{number}" for number in range(12)]


def listed(identity: str, *cameras: str | None) -> list[Listed]:
    return [Listed(f"{identity}/{number}.jpg", identity, camera) for number, camera in enumerate(cameras)]


def names(images, splits, split):
    return [image.path for image, each in zip(images, splits, strict=True) if each == split]


def test_without_cameras_the_first_image_is_the_query() -> None:
    images = [image for person in PEOPLE for image in listed(person, None, None, None)]
    splits = splits_of(images)
    tested = {path.partition("/")[0] for path in names(images, splits, "query")}
    assert names(images, splits, "query") == [f"{person}/0.jpg" for person in PEOPLE if person in tested]
    assert names(images, splits, "gallery") == [f"{p}/{n}.jpg" for p in PEOPLE if p in tested for n in (1, 2)]
    assert 2 <= len(tested) <= 6


def person_share(person: str) -> float:
    return int(hashlib.sha256(person.encode()).hexdigest()[:12], 16) / 2**48


def test_identities_with_small_hashes_are_tested() -> None:
    images = [image for person in PEOPLE for image in listed(person, None, None)]
    small = {person for person in PEOPLE if person_share(person) < 1 / 4}
    assert 2 <= len(small) <= 6  # else more or fewer would be taken
    splits = splits_of([*images, *listed("alone", None)])
    assert {path.partition("/")[0] for path in names(images, splits[:-1], "query")} == small
    assert splits[-1] == "gallery"  # who has a single image is a distractor
    for many in (False, True):  # at least two are tested, and at most half
        hashed = [person for person in map(str, range(99)) if (person_share(person) < 1 / 4) == many][:9]
        images = [image for person in hashed for image in listed(person, None, None)]
        assert len(names(images, splits_of(images), "query")) == (4 if many else 2)


def test_with_cameras_every_camera_with_two_images_gives_a_query() -> None:
    images = [image for person in PEOPLE for image in listed(person, "1", "1", "2")]
    splits = splits_of(images)
    assert {path[-5] for path in names(images, splits, "query")} == {"0"}  # camera 2 has but one
    pairs = [image for person in PEOPLE for image in listed(person, "1", "2")]
    assert {path[-5] for path in names(pairs, splits_of(pairs), "query")} == {"0"}
    assert {path[-5] for path in names(pairs, splits_of(pairs), "gallery")} == {"1"}


def test_cameras_are_used_if_half_of_the_identities_have_two() -> None:
    moved = [image for person in PEOPLE[:6] for image in listed(person, "2", "10")]
    stayed = [image for person in PEOPLE[6:] for image in listed(person, "10", "10")]
    assert cameras_of([*moved, *stayed]) == ["2", "10"]
    assert cameras_of([*moved[2:], *stayed]) == []
    assert cameras_of([*moved, Listed("x", "x", None)]) == []


@pytest.mark.parametrize("people", [2, 3])
def test_fewer_than_four_identities_give_no_test(people: int) -> None:
    images = [image for person in PEOPLE[:people] for image in listed(person, None, None)]
    assert set(splits_of(images)) == {"train"}


HOSTILE = ['O\'Neil, "Pat"', "two\nlines", "<b>bold<p>&amp;", "שרה\u202ex", "a;b\tc", "=1+1", "-1", " "]


def test_any_name_of_a_folder_is_a_name(tmp_path: Path, make_images) -> None:
    make_images(tmp_path, [f"{name}/{number}.jpg" for name in HOSTILE for number in range(2)])
    (found,) = read_custom(tmp_path)
    records = [*found.data_set.train, *found.data_set.query, *found.data_set.gallery]
    assert len({record.pid for record in records}) == len(HOSTILE) and len(records) == 2 * len(HOSTILE)
    assert load_datasets(f"own:{tmp_path}", Sources(tmp_path)) == [found.data_set]


def test_stray_images_are_left_out_with_a_note(tmp_path: Path, make_images) -> None:
    make_images(tmp_path, [f"{person}/{shot}.jpg" for person in PEOPLE for shot in (0, 1)])
    make_images(tmp_path, ["logo.png", "one/1.jpg"])
    (tmp_path / "anna.txt").write_text("no image")
    (found,) = read_custom(tmp_path)
    assert found.notes == (
        "1 image outside the folders of the identities left out",
        'no path contains a camera; pass a pattern such as --pattern "{pid}/{camid}_{n}.png"',
        "1 identity with a single image, of use as distractors only",
    )
    assert not any("logo" in record.path for record in found.data_set.gallery)


def test_a_list_without_splits_is_divided_by_domain(tmp_path: Path, make_images) -> None:
    files = [f"{person}_{shot}.jpg" for person in range(8) for shot in range(2)]
    make_images(tmp_path, [f"{domain}/{file}" for domain in ("north", "south") for file in files])
    rows = [f"{domain}/{file},{file[0]},{domain}" for domain in ("south", "north") for file in files]
    (tmp_path / "people.csv").write_text("\n".join(["path,pid,domain", *rows]))
    assert source_of(tmp_path / "people.csv") == f"own:{tmp_path / 'people.csv'}"
    assert [found.data_set.name for found in read_custom(tmp_path / "people.csv")] == ["south", "north"]
    assert all(found.data_set.query for found in read_custom(tmp_path / "people.csv"))


def test_list_with_splits_keeps_its_splits(tmp_path: Path, make_images) -> None:
    make_images(tmp_path, ["a.jpg"])
    (tmp_path / "index.csv").write_text("path;pid;split\na.jpg;1;train\n")
    assert source_of(tmp_path) == source_of(tmp_path / "index.csv") == f"csv:{tmp_path / 'index.csv'}"
    with pytest.raises(InputError, match="gone: "):
        source_of(tmp_path / "gone")


FAULTS = {
    "one identity": (["anna/1.jpg", "anna/2.jpg"], "anna"),
    "one image each": (["a/1.jpg", "b/1.jpg", "c/1.jpg"], "3 identities, 0 "),
    "no names": (["1.jpg", "2.jpg"], "2 images"),
    "no images": (["anna/notes.txt"], "no images"),
    "cameras alone": (["cam1/1.jpg", "cam2/1.jpg"], "cameras"),
    "somebody by a camera": (["cam1/anna/1.jpg", "cam2/anna/2.jpg", "cam2/ben/2.jpg", "cam1/1.jpg"], "cam1/anna"),
    "splits": (["train/a/1.jpg", "test/b/1.jpg"], "test, train are splits.* such as .*train"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(fault: str, tmp_path: Path, make_images) -> None:
    files, message = FAULTS[fault]
    make_images(tmp_path, [file for file in files if file.endswith("jpg")])
    touch(tmp_path, *files)
    with pytest.raises(InputError, match=message) as error:
        read_custom(tmp_path)
    assert str(tmp_path) in str(error.value)


@pytest.mark.fuzz
def test_of_many_images_few_are_opened(tmp_path: Path, monkeypatch) -> None:
    for person in range(100):
        folder = tmp_path / f"{person:04d}"
        folder.mkdir()
        Image.new("RGB", (8, 16)).save(folder / "c1_00.png")
        for shot in range(1, 50):
            os.link(folder / "c1_00.png", folder / f"c{shot % 3}_{shot:02d}.png")
    opened, real = [], Image.open
    monkeypatch.setattr(Image, "open", lambda path: opened.append(path) or real(path))
    (found,) = read_custom(tmp_path)
    size = typical_size(found.data_set.train)
    splits = (found.data_set.train, found.data_set.query, found.data_set.gallery)
    assert sum(map(len, splits)) == 5_000 and len(found.cameras) == 3
    assert size is not None and size.ratio == 2.0 and len(opened) <= 400


def test_folder_of_a_split_is_named_after_its_parent(tmp_path: Path) -> None:
    (tmp_path / "shop" / "train" / "anna").mkdir(parents=True)
    assert title_of(tmp_path / "shop" / "train") == title_of(tmp_path / "shop") == "shop"
    assert title_of(tmp_path / "shop" / "train" / "anna") == "anna" and title_of(tmp_path / "train.csv") == "train"
