"""Reindex galleries, roll them back and move them, in a file and in Milvus, even if a process is killed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from example_files import synthetic_people, write_checkpoint, write_images
from gallery_search import build_gallery, calibrate_gallery, search_and_write
from milvus_lite_server import require_milvus

import lreid.gallery
from lreid.errors import InputError
from lreid.gallery import Gallery, commands, versions
from lreid.gallery.gallery import place_of
from lreid.gallery.images import SearchImage
from lreid.gallery.versions import migrate, reindex, roll_back
from lreid.loading import load_model
from lreid.models.fingerprint import fingerprint
from lreid.retrieval import CameraNorm


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models of one shape, and 36 images named as in Market-1501 with times in a list."""
    folder = tmp_path_factory.mktemp("world")
    people = synthetic_people(6, 6)
    paths = write_images(folder / "images", [*people.gallery, *people.query])
    lines = ["path,pid,camid,split,time"]
    for number, path in enumerate(paths):
        pid, camera = path.name.split("_c")[0], path.name.split("_c")[1].split("s")[0]
        lines.append(f"images/{path.name},{pid},{camera},gallery,{100 * number if number else ''}")
    (folder / "index.csv").write_text("\n".join(lines) + "\n")
    write_checkpoint(folder / "old.pt")
    write_checkpoint(folder / "new.pt", seed=1)
    return folder


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    require_milvus()
    return f"milvus:{tmp_path_factory.mktemp('milvus')}/lite.db"


@pytest.fixture(params=["file", "milvus"])
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    if request.param == "file":
        return lambda name: str(tmp_path / name)
    database = request.getfixturevalue("database")
    return lambda name: f"{database}/{tmp_path.name.replace('-', '_')}_{name}"


def build(where: str, world: Path, count: int | None = None) -> Gallery:
    return lreid.gallery.build(where, world / "old.pt", listed(world)[:count], device="cpu")


def listed(world: Path) -> list[SearchImage]:
    return lreid.gallery.list_images([world / "index.csv"], "gallery")


def features_by_path(gallery: Gallery) -> dict[str, np.ndarray]:
    labels = gallery.store.labels()
    return dict(zip(labels.paths, gallery.features(labels.keys), strict=True))


def rows(gallery: Gallery) -> set[tuple]:
    labels = gallery.labels()
    return set(zip(labels.paths, labels.ids, labels.cams, labels.times, strict=True))


@pytest.mark.slow
def test_reindex_replaces_the_gallery_and_roll_back_restores_it(world, new_place, tmp_path):
    where = new_place("g")
    old = build(where, world)
    before = rows(old)
    calibrate_gallery(where, [world / "images"])
    assert reindex(where, world / "new.pt", device="cpu") == {"images": 36, "extracted": 36}
    new = Gallery.load(where)
    model = load_model(world / "new.pt")
    assert new.about.model == fingerprint(model) and new.about.threshold is None
    assert rows(new) == before and new.identities == old.identities
    path, feature = next(iter(features_by_path(new).items()))
    np.testing.assert_allclose(feature, model.extract([path], normalize=True)[0], atol=1e-5)
    with pytest.raises(InputError, match="already contains features of this model"):
        reindex(where, world / "new.pt", device="cpu")
    assert search_and_write(where, [Path(path)], tmp_path / "out")["queries"]  # by the checkpoint that it records
    assert roll_back(where) == old.about.model
    assert Gallery.load(where).about.threshold is not None
    with pytest.raises(InputError, match="no previous version"):
        roll_back(where)
    assert reindex(where, world / "new.pt", device="cpu") == {"images": 36, "extracted": 0}  # the newer version is kept
    assert Gallery.load(where).about.model == fingerprint(model)


@pytest.mark.slow
def test_remove_everywhere_reaches_all_versions(world, new_place):
    where = new_place("g")
    old = build(where, world)
    reindex(where, world / "new.pt", device="cpu")
    place = place_of(where)
    assert place.beside() == [str(place.previous())] == [lreid.gallery.info(where)["related files"]]
    name = old.identities[0]
    assert lreid.gallery.remove(where, identity=name, everywhere=True) == 6
    for each in (place, place.previous()):
        left = Gallery.load(each)
        assert len(left) == 30 and name not in left.identities


