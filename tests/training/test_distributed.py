"""Several processes compute what one does: statistics, gradients, whole runs."""

import math
import os
import signal
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import clips
import numpy as np
import pytest
import torch
from processes import fork_process, run_ranks, wait_for_exit
from tiny import FEW, NETWORKS, AtStep, tiny_config, train_interrupted
from torch import Tensor

from lreid import build
from lreid.checkpoint import load_newest
from lreid.config_keys import Config
from lreid.errors import InputError, Stopped
from lreid.methods import method_class, method_names
from lreid.methods.start import Start
from lreid.models import Embedder
from lreid.training import distributed, run
from lreid.training.run import train
from lreid.training.trainer import SIGNAL_CHECK_EVERY

CPU = torch.device("cpu")


config = partial(tiny_config, FEW, {"DEVICE": "cpu"})


def one_update(images: Tensor, targets: Tensor, backbone: str, norm: str) -> list[Tensor]:
    """Features, gradients and running statistics of a network and a copy of it, after a step in which both are used."""
    distributed.join(CPU)
    torch.manual_seed(0)
    model = Embedder(backbone, height=32, width=16, norm=norm).double()
    distributed.divide(model)
    model.train()
    first, second = model(images), model(images.flip(3))
    ((first[:, :256] - targets).square().sum() + (first * second).sum()).backward()
    distributed.average_gradients(model.parameters())
    model.eval()
    with torch.no_grad():
        looked = model(images[:3])  # of which the processes have different numbers
    gradients = [each.grad for each in model.parameters()]
    return [each.detach().clone() for each in (first, looked, *gradients, *model.buffers())]


