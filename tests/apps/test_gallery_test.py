"""``lreid test --gallery``: a saved gallery has the metrics of the folder that it was built of."""

import json
from pathlib import Path

import pytest
from example_files import synthetic_people, write_checkpoint, write_images
from gallery_search import build_gallery

from lreid.apps.checkpoint_test import score_checkpoints
from lreid.apps.gallery_test import score_gallery
from lreid.errors import InputError


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, ``gallery/`` and ``query/`` with images named as in Market-1501, and the same in folders of people."""
    folder = tmp_path_factory.mktemp("world")
    people = synthetic_people(12, 6, distractors=6)
    for name, records in (("gallery", people.gallery), ("query", people.query)):
        write_images(folder / name, records)
        write_images(folder / f"{name}-people", records, "p{pid}/{number}.png")
    write_checkpoint(folder / "model.pt")
    write_checkpoint(folder / "other.pt", seed=1)
    return folder


def built(world: Path, where: Path | str, images: str = "gallery", kind: str = "flat") -> str:
    build_gallery(where, world / "model.pt", [world / images], kind=kind).close()
    return str(where)


@pytest.mark.parametrize(
    ("where", "people", "kind"),
    [
        ("people.gallery", "", "flat"),
        ("people.gallery", "-people", "hnsw"),
        pytest.param("milvus:people.db", "", "flat", marks=pytest.mark.slow),
    ],
)
def test_gallery_has_the_metrics_of_its_folder(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, people: str, kind: str
) -> None:
    """With and without cameras; the folders have distractors and junk."""
    if where.startswith("milvus:"):
        pytest.importorskip("milvus_lite")
    monkeypatch.chdir(tmp_path)
    built(world, where, f"gallery{people}", kind)
    results = score_gallery(where, world / f"query{people}", out=tmp_path, overrides=["EVAL.AP", "trapezoidal"])
    folders = world / f"query{people}", world / f"gallery{people}"
    wanted = score_checkpoints(
        [world / "model.pt"], tmp_path / "folders", overrides=["EVAL.AP", "trapezoidal"], images=folders
    )
    assert json.loads((tmp_path / "test.json").read_text()) == results
    assert [row["variant"] for row in results["rows"]] == ["plain", f"gallery {kind}"]
    for row in results["rows"]:
        for figure in ("mAP", "mINP", "rank1", "rank5", "rank10", "num_valid", "num_absent", "num_filtered"):
            assert row[figure] == pytest.approx(wanted["rows"][0][figure], abs=1e-9)
        for rate, right in zip(row["open_set"], wanted["rows"][0]["open_set"], strict=True):
            assert rate == pytest.approx(right, abs=1e-5)
    assert results["tests"] == [wanted["tests"][0] | {"name": where}]
    cost = results["rows"][1]["index"]
    assert cost["name"] == kind and cost["recall"]["10"] == 100 and cost["megabytes"] is None


def test_query_in_the_gallery_is_left_out_of_its_own_ranking(world: Path, tmp_path: Path) -> None:
    """The link gives the folder another name."""
    where, folder = built(world, tmp_path / "people.gallery", "gallery-people"), world / "gallery-people"
    (tmp_path / "link").symlink_to(folder)
    wanted = score_checkpoints([world / "model.pt"], tmp_path / "folders", images=(folder, folder))
    for query in (folder, tmp_path / "link"):
        results = score_gallery(where, query, out=tmp_path / "out")
        for row in results["rows"]:
            for figure in ("mAP", "mINP", "rank1", "num_valid", "num_absent", "num_filtered"):
                assert row[figure] == pytest.approx(wanted["rows"][0][figure], abs=1e-9)
        assert len(results["notes"]) == len(wanted["notes"]) and wanted["rows"][0]["rank1"] < 100


def test_command_needs_no_checkpoint(lreid, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = built(world, tmp_path / "people.gallery")
    monkeypatch.chdir(tmp_path)
    output = lreid("test", "--gallery", where, "--query", world / "query").out
    assert "gallery flat" in output and output.count("per cent;") == 1
    assert (tmp_path / "people.gallery-test" / "test.json").exists()


def test_other_models_and_options_are_refused(lreid, world: Path, tmp_path: Path) -> None:
    where, out = built(world, tmp_path / "people.gallery", "gallery-people"), tmp_path / "out"
    write_images(tmp_path / "nobody", synthetic_people(2, 4, seed=3).query, "{number}.png")
    with pytest.raises(InputError, match="the query has no identity"):
        score_gallery(where, tmp_path / "nobody", out=out)
    for words, message in (
        (["--checkpoint", world / "other.pt", "--out", out], f"{world / 'other.pt'}: is not the model"),
        (["--rerank"], f"--rerank: is not for a saved gallery ({where}"),
        (["--checkpoint", "zoo:people", "zoo:vehicles"], f"--checkpoint: {where} belongs to one model"),
    ):
        status, _, error = lreid("test", "--gallery", where, "--query", world / "query-people", *words)
        assert status == 2 and f": {message}" in error and error.count("\n") == 1 and not out.exists()
