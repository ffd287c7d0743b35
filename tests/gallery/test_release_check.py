"""``lreid search check``: its metrics against nested loops, its exit statuses, and bad input."""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from example_files import synthetic_people, write_checkpoint, write_images
from gallery_search import build_gallery, calibrate_gallery

from lreid.apps.cli import run_command
from lreid.loading import load_model
from lreid.retrieval.feature_map import FeatureMap
from lreid.retrieval.protocols import threshold_for

ENROLLED, RATE = 8, 0.1
OLD, NEW = "zoo:people-small", "zoo:dwopp-synthetic-10"
METRICS = ("threshold", "mAP", "rank1", "true_positive_rate", "fpir")


class Image(NamedTuple):
    path: Path
    who: str
    camera: str
    time: int = -1


class World(NamedTuple):
    folder: Path
    gallery: list[Image]
    queries: list[Image]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A calibrated gallery of eight people with times, and queries of them and of four others."""
    folder = tmp_path_factory.mktemp("world")
    images = synthetic_people(12, 8, place="night-street")
    enrolled = sorted({record.pid for record in images.query})[:ENROLLED]
    parts = {"gallery": [each for each in images.gallery if each.pid in enrolled], "query": images.query}
    listed = {}
    for split, records in parts.items():
        times = [100 * record.pid + number if split == "gallery" else -1 for number, record in enumerate(records)]
        paths = write_images(folder / split, records)
        rows = zip(paths, records, times, strict=True)
        listed[split] = [Image(path, f"p{record.pid}", f"c{record.camid}", time) for path, record, time in rows]
        lines = [f"{each.path.name},{each.who},{each.camera},{max(each.time, 0) or ''}" for each in listed[split]]
        (folder / split / "index.csv").write_text("\n".join(["path,pid,camid,time", *lines]) + "\n")
    write_images(folder / "map", synthetic_people(6, 4, place="station").gallery)
    write_checkpoint(folder / "narrow.pt", MODEL__BACKBONE="few")
    build_gallery(folder / "bare.gallery", Path(OLD), [folder / "gallery"])
    shutil.copy(folder / "bare.gallery", folder / "people.gallery")
    calibrate_gallery(folder / "people.gallery", [folder / "query"], false_accept_rate=RATE)
    return World(folder, listed["gallery"], listed["query"])


def checked(world: World, out: Path, *more: str, new: str = NEW, gallery: str = "people.gallery") -> int:
    new = new if new.startswith("zoo:") else f"{world.folder / new}"
    words = ["check", f"{world.folder / gallery}", "--new", new, "--device", "cpu", "--out", f"{out}"]
    images = [] if "--images" in more else ["--images", f"{world.folder / 'query'}"]
    return run_command("search", [*words, *images, *more])


def looped(world: World, asked: str, enrolled: str, by: FeatureMap | None = None) -> dict[str, Any]:
    """The figures of one model's queries in the gallery of another, which may be mapped, query by query."""
    queries, images = (
        [vector / np.linalg.norm(vector) for vector in load_model(name).extract([i.path for i in of])]
        for name, of in ((asked, world.queries), (enrolled, world.gallery))
    )
    images = images if by is None else [vector / np.linalg.norm(vector) for vector in by(np.stack(images))]
    own, others, precisions = [], [], []
    for query, vector in zip(world.queries, queries, strict=True):
        ranking = [
            (float(vector @ other), image.who == query.who)
            for other, image in zip(images, world.gallery, strict=True)
            if (image.who, image.camera) != (query.who, query.camera)
        ]
        own.append(max((score for score, same in ranking if same), default=None))
        others.append(max(score for score, same in ranking if not same))
        hits, precision = 0, []
        for rank, (_, same) in enumerate(sorted(ranking, reverse=True), start=1):
            hits += same
            precision += [hits / rank] * same
        precisions.append(np.mean(precision) if precision else None)
    known = [row for row, score in enumerate(own) if score is not None]
    threshold = threshold_for(np.array([others[row] for row in known]), RATE)
    found = {row: own[row] > others[row] and own[row] >= threshold for row in known}
    strangers = [score for score, image in zip(others, world.queries, strict=True) if image.who not in people(world)]
    by_person = {name: [found[row] for row in known if world.queries[row].who == name] for name in people(world)}
    return {
        "threshold": threshold,
        "mAP": 100 * np.mean([precisions[row] for row in known]),
        "rank1": 100 * np.mean([own[row] > others[row] for row in known]),
        "true_positive_rate": 100 * np.mean(list(found.values())),
        "fpir": 100 * np.mean([score >= threshold for score in strangers]),
        "people": {name for name, hits in by_person.items() if hits and np.mean(hits) >= 0.5},
        "found": found,
    }


