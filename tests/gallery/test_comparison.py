"""Compare two images by the threshold of a model or of a gallery."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from example_files import write_checkpoint
from gallery_search import build_gallery, calibrate_gallery, search_and_write
from PIL import Image

from lreid import zoo
from lreid.data.synthetic import draw
from lreid.errors import InputError
from lreid.gallery import list_images
from lreid.gallery.comparison import compare, said
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


def test_pairs_are_compared_with_the_threshold_of_the_card(images: list[Path]) -> None:
    comparison = compare(*images, model=MODEL, device="cpu")
    threshold = zoo.find("dwopp-synthetic-10").verification["threshold"]
    assert (comparison["threshold"], comparison["false_accept_rate"]) == (threshold, 0.01)
    features = load_model(MODEL).extract(images, normalize=True)
    for pair, (one, other) in zip(comparison["pairs"], combinations(range(3), 2), strict=True):
        assert pair["images"] == [str(images[one]), str(images[other])]
        assert pair["score"] == pytest.approx(float(features[one] @ features[other]), abs=1e-5)
        assert pair["same"] == (pair["score"] >= threshold)
        line = said(pair, comparison)
        assert line.startswith("likely the same, " if pair["same"] else "likely not the same, ")
        assert f"{pair['score']:.3f}" in line and f"{threshold:.3f}" in line and "1 %" in line
    assert "plaza" in comparison["notes"][0]


def test_shape_of_the_images_chooses_the_model(images: list[Path]) -> None:
    assert all(card.verification for card in zoo.cards())
    for size, model in (((32, 64), zoo.PEOPLE), ((64, 48), zoo.VEHICLES)):
        for path in images[:2]:
            Image.open(path).resize(size).save(path)
        comparison = compare(*images[:2], device="cpu")
        assert comparison["threshold"] == zoo.find(model.removeprefix("zoo:")).verification["threshold"]
        assert model in comparison["notes"][0]


def test_checkpoint_has_no_threshold(images: list[Path], tmp_path: Path) -> None:
    comparison = compare(*images[:2], model=write_checkpoint(tmp_path / "model.pt"), device="cpu")
    (pair,) = comparison["pairs"]
    assert pair["same"] is None and said(pair, comparison).startswith("similarity ")
    assert "model.pt has no threshold" in comparison["notes"][0]


def test_gallery_gives_model_threshold_and_impostors(images: list[Path], tmp_path: Path) -> None:
    folder, where = tmp_path / "people", str(tmp_path / "people.gallery")
    for person in range(4):
        (folder / str(person)).mkdir(parents=True)
        for camera in (1, 2):
            image = draw(f"synthetic:plaza/0/{600 + person}/{camera}/0")
            Image.fromarray(image).save(folder / str(person) / f"{camera}.png")
    build_gallery(where, MODEL, [folder])
    comparison = compare(*images[:2], gallery=where, device="cpu")
    (pair,), listed = comparison["pairs"], list_images([folder], "gallery")
    features = load_model(MODEL).extract([image.path for image in listed], normalize=True)
    impostors = [
        float(features[i] @ features[j])
        for i, j in combinations(range(len(listed)), 2)
        if listed[i].identity != listed[j].identity
    ]
    assert len(impostors) == 24
    assert pair["false_accept_rate"] == np.mean([score >= pair["score"] for score in impostors])
    assert "no threshold" in comparison["notes"][0]
    threshold = calibrate_gallery(where, [folder])["threshold"]
    comparison = compare(*images[:2], gallery=where, device="cpu")
    assert comparison["threshold"] == threshold and comparison["true_positive_rate"] is None
    assert comparison["notes"][1].startswith("8 images are too few")
    results = search_and_write(where, images, tmp_path / "matches")
    assert results["calibrated_on"] == 8 and comparison["notes"][1] in (tmp_path / "matches/matches.html").read_text()


def test_missing_second_image_or_file_is_named(images: list[Path], tmp_path: Path) -> None:
    for paths, named in ((images[:1], "0.png: .*second"), ([images[0], tmp_path / "gone.png"], "gone.png: ")):
        with pytest.raises(InputError, match=named):
            compare(*paths, model=MODEL)
