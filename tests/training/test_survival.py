"""Runs that are killed, stopped, or come upon what cannot be learned from: nothing saved is lost."""

import errno
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import fork_process, on_hangup, wait_for_exit
from tiny import FEW, AtStep, reproducible_values, tiny_config, train_interrupted

from lreid.errors import InputError, OutOfMemory, Stopped
from lreid.evaluation import Evaluator
from lreid.methods.dwopp import DwoPP
from lreid.models import Embedder
from lreid.training.run import train
from lreid.training.run_folder import RunFolder
from lreid.training.signals import StopSignals
from lreid.utils.reading import read_tensors

pytestmark = pytest.mark.slow


config = partial(tiny_config, FEW, {"DEVICE": "cpu", "TRAIN.CHECKPOINT_STEPS": 1})


def outcome(folder: Path) -> dict[str, Any]:
    return reproducible_values(json.loads((folder / "results.json").read_text()))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """As in the processes that are killed: another number of threads rounds in another way."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _hangups_count() -> Iterator[None]:
    """Also where the tests themselves run under nohup."""
    with on_hangup(signal.SIG_DFL):
        yield


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unbroken") / "run"
    assert wait_for_exit(fork_process(lambda: train(config(), out) and None)) == 0
    return out


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_saves_a_checkpoint_and_ends_the_run(unbroken: Path, tmp_path: Path, stop: signal.Signals) -> None:
    """In the middle of an epoch, with no other checkpoint due."""
    out, cfg = tmp_path / "run", config(TRAIN__CHECKPOINT_STEPS=0, TRAIN__CHECKPOINT_MINUTES=60)
    handler, send = signal.getsignal(stop), AtStep(9, lambda: os.kill(os.getpid(), stop))  # a task has six steps
    with pytest.raises(Stopped) as stopped:
        train(cfg, out, observers={"signal": send})
    assert stopped.value.status == 128 + stop and str(stopped.value) == f"stopped by {stop.name}"
    assert signal.getsignal(stop) == handler  # SIGINT is ignored where the tests run in the background
    assert read_tensors(out / "checkpoints" / "last.pt")["position"] == {"task": 1, "epoch": 1, "step": 1}
    train(cfg, out, resume=True)
    assert outcome(out) | {"config": 0} == outcome(unbroken) | {"config": 0}


def test_signal_during_the_evaluation_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluate(self: Evaluator, model: Any, **options: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("went on")

    monkeypatch.setattr(Evaluator, "evaluate", evaluate)
    with pytest.raises(Stopped):
        train(config(), tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / "last.pt").exists()


def test_hangup_under_nohup_is_ignored() -> None:
    with on_hangup(signal.SIG_IGN), StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.received is None and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_second_signal_does_not_interrupt_saving() -> None:
    """As when a sweep passes on what the terminal has sent to all."""
    with StopSignals() as stop:
        with pytest.raises(Stopped) as stopped:
            os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received == signal.SIGHUP and stopped.value.status == 129


def test_undeletable_old_checkpoint_does_not_end_a_run(
    unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, unlink = tmp_path / "run", os.unlink

    def fail(path: Any, **more: Any) -> None:
        if Path(path).name in ("last.pt", "previous.pt"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        unlink(path, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fail)
        train(config(), out)
    assert outcome(out) == outcome(unbroken)
    assert (out / "checkpoints" / "last.pt").exists()
    train(config(), out, resume=True)
    assert outcome(out) == outcome(unbroken)
    names = sorted(file.name for file in (out / "checkpoints").glob("*.pt"))
    assert names == ["task-01.pt", "task-02.pt", "task-03.pt"]


def test_second_interrupt_ends_the_run_at_once(tmp_path: Path) -> None:
    twice = AtStep(1, lambda: [os.kill(os.getpid(), signal.SIGINT) for _ in range(2)])
    with pytest.raises(KeyboardInterrupt):
        train(config(), tmp_path / "run", observers={"signal": twice})


def test_damaged_checkpoint_falls_back_to_the_previous_one(
    unbroken: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "run"
    train_interrupted(config(), out, 5)
    last = out / "checkpoints" / "last.pt"
    assert (out / "checkpoints" / "previous.pt").exists()
    whole = bytearray(last.read_bytes())
    whole[len(whole) // 2] ^= 1
    last.write_bytes(whole)
    with caplog.at_level("WARNING", "lreid"):
        train(config(), out, resume=True)
    assert "last.pt: cannot be loaded" in caplog.text and "using the previous checkpoint" in caplog.text
    assert outcome(out) == outcome(unbroken)


def test_run_with_only_damaged_checkpoints_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    for name in ("last.pt", "task-01.pt"):
        (folder / name).write_bytes(b"PK")
    with pytest.raises(InputError, match="last.pt: cannot be loaded"):
        train(config(), tmp_path / "run", resume=True)


def test_infinite_loss_lists_its_images(unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, loss, steps = tmp_path / "run", DwoPP.loss, 0
    expected: list[str] = []

    def poisoned(self: DwoPP, batch: Any) -> Any:
        nonlocal steps
        steps += 1
        terms = loss(self, batch)
        if steps == 9:
            expected.extend(batch.paths)
            return {name: term * float("inf") for name, term in terms.items()}
        return terms

    with monkeypatch.context() as patch:
        patch.setattr(DwoPP, "loss", poisoned)
        with pytest.raises(InputError) as error:
            train(config(), out)
    message = str(error.value)
    assert "the loss is not finite in epoch 2, step 1 of task 2" in message and "\n" not in message
    assert expected[0] in message and str(out / "not_finite.txt") in message
    assert (out / "not_finite.txt").read_text().splitlines() == expected and len(expected) == 6
    train(config(), out, resume=True)  # the last good state is there
    assert outcome(out) == outcome(unbroken)


def test_infinite_gradient_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(self: DwoPP, batch: Any) -> dict[str, torch.Tensor]:
        features = self.model(batch.images)
        return {"root": (features - features.detach()).square().sum().sqrt()}  # 0, with the gradient nan

    monkeypatch.setattr(DwoPP, "loss", loss)
    with pytest.raises(InputError, match="of the network is not finite"):
        train(config(), tmp_path / "run")
    assert not list((tmp_path / "run" / "checkpoints").glob("*.pt"))


def test_death_of_a_loader_worker_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lreid.data.loaders import TaskBatches

    def dies(self: TaskBatches, index: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(TaskBatches, "__getitem__", dies)
    with pytest.raises(InputError, match="DATA.WORKERS 1, or DATA.CACHE_GIB 0") as error:
        train(config(DATA__WORKERS=1), tmp_path / "run")
    assert "\n" not in str(error.value)


def test_unwritable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="run: cannot be written to"):
        train(config(), tmp_path / "file" / "run")


@pytest.mark.parametrize("how", ["renamed", "deleted", "replaced", "parent renamed", "lock deleted"])
def test_moved_run_folder_ends_the_run(tmp_path: Path, how: str) -> None:
    """Nothing is written to the path, where another run may be at work by now."""
    out = tmp_path / "runs" / "run"

    def move() -> None:
        if how == "deleted":
            shutil.rmtree(out)
        elif how == "lock deleted":
            (out / ".lock").unlink()
        else:
            (out.parent if how == "parent renamed" else out).rename(tmp_path / "elsewhere")
        if how == "replaced":
            (out / "checkpoints").mkdir(parents=True)
            (out / ".lock").touch()

    step = AtStep(4, move)
    with pytest.raises(InputError, match=f"^{out}: was renamed") as caught:
        train(config(), out, observers={"move": step})
    assert step.left == 0 and "\n" not in str(caught.value)
    if how == "replaced":
        assert sorted(path.name for path in out.rglob("*")) == [".lock", "checkpoints"]
    assert out.exists() == (how in ("replaced", "lock deleted"))
    if how == "renamed":
        (tmp_path / "elsewhere").rename(out)
        train(config(), out, resume=True)
        assert len(json.loads((out / "results.json").read_text())["mAP"]) == 3


@pytest.mark.parametrize("resume", [False, True])
def test_unlistable_checkpoints_are_not_overwritten(
    unbroken: Path, tmp_path: Path, resume: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a run of another seed, which would start from the first task in an empty folder."""
    out = tmp_path / "run"
    shutil.copytree(unbroken, out)
    before = {path: path.read_bytes() for path in (out / "checkpoints").iterdir()}

    def failing(original: Any) -> Any:
        def call(path: Any = ".", *args: Any, **more: Any) -> Any:
            if str(path).endswith("checkpoints"):
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return original(path, *args, **more)

        return call

    with monkeypatch.context() as patch:
        for name in ("listdir", "scandir"):
            patch.setattr(os, name, failing(getattr(os, name)))
        with pytest.raises(InputError, match="checkpoints: cannot be listed"):
            train(config(SEED=7), out, resume=resume)
    assert {path: path.read_bytes() for path in (out / "checkpoints").iterdir()} == before


