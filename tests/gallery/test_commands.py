"""Searching one's own images: what is found, what is kept, and what bad input leaves untouched."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from example_files import synthetic_people, write_checkpoint, write_images
from gallery_search import search_and_write

import lreid.gallery
from lreid.data.images import read_image
from lreid.data.listing import MARKET_NAME
from lreid.errors import InputError
from lreid.gallery.findings import verdict
from lreid.gallery.named_gallery import NamedGallery
from lreid.loading import load_model
from lreid.retrieval import CameraNorm
from lreid.retrieval.open_set import threshold_for


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, ``gallery/`` and ``query/`` with images named as in Market-1501, and ``people/`` in folders."""
    folder = tmp_path_factory.mktemp("world")
    drawn = synthetic_people(20, 8, distractors=6)
    write_images(folder / "gallery", drawn.gallery)
    write_images(folder / "query", drawn.query)
    write_images(folder / "people", drawn.query, "p{pid}/{number}.png")
    write_checkpoint(folder / "model.pt")
    return folder


@pytest.fixture(scope="module")
def built(world: Path) -> Path:
    file = world / "people.gallery"
    lreid.gallery.build(
        file, world / "model.pt", lreid.gallery.list_images([world / "gallery"], "gallery"), device="cpu"
    )
    return file


@pytest.fixture
def gallery(built: Path, tmp_path: Path) -> Path:
    """A gallery that a test may change."""
    return shutil.copy(built, tmp_path / built.name)


@pytest.fixture(scope="module")
def cosines(world: Path) -> np.ndarray:
    """Of the files in ``query/`` and ``gallery/``, in order."""
    model = load_model(world / "model.pt")
    queries, images = (unit(model.extract(sorted((world / name).iterdir()))) for name in ("query", "gallery"))
    return queries @ images.T


def unit(features: np.ndarray) -> np.ndarray:
    return features / np.linalg.norm(features, axis=1, keepdims=True)


def identity(path: str | Path) -> str | None:
    number = int(MARKET_NAME.match(Path(path).name)["identity"])
    return str(number) if number else None


def test_a_query_finds_the_nearest_images_with_their_names(
    world: Path, gallery: Path, cosines: np.ndarray, tmp_path: Path
) -> None:
    queries = sorted((world / "query").iterdir())[:3]
    results = search_and_write(gallery, queries, tmp_path / "out", top=4)
    images = sorted((world / "gallery").iterdir())
    for answer, row in zip(results["queries"], cosines[:3], strict=True):
        best = np.argsort(-row, kind="stable")[:4]
        assert [match["path"] for match in answer["matches"]] == [str(images[i]) for i in best]
        assert [match["score"] for match in answer["matches"]] == pytest.approx(row[best], abs=1e-5)
        assert [match["identity"] for match in answer["matches"]] == [identity(images[i]) for i in best]
        assert [match["camera"] for match in answer["matches"]] == [
            str(int(MARKET_NAME.match(images[i].name)["camera"])) for i in best
        ]
        assert answer["unknown"] is None and answer["identity"] == identity(images[best[0]])
    assert json.loads((tmp_path / "out" / "matches.json").read_text()) == results
    page = (tmp_path / "out" / "matches.html").read_text()
    assert page.count('class="ranking"') == 3 and "not calibrated" in page and "image not found" not in page


