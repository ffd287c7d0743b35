"""The recipe of CONTRIBUTING: one file of code and one of options make a method, which trains, resumes and loads."""

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
from lreid.data.loaders import Batch
from lreid.methods import Method, method_class, method_defaults, method_names
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


def weights(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints" / "task-03.pt", weights_only=True)["model"]


@pytest.mark.slow
def test_one_file_and_one_yaml_add_a_method(cfg: Config, tmp_path: Path) -> None:
    with added(tmp_path):
        defaults = method_defaults(method_class("stay_close"))
        assert (defaults["strength"], defaults["margin"], defaults["exemplars"]) == (1.0, 0.4, 0)
        whole = train(cfg, tmp_path / "whole")
        assert whole["method"] == "stay_close" and whole["exemplars"] == 8
        terms = [entry.keys() & {"dmml", "close"} for entry in whole["loss_history"]]
        assert terms == [{"dmml"}] * 3 + [{"dmml", "close"}] * 6

        steps: list[Batch] = []

        def break_off(self: Method, batch: Batch) -> None:
            steps.append(batch)
            if self.teacher is not None and len(steps) > 8:
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(method_class("stay_close"), "end_step", break_off)
            train(cfg, tmp_path / "broken")
        resumed = train(cfg, tmp_path / "broken", resume=True)
    assert resumed["loss_history"] == whole["loss_history"] and resumed["mAP"] == whole["mAP"]
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "broken")
    assert all(torch.equal(one[name], other[name]) for name in one)

    assert "stay_close" not in method_names()  # its model loads without it
    model = lreid.load_model(tmp_path / "whole" / "checkpoints" / "task-03.pt")
    assert all(torch.equal(value, one[name]) for name, value in model.state_dict().items())
