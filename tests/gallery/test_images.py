"""Images as folders, tables, files and arrays: their labels, and galleries that are built of them."""

import contextlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from example_files import touch
from PIL import Image

import lreid
from lreid.apps.cli import run_command
from lreid.data.datasets import Sources
from lreid.data.images import read_image
from lreid.data.synthetic import load_synthetic
from lreid.errors import InputError
from lreid.gallery import Gallery, build
from lreid.gallery.images import SearchImage, list_images, list_queries, who
from lreid.link.record import LinkRecord
from lreid.models.embedder import Embedder
from lreid.serve.served_gallery import _name

MODEL = "zoo:dwopp-synthetic-10"


def labels(images: list[SearchImage]) -> list[tuple[str, str | None, str | None]]:
    return [(Path(image.path).name, image.identity, image.camera) for image in images]


def test_list_in_a_folder_replaces_labels_of_paths(tmp_path: Path) -> None:
    touch(tmp_path, "day1/x.jpg", "day2/y.jpg")
    (tmp_path / "index.csv").write_text("path,pid,camid\nday1/x.jpg,anna,north\nday2/y.jpg,ben,south\n")
    both = [("x.jpg", "anna", "north"), ("y.jpg", "ben", "south")]
    assert labels(list_images([tmp_path], "gallery")) == labels(list_images([tmp_path], "query")) == both
    (tmp_path / "index.csv").write_text("path,pid,split\nday1/x.jpg,anna,query\nday2/y.jpg,ben,gallery\n")
    assert labels(list_images([tmp_path], "gallery")) == [("y.jpg", "ben", None)]
    with pytest.raises(InputError, match="index.csv: .* train"):
        list_images([tmp_path], "train")


def test_labels_in_a_list_may_be_unknown(tmp_path: Path) -> None:
    lines = ["path,pid,camid", "a.jpg,,2", "b.jpg,anna,", "c.jpg,anna,-1.0", "d.jpg,-1.0,2"]
    (touch(tmp_path, "a.jpg") / "list.csv").write_text("\n".join(lines))
    images = list_images([tmp_path / "list.csv"], "gallery")
    assert labels(images) == [("a.jpg", None, "2"), ("b.jpg", "anna", None), ("c.jpg", "anna", None)]


@pytest.mark.parametrize("word", ["nan", "NAN", "<NA>", "None", "none", "NA", "n/a", "#N/A", "\\N", "#REF!", "NULL"])
def test_words_for_missing_values_are_refused_at_every_entrance(tmp_path: Path, word: str) -> None:
    folder = touch(tmp_path / "images", f"{word.replace('/', '')}/cam1_0.jpg", "ben/cam2_0.jpg")
    tables = {name: tmp_path / f"{name}.csv" for name in ("pid", "camid")}
    tables["pid"].write_text(f"path,pid\nimages/ben/cam2_0.jpg,{word}\n")
    tables["camid"].write_text(f"path,pid,camid\nimages/ben/cam2_0.jpg,1,{word}\n")
    record = LinkRecord()
    record.content["names"] = {"1": "anna"}
    entrances = [
        *(lambda table=table: list_images([table], "gallery") for table in tables.values()),
        lambda: list_images([folder], "gallery", identity=word),
        lambda: record.name("1", word),
        lambda: _name(word, "identity"),
    ]
    if "/" not in word:
        by_camera = Sources(pattern="{camid}/{pid}_{n}.jpg")
        entrances += [lambda: list_images([folder], "gallery"), lambda: list_images([folder], "gallery", by_camera)]
    for enter in entrances:
        with pytest.raises(InputError, match=re.escape(repr(word))):
            enter()


@pytest.mark.parametrize("name", ["Nan", "Na", "Nina", "nano", "#12", "1/2"])
def test_names_like_words_for_missing_values_are_people(tmp_path: Path, name: str) -> None:
    (image,) = list_images([touch(tmp_path, "a.jpg") / "a.jpg"], "gallery", identity=name)
    assert image.identity == name


def test_junk_as_the_person_of_all_images_is_unknown(tmp_path: Path) -> None:
    assert labels(list_images([touch(tmp_path, "a.jpg")], "gallery", identity="-1")) == [("a.jpg", None, None)]


