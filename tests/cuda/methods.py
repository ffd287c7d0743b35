"""Compare runs on the simulated device with runs on the CPU: ``python methods.py FOLDER METHOD …``.

Print a line of JSON per method: the metrics that differ, and the waits of each training step, by task.
"""

import functools
import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest
from cached_reads import cache_reads_and_drawings
from simulated import SimulatedCUDA
from tiny import FEW, tiny_config, train_interrupted
from torch.optim import Adam

from lreid.methods import dask
from lreid.training.run import train
from lreid.training.trainer import Trainer

SMALL = {
    "BENCHMARK.TASKS_PER_DATASET": 2,
    "SYNTHETIC.TRAIN_IDENTITIES": 8,
    "SYNTHETIC.TEST_IDENTITIES": 4,
    "TRAIN.EPOCHS": 2,
}
STYLE = {"METHOD.STYLE_STEPS": 1, "METHOD.STYLE_BATCH": 2}
OPTIONS = {  # smaller than the defaults, which take long
    "dask": STYLE,
    "dkp_pp": STYLE,
    "gdumb": {"METHOD.PASSES": 2},
    "ranpac": {"METHOD.WIDTH": 32},
}
KEPT = ("mAP", "rank1", "loss_history", "identity_ap", "exemplars", "images_trained", "steps_trained")


@contextmanager
def counted_steps(device: SimulatedCUDA) -> Iterator[dict[int, list[Counter[str]]]]:
    """Collect the waits of each training step, by task."""
    waits: dict[int, list[Counter[str]]] = {}
    plain = Trainer.step

    def watched(self: Trainer, *args: Any) -> None:
        before = len(device.waits)
        plain(self, *args)
        waits.setdefault(self.at.task, []).append(Counter(device.waits[before:]))

    Trainer.step = watched  # type: ignore[method-assign]
    try:
        yield waits
    finally:
        Trainer.step = plain  # type: ignore[method-assign]


def compare(method: str, folder: Path) -> dict[str, Any]:
    """Run on the CPU, and on the device with an interruption in the second task."""
    keys = FEW | {"METHOD.NAME": method} | OPTIONS.get(method, {})
    expected = train(tiny_config(SMALL, keys, DEVICE="cpu", TRAIN__CHECKPOINT_MINUTES=60), folder / "cpu")
    cfg = tiny_config(SMALL, keys, DEVICE="cuda")
    with SimulatedCUDA() as device, counted_steps(device) as waits:
        train_interrupted(cfg, folder / "cuda", cfg.TRAIN.EPOCHS + 1)
        found = train(cfg, folder / "cuda", resume=True)
    different = [key for key in KEPT if found[key] != expected[key]]
    return {"method": method, "different": different, "waits": waits}


logging.getLogger("lreid").setLevel(logging.ERROR)
os.fsync = os.fstat  # as in conftest.py, and the next
cache_reads_and_drawings(pytest.MonkeyPatch())

if __name__ == "__main__":
    out, *names = sys.argv[1:]
    dask.Adam = functools.partial(Adam, foreach=False)  # type: ignore[misc]  # which is torch's choice for CUDA, and rounds otherwise
    for name in names:
        print(json.dumps(compare(name, Path(out) / name)), flush=True)
