"""Two images are told to be of the same identity by a threshold that was measured before."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from example_files import write_checkpoint
from gallery_search import search_and_write
from PIL import Image

import lreid.gallery
from lreid import zoo
from lreid.data.synthetic import draw
from lreid.errors import InputError
from lreid.gallery.comparison import compare, said
from lreid.gallery.findings import too_few
from lreid.loading import load_model

MODEL = Path("zoo:dwopp-synthetic-10")


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    """Two of one person, by two cameras, and one of another."""
    files = []
    for number, (person, camera) in enumerate([(500, 1), (500, 2), (700, 1)]):
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(draw(f"synthetic:plaza/0/{person}/{camera}/0")).save(files[-1])
    return files


def test_pairs_are_judged_by_the_threshold_of_the_card(images: list[Path]) -> None:
    told = compare(images, checkpoint=MODEL, device="cpu")
    known = zoo.find("dwopp-synthetic-10").verification
    assert (told["threshold"], told["false_accept_rate"]) == (known["threshold"], 0.01)
    vectors = load_model(MODEL).extract(images)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert [pair["images"] for pair in told["pairs"]] == [
        [str(images[i]), str(images[j])] for i, j in ((0, 1), (0, 2), (1, 2))
    ]
    for pair, (one, other) in zip(told["pairs"], ((0, 1), (0, 2), (1, 2)), strict=True):
        assert pair["score"] == pytest.approx(float(vectors[one] @ vectors[other]), abs=1e-5)
        assert pair["same"] == (pair["score"] >= known["threshold"])
        words = "likely the same, " if pair["same"] else "likely not the same, "
        assert said(pair, told).startswith(
            f"{words}{pair['score']:.3f} (threshold {known['threshold']:.3f} at a false accept rate of 1 %"
        )
    assert "plaza" in told["notes"][0] and "calibrate your gallery" in told["notes"][0]


def test_the_shape_of_the_images_chooses_the_model_and_its_threshold(images: list[Path]) -> None:
    assert all(card.verification for card in zoo.cards())
    for size, model in (((32, 64), zoo.PEOPLE), ((64, 48), zoo.VEHICLES)):
        for path in images[:2]:
            Image.open(path).resize(size).save(path)
        told = compare(images[:2], device="cpu")
        assert told["threshold"] == zoo.find(model.removeprefix("zoo:")).verification["threshold"]
        assert model in told["notes"][0]


def test_a_checkpoint_has_none(images: list[Path], tmp_path: Path) -> None:
    told = compare(images[:2], checkpoint=write_checkpoint(tmp_path / "model.pt"), device="cpu")
    assert told["pairs"][0]["same"] is None and said(told["pairs"][0], told).startswith("similarity ")
    assert "has no threshold; use a model of the zoo" in told["notes"][0]


def test_a_gallery_brings_model_and_threshold_and_its_caveat(images: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "people"
    for person in range(4):
        (folder / str(person)).mkdir(parents=True)
        for camera in (1, 2):
            image = draw(f"synthetic:plaza/0/{600 + person}/{camera}/0")
            Image.fromarray(image).save(folder / str(person) / f"{camera}.png")
    where = str(tmp_path / "people.gallery")
    listed = lreid.gallery.list_images([folder], "gallery")
    lreid.gallery.build(where, MODEL, listed, device="cpu")
    pair = compare(images[:2], where=where, device="cpu")["pairs"][0]
    rows = load_model(MODEL).extract([image.path for image in listed], normalize=True)
    impostors = [
        float(one @ other)
        for (i, one), (j, other) in combinations(enumerate(rows), 2)
        if listed[i].identity != listed[j].identity
    ]
    assert len(impostors) == 24
    assert pair["false_accept_rate"] == np.mean([score >= pair["score"] for score in impostors])
    assert compare(images[:2], where=where, device="cpu")["notes"] == [
        f"{where} has no threshold; calibrate it: lreid search calibrate"
    ]
    calibrated = lreid.gallery.calibrate(where, lreid.gallery.list_images([folder], "query"), device="cpu")
    told = compare(images[:2], where=where, device="cpu")
    assert told["threshold"] == calibrated["threshold"] and told["true_positive_rate"] is None
    caveat = "8 images are too few to set a false accept rate of 1 %: no impostor among them reaches the threshold."
    assert told["notes"][1] == caveat
    results = search_and_write(where, images, tmp_path / "matches")
    assert results["calibrated_on"] == 8 and caveat in (tmp_path / "matches/matches.html").read_text()


def test_what_is_too_few() -> None:
    assert too_few(99, 0.01) and not too_few(100, 0.01)
    assert too_few(None, 0.01) == too_few(5, 0.0) == too_few(5, None) == ""


def test_bad_input_is_told(images: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="0.png: pass a second image to compare with"):
        compare(images[:1], checkpoint=MODEL)
    with pytest.raises(InputError, match="gone.png: "):
        compare([images[0], tmp_path / "gone.png"], checkpoint=MODEL)
