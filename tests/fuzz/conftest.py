import itertools
import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from example_files import write_model_and_images
from tiny import FEW, tiny_config

from lreid.training.run import train
from lreid.training.updates import Updates


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``model.pt``, and ``q/`` and ``g/`` with synthetic images of two people."""
    return write_model_and_images(tmp_path_factory.mktemp("fuzz"), identities=2, images=3)


@pytest.fixture(scope="session")
def broken_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that ended in the middle of its second task, with ``task-01.pt``, ``previous.pt`` and ``last.pt``."""
    out, update, updates = tmp_path_factory.mktemp("broken") / "run", Updates.update, itertools.count(1)

    def update_until_the_eighth(self: Updates, *args: Any) -> None:
        if next(updates) == 8:
            raise KeyboardInterrupt
        update(self, *args)

    cfg = tiny_config(FEW, DEVICE="cpu", TRAIN__CHECKPOINT_STEPS=1, TRAIN__EPOCHS=2)
    with mock.patch.object(Updates, "update", update_until_the_eighth), pytest.raises(KeyboardInterrupt):
        train(cfg, out)
    assert {"task-01.pt", "previous.pt", "last.pt"} <= {path.name for path in (out / "checkpoints").iterdir()}
    return out


@pytest.fixture(scope="session")
def results(broken_run: Path) -> dict:
    """The content of a ``results.json``."""
    return json.loads((broken_run / "results.json").read_text())