def test_under_the_threshold_is_unknown(world: Path, gallery: Path, cosines: np.ndarray, tmp_path: Path) -> None:
    """The threshold is that of the best scores which the labelled images reach without their own identity."""
    told = lreid.gallery.calibrate(
        gallery, lreid.gallery.list_images([world / "query"], "query"), false_accept_rate=0.1, device="cpu"
    )
    queries, images = sorted((world / "query").iterdir()), sorted((world / "gallery").iterdir())
    scores = cosines.copy()
    own = np.array([[identity(query) == identity(image) for image in images] for query in queries])
    nameless = np.array([identity(image) is None for image in images])
    impostors = np.where(own | nameless, -1, scores).max(1)
    assert told["threshold"] == pytest.approx(threshold_for(impostors, 0.1), abs=1e-5)
    scores[:, nameless] = -1  # somebody without a name is never recognised
    right = [
        own[row, column] and scores[row, column] > told["threshold"] for row, column in enumerate(scores.argmax(1))
    ]
    assert told["known"] == told["images"] == len(queries) and told["true_positive_rate"] == np.mean(right)

    results = search_and_write(gallery, queries, tmp_path / "out")
    assert results["threshold"] == told["threshold"] and results["false_accept_rate"] == 0.1
    above = scores.max(1) - told["threshold"]
    for answer, margin in zip(results["queries"], above, strict=True):
        assert answer["unknown"] == (margin < 0) or abs(margin) < 1e-5  # the threshold is one of the scores, rounded
    assert 0 < (above < -1e-5).sum() < len(queries) - (np.abs(above) < 1e-5).sum()
    for answer in results["queries"]:
        assert [match["known"] for match in answer["matches"]] == [
            match["score"] >= told["threshold"] and match["identity"] is not None for match in answer["matches"]
        ]
        line = verdict(answer, results["threshold"], results["false_accept_rate"])
        if answer["unknown"]:
            assert answer["identity"] is None and line.startswith("unknown: the best match ")
        else:
            assert line.startswith(f"known: {answer['identity']}, ")
    page = (tmp_path / "out" / "matches.html").read_text()
    assert 'class="tile known"' in page and 'class="tile below"' in page


def test_somebody_without_a_name_is_not_known(world: Path, gallery: Path, tmp_path: Path) -> None:
    """Also where nobody is as near: a threshold is calibrated on those with a name."""
    lreid.gallery.calibrate(gallery, lreid.gallery.list_images([world / "query"], "query"), device="cpu")
    nameless = next(path for path in sorted((world / "gallery").iterdir()) if identity(path) is None)
    for top, line in ((1, "none of the matches has a name"), (126, "the best match with a name has 0")):
        results = search_and_write(gallery, [nameless], tmp_path / "out", top=top)
        (answer,) = results["queries"]
        assert answer["matches"][0]["path"] == str(nameless) and answer["matches"][0]["known"] is False
        assert answer["unknown"] and answer["identity"] is None
        assert verdict(answer, results["threshold"], 0.01).startswith(f"unknown: {line}")
    page = (tmp_path / "out" / "matches.html").read_text()
    assert page.count('class="tile below"') == 120  # nobody can tell on which side the nameless are


def test_who_is_there_only_as_the_query_itself_is_not_counted(world: Path, tmp_path: Path) -> None:
    folder = tmp_path / "gallery"
    folder.mkdir()
    everybody: dict[str, list[Path]] = {}
    for path in sorted((world / "gallery").iterdir()):
        everybody.setdefault(identity(path) or "", []).append(path)
    del everybody[""]
    alone, *others = everybody.values()
    for path in [alone[0], *(path for each in others for path in each[:2])]:
        (folder / path.name).write_bytes(path.read_bytes())
    images = lreid.gallery.list_images([folder], "")
    lreid.gallery.build(tmp_path / "g", world / "model.pt", images, device="cpu")
    told = lreid.gallery.calibrate(tmp_path / "g", images, device="cpu")
    assert (told["images"], told["known"]) == (39, 38)


def test_too_few_images_for_a_rate_are_told(world: Path, gallery: Path, caplog: pytest.LogCaptureFixture) -> None:
    images = lreid.gallery.list_images([world / "query"], "query")
    for rate, count in ((0.5, 0), (0, 0), (0.02, 1)):
        lreid.gallery.calibrate(gallery, images, false_accept_rate=rate, device="cpu")
        assert len(caplog.messages) == count
    assert "40 images are too few to set a false accept rate of 2 %" in caplog.text


def test_the_gallerys_own_images_do_not_recognise_themselves(world: Path, gallery: Path) -> None:
    images = lreid.gallery.list_images([world / "gallery"], "query")
    told = lreid.gallery.calibrate(gallery, images, false_accept_rate=0.5, device="cpu")
    named = [path for path in sorted((world / "gallery").iterdir()) if identity(path)]
    model, everything = load_model(world / "model.pt"), sorted((world / "gallery").iterdir())
    scores = unit(model.extract(named)) @ unit(model.extract(everything)).T
    scores[np.array([[path == image for image in everything] for path in named])] = -1
    scores[:, [identity(image) is None for image in everything]] = -1
    best = scores.argmax(1)
    right = [
        identity(path) == identity(everything[place]) and scores[row, place] >= told["threshold"]
        for row, (path, place) in enumerate(zip(named, best, strict=True))
    ]
    assert told["images"] == told["known"] == len(named)  # those without a name are left out
    assert told["true_positive_rate"] == pytest.approx(np.mean(right))


