"""Galleries that a map brings to a new model: their features, what they record, and maps that are refused."""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_files import synthetic_people, write_checkpoint, write_images
from gallery_search import build_gallery, calibrate_gallery
from milvus_lite_server import killed_at

import lreid.gallery
from lreid.apps.cli import run_command
from lreid.errors import InputError
from lreid.gallery import Gallery, model_map
from lreid.gallery.gallery import place_of
from lreid.loading import load_model
from lreid.models.fingerprint import fingerprint
from lreid.retrieval.feature_map import FeatureMap

OTHER = "zoo:dwopp-synthetic-10"  # its features have another length


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models, images of a gallery, queries, and other images to fit maps to."""
    folder = tmp_path_factory.mktemp("world")
    people = synthetic_people(4, 4)
    write_images(folder / "g", people.gallery)
    write_images(folder / "q", people.query)
    write_images(folder / "map", synthetic_people(5, 6, place="station").gallery)
    for seed, name in enumerate(("old.pt", "new.pt", "third.pt")):
        write_checkpoint(folder / name, seed)
    return folder


def mapping(where: str, new: Path | str, world: Path, **options: Any) -> dict[str, Any]:
    images = lreid.gallery.list_images([world / "map"], "gallery", identities=False)
    return lreid.gallery.reindex_by_map(where, Path(new), images, device="cpu", **{"force": True} | options)


def fitted(world: Path, old: Path | str, new: Path | str) -> FeatureMap:
    return FeatureMap.fit(*(load_model(name, "cpu").extract(f"{world / 'map'}") for name in (old, new)))


def rows(gallery: Gallery) -> dict[str, Any]:
    labels = gallery.labels()
    features = gallery.features(labels.keys)
    return dict(zip(labels.paths, zip(labels.ids, labels.cams, features, strict=True), strict=True))


def test_mapped_gallery_replaces_the_old_one_which_roll_back_restores(
    world: Path, new_place: Callable[[], str], tmp_path: Path
) -> None:
    images, where = shutil.copytree(world / "g", tmp_path / "g"), new_place()
    old = build_gallery(where, world / "old.pt", [images])
    calibrate_gallery(where, [world / "q"], false_accept_rate=0.5)
    old, fits = Gallery.load(where), [*(world / "map").iterdir()]
    before, reached = rows(old), int(old.search(fits, 1).known.sum())
    shutil.rmtree(images)
    with pytest.raises(InputError, match=f"{images}.*--map"):
        lreid.gallery.reindex(where, world / "new.pt", device="cpu")
    count = len(list((world / "map").iterdir()))
    found = mapping(where, world / "new.pt", world)
    by = fitted(world, world / "old.pt", world / "new.pt")
    assert (found["model"], found["images"], found["maps"]) == (old.about.model, count, 1)
    assert found["cosine"] == pytest.approx(by.cosine, abs=1e-5)
    now = Gallery.load(where)
    after = rows(now)
    assert {path: row[:2] for path, row in after.items()} == {path: row[:2] for path, row in before.items()}
    for path, row in before.items():
        np.testing.assert_allclose(after[path][2], by(row[2][None])[0], atol=1e-5)
    assert now.about.model == fingerprint(load_model(world / "new.pt", "cpu"))
    scores = now.search(fits, 1).scores  # extracted again, so their last bits differ
    assert (scores > now.threshold + 1e-5).sum() <= reached <= (scores > now.threshold - 1e-5).sum() and reached >= 10
    assert now.about.false_accept_rate == 0.5 and found["threshold"] == now.threshold != old.threshold
    query = [next((world / "q").iterdir())]
    with pytest.raises(InputError, match="old.pt"):
        lreid.gallery.query(where, query, checkpoint=world / "old.pt", device="cpu")
    assert lreid.gallery.query(where, query, device="cpu")["queries"]

    assert mapping(where, OTHER, world)["maps"] == 2  # another length
    wider, again = Gallery.load(where), fitted(world, world / "new.pt", OTHER)
    for path, row in rows(wider).items():
        np.testing.assert_allclose(row[2], again(after[path][2][None])[0], atol=1e-5)
    described = lreid.gallery.info(where)["mapped features"]
    assert f"{count} images" in described and old.about.model in described and now.about.model in described
    assert lreid.gallery.roll_back(where) == now.about.model
    assert mapping(where, world / "third.pt", world)["maps"] == 2  # replaces the version that can be mapped again
    assert [each.model for each in Gallery.load(where).maps] == [old.about.model, now.about.model]


def test_mapped_gallery_can_be_extracted_again_by_its_model(world: Path, new_place: Callable[[], str]) -> None:
    where = new_place()
    build_gallery(where, world / "old.pt", [world / "g"])
    mapping(where, world / "new.pt", world)
    mapped = rows(Gallery.load(where))
    model = load_model(world / "new.pt", "cpu")
    assert lreid.gallery.reindex(where, world / "new.pt", device="cpu")["extracted"] == len(mapped)
    extracted = Gallery.load(where)
    assert not extracted.maps and lreid.gallery.info(where)["mapped features"] == "none"
    path, (_, _, feature) = next(iter(rows(extracted).items()))
    np.testing.assert_allclose(feature, model.extract([path], normalize=True)[0], atol=1e-5)
    lreid.gallery.roll_back(where)
    assert rows(Gallery.load(where)).keys() == mapped.keys() and Gallery.load(where).maps
    with pytest.raises(InputError, match="restart=True"):
        mapping(where, world / "third.pt", world)
    assert mapping(where, world / "third.pt", world, restart=True)["maps"] == 2
    lreid.gallery.roll_back(where)
    with pytest.raises(InputError, match="restart=True"):  # mapped features are not taken for extracted ones
        lreid.gallery.reindex(where, world / "third.pt", device="cpu")


def test_gallery_that_changes_meanwhile_is_not_replaced(
    world: Path, new_place: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    where, finish = new_place(), Gallery.copied
    build_gallery(where, world / "old.pt", [world / "g"])

    def copied(gallery: Gallery, at: Any, *more: Any, **about: Any) -> Gallery:
        if at is not None:
            monkeypatch.setattr(Gallery, "copied", finish)
            lreid.gallery.add(where, lreid.gallery.list_images([world / "q"], "gallery"), device="cpu")
        return finish(gallery, at, *more, **about)

    monkeypatch.setattr(Gallery, "copied", copied)
    with pytest.raises(InputError, match="another process has changed"):
        mapping(where, world / "new.pt", world)
    size = len(Gallery.load(where))
    assert not Gallery.load(where).maps
    assert mapping(where, world / "new.pt", world)["maps"] == 1 and len(Gallery.load(where)) == size


def test_mapping_killed_at_any_request_to_milvus_leaves_the_old_or_the_new_gallery(
    world: Path, lite_place: str
) -> None:
    build_gallery(lite_place, world / "old.pt", [world / "g"])
    before, query = rows(Gallery.load(lite_place)), [next((world / "q").iterdir())]
    found, killed = [], True
    while killed:
        with contextlib.suppress(KeyboardInterrupt), killed_at(len(found)):
            mapping(lite_place, world / "new.pt", world)
            killed = False
        gallery = Gallery.load(lite_place)
        found.append(len(gallery.maps))
        assert lreid.gallery.query(lite_place, query, device="cpu")["queries"]
        if found[-1]:
            assert rows(gallery).keys() == before.keys()
            lreid.gallery.roll_back(lite_place)
        for path, row in rows(Gallery.load(lite_place)).items():
            assert row[:2] == before[path][:2]
            np.testing.assert_array_equal(row[2], before[path][2])
    assert found == sorted(found) and 0 < sum(found) < len(found) and len(found) > 20


def test_gallery_in_python_is_mapped_in_memory(world: Path) -> None:
    old = Gallery.build(world / "g", model=world / "old.pt")
    new = load_model(world / "new.pt", "cpu")
    mapped = old.mapped(world / "old.pt", new, world / "map")
    by = fitted(world, world / "old.pt", world / "new.pt")
    keys = old.labels().keys
    np.testing.assert_allclose(mapped.features(keys), by(old.features(keys)), atol=1e-5)
    assert mapped.search(world / "q", 1).scores.shape[1] == 1 and not old.maps
    for pair in (("old.pt", "old.pt"), ("third.pt", "new.pt")):
        with pytest.raises(InputError, match=old.about.model):
            old.mapped(*(world / name for name in pair), world / "map")
    old.about.kind = "ivfpq"
    with pytest.raises(InputError, match="compressed"):
        old.mapped(world / "old.pt", new, world / "map")


@pytest.fixture(scope="module")
def refusing(world: Path) -> Path:
    """Galleries and images for maps that are refused."""
    build_gallery(world / "people.gallery", world / "old.pt", [world / "g"])
    build_gallery(world / "norm.gallery", world / "old.pt", [world / "g"], adapt_norm=True)
    build_gallery(world / "lost.gallery", shutil.copy(world / "old.pt", world / "lost.pt"), [world / "g"])
    (world / "lost.pt").unlink()
    (world / "bad").mkdir()
    (world / "bad" / "a.png").write_bytes(b"no image")
    shutil.copy(next((world / "q").iterdir()), world / "nobody.png")
    shutil.copy(world / "old.pt", world / "moved.pt")
    return world


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("people.gallery --checkpoint new.pt --map map", "people.gallery"),  # too few images
        ("people.gallery --checkpoint old.pt --map map --force", "people.gallery"),  # the same model
        ("people.gallery --checkpoint new.pt --map map --old third.pt --force", "--old FILE"),
        ("lost.gallery --checkpoint new.pt --map map --force", "--old"),
        ("people.gallery --checkpoint new.pt --map bad --force", "a.png"),
        ("people.gallery --checkpoint new.pt --map gone --force", "gone"),
        ("people.gallery --checkpoint new.pt --old moved.pt", "--map"),
        (
            "people.gallery --checkpoint new.pt --map map --images nobody.png --force",
            "people.gallery",
        ),  # none is enrolled
        ("norm.gallery --checkpoint new.pt --map map --force", "norm.gallery"),
    ],
)
def test_maps_are_refused_in_one_line(
    refusing: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, named: str
) -> None:
    monkeypatch.chdir(refusing)
    before = {file: file.read_bytes() for file in refusing.glob("*.gallery*")}
    assert run_command("search", ["reindex", *words.split(), "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and named in error
    assert {file: file.read_bytes() for file in refusing.glob("*.gallery*")} == before


@pytest.mark.parametrize("worse", ["images", "cosine", "mAP"])
def test_map_that_is_worse_than_the_old_model_needs_force(worse: str) -> None:
    results = {"images": model_map.FEWEST, "cosine": 0.5, "baseline": 0.1, "mAP": 30.0, "old_mAP": 30.0}
    model_map._require_useful("people.gallery", results)
    with pytest.raises(InputError, match=r"people.gallery: .*force=True"):
        model_map._require_useful("people.gallery", results | {worse: results[worse] - 1})


def test_command_reports_the_old_and_the_new_map(
    refusing: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(refusing)
    shutil.copy("people.gallery", "moved.gallery")
    Path("old.pt").rename("elsewhere.pt")
    words = "reindex moved.gallery --checkpoint new.pt --map map --images q --old elsewhere.pt --force --device cpu"
    try:
        assert run_command("search", words.split()) == 0
    finally:
        Path("elsewhere.pt").rename("old.pt")
    gallery, model = Gallery.load("moved.gallery"), load_model("new.pt", "cpu")
    queries = lreid.gallery.list_images([Path("q")], "query")
    labels = gallery.labels()
    measured = lreid.evaluate(
        model.extract([each.path for each in queries]),
        gallery.features(labels.keys),
        [each.identity for each in queries],
        labels.ids,
        [each.camera for each in queries],
        labels.cams,
    )
    assert f"{100 * measured.mAP:.1f} % after" in capsys.readouterr().out
    assert place_of("moved.gallery").previous().exists()
