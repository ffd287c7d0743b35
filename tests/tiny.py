"""A benchmark that trains in a second, and a way to interrupt a run."""

from collections import ChainMap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from lreid.config import load_config
from lreid.config_keys import Config
from lreid.data.loaders import Batch
from lreid.evaluation import Observer
from lreid.models import register_backbone
from lreid.training.run import train

TINY = {
    "SYNTHETIC.TRAIN_IDENTITIES": 12,
    "SYNTHETIC.TEST_IDENTITIES": 6,
    "SYNTHETIC.IMAGES_PER_IDENTITY": 4,
    "SYNTHETIC.DISTRACTORS": 3,
    "BENCHMARK.TASKS_PER_DATASET": 3,
    "EPISODE.IDENTITIES": 2,
    "EPISODE.SUPPORT": 2,
    "BATCH.IDENTITIES": 2,
    "BATCH.IMAGES": 3,
    "INPUT.HEIGHT": 32,
    "INPUT.WIDTH": 16,
    "INPUT.PIPELINE": ["flip-erase-growing"],
    "TRAIN.EPOCHS": 3,
    "TRAIN.LR": 1e-3,
    "TRAIN.CHECKPOINT_MINUTES": 0,
}

FEW = {"MODEL.BACKBONE": "few"}  # for tests of methods, which need no particular network
NETWORKS = {  # for methods that refuse few (clips.register adds the CLIP), or whose own parts are large
    "pad": {"MODEL.BACKBONE": "open_clip:tiny-clip", "METHOD.TEXT_EPOCHS": 1, "METHOD.FIRST_TEXT_EPOCHS": 1},
    "ranpac": {"METHOD.WIDTH": 32},
    "dask": {"METHOD.STYLE_STEPS": 2},
    "dkp_pp": {"METHOD.STYLE_STEPS": 2},
}
ONE_TASK = {"TRAIN.EPOCHS": 1, "BENCHMARK.TASKS_PER_DATASET": 1}  # the shortest run


@register_backbone("few")
class Few(nn.Sequential):
    """A network with few weights, so that steps are fast and a checkpoint needs few writes."""

    dim = 16

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 8, 3, 4), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, self.dim, 3, 2))


def as_arguments(*keys: Mapping[str, Any]) -> list[str]:
    """Convert keys to the arguments ``KEY VALUE ...``; the last value of a key counts."""
    return [str(part) for pair in ChainMap(*reversed(keys)).items() for part in pair]


def tiny_config(*more: Mapping[str, Any], **changes: Any) -> Config:
    """The config of the benchmark with more keys, and with changes whose names have ``__`` for a dot."""
    renamed = {key.replace("__", "."): value for key, value in changes.items()}
    return load_config([], as_arguments(TINY, *more, renamed))


class InterruptAfter(Observer):
    """Interrupt a run, as a kill would, at the first step after a number of epochs."""

    def __init__(self, epochs: int) -> None:
        self.left = epochs

    def before_loss(self, batch: Batch) -> None:
        if self.left == 0:
            raise KeyboardInterrupt

    def after_epoch(self, epoch: int, epochs: int, rate: float) -> None:
        self.left -= 1


class AtStep(Observer):
    """Do something before the loss of one training step; ``left`` counts down the steps."""

    def __init__(self, step: int, action: Callable[[], object]) -> None:
        self.left, self.action = step, action

    def before_loss(self, batch: Batch) -> None:
        self.left -= 1
        if self.left == 0:
            self.action()


def train_interrupted(cfg: Config, out: Path, epochs: int) -> None:
    """Train and interrupt the run after a number of epochs over all tasks."""
    with pytest.raises(KeyboardInterrupt):
        train(cfg, out, observers={"break": InterruptAfter(epochs)})


def reproducible_values(results: dict[str, Any]) -> dict[str, Any]:
    """Results without times, memory and versions."""
    varying = {"seconds", "images_per_second", "peak_memory_mib", "versions"}
    return {key: value for key, value in results.items() if key not in varying}


def csv_config(people: Path, **changes: Any) -> Config:
    source = {"BENCHMARK__TRAIN": [f"csv:{people}/index.csv"], "BENCHMARK__TASKS_PER_DATASET": 1}
    return tiny_config(**(source | changes))
