"""The recipe of CONTRIBUTING: one file of code and one of options make a method, which trains and whose model loads."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from tiny import FEW, TINY, as_arguments

import lreid
from lreid import methods
from lreid.config import load_config
from lreid.config_keys import Config
from lreid.methods import method_class, method_defaults, method_names
from lreid.training.run import train

CODE = '''"""Stay close: DMML, and features that stay near those of the model before."""

import torch

from lreid.methods.dmml_ft import DMMLFineTuning


class StayClose(DMMLFineTuning):
    """With a squared distance to the teacher's features."""

    keeps_teacher = True

    def __init__(self, model, *, strength=1.0, **dmml):
        super().__init__(model, **dmml)
        self.weights = {"close": strength}

    def loss(self, batch):
        features = self.model(batch.images)
        terms = self.episode_loss(features, batch)
        if self.teacher is not None:
            with torch.no_grad():
                old = self.teacher(batch.images)
            terms["close"] = (features - old).square().sum(1).mean()
        return terms
'''
OPTIONS = "METHOD: {NAME: stay_close, STRENGTH: 0.5, EXEMPLARS: 8}"


@pytest.fixture
def cfg(tmp_path: Path) -> Config:
    (tmp_path / "stay_close.yaml").write_text(OPTIONS)
    return load_config([tmp_path / "stay_close.yaml"], as_arguments(TINY, FEW))


@contextmanager
def added(folder: Path) -> Iterator[None]:
    """The file lies in a folder that is searched for methods."""
    (folder / "stay_close.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods, "__path__", [*methods.__path__, str(folder)])
        yield
    sys.modules.pop("lreid.methods.stay_close", None)


@pytest.mark.slow
def test_one_file_and_one_yaml_add_a_method(cfg: Config, tmp_path: Path) -> None:
    with added(tmp_path):
        defaults = method_defaults(method_class("stay_close"))
        assert (defaults["strength"], defaults["margin"], defaults["exemplars"]) == (1.0, 0.4, 0)
        results = train(cfg, tmp_path / "run")
        assert results["method"] == "stay_close" and results["exemplars"] == 8
        terms = [entry.keys() & {"dmml", "close"} for entry in results["loss_history"]]
        assert terms == [{"dmml"}] * 3 + [{"dmml", "close"}] * 6

    assert "stay_close" not in method_names()  # its model loads without it
    path = tmp_path / "run" / "checkpoints" / "task-03.pt"
    weights = torch.load(path, weights_only=True)["model"]
    assert all(torch.equal(value, weights[name]) for name, value in lreid.load_model(path).state_dict().items())
