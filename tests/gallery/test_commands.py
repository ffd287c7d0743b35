"""Build, change, calibrate and search galleries of image files."""

import json
import os
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from example_files import synthetic_people, write_checkpoint, write_images
from gallery_search import build_gallery, calibrate_gallery, search_and_write

import lreid.gallery
from lreid.data.images import read_image
from lreid.data.listing import MARKET_NAME
from lreid.errors import InputError
from lreid.gallery import Gallery, roll_back
from lreid.gallery.findings import verdict
from lreid.gallery.images import SearchImage
from lreid.loading import load_model
from lreid.retrieval import CameraNorm
from lreid.retrieval.protocols import threshold_for


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, ``gallery/`` and ``query/`` with images named as in Market-1501, and ``people/`` in folders."""
    folder = tmp_path_factory.mktemp("world")
    people = synthetic_people(20, 8, distractors=6)
    write_images(folder / "gallery", people.gallery)
    write_images(folder / "query", people.query)
    write_images(folder / "people", people.query, "p{pid}/{number}.png")
    write_checkpoint(folder / "model.pt")
    build_gallery(folder / "people.gallery", folder / "model.pt", [folder / "gallery"])
    return folder


@pytest.fixture(scope="module")
def images(world: Path) -> list[Path]:
    return sorted((world / "gallery").iterdir())


@pytest.fixture(scope="module")
def queries(world: Path) -> list[Path]:
    return sorted((world / "query").iterdir())


@pytest.fixture
def gallery(world: Path, tmp_path: Path) -> Path:
    """A gallery that a test may change."""
    return shutil.copy(world / "people.gallery", tmp_path / "people.gallery")


@pytest.fixture(scope="module")
def cosines(world: Path, images: list[Path], queries: list[Path]) -> np.ndarray:
    """Cosine similarities of queries and gallery images."""
    model = load_model(world / "model.pt")
    return unit(model.extract(queries)) @ unit(model.extract(images)).T


def unit(features: np.ndarray) -> np.ndarray:
    return features / np.linalg.norm(features, axis=1, keepdims=True)


def identity(path: str | Path) -> str | None:
    number = int(MARKET_NAME.match(Path(path).name)["identity"])
    return str(number) if number else None


def camera(path: Path) -> str:
    return str(int(MARKET_NAME.match(path.name)["camera"]))


def test_query_returns_nearest_images_with_labels(
    images: list[Path], queries: list[Path], gallery: Path, cosines: np.ndarray, tmp_path: Path
) -> None:
    results = search_and_write(gallery, queries[:3], tmp_path, top=4)
    for answer, row in zip(results["queries"], cosines[:3], strict=True):
        best = np.argsort(-row, kind="stable")[:4]
        matches = [(match["path"], match["identity"], match["camera"]) for match in answer["matches"]]
        assert matches == [(str(images[i]), identity(images[i]), camera(images[i])) for i in best]
        assert [match["score"] for match in answer["matches"]] == pytest.approx(row[best], abs=1e-5)
        assert answer["unknown"] is None and answer["identity"] == identity(images[best[0]])
    assert json.loads((tmp_path / "matches.json").read_text()) == results
    page = (tmp_path / "matches.html").read_text()
    assert page.count('class="ranking"') == 3 and "not calibrated" in page and "image not found" not in page


def test_calibration_sets_threshold_below_which_queries_are_unknown(
    images: list[Path], queries: list[Path], gallery: Path, cosines: np.ndarray, tmp_path: Path
) -> None:
    calibration = calibrate_gallery(gallery, [queries[0].parent], false_accept_rate=0.1)
    threshold, scores = calibration["threshold"], cosines.copy()
    own = np.array([[identity(query) == identity(image) for image in images] for query in queries])
    nameless = np.array([identity(image) is None for image in images])
    impostors = np.where(own | nameless, -1, scores).max(1)
    assert threshold == pytest.approx(threshold_for(impostors, 0.1), abs=1e-5)
    scores[:, nameless] = -1  # an image without a name recognises nobody
    right = [own[row, column] and scores[row, column] > threshold for row, column in enumerate(scores.argmax(1))]
    assert calibration["known"] == calibration["images"] == len(queries)
    assert calibration["true_positive_rate"] == np.mean(right)
    people = np.array([identity(query) for query in queries])
    drawn, rng = [], np.random.default_rng(0)
    for draw in rng.integers(20, size=(1000, 20)):
        of_people = [impostors[people == person] for person in np.unique(people)[draw]]
        drawn.append(threshold_for(np.concatenate(of_people), 0.1))
    assert calibration["interval"] == pytest.approx(np.quantile(drawn, (0.025, 0.975)), abs=1e-5)
    assert calibration["interval"][0] <= threshold <= calibration["interval"][1] and calibration["impostors"] == 40
    for row, rate in zip(calibration["table"], (0.1, 0.05, 0.01, 0.001), strict=True):
        assert row["threshold"] == pytest.approx(threshold_for(impostors, rate), abs=1e-5)
        assert row["false_accepts"] == int(40 * rate)
        right = [
            own[number, best] and scores[number, best] > row["threshold"]
            for number, best in enumerate(scores.argmax(1))
        ]
        assert row["true_positive_rate"] == np.mean(right)

    results = search_and_write(gallery, queries, tmp_path / "out")
    assert results["threshold"] == threshold and results["false_accept_rate"] == 0.1
    above = scores.max(1) - threshold
    for answer, margin in zip(results["queries"], above, strict=True):
        assert answer["unknown"] == (margin < 0) or abs(margin) < 1e-5  # the threshold is one of the scores, rounded
    assert 0 < (above < -1e-5).sum() < len(queries) - (np.abs(above) < 1e-5).sum()
    for answer in results["queries"]:
        assert [match["known"] for match in answer["matches"]] == [
            match["score"] >= threshold and match["identity"] is not None for match in answer["matches"]
        ]
        line = verdict(answer, threshold, 0.1)
        assert answer["identity"] is None or not answer["unknown"]
        assert line.startswith("unknown: " if answer["unknown"] else f"known: {answer['identity']}, ")
    page = (tmp_path / "out" / "matches.html").read_text()
    assert 'class="tile known"' in page and 'class="tile below"' in page


def test_calibration_leaves_out_the_image_itself(world: Path, images: list[Path], gallery: Path) -> None:
    calibration = calibrate_gallery(gallery, [world / "gallery"], false_accept_rate=0.5)
    named = [row for row, path in enumerate(images) if identity(path)]
    features = unit(load_model(world / "model.pt").extract(images))
    scores = features[named] @ features.T
    scores[range(len(named)), named] = -1
    scores[:, [identity(image) is None for image in images]] = -1
    best = scores.argmax(1)
    right = [
        identity(images[row]) == identity(images[column]) and score >= calibration["threshold"]
        for row, column, score in zip(named, best, scores.max(1), strict=True)
    ]
    assert calibration["images"] == calibration["known"] == len(named)
    assert calibration["true_positive_rate"] == pytest.approx(np.mean(right))


def test_person_with_one_image_is_not_known_to_calibration(world: Path, images: list[Path], tmp_path: Path) -> None:
    (folder := tmp_path / "gallery").mkdir()
    of_person: dict[str | None, list[Path]] = {}
    for path in images:
        of_person.setdefault(identity(path), []).append(path)
    del of_person[None]
    alone, *others = of_person.values()
    for path in [alone[0], *(path for each in others for path in each[:2])]:
        shutil.copy(path, folder)
    build_gallery(tmp_path / "g", world / "model.pt", [folder])
    calibration = calibrate_gallery(tmp_path / "g", [folder])
    assert (calibration["images"], calibration["known"]) == (39, 38)


def test_calibration_warns_of_too_few_images(world: Path, gallery: Path, caplog: pytest.LogCaptureFixture) -> None:
    for rate, count in ((0.5, 0), (0, 0), (0.2, 1), (0.02, 2)):
        calibrate_gallery(gallery, [world / "query"], false_accept_rate=rate)
        assert len(caplog.messages) == count
    assert "40 images" in caplog.text and "2 %" in caplog.text


def test_changes_after_a_calibration_warn_of_the_old_threshold(
    world: Path, gallery: Path, images: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    people = lreid.gallery.list_images([world / "people"], "gallery")
    lreid.gallery.add(gallery, people[:1], device="cpu")
    calibrate_gallery(gallery, [world / "query"], false_accept_rate=0.5)
    assert not caplog.messages
    lreid.gallery.add(gallery, people[:1], device="cpu")  # changes nothing
    assert not caplog.messages
    lreid.gallery.add(gallery, people[1:2], device="cpu")
    lreid.gallery.remove(gallery, [str(images[0])])
    assert len(caplog.messages) == 2 and all("lreid search calibrate" in each for each in caplog.messages)


def test_add_takes_new_images_and_new_names(world: Path, gallery: Path, tmp_path: Path) -> None:
    assert lreid.gallery.add(gallery, lreid.gallery.list_images([world / "gallery"], "gallery"), device="cpu") == 0
    images = lreid.gallery.list_images([world / "gallery", world / "people"], "gallery")
    assert lreid.gallery.add(gallery, images, device="cpu") == 40
    named = Gallery.load(gallery)
    assert len(named) == len(images) == 166 and len(named.identities) == 40
    labels = named.labels()
    for path, name in zip(labels.paths, labels.ids, strict=True):
        assert name == (Path(path).parent.name if "people" in path else identity(path))
    path = next((world / "people").rglob("*.png"))
    answer = search_and_write(gallery, [path], tmp_path / "out", top=1)["queries"][0]
    assert answer["identity"] == path.parent.name and answer["matches"][0]["score"] == pytest.approx(1, abs=1e-5)


def test_remove_by_path_and_by_identity(gallery: Path, images: list[Path]) -> None:
    assert lreid.gallery.remove(gallery, [str(images[-1])], identity(images[-1])) == 6
    properties = lreid.gallery.info(gallery)
    assert (properties["images"], properties["identities"]) == (len(images) - 6, 19)
    before = gallery.read_bytes()
    with pytest.raises(InputError, match="nothing was removed"):
        lreid.gallery.remove(gallery, [str(images[0]), str(images[-1])])
    with pytest.raises(InputError, match="'nobody'"):
        lreid.gallery.remove(gallery, identity="nobody")
    assert gallery.read_bytes() == before


def test_unicode_forms_of_names_are_one_person(world: Path, tmp_path: Path) -> None:
    folder, (first, second, *_) = tmp_path / "people", sorted((world / "people").iterdir())
    shutil.copytree(first, folder / unicodedata.normalize("NFD", "José"))
    shutil.copytree(second, folder / "José")
    for number, path in enumerate((folder / "José").iterdir()):
        path.rename(path.with_name(f"other{number}.png"))
    gallery = tmp_path / "people.gallery"
    built = build_gallery(gallery, world / "model.pt", [folder])
    assert built.counts()["identities"] == 1 and {*built.labels().ids} == {"José"}
    old = next(path for path in built.labels().paths if not unicodedata.is_normalized("NFC", path))
    assert lreid.gallery.remove(gallery, [unicodedata.normalize("NFC", old)]) == 1
    named = Gallery.load(gallery)
    named.about.names["identity"] = {key: unicodedata.normalize("NFD", "José") for key in named.about.names["identity"]}
    named.save()  # as an earlier version wrote it
    assert lreid.gallery.remove(gallery, identity=unicodedata.normalize("NFD", "José")) == len(built) - 1


def test_removal_deletes_uploads_and_names_other_versions(
    gallery: Path, images: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    uploads = Path(f"{gallery}.images")
    uploads.mkdir()
    kept, gone, orphan, own = (
        uploads / name for name in ("1" * 32 + ".png", "2" * 32 + ".jpg", "3" * 32 + ".png", "a")
    )
    for file in (kept, gone, orphan, own, uploads / f".{gone.name}.0123abcd.lreid"):
        shutil.copy(images[0], file)
    lreid.gallery.add(gallery, [SearchImage(str(file), "anna", None) for file in (kept, gone)], device="cpu")
    assert str(uploads) in lreid.gallery.info(gallery)["related files"]
    previous = Path(shutil.copy(gallery, f"{gallery}.previous"))
    caplog.clear()
    lreid.gallery.remove(gallery, [str(gone)])
    assert str(previous) in caplog.text and {*uploads.iterdir()} == {kept, own}
    caplog.clear()
    roll_back(gallery)
    assert str(gone) in caplog.text  # it returns
    lreid.gallery.remove(gallery, [str(gone)], everywhere=True)
    assert {*uploads.iterdir()} == {kept, own}


def test_remove_everywhere_reaches_every_version(gallery: Path, images: list[Path]) -> None:
    """One version is incomplete, and the version in use has lost the person already."""
    versions = [gallery, *(gallery.with_name(f"{gallery.name}.{other}") for other in ("next", "previous"))]
    for path in versions[1:]:
        shutil.copy(gallery, path)
    unfinished = Gallery.load(versions[1])
    unfinished.about.whole = False
    unfinished.save()
    half = shutil.copy(gallery, gallery.with_name(f".{gallery.name}.previous.0123abcd.lreid"))
    assert lreid.gallery.info(gallery)["related files"] == f"{versions[1]}, {versions[2]}, {half}"
    person, name = identity(images[-1]), images[-1].name.encode()
    lreid.gallery.remove(gallery, identity=person)
    assert name in versions[2].read_bytes() and not half.exists()
    assert lreid.gallery.remove(gallery, identity=person, everywhere=True) == 6
    assert lreid.gallery.remove(gallery, [str(images[0]), str(images[1])], everywhere=True) == 2
    for path in versions:
        left = Gallery.load(path, unfinished=True)
        assert person not in left.identities and len(left) == len(images) - 8
        assert name not in path.read_bytes()
    with pytest.raises(InputError, match="people.gallery: contains none"):
        lreid.gallery.remove(gallery, identity=person, everywhere=True)


def test_gallery_without_its_model_cannot_be_searched_with_images(gallery: Path, queries: list[Path]) -> None:
    named = Gallery.load(gallery)
    del named.about.extras["checkpoint"]
    named.save(gallery.with_name("bad"))
    with pytest.raises(InputError, match="bad: does not record"):
        lreid.gallery.query(gallery.with_name("bad"), queries, device="cpu")


def test_paths_that_are_not_utf8_are_searched_and_shown(world: Path, queries: list[Path], tmp_path: Path) -> None:
    image = tmp_path / os.fsdecode(b"caf\xe9 \x1b[31m") / "ann" / "1.png"
    image.parent.mkdir(parents=True)
    shutil.copy(queries[0], image)
    build_gallery(tmp_path / "g", world / "model.pt", [image.parents[1]])
    results = search_and_write(tmp_path / "g", [image], tmp_path / "out")
    assert results["queries"][0]["matches"][0]["path"] == str(image)
    assert json.loads((tmp_path / "out" / "matches.json").read_text())["queries"][0]["image"] == str(image)
    assert "caf\\udce9 " in (tmp_path / "out" / "matches.html").read_text()
    assert lreid.gallery.remove(tmp_path / "g", [str(image)]) == 1


def test_gallery_normalised_per_camera_normalises_additions_and_queries(
    world: Path, queries: list[Path], tmp_path: Path
) -> None:
    file, images = tmp_path / "standard.gallery", lreid.gallery.list_images([world / "gallery"], "gallery")
    lreid.gallery.build(file, world / "model.pt", images[:-4], adapt_norm=True, device="cpu")
    model, cameras = load_model(world / "model.pt"), np.array([int(image.camera) for image in images])
    features = model.extract(pixels([image.path for image in images]))
    norm = CameraNorm.estimate(features[:-4], cameras[:-4])
    enrolled = unit(norm(features, cameras))
    assert lreid.gallery.add(file, images[-4:], device="cpu") == 4  # with the statistics of the others
    assert lreid.gallery.info(file)["adapted normalisation"] == "features, per camera"
    nameless = shutil.copy(queries[0], tmp_path / "somebody.png")
    other = write_checkpoint(tmp_path / "other.pt", seed=1)
    for image, number, options in (
        (queries[0], int(camera(queries[0])), {}),
        (nameless, -1, {}),
        (queries[0], int(camera(queries[0])), {"checkpoint": other, "cross_model": True}),
    ):
        query = load_model(options.get("checkpoint", world / "model.pt")).extract(pixels([str(image)]))
        scores = unit(norm(query, [number]))[0] @ enrolled.T
        answer = search_and_write(file, [image], tmp_path / "out", top=3, **options)["queries"][0]
        best = [match["score"] for match in answer["matches"]]
        assert best == pytest.approx(np.sort(scores)[::-1][:3], abs=1e-4)


def pixels(paths: list[str]) -> list[np.ndarray]:
    return [read_image(path, height=32, width=16) for path in paths]


def test_other_cameras_leaves_out_the_camera_of_the_query(queries: list[Path], gallery: Path, tmp_path: Path) -> None:
    def cameras(images: list[Path], **options: object) -> list[set[str]]:
        results = search_and_write(gallery, images, tmp_path / "out", top=126, **options)
        return [{match["camera"] for match in answer["matches"]} for answer in results["queries"]]

    assert "2" in cameras(queries[:1], camera="2")[0]
    assert "2" not in cameras(queries[:1], camera="2", other_cameras=True)[0]
    of_names = [camera(path) for path in queries[:6]]
    assert len(set(of_names)) > 1
    assert cameras(queries[:6], other_cameras=True) == [set("123456") - {name} for name in of_names]
    new_camera = shutil.copy(queries[0], tmp_path / "0001_c77s1_000001.png")
    assert cameras([new_camera], other_cameras=True) == [set("123456")]


@pytest.mark.slow
def test_features_of_mirrored_images_are_added_if_the_checkpoint_says_so(
    world: Path, images: list[Path], queries: list[Path], tmp_path: Path
) -> None:
    file, checkpoint = tmp_path / "g", write_checkpoint(tmp_path / "flips.pt", EVAL__FLIP=True)
    build_gallery(file, checkpoint, images[:60])
    lreid.gallery.add(file, lreid.gallery.list_images(images[60:], ""), device="cpu")
    model, other = load_model(checkpoint), write_checkpoint(tmp_path / "other.pt", seed=1)
    enrolled = unit(model.extract(images, flip=True))
    for options, features in (
        ({}, model.extract(queries[:3], flip=True)),
        ({"checkpoint": world / "model.pt"}, model.extract(queries[:3], flip=True)),  # the same weights
        ({"checkpoint": other, "cross_model": True}, load_model(other).extract(queries[:3])),
    ):
        results = search_and_write(file, queries[:3], tmp_path / "out", top=5, **options)
        for answer, scores in zip(results["queries"], unit(features) @ enrolled.T, strict=True):
            best = [match["score"] for match in answer["matches"]]
            assert best == pytest.approx(np.sort(scores)[::-1][:5], abs=1e-5)
    properties = lreid.gallery.info(file)
    assert properties["flipped images"] == "added" and properties["threshold"].startswith("none")


def test_page_shows_matches_whose_files_are_missing(
    world: Path, images: list[Path], queries: list[Path], tmp_path: Path
) -> None:
    (copies := tmp_path / "copies").mkdir()
    for path in images[:4]:
        shutil.copy(path, copies)
    build_gallery(tmp_path / "g", world / "model.pt", [copies], kind="hnsw")
    next(copies.iterdir()).unlink()
    search_and_write(tmp_path / "g", queries, tmp_path / "out")
    page = (tmp_path / "out" / "matches.html").read_text()
    assert page.count("image not found") == 40 and page.count("<img") == 40 * 4


def test_skip_bad_leaves_out_unreadable_images_and_their_names(
    world: Path, gallery: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = tmp_path / "bad" / "somebody" / "broken.png"
    bad.parent.mkdir(parents=True)
    bad.write_text("no image")
    listed, before = lreid.gallery.list_images([bad.parents[1]], ""), gallery.read_bytes()
    options = {"skip_bad": True, "device": "cpu"}
    assert lreid.gallery.add(gallery, listed, **options) == 0
    assert "skipped 1 image " in caplog.text and gallery.read_bytes() == before
    with pytest.raises(InputError, match="broken.png"):
        lreid.gallery.build(tmp_path / "g", world / "model.pt", listed, **options)
    with pytest.raises(InputError, match="broken.png"):
        lreid.gallery.calibrate(gallery, listed, **options)
    listed += lreid.gallery.list_images([world / "people"], "")
    assert lreid.gallery.add(gallery, listed, **options) == 40
    assert "somebody" not in Gallery.load(gallery).identities
    named = lreid.gallery.build(tmp_path / "g", world / "model.pt", listed, **options)
    assert len(named) == 40 and not named.holds([str(bad)])[0]


def test_group_of_a_folder_is_one_query(world: Path, gallery: Path, queries: list[Path], tmp_path: Path) -> None:
    for path in queries:
        folder = tmp_path / "tracks" / identity(path)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder)
    images = sorted((tmp_path / "tracks").rglob("*.png"))
    model, named = load_model(world / "model.pt"), Gallery.load(gallery)
    results = search_and_write(gallery, [tmp_path / "tracks"], tmp_path / "out", group="folder")
    assert len(results["queries"]) == 20
    for answer in results["queries"]:
        own = [path for path in images if path.parent == Path(answer["image"]).parent]
        assert answer["images"] == [*map(str, own)] and answer["expected"] == own[0].parent.name
        mean = (unit(model.extract(own)) @ named.features(named.labels().keys).T).mean(0)
        scores = [match["score"] for match in answer["matches"]]
        assert scores == pytest.approx(np.sort(mean)[::-1][:10], abs=1e-5)