@pytest.mark.parametrize("time", ["noon", "1.5", "-3", "9" * 19])
def test_time_must_be_whole_seconds(tmp_path: Path, time: str) -> None:
    (touch(tmp_path, "a.jpg") / "index.csv").write_text(f"path,pid,time\na.jpg,1,{time}\n")
    with pytest.raises(InputError, match=f"time of .*a.jpg is '{time}'"):
        list_images([tmp_path], "gallery")


@pytest.mark.parametrize(
    ("time", "accepted"),
    [(0, True), (86_400, True), (10**8, False), (631_151_999, False), (631_152_000, True), (4_102_444_799, True),
     (4_102_444_800, False), (1_772_438_400_000, False)],
)  # fmt: skip
def test_times_are_within_1990_and_2100_or_count_from_a_common_start(tmp_path: Path, time: int, accepted: bool) -> None:
    (touch(tmp_path, "a.jpg") / "index.csv").write_text(f"path,pid,time\na.jpg,1,{time}\n")
    for enter in (
        lambda: list_images([tmp_path], "gallery"),
        lambda: Gallery.build(np.eye(2), ["a", "b"], times=[-1, time], model="m"),
    ):
        with contextlib.nullcontext() if accepted else pytest.raises(InputError, match=f"time.*{time}"):
            enter()


def test_folder_of_one_person_and_single_files_name_nobody(tmp_path: Path) -> None:
    sources = [touch(tmp_path / "anna", "1.jpg", "2.jpg"), touch(tmp_path, "cam7_03.jpg") / "cam7_03.jpg"]
    images = list_images(sources, "gallery")
    assert labels(images) == [("1.jpg", None, None), ("2.jpg", None, None), ("cam7_03.jpg", None, "7")]
    assert "no named person" in who(images) and "1 camera (7)" in who(images)
    images = list_images(sources, "gallery", identity="anna")
    assert {image.identity for image in images} == {"anna"} and who(images) == "1 identity (anna) by 1 camera (7)"
    assert who(list_images(sources[:1], "gallery", identity="anna")) == "1 identity (anna), cameras unknown"
    many = [SearchImage(f"{number}.jpg", str(number), None) for number in range(12, 0, -1)]
    assert who(many) == "12 identities (1, 2, 3 …), cameras unknown"


def test_folders_of_splits_need_no_identities_if_the_caller_gives_them(tmp_path: Path) -> None:
    touch(tmp_path, "train/cam1/1.jpg", "query/2.jpg")
    with pytest.raises(InputError, match="query, train are splits"):
        list_images([tmp_path], "gallery")
    unlabelled = [("2.jpg", None, None), ("1.jpg", None, "1")]
    assert (
        labels(list_images([tmp_path], "gallery", identities=False)) == labels(list_queries([tmp_path])) == unlabelled
    )
    assert {image.identity for image in list_images([tmp_path], "gallery", identity="anna")} == {"anna"}


def test_image_in_two_sources_keeps_its_name(tmp_path: Path) -> None:
    touch(tmp_path, "anna/night/1.jpg", "ben/2.jpg")
    for sources in ([tmp_path, tmp_path / "ben"], [tmp_path / "ben", tmp_path]):
        assert dict(each[:2] for each in labels(list_images(sources, "gallery"))) == {"1.jpg": "anna", "2.jpg": "ben"}
    with pytest.raises(InputError, match="1.jpg: .*anna, .*night"):
        list_images([tmp_path, tmp_path / "anna"], "gallery")


