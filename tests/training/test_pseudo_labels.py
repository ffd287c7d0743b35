"""Clusters as labels: they are found, keep their labels, survive interruptions, and do no damage where they fail."""

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import FEW, InterruptAfter, reproducible_values, tiny_config

from lreid.config import check_values, load_config
from lreid.data.loaders import Relabelled
from lreid.data.records import Frame, Record
from lreid.errors import InputError
from lreid.evaluation.clusters import cluster
from lreid.models import Embedder
from lreid.training import pseudo_labels
from lreid.training.pseudo_labels import follow
from lreid.training.run import train

SHORT = {"METHOD.NAME": "bot_ft", "METHOD.LABELS": "none", "TRAIN.EPOCHS": 3, "BENCHMARK.TASKS_PER_DATASET": 2}
UNLABELLED = FEW | SHORT


def blobs(sizes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Directions around centres, and their groups."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    points = rng.normal(size=(len(sizes), 64))[groups] + 0.2 * rng.normal(size=(len(groups), 64))
    return points.astype(np.float32), groups


def same_groups(one: np.ndarray, other: np.ndarray) -> bool:
    return bool((((one[:, None] == one) & (one >= 0)) == ((other[:, None] == other) & (other >= 0))).all())


def test_separate_groups_are_clusters_in_any_order() -> None:
    features, groups = blobs([8, 9, 10])
    rows, one = np.arange(len(features)), np.zeros(len(features), np.int64)
    assert same_groups(cluster(features, rows, one, 10), groups)
    order = np.random.default_rng(1).permutation(len(features))
    assert same_groups(cluster(features[order], rows, one, 10), groups[order])


def test_large_groups_need_their_size() -> None:
    features, groups = blobs([20] * 6)
    rows, one = np.arange(len(features)), np.zeros(len(features), np.int64)
    assert same_groups(cluster(features, rows, one, 20), groups)
    parts = cluster(features, rows, one, 4)
    assert len(set(parts[parts >= 0])) > 6


def test_cameras_are_not_clusters() -> None:
    features, groups = blobs([8] * 20)
    rows = np.arange(len(features))
    cameras = rows % 2
    shifted = features + 2 * np.random.default_rng(2).normal(size=(2, 64)).astype(np.float32)[cameras]
    assert same_groups(cluster(shifted, rows, cameras, 10), groups)
    assert not same_groups(cluster(shifted, rows, np.zeros_like(cameras), 10), groups)


def test_tracklets_are_never_divided_and_have_a_label_each() -> None:
    features, units = np.random.default_rng(3).normal(size=(120, 8)).astype(np.float32), np.arange(120) // 2
    units[100:] = 60 + np.arange(20)  # single images, which have no positive of their own
    found = cluster(features, units, np.zeros(120, np.int64), 10)
    assert (found[:100:2] == found[1:100:2]).all() and found[:100].min() >= 0
    assert found.min() == -1 and len(set(found)) > 10


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), min_size=1, max_size=12))
def test_clusters_follow_the_labels_with_which_they_share_most(pairs: list[tuple[int, int]]) -> None:
    clusters, before = (np.array(each) for each in zip(*pairs, strict=True))
    before = np.where(before >= 0, before + 10, -1)
    labels = follow(clusters, before, range(10, 18))
    names = sorted(set(clusters[clusters >= 0]))
    assert ((labels == -1) == (clusters == -1)).all()
    assert len({int(labels[clusters == name][0]) for name in names}) == len(names)  # one label a cluster, none twice
    assert all(len(set(labels[clusters == name])) == 1 for name in names)
    both = (clusters >= 0) & (before >= 0)
    kept = ((labels == before) & both).sum()
    assert kept == max(
        sum((both & (clusters == name) & (before == label)).sum() for name, label in zip(names, order, strict=True))
        for order in permutations(range(10, 18), len(names))
    )


def by_rank(features: np.ndarray, *_: np.ndarray) -> np.ndarray:
    """Clusters of four images with similar features, and some in none, which change with the network."""
    ranks = features[:, 0].argsort().argsort()
    return np.where(ranks < len(ranks) - 2, ranks // 4, -1)


@pytest.fixture
def clustered(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable], None]:
    return lambda function: monkeypatch.setattr(pseudo_labels, "cluster", function)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"METHOD.NAME": "retrace"}, {"METHOD.NAME": "dwopp"}, {"METHOD.LABELS": "0.5"}])
