"""The benchmark of retrieval: contestants that agree, and a row of the table. Nothing is timed."""

import importlib.util
from collections.abc import Callable

import numpy as np
import pytest

import bench_retrieval as bench
from lreid.retrieval import evaluate


@pytest.mark.slow
def test_contestants_agree() -> None:
    problem = bench.random_problem(bench.SMALL, bench.SMALL.separations[0])
    figures = {name: run(*problem) for name, run in bench.RUN.items() if name in ("evaluate", "argsort")}
    if importlib.util.find_spec("torchreid"):
        figures["torchreid"] = bench.torchreid(*problem)
    for mean_ap, rank1 in figures.values():
        assert mean_ap == pytest.approx(figures["evaluate"][0], abs=1e-4)  # products round in another order
        assert rank1 == pytest.approx(figures["evaluate"][1], abs=0.01)


def test_separation_decides_how_hard_it_is() -> None:
    hard, easy = (
        evaluate(*bench.random_problem(bench.SMALL, separation)).mAP for separation in bench.SMALL.separations
    )
    assert 0.05 < hard < 0.15 and easy > 0.7


def test_true_neighbours_and_recall() -> None:
    rng = np.random.default_rng(0)
    queries, gallery = rng.standard_normal((5, 8), np.float32), rng.standard_normal((40, 8), np.float32)
    truth = bench.nearest_ten(queries, gallery)
    cosine = queries @ (gallery / np.linalg.norm(gallery, axis=1, keepdims=True)).T
    np.testing.assert_array_equal(truth, np.argsort(-cosine, axis=1)[:, :10])
    assert bench.share_found(truth, truth[:, ::-1]) == 1
    assert bench.share_found(truth, np.where(np.arange(10) < 3, truth, -1)) == pytest.approx(0.3)


@pytest.mark.parametrize("option", ["--repeats", "--threads", "--images", "--width", "--queries"])
def test_bad_options_are_one_line(
    run_tool: Callable[..., int], capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert run_tool("bench_retrieval.py", "--index", option, "0") == 2
    assert f"bench_retrieval.py: {option} 0: must be at least 1" in capsys.readouterr().err


def test_gallery_has_a_row() -> None:
    pytest.importorskip("faiss")
    row = bench.time_gallery("flat", 500, 16, 20)
    assert len(row) == len(bench.COLUMNS) and row[0] == "flat" and row[-2:] == ["1.000", "1.000"]