def test_queries_keep_their_paths_and_even_junk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(touch(tmp_path, "q/cam1/anna/1.jpg", "q/0002_c3.jpg", "c9/2.jpg", "r/a.jpg", "m/-1_c1s1.jpg"))
    (tmp_path / "list.csv").write_text("path,pid,camid,split\nr/a.jpg,1,4,query\nr/b.jpg,1,5,gallery\n")
    with pytest.raises(InputError, match="gone.jpg: "):
        list_queries([Path("gone.jpg")])
    queries = list_queries([Path("q"), Path("c9/2.jpg"), Path("list.csv"), Path("m")])
    assert {query.path: (query.identity, query.camera) for query in queries} == {
        "q/0002_c3.jpg": (None, "3"),
        "q/cam1/anna/1.jpg": ("anna", "1"),
        "c9/2.jpg": (None, None),
        "r/a.jpg": ("1", "4"),
        "m/-1_c1s1.jpg": (None, "1"),
    }
    twice = list_queries([Path("q/cam1"), Path("q/cam1/anna/1.jpg")])
    assert [query.identity for query in twice] == ["anna", "anna"]


@pytest.fixture(scope="module")
def model() -> Embedder:
    return lreid.load_model(MODEL, "cpu")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory, model: Embedder) -> Path:
    """A folder per person with an image of each of two cameras, and one of a third in ``new``."""
    root = tmp_path_factory.mktemp("people")
    images = load_synthetic(
        "plaza", train_identities=0, test_identities=4, images_per_identity=6, distractors=0, seed=7
    )
    for number, (path, pid, camid) in enumerate([*images.gallery, *images.query]):
        split = "known" if number < len(images.gallery) else "new"
        folder = root / split / f"person{pid}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(read_image(path, height=model.height, width=model.width)).save(
            folder / f"c{camid}_{number}.png"
        )
    return root


def test_gallery_of_a_folder_extracts_features_itself(people: Path, model: Embedder, tmp_path: Path) -> None:
    gallery = Gallery.build(str(people / "known"), model=MODEL)
    files = sorted(map(str, (people / "known").rglob("*.png")))
    by_features = Gallery.build(model.extract(files), files, model=lreid.fingerprint(model))
    assert gallery.labels().paths.tolist() == by_features.labels().paths.tolist()
    assert [Path(path).parent.name for path in gallery.labels().paths] == gallery.labels().ids.tolist()
    assert {f"c{camera}" for camera in gallery.labels().cams} == {Path(path).name.split("_")[0] for path in files}
    new = people / "new"
    wanted = by_features.search(model.extract(new), 3, model=lreid.fingerprint(model))
    gallery.save(tmp_path / "people.gallery")
    for each in (gallery, Gallery.load(tmp_path / "people.gallery")):
        for images in (new, sorted(new.rglob("*.png")), (Image.open(file) for file in sorted(new.rglob("*.png")))):
            matches = each.search(images, 3)
            np.testing.assert_allclose(matches.scores, wanted.scores, atol=1e-5)
            assert matches.paths.tolist() == wanted.paths.tolist()
    frame = matches.to_frame()
    assert frame.groupby("query")["rank"].agg(list).map(lambda ranks: ranks == [1, 2, 3]).all()
    assert frame["scores"].to_numpy().reshape(-1, 3).tolist() == matches.scores.tolist()
    assert len(Gallery.build(files[:2], model=model).search(new, 5).to_frame()) == 2 * len(matches.keys)  # rows found
    assert gallery.calibrate(new, [path.parent.name for path in sorted(new.rglob("*.png"))], false_accept_rate=0.3)
    gallery.add(next(new.rglob("*.png")))
    assert len(gallery) == len(files) + 1
    with pytest.raises(InputError, match="holds features of model"):
        gallery.search(new, model="zoo:people")


