"""Galleries of images: features, names and the model come from the images themselves."""

import contextlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import lreid
from lreid.apps.cli import run_command
from lreid.data.synthetic import load_synthetic
from lreid.errors import InputError
from lreid.gallery import Gallery
from lreid.models.embedder import Embedder

pytest.importorskip("faiss")
MODEL = "zoo:dwopp-synthetic-10"


@pytest.fixture(scope="module")
def model() -> Embedder:
    return lreid.load_model(MODEL, "cpu")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory, model: Embedder) -> Path:
    """A folder per person with an image of each of two cameras, and one of a third in ``new``."""
    root = tmp_path_factory.mktemp("people")
    drawn = load_synthetic("plaza", train_identities=0, test_identities=4, images_per_identity=6, distractors=0, seed=7)
    for number, (path, pid, camid) in enumerate([*drawn.gallery, *drawn.query]):
        split = "known" if number < len(drawn.gallery) else "new"
        folder = root / split / f"person{pid}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(model._read(path)).save(folder / f"c{camid}_{number}.png")
    return root


def test_a_folder_becomes_a_gallery_that_needs_no_other_object(people: Path, model: Embedder, tmp_path: Path) -> None:
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


def test_the_commands_search_a_gallery_that_python_built(
    people: Path, model: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Gallery.build(people / "known", model=model, at="people.gallery").save()
    assert run_command("search", ["query", "people.gallery", str(people / "new")]) == 0
    assert (tmp_path / "matches" / "matches.html").exists()


def test_the_path_that_was_added_is_removed(people: Path, model: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images are stored under absolute paths, but given by relative ones."""
    monkeypatch.chdir(people)
    gallery = Gallery.build("known", model=model)
    stored = gallery.labels().paths.tolist()
    relative = [str(Path(path).relative_to(people)) for path in stored[:2]]
    gallery.remove([*relative, stored[0]])
    assert gallery.labels().paths.tolist() == stored[2:]
    with pytest.raises(InputError, match="^known/gone.png: is not in the gallery"):
        gallery.remove([stored[2], "known/gone.png"])
    assert len(gallery) == len(stored) - 2


GREY = np.zeros((4, 4), np.uint8)
WRONG = {  # what is given for images, and what the one line must name
    "None": (lambda root: None, ["None", "'folder'"]),
    "a folder without images": (lambda root: root / "empty", ["empty", "image"]),
    "a video": (lambda root: root / "a.mp4", ["a.mp4", "from-tracks"]),
    "a URL": (lambda root: "https://example.org/a.jpg", ["https://example.org/a.jpg", "download the image"]),
    "a missing file": (lambda root: root / "b.jpg", ["b.jpg", "No such file"]),
    "a number": (lambda root: 7, ["int", "'folder'"]),
    "NaN": (lambda root: torch.full((1, 3, 4, 4), torch.nan), ["NaN", "position 0"]),
    "NaN in an array": (lambda root: np.full((1, 4, 4, 3), np.nan), ["float64", "uint8"]),
    "another device": (lambda root: torch.zeros(1, 3, 4, 4, device="meta"), ["meta", "'folder'"]),
    "a list of None": (lambda root: [None], ["None", "'folder'"]),
    "a list of folders": (lambda root: [root / "empty"], ["empty: is a folder"]),
    "an image of floats": (lambda root: np.zeros((4, 5, 3), np.float32), ["shape (4, 5, 3)", "uint8 from 0 to 255"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_image_gets_one_line_with_the_right_call(case: str, model: Embedder, tmp_path: Path) -> None:
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


def test_a_model_or_paths_that_are_missing_are_asked_for(model: Embedder) -> None:
    features = model.extract(GREY)
    known = Gallery.build(features, ["grey"], model=lreid.fingerprint(model))
    for call, words in [
        (lambda: known.search(GREY), "model is missing; pass lreid.load_model"),
        (lambda: Gallery.build(features, model=model), "paths is missing; name the image of each row"),
        (lambda: Gallery.build([GREY], model=model), r"paths is missing; give each image .*paths=\["),
        (lambda: Gallery.build("folder", model="zoo:nobody"), "nobody"),
        (lambda: Gallery.build([GREY], ["grey"], model=7), "load_model"),
        (lambda: Gallery.build([GREY], ["grey"], model="a.JPG"), "is an image or a video"),
        (lambda: Gallery.build(features, ["grey"], model="x", at=7), "name a file"),
        (lambda: Gallery.load("https://example.org/people.gallery"), "name a file"),
        (lambda: Gallery.load(None), "name a file"),
        (lambda: Gallery("people.gallery"), r"call Gallery\.load\('people\.gallery'\)"),
        (lambda: lreid.fingerprint(MODEL), r"model is .*load_model\('zoo:people'\)"),
        (lambda: known.search(features, None, model=lreid.fingerprint(model)), "k is None"),
    ]:
        with pytest.raises(InputError, match=words):
            call()
    with contextlib.suppress(ImportError):
        assert len(known.search(features, 1, model=model).to_frame()) == 1  # the network stands for its fingerprint
