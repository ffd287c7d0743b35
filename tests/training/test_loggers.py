"""The calls of loggers, to stand-ins of their packages."""

import sys
from pathlib import Path
from typing import Any

import pytest

from lreid.config import check_values, load_config
from lreid.errors import InputError
from lreid.training.loggers import LOGGERS
from lreid.training.run_folder import RunFolder


class RecordingModule:
    """A module that records all calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple, dict]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*arguments: Any, **options: Any) -> RecordingModule:
            self.calls.append((name, arguments, options))
            return self

        return call


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> RecordingModule:
    stand_in = RecordingModule()
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, stand_in)
    return stand_in


def log_to(name: str, folder: Path) -> None:
    """An epoch and a task of a run with a logger."""
    with RunFolder(folder) as run:
        run.begin("", loggers=[name], keys={"TRAIN.LR": 0.5})
        run.log({"train/lr": 0.5, "train/dmml": 1.25}, 2, "epoch")
        run.log({"summary/seen_mAP": 20.5}, 2, "task")


def test_weights_and_biases_receives_losses_and_summary(recorder: RecordingModule, tmp_path: Path) -> None:
    log_to("wandb", tmp_path / "my-run")
    (begun, *axes), (first, second), end = recorder.calls[:4], recorder.calls[4:6], recorder.calls[6:]
    assert begun[0] == "init" and begun[2]["name"] == "my-run" and begun[2]["config"] == {"TRAIN.LR": 0.5}
    assert [(each[1], each[2]) for each in axes] == [
        (("train/*",), {"step_metric": "epoch"}),
        (("summary/*",), {"step_metric": "task"}),
        (("test/*",), {"step_metric": "task"}),
    ]
    assert first == ("log", ({"train/lr": 0.5, "train/dmml": 1.25, "epoch": 2},), {})
    assert second[1][0]["task"] == 2 and second[1][0]["summary/seen_mAP"] == 20.5
    assert end == [("finish", (), {})]
    for folder, continues in (("my-run", True), ("another", False)):
        recorder.calls.clear()
        log_to("wandb", tmp_path / folder)
        assert (recorder.calls[0][2]["id"] == begun[2]["id"]) == continues
    assert begun[2]["resume"] == "allow"


def test_mlflow_receives_losses_and_summary(recorder: RecordingModule, tmp_path: Path) -> None:
    log_to("mlflow", tmp_path / "my-run")
    names = [name for name, *_ in recorder.calls]
    assert names == ["set_experiment", "start_run", "log_params", "log_metrics", "log_metrics", "end_run"]
    assert recorder.calls[3] == ("log_metrics", ({"train/lr": 0.5, "train/dmml": 1.25},), {"step": 2})
    assert recorder.calls[4] == ("log_metrics", ({"summary/seen_mAP": 20.5},), {"step": 2})


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_missing_logger_names_the_extra_to_install(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with RunFolder(tmp_path / "run") as run, pytest.raises(InputError, match=rf"pip install 'lreid\[{name}\]'$"):
        run.begin("", loggers=[name])


def test_unknown_logger_is_refused() -> None:
    assert list(LOGGERS) == load_config([], ["TRAIN.LOGGERS", str(list(LOGGERS))]).TRAIN.LOGGERS
    with pytest.raises(InputError, match="TRAIN.LOGGERS .*comet"):
        check_values(load_config([], ["TRAIN.LOGGERS", "['wandb', 'comet']"]))