def test_adding_takes_the_new_ones_and_new_names(world: Path, gallery: Path, tmp_path: Path) -> None:
    assert lreid.gallery.add(gallery, lreid.gallery.list_images([world / "gallery"], "gallery"), device="cpu") == 0
    images = lreid.gallery.list_images([world / "gallery", world / "people"], "gallery")
    assert lreid.gallery.add(gallery, images, device="cpu") == 40
    named = NamedGallery.load(gallery)
    assert len(named.gallery) == len(images) == 166 and len(named.identities) == 40
    labels = named.gallery.labels()
    for path, name in zip(labels.paths, labels.ids, strict=True):
        assert name == (Path(path).parent.name if "people" in path else identity(path))
    path = next((world / "people").rglob("*.png"))
    answer = search_and_write(gallery, [path], tmp_path / "out", top=1)["queries"][0]
    assert answer["identity"] == path.parent.name and answer["matches"][0]["score"] == pytest.approx(1, abs=1e-5)


def test_removing_by_path_and_by_identity(gallery: Path, world: Path) -> None:
    images = sorted((world / "gallery").iterdir())
    name = identity(images[-1])
    assert lreid.gallery.remove(gallery, [str(images[-1])], name) == 6
    assert lreid.gallery.describe(gallery)["images"] == len(images) - 6
    assert lreid.gallery.describe(gallery)["identities"] == 19
    before = gallery.read_bytes()
    with pytest.raises(InputError, match="nothing was removed"):
        lreid.gallery.remove(gallery, [str(images[0]), str(images[-1])])
    with pytest.raises(InputError, match="has no identity 'nobody'"):
        lreid.gallery.remove(gallery, identity="nobody")
    assert gallery.read_bytes() == before


def test_removing_everywhere_reaches_the_versions_beside_a_gallery(gallery: Path, world: Path) -> None:
    """Also where one of them is not complete, and where somebody is gone from the one in use already."""
    versions = [gallery, *(gallery.with_name(f"{gallery.name}.{other}") for other in ("next", "previous"))]
    for path in versions[1:]:
        path.write_bytes(gallery.read_bytes())
    unfinished = NamedGallery.load(versions[1])
    unfinished.gallery.about.whole = False
    unfinished.gallery.save()
    half = gallery.with_name(f".{gallery.name}.previous.0123abcd.lreid")
    half.write_bytes(gallery.read_bytes())
    assert lreid.gallery.describe(gallery)["related files"] == f"{versions[1]}, {versions[2]}, {half}"
    last = sorted((world / "gallery").iterdir())[-1]
    person = identity(last)
    lreid.gallery.remove(gallery, identity=person)
    assert last.name.encode() in versions[2].read_bytes() and not half.exists()  # as the gallery was written
    assert lreid.gallery.remove(gallery, identity=person, everywhere=True) == 6
    images = sorted((world / "gallery").iterdir())
    assert lreid.gallery.remove(gallery, [str(images[0]), str(images[1])], everywhere=True) == 2
    for path in versions:
        kept = NamedGallery.load(path, unfinished=True)
        assert person not in kept.identities.values() and len(kept.gallery) == len(images) - 8
        assert last.name.encode() not in path.read_bytes()
    with pytest.raises(InputError, match="people.gallery: contains none of these images"):
        lreid.gallery.remove(gallery, identity=person, everywhere=True)


def test_statistics_and_origins_that_do_not_fit_are_told(gallery: Path) -> None:
    bad = {"checkpoint": np.array([]), "flip": np.zeros((2, 2)), "norm/x": np.zeros(1), "norm/1/a": np.zeros(1)}
    bad |= {"norm/whole/a": np.array(["a"]), "norm/features/whole": np.zeros((2, 3)), "norm/features/1": np.zeros(2)}
    for name, array in bad.items():
        named = NamedGallery.load(gallery)
        named.gallery.about.extras[name] = array
        named.gallery.save(gallery.with_name("bad"))
        with pytest.raises(
            InputError, match="bad: (does not record how|the statistics of its|was built by an earlier version)"
        ):
            NamedGallery.load(gallery.with_name("bad"))