@pytest.mark.parametrize(
    ("count", "backbone", "norm"),
    [
        (3, "small", "batch"),
        (2, "small", "ibn_a+stem"),
        pytest.param(2, "timm:mobilenetv2_050", "batch", marks=pytest.mark.slow),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="with CUDA torch's backward pass does not survive a fork")
def test_divided_network_equals_the_whole_network(tmp_path: Path, count: int, backbone: str, norm: str) -> None:
    if ":" in backbone:
        pytest.importorskip("timm", reason="timm is not installed")
    images = torch.randn(7, 3, 32, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    targets = torch.randn(7, 256, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    torch.set_num_threads(1)
    expected = one_update(images, targets, backbone, norm)
    for results in run_ranks(count, lambda: one_update(images, targets, backbone, norm), tmp_path):
        for result, value in zip(results, expected, strict=True):
            torch.testing.assert_close(result, value, rtol=1e-7, atol=1e-7)


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Networks in float64: in float32, 20 updates from random weights make a percent of what is rounding at first."""
    model_of = build.model_of

    def in_double(*args: Any, **options: Any) -> Embedder:
        model = model_of(*args, **options)
        model.backbone.register_forward_pre_hook(lambda _, inputs: (inputs[0].double(),))
        return model

    monkeypatch.setattr(build, "model_of", in_double)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def losses(results: dict[str, Any]) -> np.ndarray:
    """All terms of all epochs."""
    return np.array([entry[name] for entry in results["loss_history"] for name in sorted(entry)])


@pytest.mark.slow
@pytest.mark.usefixtures("double")
def test_number_of_processes_may_change_on_resume(tmp_path: Path) -> None:
    """Killed together; and then the other way round."""
    cfg = config(METHOD__NAME="dmml_ft", EPISODE__QUERY=2, TRAIN__OPTIMIZER="sgd", TRAIN__CHECKPOINT_STEPS=1)
    expected = train(cfg, tmp_path / "one")

    def killed_at(step: int, out: Path) -> None:
        from lreid.training.run_folder import RunFolder

        save, saves = RunFolder.save_current, 0

        def counted(self: RunFolder, state: Any) -> None:
            nonlocal saves
            save(self, state)
            saves += 1
            if saves == step:
                os.kill(os.getpid(), signal.SIGKILL)

        RunFolder.save_current = counted
        train(cfg, out, resume=True)

    with pytest.raises(AssertionError):
        run_ranks(2, lambda: killed_at(3, tmp_path / "two"), tmp_path)
    results = train(cfg, tmp_path / "two", resume=True)
    np.testing.assert_allclose(losses(results), losses(expected), rtol=1e-5, atol=1e-5)
    assert wait_for_exit(fork_process(lambda: killed_at(4, tmp_path / "other"))) == -signal.SIGKILL
    (results, _) = run_ranks(2, lambda: train(cfg, tmp_path / "other", resume=True), tmp_path)
    np.testing.assert_allclose(losses(results), losses(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_signal_to_one_process_ends_all_processes(tmp_path: Path) -> None:
    """They ask each other now and then, since to be answered they have to wait."""
    cfg = config(METHOD__NAME="dmml_ft", EPISODE__QUERY=2, TRAIN__EPOCHS=50)

    def stopped() -> int:
        step = AtStep(3, lambda: os.environ["RANK"] == "1" and os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(Stopped):
            train(cfg, tmp_path / "run", observers={"signal": step})
        return 3 - step.left

    assert run_ranks(2, stopped, tmp_path) == [SIGNAL_CHECK_EVERY, SIGNAL_CHECK_EVERY]
    _, state = load_newest(tmp_path / "run" / "checkpoints")
    assert state["results"]["steps_trained"] == SIGNAL_CHECK_EVERY


DIVISIBLE = [name for name in method_names() if method_class(name).divisible]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*DIVISIBLE, "bot_ft_plus", "er_aml_reid", "der_reid", "co2l_reid", "cclis_reid"])
@pytest.mark.usefixtures("double")
def test_every_method_and_its_observers_are_equal_in_two_processes(tmp_path: Path, name: str) -> None:
    """Losses, figures, drift, and gradients of stored and of incoming images, of which each process has a share."""
    if name == "pad":
        clips.register()
    cfg = config(
        NETWORKS.get(name, {}),
        METHOD__NAME=name,
        BENCHMARK__TASKS_PER_DATASET=2,
        SYNTHETIC__TRAIN_IDENTITIES=8,
        TRAIN__EPOCHS=1,
        TRAIN__OPTIMIZER="sgd",
        EVAL__DRIFT_STEPS=2,
        BATCH__IMAGES=4,
        EPISODE__QUERY=2,
    )
    expected = train(cfg, tmp_path / "one")
    runs = run_ranks(2, lambda: train(cfg, tmp_path / "two"), tmp_path)
    for results in runs:
        for key in ("images_trained", "steps_trained", "exemplars", "galleries"):
            assert results[key] == expected[key]
        np.testing.assert_allclose(losses(results), losses(expected), rtol=1e-5, atol=1e-5)
    assert runs[0]["mAP"] == runs[1]["mAP"]

    def watched(results: Any) -> dict[str, list[float]]:
        ((drift,), (norms,)) = results["drift"], results["gradient_norms"]
        lossless = name in DIVISIBLE and issubclass(method_class(name), Start)
        assert ({norms["incoming"][0], norms["stored"][0]} == {None}) == lossless
        curves = {name: curve["since_switch"] for name, curve in drift.items() if name != "task"}
        return curves | {
            key: [math.nan if each is None else each for each in norms[key]] for key in ("stored", "incoming")
        }

    alone = watched(expected)
    for curve, values in watched(runs[0]).items():
        np.testing.assert_allclose(values, alone[curve], rtol=1e-4, err_msg=curve)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The second of two processes on a machine with two GPUs, as far as torch tells; what is done to them, in order."""
    done: list[str] = []
    for name, value in (("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2"), ("RANK", "1"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    chosen = [0]

    def choose(gpu: int) -> None:
        chosen[0] = gpu
        done.append(f"set {gpu}")

    def begin(backend: str, *, timeout: Any, device_id: torch.device) -> None:
        done.append(f"{backend} {device_id}")
        raise RuntimeError("no further")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: chosen[0])
    monkeypatch.setattr(torch.cuda, "set_device", choose)
    monkeypatch.setattr(torch.distributed, "init_process_group", begin)
    monkeypatch.setattr(run, "pick_device", lambda name: done.append("touched") or torch.device("cuda"))
    return done


def test_process_selects_its_gpu_before_using_one(tmp_path: Path, two_gpus: list[str]) -> None:
    with pytest.raises(InputError, match="no further"):
        train(tiny_config(), tmp_path)
    assert two_gpus == ["set 1", "touched", "nccl cuda:1"]


@pytest.mark.parametrize(
    ("device", "gpus", "message"),
    [
        ("cuda:1", 2, "DEVICE is cuda:1, but torchrun gives each process its own GPU; use cuda"),
        ("auto", 1, "DEVICE is auto, but torchrun has started 2 processes on a machine with 1 GPU; "),
    ],
)
def test_too_few_gpus_are_refused(
    tmp_path: Path, two_gpus: list[str], monkeypatch: pytest.MonkeyPatch, device: str, gpus: int, message: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(InputError, match=message):
        train(tiny_config(DEVICE=device), tmp_path)
    assert two_gpus == []


def refusal(cfg: Config, out: Path) -> str:
    with pytest.raises(InputError) as error:
        train(cfg, out)
    return str(error.value)


@pytest.mark.slow
def test_indivisible_batches_and_methods_are_refused(tmp_path: Path) -> None:
    odd = config(EPISODE__IDENTITIES=3, SYNTHETIC__TRAIN_IDENTITIES=12, BENCHMARK__TASKS_PER_DATASET=1)
    for message in run_ranks(2, lambda: refusal(odd, tmp_path / "run"), tmp_path):
        assert message == (
            "EPISODE.IDENTITIES make a batch of 9 images, which cannot be shared evenly by 2 processes; "
            "change it or the number of processes"
        )
    for message in run_ranks(2, lambda: refusal(config(METHOD__NAME="mir"), tmp_path / "run"), tmp_path):
        assert message.startswith("METHOD.NAME: mir computes gradients itself")


@pytest.mark.parametrize("option", [{"affine": False}, {"track_running_stats": False}, {"momentum": None}])
def test_indivisible_batch_norms_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="backbone has a BatchNorm without weights"):
        distributed._global_norm(torch.nn.BatchNorm2d(3, **option), torch.zeros(2, 3, 4, 4))


def test_single_process_divides_nothing() -> None:
    model = Embedder("small", height=32, width=16)
    distributed.divide(model)
    assert not model._forward_hooks and not model._forward_pre_hooks
    assert distributed.own_rows() == slice(0, None, 1) and distributed.world() == 1
    assert distributed.in_first_process(lambda: 3) == 3 and distributed.any_of(True)


@pytest.mark.slow
def test_death_of_another_process_is_reported_in_one_line(tmp_path: Path) -> None:
    """And the run goes on from what was saved."""
    out = tmp_path / "run"

    def die_in_the_second_epoch() -> None:
        if os.environ["RANK"] == "1":
            train_interrupted(config(), out, 1)
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(InputError, match="another process of this run has died"):
            train(config(), out)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    pids = [fork_process(die_in_the_second_epoch, RANK=str(rank), LOCAL_RANK=str(rank), **common) for rank in range(2)]
    assert [wait_for_exit(pid) for pid in pids] == [0, -signal.SIGKILL]
    train(config(), out, resume=True)
