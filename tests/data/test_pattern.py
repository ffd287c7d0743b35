"""Patterns that users give: what they read off paths, and which they are refused for."""

from pathlib import Path, PurePosixPath

import pytest
from conftest import MakeImages
from example_files import write_checkpoint
from hypothesis import given
from hypothesis import strategies as st

import lreid.gallery
from lreid.data.custom import read_custom
from lreid.data.datasets import Sources
from lreid.data.listing import Pattern, folders_test, list_labelled, preview, suggested
from lreid.errors import InputError
from lreid.gallery import Gallery

NAMES = ["anna/01_1.png", "anna/02_2.png", "ben/01_1.png", "ben/02_1.png", "carl/01_1.png", "carl/02_1.png"]
NAMES += ["dora/01_1.png", "dora/02_1.png"]


@pytest.mark.parametrize(
    ("pattern", "path", "labels"),
    [
        ("{pid}/{camid}_{n}.png", "anna/01_1.png", ("anna", "01")),
        ("{pid}/{camid}_{n}.png", "anna/gate_2_17.png", ("anna", "gate_2")),
        ("{pid}/{camid}_{n}.png", "anna/01_1.jpg", None),
        ("{pid}/{camid}_{n}.png", "anna/01_x.png", None),
        ("{pid}/{camid}_{n}.png", "a/anna/01_1.png", None),
        ("{camid}/{pid}/{n}.jpg", "cam01/anna/0001.jpg", ("anna", "cam01")),
        ("{pid}/{date}_{camid}_{n}.jpg", "anna/2024-05-01_front_0001.jpg", ("anna", "front")),
        ("{pid}_{camid}_{n}.jpg", "a.b_c_1.jpg", ("a.b", "c")),
        ("{pid}/{pid}_{n}.jpg", "anna/anna_1.jpg", ("anna", None)),
        ("{pid}/{pid}_{n}.jpg", "anna/ben_1.jpg", None),
        ("{camid}-{n}.jpg", "gate-1.jpg", (None, "gate")),
        ("{pid}/(.*)+[{n}.jpg", "anna/(.*)+[1.jpg", ("anna", None)),
    ],
)
def test_a_pattern_reads_whole_paths(pattern: str, path: str, labels: tuple[str | None, str | None] | None) -> None:
    assert Pattern(pattern).read(PurePosixPath(path)) == labels


@pytest.mark.parametrize(
    ("layout", "pattern"),
    [
        ("{pid}/0{camid}_{n}.png", "{pid}/{camid}_{n}.png"),
        ("{pid}/2024-05-01_gate{camid}_000{n}.jpg", "{pid}/{date}_{camid}_{n}.jpg"),
        ("{pid}_0{camid}_{n}.png", "{pid}_{camid}_{n}.png"),
        ("gate{camid}/{pid}/a{n}.png", "{camid}/{pid}/{name}.png"),
        ("{pid}/img_{n}.png", ""),  # one camera
        ("{pid}/{pid}{camid}_{n}.png", ""),  # no camera saw two
        ("{n}.png", ""),
    ],
)
def test_a_pattern_is_suggested_that_fits(layout: str, pattern: str) -> None:
    names = [layout.format(pid=pid, camid=camid, n=n) for pid in ("anna", "ben") for camid in (1, 2) for n in (1, 2)]
    assert suggested([*map(PurePosixPath, names)]) == pattern


@given(*[st.text("abc12 .-é", min_size=1, max_size=8)] * 2, st.integers(0, 10**6))
def test_pattern_reads_any_text_in_its_fields(pid: str, camid: str, number: int) -> None:
    path = PurePosixPath(f"x{pid}x", f"x{camid}x_{number}.png")
    assert Pattern("{pid}/{camid}_{n}.png").read(path) == (f"x{pid}x", f"x{camid}x")


@pytest.mark.parametrize(
    "text", ["", "a.png", "{id}/{n}.png", "{pid}/{.png", "{pid}/{1}.png", "/{pid}/{n}.png", "{pid}}"]
)
def test_invalid_pattern_raises_an_error(text: str) -> None:
    with pytest.raises(InputError, match="^pattern is "):
        Pattern(text)


def test_pattern_labels_folders_and_tests(tmp_path: Path, make_images: MakeImages) -> None:
    make_images(tmp_path / "people", [*NAMES, "-1/01_1.png"])
    pattern = Pattern("{pid}/{camid}_{n}.png")
    listed = list_labelled(tmp_path / "people", pattern=pattern)
    assert [(image.identity, image.camera) for image in listed] == [
        (name.partition("/")[0], name.partition("/")[2][:2]) for name in NAMES
    ]
    (own,) = read_custom(tmp_path / "people", Sources(pattern=pattern.text))
    assert own.cameras == ("01", "02") and own.data_set.has_cameras
    test = folders_test(tmp_path / "people", tmp_path / "people", pattern)
    assert test.has_cameras and set(test.names.identities.values()) == {"anna", "ben", "carl", "dora"}
    shown = preview(tmp_path / "people", pattern).splitlines()
    assert len(shown) == 3 + 9 and shown[-1].split() == ["dora/02_1.png", "dora", "02"]
    make_images(tmp_path / "people", [f"eve/{camera:02d}_1.png" for camera in range(30)])
    assert len(preview(tmp_path / "people", pattern).splitlines()) <= 3 + 10


def test_images_that_do_not_fit_are_named(tmp_path: Path, make_images: MakeImages) -> None:
    make_images(tmp_path, [*NAMES, "cover.png", "zoe/1.png"])
    with pytest.raises(InputError, match=f"^{tmp_path}/cover.png: .*2 of 10 images"):
        list_labelled(tmp_path, pattern=Pattern("{pid}/{camid}_{n}.png"))
    with pytest.raises(InputError, match="none after the people|no path names"):
        read_custom(tmp_path / "anna", Sources(pattern="{camid}_{n}.png"))


def test_pattern_labels_galleries_and_queries(tmp_path: Path, make_images: MakeImages) -> None:
    make_images(tmp_path / "people", NAMES)
    model, where = write_checkpoint(tmp_path / "model.pt"), Sources(pattern="{pid}/{camid}_{n}.png")
    images = lreid.gallery.list_images([tmp_path / "people"], "gallery", where)
    named = lreid.gallery.build(tmp_path / "people.gallery", model, images, device="cpu")
    assert {*named.about.names["camera"].values()} == {"01", "02"} and len(named.identities) == 4
    query = tmp_path / "people" / "anna" / "02_2.png"
    found = lreid.gallery.query(tmp_path / "people.gallery", [query], other_cameras=True, sources=where, device="cpu")
    assert {match["camera"] for match in found["queries"][0]["matches"]} == {"01"}
    assert len(Gallery.load(tmp_path / "people.gallery").images()) == len(NAMES)
