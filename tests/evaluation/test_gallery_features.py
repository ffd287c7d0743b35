"""New queries in old galleries: the figures of every pair of models, kept over a break."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tiny import FEW, tiny_config, train_interrupted

from lreid.apps.checkpoint_test import score_checkpoints
from lreid.build import benchmark_of
from lreid.data.images import Images
from lreid.errors import InputError
from lreid.evaluation import GalleryFeatures
from lreid.loading import load_model
from lreid.report.tables import past_gallery_table
from lreid.results import CROSSED, cross_average, fault
from lreid.retrieval import evaluate
from lreid.retrieval.feature_map import FeatureMap
from lreid.training.run import train

TWO = {"BENCHMARK.TRAIN": ["synthetic:plaza", "synthetic:campus"], "BENCHMARK.TASKS_PER_DATASET": 1}
config = partial(tiny_config, FEW, TWO, EVAL__CROSS_MODEL=True, TRAIN__EPOCHS=2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    out = tmp_path_factory.mktemp("past") / "run"
    return out, train(config(), out)


@pytest.mark.slow
def test_cross_model_metrics_equal_all_pairs_of_checkpoints(run: tuple[Path, dict]) -> None:
    out, results = run
    tested = {each["test"]: each for each in score_checkpoints([out], extras=["cross_model"])["cross_model"]}
    for gallery, metrics in results["cross_model"].items():
        for metric in ("mAP", "rank1"):
            whole = tested[gallery][metric]
            expected = [row[: place + 1] for place, row in enumerate(whole)]
            assert [len(row) for row in metrics[metric]] == [1, 2]
            for found, wanted in zip(metrics[metric], expected, strict=True):
                assert found == pytest.approx(wanted, abs=1e-3)
    columns = {gallery["name"]: place for place, gallery in enumerate(results["galleries"])}
    for gallery, metrics in results["cross_model"].items():  # in its own gallery a model has its plain figure
        assert [row[-1] for row in metrics["mAP"]] == [row[columns[gallery]] for row in results["mAP"]]


@pytest.mark.slow
def test_reindex_free_summary_uses_old_gallery_features(run: tuple[Path, dict]) -> None:
    _, results = run
    crossed = results["cross_model"]
    for metric in ("mAP", "rank1"):
        wanted = (crossed["plaza"][metric][1][0] + crossed["campus"][metric][1][1]) / 2
        assert results["summary"][f"reindex_free_{metric}"] == pytest.approx(wanted)
    assert cross_average(results, "mAP", 1, 0) == crossed["plaza"]["mAP"][1][0]
    assert "of queries by the row's model" in past_gallery_table(results)


@pytest.mark.slow
def test_mapped_metrics_equal_those_of_a_map_fitted_to_two_checkpoints(run: tuple[Path, dict]) -> None:
    out, results = run
    benchmark = benchmark_of(config())
    old, new = (load_model(out / "checkpoints" / f"task-0{task}.pt", "cpu") for task in (1, 2))
    records = benchmark.tasks[1].records
    images = Images(records, height=old.height, width=old.width)
    by = FeatureMap.fit(old.extract(images), new.extract(images))
    for test in benchmark.tests:
        query, gallery = (Images(each, height=old.height, width=old.width) for each in (test.query, test.gallery))
        labels = (query.pids, gallery.pids, query.camids, gallery.camids)
        wanted = 100 * evaluate(new.extract(query), by(old.extract(gallery)), *labels).mAP
        rows = results["cross_model_mapped"][test.name]["mAP"]
        assert rows[1] == pytest.approx([wanted, results["cross_model"][test.name]["mAP"][1][1]], abs=1e-2)
        assert rows[1][0] != results["cross_model"][test.name]["mAP"][1][0]
    assert "mapped to the row's model" in past_gallery_table(results, "cross_model_mapped")


def test_maps_of_several_tasks_form_a_chain(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    models = [rng.standard_normal((40, 5)).astype(np.float32) for _ in range(3)]  # features of 40 images
    stored = GalleryFeatures(tmp_path)
    stored.fit_map(0, None, models[0][:30])
    stored.fit_map(1, models[1][:30], models[1][10:])
    stored.fit_map(2, models[2][10:], None)
    first, second = FeatureMap.fit(models[0][:30], models[1][:30]), FeatureMap.fit(models[1][10:], models[2][10:])
    np.testing.assert_allclose(stored.mapped(models[0], 0, 2), second(first(models[0])), atol=1e-6)
    np.testing.assert_allclose(stored.mapped(models[1], 1, 2), second(models[1]), atol=1e-6)
    assert stored.mapped(models[2], 2, 2) is models[2]
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


@pytest.mark.slow
def test_interrupted_run_resumes_with_stored_galleries(run: tuple[Path, dict], tmp_path: Path) -> None:
    train_interrupted(config(), tmp_path / "run", 3)
    resumed = train(config(), tmp_path / "run", resume=True)
    for key in CROSSED:
        assert resumed[key] == run[1][key]
    assert resumed["summary"] == run[1]["summary"]


def test_missing_gallery_features_are_refused(tmp_path: Path) -> None:
    stored = GalleryFeatures(tmp_path)
    features = np.ones((3, 2), np.float32)
    stored.write(0, 1, features)
    assert np.array_equal(stored.read(0, 1, (3, 2)), features)
    file = tmp_path / "task-01-test-2.npy"
    with pytest.raises(InputError, match=f"^{re.escape(str(file))}: holds"):
        stored.read(0, 1, (3, 4))
    whole = file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    for content in (b"half a fi", *(whole[:length] for length in (0, 3, 128, len(whole) - 1))):
        file.write_bytes(content)
        with pytest.raises(InputError, match=r"task-01-test-2.npy: cannot be read \("):
            stored.read(0, 1, (3, 2))
    file.unlink()
    with pytest.raises(InputError, match="task-01-test-2.npy: no such file"):
        stored.read(0, 1, (3, 2))


@pytest.mark.slow
def test_damaged_cross_model_matrices_are_refused(run: tuple[Path, dict]) -> None:
    _, results = run
    assert fault(results) is None
    one_row = {"plaza": results["cross_model"]["plaza"], "campus": {"mAP": [[1.0]]}}
    assert "cross_model of 'campus'" in str(fault(results | {"cross_model": one_row}))
    for key in CROSSED:
        assert f"{key} of 'plaza'" in str(fault(results | {key: {"plaza": {}}}))
