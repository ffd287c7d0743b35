"""Rank features on a GPU with a flat index on the GPU or the CPU: ``python index.py``."""

import numpy as np
import pytest
import torch
from faiss_gpus import simulate_gpus
from simulated import SimulatedCUDA

from lreid.retrieval import FaissIndex, evaluate

rng = np.random.default_rng(0)
features = [torch.from_numpy(rng.integers(-2, 3, (count, 8)).astype(np.float32)) for count in (10, 2500)]
# Comparing a match takes several operators of the device, so there are few matches per query.
labels = [rng.integers(-9, 99, count).clip(-1) for count in (10, 2500)]
labels += [rng.integers(0, 3, count) for count in (10, 2500)]

with SimulatedCUDA(), pytest.MonkeyPatch.context() as patch:
    compared = simulate_gpus(patch, 1)
    placed = [each.to("cuda") for each in features]
    for metric in ("cosine", "euclidean"):
        search = FaissIndex(device="cpu").over(features[1], metric)
        on_cpu = evaluate(*features, *labels, metric=metric, search=search)
        for device in ("auto", "cpu"):
            found = evaluate(*placed, *labels, metric=metric, search=FaissIndex(device=device).over(placed[1], metric))
            assert found.mAP == on_cpu.mAP and (found.cmc == on_cpu.cmc).all(), (metric, device)
            np.testing.assert_array_equal(found.ap, on_cpu.ap)
    assert compared == 2 * [0], compared
