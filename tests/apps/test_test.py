"""Testing checkpoints: rows, matrices, notes and page, against the pieces they are made of."""

import json
from pathlib import Path

import numpy as np
import pytest
from example_files import synthetic_people, write_checkpoint, write_images

from lreid.apps.checkpoint_test import score_checkpoints
from lreid.build import benchmark_of, evaluator_of
from lreid.checkpoint import load_checkpoint
from lreid.config import config_from_text
from lreid.errors import InputError
from lreid.loading import load_model
from lreid.models.fingerprint import fingerprint
from lreid.report.page import links_in
from lreid.retrieval import CameraNorm, evaluate
from lreid.retrieval.rerank import KReciprocal, expand_queries


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with two finished tasks."""
    folder = tmp_path_factory.mktemp("runs") / "my-run"
    for task in (1, 2):
        write_checkpoint(folder / "checkpoints" / f"task-{task:02d}.pt", seed=task)
    return folder


@pytest.fixture(scope="module")
def everything(run: Path) -> dict:
    return score_checkpoints([run], extras=["adapt_norm", "rerank", "expand", "cross_model"])


def features(run: Path, task: int) -> tuple:
    """Model, test set and (query, gallery) images of a checkpoint's own benchmark."""
    path = run / "checkpoints" / f"task-{task:02d}.pt"
    cfg = config_from_text(load_checkpoint(path)["config"], "")
    evaluator = evaluator_of(cfg, benchmark_of(cfg))
    return load_model(path), evaluator, (evaluator.tests[0].query, evaluator.tests[0].gallery)


def labels(images: tuple) -> tuple[np.ndarray, ...]:
    query, gallery = images
    return query.pids, gallery.pids, query.camids, gallery.camids


def row(results: dict, checkpoint: str, variant: str) -> dict:
    (found,) = [each for each in results["rows"] if (each["checkpoint"], each["variant"]) == (checkpoint, variant)]
    return found


def test_run_folder_is_tested_after_every_task(run: Path, everything: dict) -> None:
    for task in (1, 2):
        model, evaluator, _ = features(run, task)
        (wanted,) = evaluator.evaluate(model)
        found = row(everything, f"task-{task:02d}", "plain")
        for figure in ("mAP", "rank1", "rank5", "rank10"):
            assert found[figure] == wanted.metrics[figure]
        assert found["num_valid"] == wanted.num_valid
        assert found["model"] == fingerprint(model) and not found["transductive"]
    assert everything["checkpoints"] == {
        f"task-{task:02d}": str(run / "checkpoints" / f"task-{task:02d}.pt") for task in (1, 2)
    }
    assert row(everything, "task-01", "plain")["mAP"] != row(everything, "task-02", "plain")["mAP"]


def test_variants_have_their_own_rows(run: Path, everything: dict) -> None:
    model, _, images = features(run, 2)
    query, gallery = (model.extract(each) for each in images)
    wanted = {
        "expanded queries": (evaluate(expand_queries(query, gallery), gallery, *labels(images)), False),
        "re-ranked": (evaluate(query, gallery, *labels(images), rerank=KReciprocal()), True),
    }
    norm = CameraNorm.estimate(np.concatenate([query, gallery]), np.concatenate([each.camids for each in images]))
    standard = [norm(part, each.camids) for part, each in zip((query, gallery), images, strict=True)]
    wanted["adapt-norm features"] = evaluate(*standard, *labels(images)), True
    plain = row(everything, "task-02", "plain")
    for variant, (result, transductive) in wanted.items():
        found = row(everything, "task-02", variant)
        assert found["mAP"] == pytest.approx(100 * result.mAP) and found["mINP"] == pytest.approx(100 * result.mINP)
        assert found["transductive"] == transductive
        assert found["mAP"] != plain["mAP"]
    assert any(note.startswith("transductive") for note in everything["notes"])
    assert (
        "plaza: 12 queries are too few for a false accept rate of 1 % and 0.1 %; instead no impostor passes"
        in everything["notes"]
    )


def test_features_are_standardised_per_camera(run: Path, tmp_path: Path) -> None:
    results = score_checkpoints([run], tmp_path, extras=["adapt_norm"], overrides=["EVAL.METRIC", "euclidean"])
    model, _, images = features(run, 2)
    parts = [model.extract(each) for each in images]
    norm = CameraNorm.estimate(np.concatenate(parts), np.concatenate([each.camids for each in images]))
    standard = [norm(part, each.camids) for part, each in zip(parts, images, strict=True)]
    found = row(results, "task-02", "adapt-norm features")
    assert found["mAP"] == pytest.approx(100 * evaluate(*standard, *labels(images)).mAP)  # by cosine in any case
    assert found["transductive"] and found["mAP"] != row(results, "task-02", "plain")["mAP"]


