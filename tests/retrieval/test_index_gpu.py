"""Searches on simulated GPUs."""

import sys
from typing import Any

import numpy as np
import pytest
import torch

from lreid.build import index_of, naming_index_keys
from lreid.config import load_config
from lreid.errors import InputError
from lreid.retrieval import FaissIndex, cost_of, evaluate
from lreid.retrieval.scores import Scorer

faiss = pytest.importorskip("faiss")
from faiss_gpus import OnGpu, simulate_gpus  # noqa: E402

FEW = np.eye(8, dtype=np.float32)


def problem(num_gallery: int, width: int = 8) -> tuple[np.ndarray, ...]:
    """Features of a coarse grid, so that many scores are equal; with junk and cameras."""
    rng = np.random.default_rng(num_gallery)
    counts = 12, num_gallery
    features = [rng.integers(-2, 3, (count, width)).astype(np.float32) for count in counts]
    return *features, *(rng.integers(-1, 9, n) for n in counts), *(rng.integers(0, 3, n) for n in counts)


def same(found: Any, exact: Any) -> None:
    for name, value in vars(exact).items():
        parts = (each if isinstance(each, tuple) else (each,) for each in (getattr(found, name), value))
        for one, other in zip(*parts, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)


@pytest.mark.parametrize(
    ("device", "num_gallery", "gpus"),
    [("auto", 300, [0]), ("cuda:1", 300, [1]), ("cuda", 5000, [0, 1]), ("cuda", 1, [0]), ("cpu", 300, [])],
)
def test_flat_index_on_gpus_gives_the_exact_metrics(
    monkeypatch: pytest.MonkeyPatch, device: str, num_gallery: int, gpus: list[int]
) -> None:
    """Several GPUs divide the gallery. Float32 adds the small whole numbers without rounding."""
    compared = simulate_gpus(monkeypatch, 2)
    queries, gallery, *labels = problem(num_gallery)
    labels[0][0] = labels[1][0] = 5
    images, how = (queries, gallery, *labels[:2]), {"metric": "euclidean", "camera_filter": False}
    search = FaissIndex(device=device).over(gallery, "euclidean")
    same(evaluate(*images, **how, search=search), evaluate(*images, **how))
    assert sorted(compared) == gpus
    scorer = Scorer(torch.from_numpy(queries), torch.from_numpy(gallery), "euclidean")
    assert set(cost_of(search, scorer).recall.values()) == {1}


def test_distances_that_cancel_are_computed_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = simulate_gpus(monkeypatch, 1)
    queries, gallery, *labels = problem(100)
    images, how = (queries + 1000, gallery + 1000, *labels), {"metric": "euclidean"}
    same(evaluate(*images, **how, search=FaissIndex().over(images[1], "euclidean")), evaluate(*images, **how))
    assert not compared


def refuse(*_: Any, **__: Any) -> None:
    raise RuntimeError("Error in void faiss::gpu::f() at /project/f.cu:12: Error: 'x' failed: out of memory")


def test_full_gpu_is_reported_or_replaced_by_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_gpus(monkeypatch, 1)
    images = problem(50)
    expected = evaluate(*images, search=FaissIndex(device="cpu").over(images[1], "cosine"))

    monkeypatch.setattr(faiss, "pairwise_distance_gpu", refuse)
    same(evaluate(*images, search=FaissIndex().over(images[1], "cosine")), expected)
    for kind in (FaissIndex(device="cuda"), FaissIndex(float16=True)):
        with pytest.raises(InputError, match=r"^index_device .*: out of memory"):
            evaluate(*images, search=kind.over(images[1], "cosine"))


def test_other_indexes_are_copied_to_one_gpu_or_divided_among_several(monkeypatch: pytest.MonkeyPatch) -> None:
    images = problem(600, 64)
    for index, device, depth, gpus in [
        ("IVF4,Flat;nprobe=4", "cuda:1", 600, [1]),
        ("IVF4,Flat;nprobe=4", "cuda", 600, [0, 1]),
        ("IVF4,Flat;nprobe=4", "auto", 2049, []),
        ("IVF4,PQ64np;nprobe=4", "cuda:1", 600, [1]),  # with tables of 16 bits
        ("IVF4,PQ32x6np;nprobe=4", "auto", 600, []),
        ("hnsw", "auto", 600, []),
    ]:
        copied = simulate_gpus(monkeypatch, 2)
        same(
            evaluate(*images, search=FaissIndex(index, depth, device).over(images[1], "cosine")),
            evaluate(*images, search=FaissIndex(index, depth, "cpu").over(images[1], "cosine")),
        )
        assert copied == gpus and OnGpu.searches == bool(gpus)