def people(world: World) -> set[str]:
    return {image.who for image in world.gallery}


def test_metrics_equal_those_of_nested_loops_and_the_gallery_does_not_change(world: World, tmp_path: Path) -> None:
    before = (world.folder / "people.gallery").read_bytes()
    assert checked(world, tmp_path, "--map", f"{world.folder / 'map'}") == 0
    assert (world.folder / "people.gallery").read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["check.html", "check.json"]
    assert not [*world.folder.glob(".people.gallery.*")]
    results = json.loads((tmp_path / "check.json").read_text())
    today = looped(world, OLD, OLD)
    assert [results["today"][key] for key in METRICS] == pytest.approx([today[key] for key in METRICS], abs=1e-4)
    as_is, mapped, extracted = results["ways"]
    by = FeatureMap.fit(*(load_model(name).extract(f"{world.folder / 'map'}") for name in (OLD, NEW)))
    for way, enrolled, change in ((as_is, OLD, None), (mapped, OLD, by), (extracted, NEW, None)):
        wanted = looped(world, NEW, enrolled, change)
        assert [way[key] for key in METRICS] == pytest.approx([wanted[key] for key in METRICS], abs=1e-4)
        lost = today["people"] - wanted["people"]
        assert way["lost"] == sorted(lost) and way["gained"] == sorted(wanted["people"] - today["people"])
        assert way["lost_share"] == pytest.approx(100 * len(lost) / ENROLLED)
    assert as_is["lost"] and extracted["rank1"] > as_is["rank1"]  # so that the loops above compare something
    assert as_is["bytes"] == 0 < extracted["bytes"] and mapped["bytes"] > 0
    assert results["chosen"] == min(results["ways"], key=lambda way: way["lost_share"])["way"]
    which = {"as it is": (OLD, None), "mapped": (OLD, by), "re-extracted": (NEW, None)}
    chosen = looped(world, NEW, *which[results["chosen"]])

    def share(rows: list[int]) -> float | None:
        return 100 * float(np.mean([chosen["found"][row] for row in rows])) if rows else None

    for camera, group in results["by_camera"].items():
        rows = [row for row in chosen["found"] if world.queries[row].camera == camera]
        assert group["queries"] == len(rows)
        assert group["new"]["true_positive_rate"] == pytest.approx(share(rows))
    enrolled = {name: min(image.time for image in world.gallery if image.who == name) for name in people(world)}
    starts = sorted(enrolled.values())[::2]  # four groups of two people
    assert list(results["by_enrolment"]) == [str(start) for start in starts]
    for start, group in results["by_enrolment"].items():
        members = [name for name, time in enrolled.items() if max(s for s in starts if s <= time) == int(start)]
        rows = [row for row in chosen["found"] if world.queries[row].who in members]
        assert len(members) == 2 and group["queries"] == len(rows)
        assert group["new"]["true_positive_rate"] == pytest.approx(share(rows))
    page = (tmp_path / "check.html").read_text()
    assert all(name in page for name in results["ways"][0]["lost"] if results["chosen"] == "as it is")