def test_cross_model_matrix(run: Path, everything: dict) -> None:
    (one, _, images), (two, _, _) = features(run, 1), features(run, 2)
    (matrix,) = everything["cross_model"]
    assert matrix["checkpoints"] == ["task-01", "task-02"] and matrix["test"] == "plaza"
    mixed = evaluate(one.extract(images[0]), two.extract(images[1]), *labels(images))
    assert matrix["mAP"][0][1] == pytest.approx(100 * mixed.mAP)
    assert matrix["rank1"][0][1] == pytest.approx(100 * mixed.cmc[0])
    for place, name in enumerate(matrix["checkpoints"]):
        assert matrix["mAP"][place][place] == row(everything, name, "plain")["mAP"]


def test_test_json_and_page_are_written(run: Path, everything: dict) -> None:
    out = run / "test" / "synthetic-10"
    written = json.loads((out / "test.json").read_text())
    assert written == json.loads(json.dumps(everything))
    assert written["ap"] == "rectangular" and written["tests"][0]["camera_filter"] is True
    aps = [each["ap"] for each in written["hardest"]["plaza"]]
    assert aps == sorted(aps) and len(aps) == written["tests"][0]["queries"] == 12
    page = (out / "ranked.html").read_text()
    assert '<a href="test.json">' in page and ('<a href="../../report.html">' in page) == (run / "report.html").exists()
    assert page.count('<div class="ranking">') == 12 and "AP " + f"{aps[0]:.1f}" in page
    assert "<span>distractor</span>" in page and 'class="tile distractor"' in page and 'class="tile right"' in page


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Own images in folders named after people: no cameras, and one stray image of a distractor."""
    folder = tmp_path_factory.mktemp("own")
    drawn = synthetic_people(5, 4, distractors=1, seed=1)
    known = [record for record in drawn.gallery if record.pid]
    write_images(folder / "q", drawn.query, "person-{pid}/{number}.png")
    write_images(folder / "g", known, "person-{pid}/{number}.png")
    write_images(folder / "g", [record for record in drawn.gallery if not record.pid], "stray.png")
    return folder / "q", folder / "g"


def test_every_test_set_has_its_own_folder(run: Path, folders: tuple[Path, Path]) -> None:
    before = (run / "test" / "synthetic-10" / "test.json").read_bytes()
    (run / "report.html").write_text("")
    score_checkpoints([run / "checkpoints" / "task-01.pt"], images=folders)
    own = run / "test" / f"{folders[1].parent.name}-g"
    assert '<a href="../../report.html">report</a>' in (own / "ranked.html").read_text()
    assert (own / "test.json").exists() and (run / "test" / "synthetic-10" / "test.json").read_bytes() == before
    assert [text for text, _ in links_in(run)][-2:] == [f"ranked images, {own.name}", "ranked images, synthetic-10"]


def test_folders_without_cameras_have_no_camera_filter(run: Path, folders: tuple[Path, Path], tmp_path: Path) -> None:
    results = score_checkpoints([run / "checkpoints" / "task-01.pt"], tmp_path, images=folders, blur=True)
    (found,) = results["rows"]
    model = load_model(run / "checkpoints" / "task-01.pt")
    query, gallery = (sorted(folder.rglob("*.png")) for folder in folders)
    people = sorted({path.parent.name for path in query})
    query_ids, gallery_ids = (
        np.array([people.index(path.parent.name) if path.parent.name in people else 99 for path in paths])
        for paths in (query, gallery)
    )
    wanted = evaluate(model.extract(query), model.extract(gallery), query_ids, gallery_ids, camera_filter=False)
    assert found["mAP"] == pytest.approx(100 * wanted.mAP) and found["test"] == "g"
    assert results["tests"] == [{"name": "g", "queries": 10, "gallery": 11, "camera_filter": False}]
    assert "g: cameras are not known, so the camera filter is off" in results["notes"]
    page = (tmp_path / "ranked.html").read_text()
    assert "<span>person-" in page and "<span>distractor</span>" in page and ", cam" not in page
    assert {each["identity"] for each in results["hardest"]["g"]} == set(people)
    with pytest.raises(InputError, match="--adapt-norm: the cameras of g are unknown"):
        score_checkpoints([run / "checkpoints" / "task-01.pt"], tmp_path, images=folders, extras=["adapt_norm"])


@pytest.mark.parametrize(
    ("cameras", "overrides"),
    [(False, []), (False, ["EVAL.METRIC", "euclidean"]), (True, ["EVAL.CAMERA_FILTER", "False"]), (True, [])],
)
def test_query_is_left_out_of_its_own_ranking(run: Path, tmp_path: Path, cameras: bool, overrides: list[str]) -> None:
    """By a loop in float64; with another name for the folder, an identity with one image, and an image of nobody."""
    drawn = synthetic_people(5, 3, distractors=1, seed=1)
    known = [record for record in (*drawn.query, *drawn.gallery) if record.pid]
    written = {"p{pid}/c{camid}_{number}.png": known, "alone/c9_{number}.png": drawn.gallery[:1]}
    written["c9_stray{number}.png"] = [record for record in drawn.gallery if not record.pid]
    for name, records in written.items():
        write_images(tmp_path / "people", records, name if cameras else name.replace("/c", "/").replace("c9_", ""))
    (tmp_path / "link").symlink_to(tmp_path / "people")
    checkpoint = run / "checkpoints" / "task-01.pt"
    both = tmp_path / "link", tmp_path / "people"
    results = score_checkpoints([checkpoint], tmp_path / "out", images=both, overrides=overrides, extras=["rerank"])
    (found, _) = results["rows"]
    model, paths = load_model(checkpoint), sorted((tmp_path / "people").rglob("*.png"))
    features = model.extract(paths).astype(float)
    if "euclidean" not in overrides:
        features /= np.linalg.norm(features, axis=1, keepdims=True)
    distances = ((features[:, None] - features) ** 2).sum(2)
    precisions = []
    for row, query in enumerate(paths):
        hits, seen, right = [], 0, query.parent.name
        for column in np.argsort(distances[row], kind="stable"):
            other, same_camera = paths[column], query.name[:2] == paths[column].name[:2]
            match = other.parent.name == right
            if column == row or (match and cameras and not overrides and same_camera):
                continue
            seen += 1
            hits += [(len(hits) + 1) / seen] * match
        if hits and right != "people":
            precisions.append(np.mean(hits))
    assert found["mAP"] == pytest.approx(100 * np.mean(precisions))
    assert (found["num_valid"], found["num_absent"], found["num_filtered"]) == (len(precisions), 0, 1)
    assert results["tests"][0] | {"name": ""} == {
        "name": "", "queries": len(known) + 1, "gallery": len(paths), "camera_filter": cameras and not overrides
    }  # fmt: skip
    assert any(f"{len(known) + 1} of {len(known) + 1}" in note for note in results["notes"]) == (
        not cameras or bool(overrides)
    )
    assert all(each["first_match"] < len(paths) - 1 for each in results["hardest"]["people"])


def test_single_images_cannot_be_tested_against_themselves(run: Path, tmp_path: Path) -> None:
    drawn = synthetic_people(4, 3, seed=1)
    write_images(tmp_path / "q", drawn.query[:4], "person{number}/a.png")
    both = tmp_path / "q", tmp_path / "q"
    with pytest.raises(InputError, match="q: no query has a second image"):
        score_checkpoints([run / "checkpoints" / "task-01.pt"], tmp_path / "out", images=both)


def test_queries_without_a_match_are_counted(run: Path, tmp_path: Path) -> None:
    drawn = synthetic_people(4, 4, seed=1)
    everybody = [record._replace(pid=record.pid + 1) for record in (*drawn.query, *drawn.gallery)]
    first, second, third, fourth = sorted({record.pid for record in everybody})
    # The third is in the gallery under the query's own camera alone, the fourth not at all.
    own_camera = next(record for record in everybody if record.pid == third)
    chosen = [record for record in everybody if record.pid in (first, second)]
    write_images(tmp_path / "q", [*chosen, own_camera, next(r for r in everybody if r.pid == fourth)])
    write_images(tmp_path / "g", [*chosen, own_camera])
    results = score_checkpoints(
        [run / "checkpoints" / "task-01.pt"], tmp_path / "out", images=(tmp_path / "q", tmp_path / "g")
    )
    (found,) = results["rows"]
    assert (found["num_valid"], found["num_absent"], found["num_filtered"]) == (len(chosen), 1, 1)
    assert (
        "g: 2 queries have no match: 1 with an identity that is not in the gallery, "
        "1 with one that occurs only under the query's own camera"
    ) in results["notes"]


def test_csv_file_is_a_test_set(run: Path, folders: tuple[Path, Path], tmp_path: Path) -> None:
    root = folders[0].parent
    lines = ["path,pid,camid,split,domain"]
    for split, folder in zip(("query", "gallery"), folders, strict=True):
        for path in sorted(folder.rglob("person*/*.png")):
            lines.append(f"{path.relative_to(root)},{path.parent.name},{split},{split},north")
    file = root / "index.csv"
    file.write_text("\n".join(lines) + "\n")
    options = {"images": file, "overrides": ["EVAL.AP", "trapezoidal"]}
    results = score_checkpoints([run / "checkpoints" / "task-01.pt"], tmp_path, **options)
    assert results["ap"] == "trapezoidal" and results["tests"] == [
        {"name": "north", "queries": 10, "gallery": 10, "camera_filter": True}
    ]


@pytest.mark.slow
def test_index_has_a_row_after_the_exact_ranking(run: Path, tmp_path: Path) -> None:
    checkpoint = run / "checkpoints" / "task-01.pt"
    backend = ["EVAL.BACKEND", "faiss", "EVAL.INDEX"]
    (exact,) = score_checkpoints([checkpoint], tmp_path, overrides=["EVAL.BACKEND", "exact"])["rows"]
    assert score_checkpoints([checkpoint], tmp_path, overrides=[*backend, "flat"])["rows"] == [exact]
    plain, found = score_checkpoints([checkpoint], tmp_path, overrides=[*backend, "hnsw"])["rows"]
    cost = found.pop("index")
    assert plain == exact and exact | {"variant": "index hnsw"} == found  # so small a graph finds all
    assert cost["recall"]["10"] == 100
    assert json.loads((tmp_path / "test.json").read_text())["rows"][1]["index"] == cost
    for index, reason in (("falt", "could not parse"), ("ivfpq", "which needs 9984 images or more")):
        with pytest.raises(InputError, match=f"^EVAL.INDEX is '{index}', .*{reason}"):
            score_checkpoints([checkpoint], tmp_path / "out", overrides=[*backend, index])
    with pytest.raises(InputError, match="^EVAL.INDEX_DEPTH is 0; it must be 1 or more"):
        score_checkpoints([checkpoint], tmp_path / "out", overrides=[*backend, "flat", "EVAL.INDEX_DEPTH", "0"])
    assert not (tmp_path / "out").exists()


def test_networks_of_different_input_sizes_are_tested_together(run: Path, tmp_path: Path) -> None:
    other = write_checkpoint(tmp_path / "other.pt", seed=1, INPUT__HEIGHT=48, INPUT__WIDTH=24)
    results = score_checkpoints([run / "checkpoints" / "task-01.pt", other], tmp_path / "out")
    model = load_model(other)
    _, _, images = features(run, 1)
    query, gallery = ([record.path for record in each.records] for each in images)
    wanted = evaluate(model.extract(query), model.extract(gallery), *labels(images))
    assert row(results, "other", "plain")["mAP"] == pytest.approx(100 * wanted.mAP)


def test_checkpoints_of_two_runs_have_different_names(run: Path, tmp_path: Path) -> None:
    """What a run measured besides its figures, such as the initial model, does not keep them apart, nor does how
    it searched: the models of the zoo record ``EVAL.BACKEND exact``."""
    again = write_checkpoint(
        tmp_path / "second" / "checkpoints" / "task-01.pt", seed=5, EVAL__INITIAL=True, EVAL__BACKEND="exact"
    )
    results = score_checkpoints([run / "checkpoints" / "task-01.pt", again], tmp_path / "out")
    assert list(results["checkpoints"]) == ["my-run/task-01", "second/task-01"]


def test_bad_input_leaves_no_file(run: Path, tmp_path: Path) -> None:
    checkpoint = run / "checkpoints" / "task-01.pt"
    other = write_checkpoint(tmp_path / "other.pt", SYNTHETIC__SEED=3)
    with pytest.raises(InputError, match="other.pt: .*SYNTHETIC.SEED differ"):
        score_checkpoints([checkpoint, other], tmp_path / "out")
    with pytest.raises(InputError, match="contains no task-01.pt"):
        score_checkpoints([tmp_path], tmp_path / "out")
    with pytest.raises(InputError, match="gone.pt: no such file"):
        score_checkpoints([tmp_path / "gone.pt"], tmp_path / "out")
    with pytest.raises(InputError, match="nearest name is EVAL.AP"):
        score_checkpoints([checkpoint], tmp_path / "out", overrides=["EVAL.APP", "x"])
    write_images(tmp_path / "q", [])
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "0001_c1.jpg").write_text("no image")
    with pytest.raises(InputError, match="0001_c1.jpg: image cannot be decoded"):
        score_checkpoints([checkpoint], tmp_path / "out", images=(tmp_path / "q", tmp_path / "q"))
    assert not (tmp_path / "out").exists()


def test_keys_may_follow_the_checkpoint(in_world, world: Path) -> None:
    words = "--checkpoint model.pt EVAL.AP trapezoidal --query q --gallery g --out out EVAL.FLIP True"
    printed = in_world("test", *words.split()).out
    results = json.loads((world / "out" / "test.json").read_text())
    assert results["ap"] == "trapezoidal" and list(results["checkpoints"]) == ["model"]
    assert "trapezoidal AP" in printed and f"{results['rows'][0]['mAP']:.1f}" in printed
    assert (world / "out" / "ranked.html").exists()