def test_a_run_broken_off_within_an_epoch_goes_on_to_the_same_figures(
    clustered: Callable, tmp_path: Path, changes: dict[str, str]
) -> None:
    clustered(by_rank)
    cfg = tiny_config(UNLABELLED, {"TRAIN.CHECKPOINT_STEPS": 1, "TRAIN.EPOCH_STEPS": 3}, changes)

    class Within(InterruptAfter):
        def before_loss(self, batch: object) -> None:
            self.left -= 1
            super().before_loss(batch)

        def after_epoch(self, epoch: int, epochs: int, rate: float) -> None: ...

    wanted = train(cfg, tmp_path / "unbroken")
    with pytest.raises(KeyboardInterrupt):
        train(cfg, tmp_path / "run", observers={"break": Within(15)})  # in the second epoch of the second task
    assert reproducible_values(train(cfg, tmp_path / "run", resume=True)) == reproducible_values(wanted)


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_task_whose_clusters_fail_leaves_the_model_as_it_was(
    clustered: Callable, tmp_path: Path, caplog: pytest.LogCaptureFixture, fails_at: int
) -> None:
    calls = []

    def sometimes(features: np.ndarray, *_: np.ndarray) -> np.ndarray:
        calls.append(len(features))
        if len(calls) == 2 + fails_at:  # the first task has two epochs
            return np.full(len(features), fails_at - 2)  # all outside, or all in one
        return by_rank(features)

    clustered(sometimes)
    train(tiny_config(UNLABELLED, TRAIN__EPOCHS=2, BENCHMARK__TASKS_PER_DATASET=3), tmp_path / "run")
    tasks = [torch.load(tmp_path / f"run/checkpoints/task-0{number}.pt") for number in (1, 2, 3)]
    models = [task["model"] for task in tasks]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    assert not all(torch.equal(models[1][name], models[2][name]) for name in models[0])
    told = [record.getMessage() for record in caplog.records if "pseudo-labels failed" in record.getMessage()]
    assert (
        len(told) == 1 and ["outside all clusters", "in one cluster"][fails_at - 1] in told[0] and "\n" not in told[0]
    )


def test_features_of_annotated_images_are_not_extracted(
    clustered: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extracted, extract = [], Embedder.extract

    def counting(model: Embedder, images: Any, **options: Any) -> np.ndarray:
        if isinstance(images, Relabelled):
            wanted = extract(model, images.images, **options)[images.rows]
            extracted.append((len(images), len(images.images)))
            np.testing.assert_allclose(extract(model, images, **options), wanted, rtol=1e-4, atol=1e-6)
        return extract(model, images, **options)

    clustered(by_rank)
    monkeypatch.setattr(Embedder, "extract", counting)
    train(tiny_config(UNLABELLED, {"METHOD.LABELS": "0.5", "TRAIN.EPOCHS": 1, "DATA.CACHE_GIB": 0}), tmp_path / "run")
    assert extracted and all(0.3 < few / everything < 0.7 for few, everything in extracted)


def test_labels_of_a_fraction_stay() -> None:
    records = [Record(str(row), row // 4, 0) for row in range(16)]
    assert pseudo_labels._units(records).tolist() == list(range(16))
    assert pseudo_labels._units([Frame("", 0, 0, 1, 5), Frame("", 0, 0, 1, 5)]).tolist() == [5, 5]


@pytest.mark.parametrize("value", ["0", "0.0", "1.5", "-0.1", "some", "nan"])
def test_other_fractions_are_refused(value: str) -> None:
    with pytest.raises(InputError, match=r"METHOD.LABELS is .*\(0, 1\]"):
        check_values(load_config([], ["METHOD.LABELS", value]))


def test_labels_are_needed_by_streams_accuracies_and_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="METHOD.LABELS needs a method that trains on P x K batches"):
        train(tiny_config(UNLABELLED, STREAM__SEGMENT=4), tmp_path / "stream")
    with pytest.raises(InputError, match="METHOD.LABELS is none, but EVAL.ACCURACY needs all labels"):
        train(tiny_config(UNLABELLED, EVAL__ACCURACY=True), tmp_path / "accuracy")
    monkeypatch.setattr("lreid.methods.base.Method.relabels", False)  # as pad's
    with pytest.raises(InputError, match="METHOD.LABELS needs a method whose labels may change"):
        train(tiny_config(UNLABELLED), tmp_path / "fixed")