def test_limits_decide_the_exit_status(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked(world, tmp_path)
    ways = [way for way in json.loads((tmp_path / "check.json").read_text())["ways"] if way["reason"] is None]
    least = min(way["lost_share"] for way in ways)
    assert least > 0
    assert checked(world, tmp_path, "--max-lost", f"{least:.9f}%") == 0
    assert checked(world, tmp_path, "--max-lost", f"{least - 0.1:.9f} %") == 3
    assert checked(world, tmp_path, "--max-lost", "100%", "--max-fpir", f"{min(way['fpir'] for way in ways):.9f}%") == 0
    assert json.loads((tmp_path / "check.json").read_text())["passed"]
    assert capsys.readouterr().out.count("limit 100 %") == 1


def test_unavailable_ways_have_a_reason(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Re-extraction needs the images, and the other options need features of the same length."""
    folder = shutil.copytree(world.folder, tmp_path / "world")
    build_gallery(folder / "moved.gallery", Path(OLD), [folder / "gallery"])
    calibrate_gallery(folder / "moved.gallery", [folder / "query"])
    missing = world.gallery[0].path.name

    def reasons(*words: str, new: str = NEW) -> list[str | None]:
        moved = world._replace(folder=folder)
        assert checked(moved, tmp_path, *words, gallery="moved.gallery", new=new) == 0
        return [way["reason"] for way in json.loads((tmp_path / "check.json").read_text())["ways"]]

    assert [reason is None for reason in reasons(new="narrow.pt")] == [False, False, True]
    mapping = ("--map", f"{world.folder / 'map'}")
    assert [reason is None for reason in reasons(*mapping, new="narrow.pt")] == [False, True, True]
    (folder / "gallery" / missing).unlink()
    as_is, mapped, extracted = reasons()
    assert as_is is None and "--map" in mapped and missing in extracted
    assert missing in (tmp_path / "check.html").read_text()
    assert reasons("--skip-bad", *mapping) == [None, None, None]
    capsys.readouterr()
    assert checked(world._replace(folder=folder), tmp_path, gallery="moved.gallery", new="narrow.pt") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--gallery", "bare.gallery"], "calibrate"),
        (["--new", OLD], OLD),
        (["--new", "none.pt"], "none.pt"),
        (["--images", "unnamed"], "people.gallery"),
        (["--images", "no-such-folder"], "no-such-folder"),
        (["--images", "gone.csv"], "gone.png"),
        (["--images", "gallery", "--max-fpir", "1%"], "--max-fpir"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], named: str
) -> None:
    (unnamed := world.folder / "unnamed").mkdir(exist_ok=True)
    shutil.copy(world.queries[0].path, unnamed / "a.png")
    (world.folder / "gone.csv").write_text(f"path,pid\ngone.png,{world.gallery[0].who}\n")
    options = dict(zip(words[::2], words[1::2], strict=True))
    places = {key.removeprefix("--"): options.pop(key) for key in ("--gallery", "--new") if key in options}
    more = [str(world.folder / value) if key == "--images" else value for key, value in options.items()]
    rest = [word for key, value in zip(options, more, strict=True) for word in (key, value)]
    before = (world.folder / "people.gallery").read_bytes()
    assert checked(world, tmp_path, *rest, **places) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and named in error
    assert (world.folder / "people.gallery").read_bytes() == before and not list(tmp_path.glob("check*"))


def test_limit_on_unknown_people_needs_a_readable_image_of_them(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people = {image.who for image in world.gallery}
    for known in (True, False):
        image = next(each for each in world.queries if (each.who in people) == known)
        (folder := tmp_path / "few" / image.who).mkdir(parents=True)
        (folder / "a.png").write_bytes(image.path.read_bytes() if known else b"damaged")
    words = ("--images", f"{tmp_path / 'few'}", "--skip-bad", "--max-fpir", "50%")
    assert checked(world, tmp_path / "out", *words) == 2
    assert "--max-fpir: " in capsys.readouterr().err