@pytest.mark.slow
def test_killed_reindexing_continues_without_extracting_twice(world, new_place, monkeypatch, tmp_path):
    """Meanwhile the gallery is searched by both models, and changed."""
    where = new_place("g")
    build(where, world, 30)
    monkeypatch.setattr(versions, "FEWEST_KEPT_AT_ONCE", 8)
    extracted, original = [], versions.read_images

    def kill_at_third(images, *more, **options):
        if len(extracted) == 2:
            raise KeyboardInterrupt
        extracted.append([image.path for image in images])
        return original(images, *more, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        for module in (versions, commands):
            patch.setattr(module, "read_images", kill_at_third)
        reindex(where, world / "new.pt", device="cpu")
    assert [len(part) for part in extracted] == [8, 8]
    query = sorted((world / "images").iterdir())[0]
    for options in ({}, {"checkpoint": world / "new.pt", "cross_model": True}):
        assert search_and_write(where, [query], tmp_path / "out", **options)["queries"]
    write_checkpoint(tmp_path / "third.pt", seed=2)
    with pytest.raises(InputError, match="was begun with model"):
        reindex(where, tmp_path / "third.pt", device="cpu")
    assert lreid.gallery.add(where, listed(world), device="cpu") == 6
    assert lreid.gallery.remove(where, [extracted[0][0], extracted[1][0]]) == 2
    assert reindex(where, world / "new.pt", device="cpu") == {"images": 34, "extracted": 20}
    assert len(Gallery.load(where)) == 34
    assert reindex(where, tmp_path / "third.pt", restart=True, device="cpu")["extracted"] == 34


def test_images_added_just_before_the_switch_are_never_lost(world, new_place, monkeypatch):
    where = new_place("g")
    build(where, world, 30)
    original = Gallery.finish

    def finish(gallery):
        monkeypatch.setattr(Gallery, "finish", original)
        lreid.gallery.add(where, listed(world), device="cpu")
        gallery.finish()

    monkeypatch.setattr(Gallery, "finish", finish)
    if where.startswith("milvus:"):
        assert reindex(where, world / "new.pt", device="cpu")["images"] == 36
    else:
        with pytest.raises(InputError, match="another process has changed the file"):
            reindex(where, world / "new.pt", device="cpu")
        assert len(Gallery.load(where)) == 36
        assert reindex(where, world / "new.pt", device="cpu") == {"images": 36, "extracted": 6}
    assert Gallery.load(where).about.model == fingerprint(load_model(world / "new.pt"))


def test_reindexing_leaves_out_unreadable_images(world, new_place, tmp_path, monkeypatch):
    """The process is killed after the readable images; neither the first nor the last batch can be read."""
    where, copy = new_place("g"), tmp_path / "images"
    copy.mkdir()
    for path in sorted((world / "images").iterdir())[:6]:
        shutil.copy(path, copy)
    build_gallery(where, world / "old.pt", [copy])
    monkeypatch.setattr(versions, "FEWEST_KEPT_AT_ONCE", 2)
    by_key = Gallery.load(where).labels().paths
    for path in [*by_key[:2], *by_key[4:]]:
        Path(path).unlink()
    with pytest.raises(InputError, match="skip_bad=True"):
        reindex(where, world / "new.pt", device="cpu")
    assert len(Gallery.load(where)) == 6
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(versions._Reindexing, "catch_up", lambda *_: exec("raise KeyboardInterrupt"))
        reindex(where, world / "new.pt", skip_bad=True, device="cpu")
    assert reindex(where, world / "new.pt", skip_bad=True, device="cpu") == {"images": 2, "extracted": 0}
    named = Gallery.load(where)
    assert named.about.names["identity"].keys() == set(named.store.labels().ids.tolist())  # no names of the others
    for path in by_key:
        Path(path).unlink(missing_ok=True)
    with pytest.raises(InputError, match="none of its images can be read"):
        reindex(where, world / "old.pt", skip_bad=True, restart=True, device="cpu")


def test_roll_back_restores_a_deleted_gallery(world, tmp_path):
    where = tmp_path / "g"
    old = build(str(where), world, 6).about.model
    reindex(where, world / "new.pt", device="cpu")
    where.unlink()
    assert roll_back(where) == old
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


def test_reindexing_estimates_statistics_per_camera_again(world, new_place):
    where = new_place("g")
    build_gallery(where, world / "old.pt", [world / "index.csv"], adapt_norm=True)
    reindex(where, world / "new.pt", device="cpu")
    named = Gallery.load(where)
    labels = named.store.labels()
    model = load_model(world / "new.pt")
    features = model.extract(list(labels.paths))
    norm = CameraNorm.estimate(features, labels.cams)
    stored = named.extraction.norm
    assert stored.cameras.keys() == norm.cameras.keys() and len(norm.cameras) > 1
    np.testing.assert_allclose(stored.whole, norm.whole, atol=1e-5)
    matches = named.search(norm(features[:1], labels.cams[:1]), 1, model=fingerprint(model))
    assert (matches.paths[0, 0], matches.scores[0, 0]) == (labels.paths[0], pytest.approx(1, abs=1e-4))


@pytest.mark.parametrize("way", ["file to milvus", "milvus to file", "file to shards"])
def test_migrate_copies_everything(world, tmp_path, request, way):
    places = {"file": str(tmp_path / "a"), "shards": str(tmp_path / "b")}
    if "milvus" in way:
        places["milvus"] = f"{request.getfixturevalue('database')}/{tmp_path.name.replace('-', '_')}"
    source, target = (places[name] for name in way.split(" to "))
    shards = 3 if "shards" in way else 1
    build(source, world)
    calibrate_gallery(source, [world / "images"])
    assert migrate(source, target, shards=shards) == (36, 1.0)
    one, other = Gallery.load(source), Gallery.load(target)
    assert rows(one) == rows(other)
    assert one.about.names == other.about.names and one.extraction == other.extraction
    for name in ("threshold", "false_accept_rate", "calibrated_on"):
        assert getattr(one.about, name) == getattr(other.about, name) is not None
    assert other.about.shards == shards
    copied = features_by_path(other)
    for path, feature in features_by_path(one).items():
        np.testing.assert_allclose(copied[path], feature, atol=1e-6)
    with pytest.raises(InputError, match="already exists"):
        migrate(source, target)
    lreid.gallery.remove(target, [next(iter(copied))])
    assert len(other.load(target)) == 35


def test_copy_that_differs_or_was_interrupted_is_no_gallery(world, new_place, tmp_path, monkeypatch):
    source, target = str(tmp_path / "source"), new_place("target")
    build(source, world)
    with monkeypatch.context() as patch:
        patch.setattr(versions, "_share_of_same_matches", lambda *_: 0.5)
        with pytest.raises(InputError, match="the copy differs .0.500"):
            migrate(source, target)
        patch.setattr(versions, "_share_of_same_matches", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            migrate(source, target)
    with pytest.raises(InputError, match="no such file|not complete"):
        Gallery.load(target)
    monkeypatch.setattr("lreid.gallery.gallery.BATCH", 7)
    assert migrate(source, target, kind="hnsw")[0] == 36
    assert Gallery.load(target).about.kind == "hnsw"


def test_migrate_compares_matches_of_the_trained_index(tmp_path):
    features = np.random.default_rng(0).standard_normal((10_000, 16))
    gallery = Gallery.build(features, [f"{row}.jpg" for row in range(len(features))], model="a1", at=tmp_path / "old")
    gallery.save()
    for kind in ("flat", "ivfpq"):
        images, same = migrate(tmp_path / "old", tmp_path / kind, kind=kind)
        recall = Gallery.load(tmp_path / kind).about.recall[10]
        assert images == 10_000 and same == pytest.approx(recall, abs=0.15) and (same < 1) == (kind == "ivfpq")
