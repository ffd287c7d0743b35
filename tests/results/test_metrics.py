"""Metrics that a plug-in registers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import FEW, ONE_TASK, tiny_config

from lreid.errors import InputError
from lreid.report import comparison_table
from lreid.results import METRICS, PARTS, content, read, register_metric, resumed_results
from lreid.training.run import train


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is gone afterwards."""
    metrics, parts = [*METRICS], {**PARTS}
    monkeypatch.setattr(content, "_registered", {**content._registered})
    yield
    METRICS[:] = metrics
    PARTS.clear()
    PARTS.update(parts)


def first_ranks(ranked: Any) -> list[float]:
    return [1 / ranks[0] if len(ranks) else np.nan for ranks in ranked.ranks]


def test_a_registered_metric_is_in_results_tables_and_logs(registry: None, tmp_path: Path) -> None:
    register_metric("mrr", first_ranks, title="MRR", main=True)
    register_metric("one_minus_ap", lambda ranked: 1 - np.nanmean(ranked.ap))
    register_metric(
        "by_identity", lambda ranked: dict(zip(map(str, ranked.identities), ranked.ap, strict=True)), parts=True
    )
    keys = {"TRAIN.LOGGERS": "['tensorboard']"}
    before = train(tiny_config(FEW, ONE_TASK, keys), tmp_path / "run")
    results = read(tmp_path / "run")
    (precision,), (one,), (mrr,) = (results[name][-1] for name in ("mAP", "one_minus_ap", "mrr"))
    assert precision + one == pytest.approx(100, abs=1e-3) and results["rank1"][-1][0] <= mrr <= 100
    assert results["summary"]["seen_mrr"] == mrr and f"{mrr:.1f}" in comparison_table([results])
    values = results["parts"]["by_identity"]["plaza"]
    assert values.keys() == {str(each) for each in results["identity_ap"]["plaza"]["ids"]}
    register_metric("later", first_ranks)
    assert "later" not in resumed_results({**before, "later": []}, before, tmp_path)


@pytest.mark.parametrize("value", [np.nan, [0.5], [[0.5, 0.5]], "much", None, [np.inf, 0.5]])
def test_a_metric_without_finite_values_is_refused(registry: None, value: Any) -> None:
    register_metric("mine", lambda ranked: value)
    ranked = type("Ranked", (), {"ap": np.array([0.5, np.nan]), "mAP": 0.5, "mINP": 0.5, "cmc": np.ones(10)})
    if value == [np.inf, 0.5]:
        ranked.ap = np.array([0.5, 1.0])
    with pytest.raises(InputError, match="mine"):
        content.figures_of(ranked)


@pytest.mark.parametrize("name", ["mAP", "rank5", "tasks"])
def test_names_of_results_cannot_be_registered(registry: None, name: str) -> None:
    with pytest.raises(InputError, match=name):
        register_metric(name, first_ranks)
