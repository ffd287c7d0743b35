"""A benchmark that trains in a second, and a way to break it off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from yacs.config import CfgNode

from lreid.config import load_config
from lreid.training.trainer import Trainer

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
    "INPUT.ERASING": True,
    "TRAIN.EPOCHS": 3,
    "TRAIN.LR": 1e-3,
    "TRAIN.CHECKPOINT_MINUTES": 0,
}


def tiny_config(*more: Mapping[str, Any], **changes: Any) -> CfgNode:
    """The config of that benchmark with more keys, and with changes whose names have ``__`` for a dot."""
    keys: dict[str, Any] = dict(TINY)
    for each in more:
        keys |= each
    keys |= {key.replace("__", "."): value for key, value in changes.items()}
    return load_config([], [str(part) for pair in keys.items() for part in pair])


def stop_after(monkeypatch: pytest.MonkeyPatch, epochs: int) -> None:
    """Breaks the run off, as a kill would, after so many epochs in all."""
    train_epoch = Trainer._train_epoch
    done = 0

    def counted(*args: Any, **options: Any) -> None:
        nonlocal done
        if done == epochs:
            raise KeyboardInterrupt
        done += 1
        train_epoch(*args, **options)

    monkeypatch.setattr(Trainer, "_train_epoch", counted)