def test_command_searches_a_gallery_built_in_python(
    people: Path, model: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Gallery.build(people / "known", model=model, at="people.gallery").save()
    assert run_command("search", ["query", "people.gallery", str(people / "new")]) == 0
    assert (tmp_path / "matches" / "matches.html").exists()


def test_relative_paths_name_images_of_a_gallery(
    people: Path, model: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(people)
    gallery = Gallery.build("known", model=model)
    stored = gallery.labels().paths.tolist()
    relative = [str(Path(path).relative_to(people)) for path in stored[:2]]
    gallery.remove([*relative, stored[0]])
    assert gallery.labels().paths.tolist() == stored[2:]
    with pytest.raises(InputError, match="^known/gone.png: "):
        gallery.remove([stored[2], "known/gone.png"])
    assert len(gallery) == len(stored) - 2


GREY = np.zeros((4, 4), np.uint8)
WRONG = {  # images, and words in the message
    "None": (lambda root: None, ["None", "'folder'"]),
    "a folder without images": (lambda root: root / "empty", ["empty", "image"]),
    "a video": (lambda root: root / "a.mp4", ["a.mp4", "from-tracks"]),
    "a URL": (lambda root: "https://example.org/a.jpg", ["https://example.org/a.jpg", "download the image"]),
    "a missing file": (lambda root: root / "b.jpg", ["b.jpg", "no such image"]),
    "a number": (lambda root: 7, ["int", "'folder'"]),
    "NaN": (lambda root: torch.full((1, 3, 4, 4), torch.nan), ["NaN", "position 0"]),
    "another device": (lambda root: torch.zeros(1, 3, 4, 4, device="meta"), ["meta", "'folder'"]),
    "a list of None": (lambda root: [None], ["None", "'folder'"]),
    "a list of folders": (lambda root: [root / "empty"], ["empty: is a folder"]),
    "an image of floats": (lambda root: np.zeros((4, 5, 3), np.float32), ["shape (4, 5, 3)", "uint8 from 0 to 255"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_images_are_refused_in_one_line(case: str, model: Embedder, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.mp4").write_bytes(b"moov")
    make, words = WRONG[case]
    gallery = Gallery.build([GREY], ["grey"], model=model)
    calls = [model.extract, gallery.search, lambda images: gallery.add(images, ["new"])]
    for call in [*calls, lambda images: Gallery.build(images, ["new"], model=model)]:
        with pytest.raises(InputError) as refused:
            call(make(tmp_path))
        message = str(refused.value)
        assert "\n" not in message and all(word in message for word in words), message
    assert len(gallery) == 1


def test_missing_model_and_paths_are_named(model: Embedder) -> None:
    features = model.extract(GREY)
    known = Gallery.build(features, ["grey"], model=lreid.fingerprint(model))
    for call, words in [
        (lambda: known.search(GREY), "model is missing"),
        (lambda: Gallery.build(features, model=model), "paths is missing"),
        (lambda: Gallery.build([GREY], model=model), r"paths is missing.*paths=\["),
        (lambda: Gallery.build("folder", model="zoo:nobody"), "nobody"),
        (lambda: Gallery.build([GREY], ["grey"], model=7), "load_model"),
        (lambda: Gallery.build([GREY], ["grey"], model="a.JPG"), "is an image or a video"),
        (lambda: Gallery.build(features, ["grey"], model="x", at=7), "name a file"),
        (lambda: Gallery.load("https://example.org/people.gallery"), "name a file"),
        (lambda: Gallery.load(None), "name a file"),
        (lambda: lreid.fingerprint(MODEL), r"model is .*load_model\('zoo:people'\)"),
        (lambda: known.search(features, None, model=lreid.fingerprint(model)), "k is None"),
    ]:
        with pytest.raises(InputError, match=words):
            call()
    with contextlib.suppress(ImportError):
        assert len(known.search(features, 1, model=model).to_frame()) == 1  # the network stands for its fingerprint


def test_whole_scenes_and_images_without_names_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sizes = {"photo": (640, 480), "portrait": (900, 1200), "crop": (400, 800), "small": (64, 48)}
    reported = []
    for name, size in sizes.items():
        (tmp_path / name).mkdir()
        Image.new("RGB", size).save(tmp_path / name / "1.jpg")
        caplog.clear()
        build(tmp_path / f"{name}.gallery", Path(MODEL), list_images([tmp_path / name], "gallery"), device="cpu")
        reported += [name] * ("whole scenes" in caplog.text)
    assert reported == ["photo", "portrait"]
    gallery, caplog.records[:] = Gallery.build(np.eye(2), ["a", "b"], ["anna", "ben"], model="a1"), []
    gallery.add(np.eye(2), ["c", "d"], ["anna", None], model="a1")
    assert not caplog.records
    gallery.add(np.eye(2), ["e", "f"], model="a1")
    assert len(caplog.records) == 1 and "ids=" in caplog.text