def test_names_that_are_no_text_are_searched_and_shown(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9 \x1b[31m")
    (folder / "ann").mkdir(parents=True)
    image = folder / "ann" / "1.png"
    image.write_bytes(sorted((world / "query").iterdir())[0].read_bytes())
    images = lreid.gallery.list_images([folder], "")
    lreid.gallery.build(tmp_path / "g", world / "model.pt", images, device="cpu")
    results = search_and_write(tmp_path / "g", [image], tmp_path / "out")
    assert results["queries"][0]["matches"][0]["path"] == str(image)
    assert json.loads((tmp_path / "out" / "matches.json").read_text())["queries"][0]["image"] == str(image)
    assert "caf\\udce9 " in (tmp_path / "out" / "matches.html").read_text()
    assert lreid.gallery.remove(tmp_path / "g", [str(image)]) == 1


def test_a_name_that_a_killed_addition_left_goes_too(gallery: Path, world: Path) -> None:
    named = NamedGallery.load(gallery)
    named.identities[7] = "left over"
    named.gallery.save()
    with pytest.raises(InputError, match="contains none of these images"):
        lreid.gallery.remove(gallery, identity="left over")
    lreid.gallery.remove(gallery, [str(sorted((world / "gallery").iterdir())[0])])
    assert "left over" not in NamedGallery.load(gallery).identities.values()


def test_features_standardised_by_camera_stay_so(world: Path, tmp_path: Path) -> None:
    file = tmp_path / "standard.gallery"
    images = lreid.gallery.list_images([world / "gallery"], "gallery")
    lreid.gallery.build(file, world / "model.pt", images[:-4], adapt_norm=True, device="cpu")
    model = load_model(world / "model.pt")
    cameras = np.array([int(image.camera) for image in images])
    gallery = model.extract(_read([image.path for image in images]))
    norm = CameraNorm.estimate(gallery[:-4], cameras[:-4])
    assert lreid.gallery.add(file, images[-4:], device="cpu") == 4  # with what the others have
    assert lreid.gallery.describe(file)["adapted normalisation"] == "features, per camera"
    query = sorted((world / "query").iterdir())[0]
    own = int(MARKET_NAME.match(query.name)["camera"])
    nameless = tmp_path / "somebody.png"
    nameless.write_bytes(query.read_bytes())
    for image, camera in ((query, own), (nameless, -1)):
        wanted = unit(norm(model.extract(_read([str(query)])), [camera]))[0] @ unit(norm(gallery, cameras)).T
        found = search_and_write(file, [image], tmp_path / "out", top=3)
        best = [match["score"] for match in found["queries"][0]["matches"]]
        assert best == pytest.approx(np.sort(wanted)[::-1][:3], abs=1e-4)
    other = write_checkpoint(tmp_path / "other.pt", seed=1)  # features of another model are standardised alike
    asked = unit(norm(load_model(other).extract(_read([str(query)])), [own]))[0] @ unit(norm(gallery, cameras)).T
    found = search_and_write(file, [query], tmp_path / "out", checkpoint=other, cross_model=True)
    assert found["queries"][0]["matches"][0]["score"] == pytest.approx(asked.max(), abs=1e-4)


def _read(paths: list[str]) -> list[np.ndarray]:
    return [read_image(path, height=32, width=16) for path in paths]


def test_other_cameras_only(world: Path, gallery: Path, tmp_path: Path) -> None:
    query = sorted((world / "query").iterdir())[0]
    for other, wanted in ((False, True), (True, False)):
        answer = search_and_write(gallery, [query], tmp_path / "out", top=126, camera="2", other_cameras=other)[
            "queries"
        ][0]
        assert ("2" in {match["camera"] for match in answer["matches"]}) == wanted


def test_file_names_tell_the_cameras_of_queries(world: Path, gallery: Path, tmp_path: Path) -> None:
    queries = sorted((world / "query").iterdir())[:6]
    cameras = [str(int(MARKET_NAME.match(path.name)["camera"])) for path in queries]
    assert len(set(cameras)) > 1
    results = search_and_write(gallery, queries, tmp_path / "out", top=126, other_cameras=True)
    for answer, camera in zip(results["queries"], cameras, strict=True):
        assert {match["camera"] for match in answer["matches"]} == set("123456") - {camera}
    elsewhere = tmp_path / "0001_c77s1_000001.png"  # no image of the gallery is of its camera
    elsewhere.write_bytes(queries[0].read_bytes())
    results = search_and_write(gallery, [elsewhere], tmp_path / "out", top=126, other_cameras=True)
    assert len(results["queries"][0]["matches"]) == 126


@pytest.mark.slow
def test_mirrored_images_count_as_in_the_models_evaluation(world: Path, tmp_path: Path) -> None:
    """What EVAL.FLIP is in the checkpoint that a gallery is built with holds for all its images and queries."""
    file, checkpoint = tmp_path / "g", write_checkpoint(tmp_path / "flips.pt", EVAL__FLIP=True)
    images, queries = (sorted((world / name).iterdir()) for name in ("gallery", "query"))
    lreid.gallery.build(file, checkpoint, lreid.gallery.list_images(images[:60], ""), device="cpu")
    lreid.gallery.add(file, lreid.gallery.list_images(images[60:], ""), device="cpu")
    model, other = load_model(checkpoint), write_checkpoint(tmp_path / "other.pt", seed=1)
    gallery = unit(model.extract(images, flip=True))
    for options, features in (
        ({}, model.extract(queries[:3], flip=True)),
        ({"checkpoint": world / "model.pt"}, model.extract(queries[:3], flip=True)),  # the same weights
        ({"checkpoint": other, "cross_model": True}, load_model(other).extract(queries[:3])),
    ):
        results = search_and_write(file, queries[:3], tmp_path / "out", top=5, **options)
        for answer, scores in zip(results["queries"], unit(features) @ gallery.T, strict=True):
            best = [match["score"] for match in answer["matches"]]
            assert best == pytest.approx(np.sort(scores)[::-1][:5], abs=1e-5)
    assert lreid.gallery.describe(file)["flipped images"] == "added"
    assert lreid.gallery.describe(file)["threshold"] == "none; set one with lreid search calibrate"


def test_images_that_are_gone_are_still_found(world: Path, tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    for path in sorted((world / "gallery").iterdir())[:4]:
        (copies / path.name).write_bytes(path.read_bytes())
    file = tmp_path / "g"
    lreid.gallery.build(file, world / "model.pt", lreid.gallery.list_images([copies], ""), kind="hnsw", device="cpu")
    next(copies.iterdir()).unlink()
    search_and_write(file, [world / "query"], tmp_path / "out")
    page = (tmp_path / "out" / "matches.html").read_text()
    assert page.count("image not found") == 40 and page.count("<img") == 40 * 4


def test_when_all_that_is_new_is_bad(world: Path, gallery: Path, tmp_path: Path, caplog) -> None:
    bad = tmp_path / "bad" / "somebody" / "broken.png"
    bad.parent.mkdir(parents=True)
    bad.write_text("no image")
    listed, before = lreid.gallery.list_images([bad.parents[1]], ""), gallery.read_bytes()
    assert listed[0].identity == "somebody"
    assert lreid.gallery.add(gallery, listed, skip_bad=True, device="cpu") == 0
    assert "skipped 1 image " in caplog.text and gallery.read_bytes() == before
    with pytest.raises(InputError, match="none of the 1 images can be read, the first is .*broken.png; replace"):
        lreid.gallery.build(tmp_path / "g", world / "model.pt", listed, skip_bad=True, device="cpu")
    with pytest.raises(InputError, match="none of the 1 images can be read"):
        lreid.gallery.calibrate(gallery, listed, skip_bad=True, device="cpu")
    people = lreid.gallery.list_images([world / "people"], "")
    assert lreid.gallery.add(gallery, [*listed, *people], skip_bad=True, device="cpu") == 40
    assert "somebody" not in NamedGallery.load(gallery).identities.values()  # nobody bears the name
    named = lreid.gallery.build(tmp_path / "g", world / "model.pt", [*listed, *people], skip_bad=True, device="cpu")
    assert len(named.gallery) == 40 and not named.gallery.holds([str(bad)])[0]