def test_vectors_in_16_bits_give_rounded_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_gpus(monkeypatch, 2)
    rng = np.random.default_rng(0)
    images = (rng.standard_normal((20, 64)), 40 + rng.standard_normal((500, 64)), *problem(500)[2:])
    images = (*images[:2], rng.integers(0, 9, 20), *images[3:4], rng.integers(0, 3, 20), *images[5:])
    half = FaissIndex(device="cuda", float16=True).over(images[1], "cosine")
    units = images[1] / np.linalg.norm(images[1], axis=1, keepdims=True)
    rounded = units.astype(np.float32).astype(np.float16).astype(np.float64)
    queries = images[0] / np.linalg.norm(images[0], axis=1, keepdims=True)
    scores, _ = half(torch.from_numpy(queries))
    both = queries.astype(np.float32).astype(np.float16).astype(np.float64), rounded
    np.testing.assert_allclose(scores, 1 - ((both[0][:, None] - both[1]) ** 2).sum(2) / 2, atol=1e-6)
    assert np.abs(scores.numpy() - queries @ units.T).max() > 1e-5
    assert evaluate(*images, search=half).mAP == pytest.approx(evaluate(*images).mAP, abs=0.1)


@pytest.mark.parametrize(
    ("gpus", "keys", "fault"),
    [
        (0, {"INDEX_DEVICE": "cuda:3"}, "EVAL.INDEX_DEVICE is a GPU"),
        (2, {"INDEX_DEVICE": "cuda:3"}, "EVAL.INDEX_DEVICE is GPU 3"),
        (2, {"INDEX_DEVICE": "gpu"}, "EVAL.INDEX_DEVICE is 'gpu'"),
        (2, {"INDEX_DEVICE": "cuda", "INDEX": "hnsw"}, "EVAL.INDEX_DEVICE is a GPU, but IndexHNSWFlat"),
        (2, {"INDEX_DEVICE": "cuda", "INDEX": "IVF4,PQ4x4np"}, "EVAL.INDEX_DEVICE is a GPU"),
        (2, {"INDEX_DEVICE": "cuda", "INDEX": "IVF4,Flat", "INDEX_DEPTH": "2049"}, "EVAL.INDEX_DEPTH is 2049"),
        (2, {"INDEX_DEVICE": "cpu", "INDEX_FLOAT16": "True"}, "EVAL.INDEX_FLOAT16 is True"),
        (0, {"INDEX_FLOAT16": "True"}, "EVAL.INDEX_FLOAT16 is True"),
        (2, {"INDEX": "IVF4,Flat", "INDEX_DEPTH": "2049", "INDEX_FLOAT16": "True"}, "EVAL.INDEX_FLOAT16 is True"),
        (2, {"INDEX": "hnsw", "INDEX_FLOAT16": "True"}, "EVAL.INDEX_DEVICE is a GPU, but IndexHNSWFlat"),
    ],
)
def test_unsupported_settings_are_refused_before_training(
    monkeypatch: pytest.MonkeyPatch, gpus: int, keys: dict[str, str], fault: str
) -> None:
    simulate_gpus(monkeypatch, gpus)
    cfg = load_config((), [word for key, value in keys.items() for word in (f"EVAL.{key}", value)], report=False)
    with pytest.raises(InputError, match=f"^{fault}"), naming_index_keys():
        index = index_of(cfg)
        assert index is not None
        index.check(200, 8)


@pytest.mark.parametrize(("device", "extra"), [("cuda", "gpu"), ("cuda:1", "gpu"), ("cpu", "cpu"), ("auto", "cpu")])
def test_missing_faiss_names_the_extra_of_the_device(monkeypatch: pytest.MonkeyPatch, device: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    for use in (lambda: FaissIndex(device=device).check(200, 8), lambda: FaissIndex(device=device).over(FEW, "cosine")):
        with pytest.raises(InputError, match=rf"^faiss .*lreid\[{extra}\]"):
            use()


def test_failed_copy_to_a_gpu_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_gpus(monkeypatch, 2)

    monkeypatch.setattr(faiss, "index_cpu_to_gpu", refuse)
    with pytest.raises(InputError, match="^index_device .*: out of memory"):
        FaissIndex("IVF4,Flat", device="cuda:1").over(problem(200)[1], "cosine")
