"""Galleries that are searched on a simulated GPU."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from galleries import names, vectors

from lreid.errors import InputError
from lreid.gallery import Filter, Gallery

faiss = pytest.importorskip("faiss")
from faiss_gpus import OnGpu, simulate_gpus  # noqa: E402


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the GPUs, 0 or 1, to which indexes were copied."""
    return simulate_gpus(monkeypatch, 2)


@pytest.mark.parametrize("shards", [1, 3])
def test_gpu_runs_only_searches_without_filter(gpus: list[int], tmp_path: Path, shards: int) -> None:
    features = vectors(60)
    plain, on_gpu = (
        Gallery.build(
            features, names(60), np.arange(60) % 5, np.arange(60) % 3, model="a1", shards=shards, device=device
        )
        for device in ("cpu", "cuda:1")
    )
    assert gpus == shards * [1]

    def same(k: int, **more: Any) -> int:
        """Compare both searches, and return the number of searches on the GPU."""
        before = OnGpu.searches
        found = [each.search(features[:7], k, model="a1", **more) for each in (plain, on_gpu)]
        np.testing.assert_array_equal(found[0].keys, found[1].keys)
        np.testing.assert_array_equal(found[0].scores, found[1].scores)
        return OnGpu.searches - before

    assert same(5) == shards
    assert same(5, where=Filter(cameras=[1])) == 0
    assert same(3000) == 0
    for gallery in (plain, on_gpu):
        gallery.add(vectors(4, seed=9), names(4, 60), model="a1")
        gallery.remove(names(2))
    assert len(gpus) == shards  # copied again when it is searched, not before
    assert same(5) == shards and gpus == 2 * shards * [1]
    on_gpu.save(tmp_path / "people.gallery")
    loaded = Gallery.load(tmp_path / "people.gallery", device="cuda")
    np.testing.assert_array_equal(
        loaded.search(features, 9, model="a1").keys, plain.search(features, 9, model="a1").keys
    )
    assert gpus[-shards:] == shards * [0]


@pytest.mark.parametrize(
    ("kind", "device", "fault"),
    [
        ("flat", "cuda:2", "device is GPU 2"),
        ("flat", "gpu", "device is 'gpu'"),
        ("hnsw", "cuda", "device is a GPU, but IndexHNSWFlat"),
    ],
)
def test_unsupported_devices_are_refused(gpus: list[int], kind: str, device: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        Gallery.build(vectors(60), names(60), model="a1", kind=kind, device=device)