def test_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(InputError, match="run: cannot be locked"):
        train(config(), tmp_path / "run")


def test_new_folders_are_synced_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, sync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), sync(file)))
    with RunFolder(tmp_path / "runs" / "new"):
        pass
    assert {str(tmp_path), str(tmp_path / "runs"), str(tmp_path / "runs" / "new")} <= set(synced)


OUT_OF_MEMORY = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")


@pytest.mark.parametrize(
    ("keys", "where", "named"),
    [
        ({}, "loss", "EPISODE.IDENTITIES"),
        ({"METHOD__NAME": "bot_ft"}, "loss", "BATCH.IDENTITIES"),
        ({"METHOD__NAME": "bot_ft", "STREAM__SEGMENT": 4}, "loss", "STREAM.SEGMENT"),
        ({}, "forward", "EVAL.BATCH_SIZE"),
    ],
)
def test_out_of_memory_names_the_keys_to_lower(
    keys: dict[str, Any], where: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = Embedder.forward

    def out_of_memory(self: Any, images: Any) -> Any:
        if where == "loss" or not self.training:
            raise OUT_OF_MEMORY
        return forward(self, images)

    monkeypatch.setattr(Embedder, "forward", out_of_memory)
    with pytest.raises(OutOfMemory, match=named) as error:
        train(config(TRAIN__EPOCHS=1, **keys), tmp_path / "run")
    assert "\n" not in str(error.value)


def test_out_of_memory_while_resuming_changes_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is the run taken up from the one before, which would overwrite it."""
    train_interrupted(config(), tmp_path / "run", 5)
    before = {path: path.read_bytes() for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert len(before) >= 2

    def fails_once(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        raise OUT_OF_MEMORY

    monkeypatch.setattr(torch, "load", fails_once)
    with pytest.raises(OutOfMemory, match=r"last\.pt: memory ran out"):
        train(config(), tmp_path / "run", resume=True)
    assert {path: path.read_bytes() for path in (tmp_path / "run" / "checkpoints").iterdir()} == before
