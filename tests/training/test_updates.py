"""Optimisers, clipping, the moving average of weights, compiling, and training from Python."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import FEW, ONE_TASK, tiny_config, train_interrupted
from torch import nn

import lreid
from lreid import methods
from lreid.config import leaves
from lreid.config_keys import OPTIMIZERS, TrainSection
from lreid.data.loaders import Batch
from lreid.data.samplers import EpisodeSampler
from lreid.errors import InputError
from lreid.methods.dmml_ft import DMMLFineTuning
from lreid.models import Embedder
from lreid.training.run import train
from lreid.training.updates import Updates


class Quadratic(DMMLFineTuning):
    """Minimise the squares of all weights, each times a factor."""

    def loss(self, batch: Batch) -> dict[str, torch.Tensor]:
        return {"squares": sum(each.square().sum() for each in self.network.parameters())}


def updated(steps: int, **keys: Any) -> tuple[Updates, list[list[torch.Tensor]]]:
    """The weights before and after every update, and the object that made the updates."""
    torch.manual_seed(0)
    method = Quadratic(Embedder("few", height=32, width=16))
    updates = Updates(method, TrainSection(**keys))
    updates.set_rates(lambda first: 0.1)
    weights = [[each.detach().clone() for each in method.network.parameters()]]
    for _ in range(steps):
        updates.update([Batch(torch.zeros(2, 3, 32, 16), torch.zeros(2), 1)])
        weights.append([each.detach().clone() for each in method.network.parameters()])
    return updates, weights


def test_adamw_decays_weights_apart_from_the_gradient() -> None:
    _, (before, after) = updated(1, OPTIMIZER="adamw", WEIGHT_DECAY=0.5)
    for old, new in zip(before, after, strict=True):  # the first step of Adam has the length of the rate
        torch.testing.assert_close(new, old - 0.1 * 0.5 * old - 0.1 * old.sign(), atol=1e-3, rtol=0)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_clipped_gradient_has_the_largest_norm(precision: str) -> None:
    for most in (0.5, 1e6):
        _, (before, after) = updated(1, OPTIMIZER="sgd", WEIGHT_DECAY=0.0, CLIP_NORM=most, PRECISION=precision)
        steps = torch.cat([(old - new).flatten() for old, new in zip(before, after, strict=True)])
        norm = torch.cat([2 * old.flatten() for old in before]).norm().item()
        assert steps.norm().item() == pytest.approx(0.1 * min(most, norm), rel=1e-4)


def test_the_moving_average_replaces_the_weights_at_the_end() -> None:
    updates, (first, *others) = updated(4, OPTIMIZER="sgd", EMA=0.75)
    means = first
    for weights in others:
        means = [0.75 * mean + 0.25 * each for mean, each in zip(means, weights, strict=True)]
    updates.finish()
    for mean, each in zip(means, updates.method.network.parameters(), strict=True):
        torch.testing.assert_close(each.detach(), mean)


@pytest.mark.slow
def test_an_averaged_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    cfg = tiny_config(FEW, ONE_TASK, TRAIN__EPOCHS=3, TRAIN__EMA=0.5, TRAIN__CLIP_NORM=0.1, TRAIN__OPTIMIZER="adamw")
    train_interrupted(cfg, tmp_path / "broken", 2)
    train(cfg, tmp_path / "broken", resume=True)
    train(cfg, tmp_path / "run")
    one, other = (lreid.load_model(tmp_path / each).state_dict() for each in ("broken", "run"))
    assert all(torch.equal(one[name], other[name]) for name in other)


class Near(DMMLFineTuning):
    """A method without a name."""


@pytest.mark.slow
def test_classes_and_samplers_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "_registered", {})
    monkeypatch.chdir(tmp_path)
    drawn = []

    def pairs(method: Any, task: Any, records: Sequence[Any], exemplars: Any) -> EpisodeSampler:
        drawn.append(type(method).__name__)
        return EpisodeSampler([each.pid for each in records], identities=3, num_support=1, num_query=1)

    keys = dict(leaves(tiny_config(FEW, ONE_TASK)))
    monkeypatch.setitem(OPTIMIZERS, "RMSprop", None)
    monkeypatch.delitem(OPTIMIZERS, "RMSprop")
    given = {"method": Near, "optimizer": torch.optim.RMSprop, "sampler": pairs}
    results = lreid.train({key: value for key, value in keys.items() if key[:7] != "METHOD."}, "run", **given)
    assert (results["method"], results["config"]["TRAIN.OPTIMIZER"]) == ("Near", "RMSprop")
    assert set(drawn) == {"Near"} and results["images_trained"] == 4 * 6  # 12 people in batches of 3 x 2
    again = lreid.train(tiny_config(FEW, ONE_TASK), method="lwf")
    assert again["method"] == "lwf" and Path("runs/synthetic-10-lwf-seed0/results.json").exists()


def test_a_compiler_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile(module: nn.Module) -> None:
        def call(images: torch.Tensor) -> None:
            raise torch._dynamo.exc.BackendCompilerFailed(compile, RuntimeError("no compiler"), None)

        module._compiled_call_impl = call

    monkeypatch.setattr(nn.Module, "compile", compile)
    with pytest.raises(InputError, match="^TRAIN.COMPILE: "):
        train(tiny_config(FEW, TRAIN__COMPILE=True), tmp_path / "run")


@pytest.mark.parametrize(
    "term", [None, 0.5, torch.ones(3), torch.ones(()), torch.tensor(torch.nan, requires_grad=True)], ids=str
)
def test_a_faulty_term_is_named_with_its_batch(term: Any) -> None:
    class Faulty(Quadratic):
        def loss(self, batch: Batch) -> dict[str, Any]:
            return super().loss(batch) | {"mine": term}

    updates = Updates(Faulty(Embedder("few", height=32, width=16)), TrainSection())
    with pytest.raises(InputError, match="mine") as error:
        updates.update([Batch(torch.zeros(2, 3, 32, 16), torch.zeros(2), 1, paths=("a.jpg", "b.jpg"))])
    assert "a.jpg" in f"{error.value} {getattr(error.value, 'paths', '')}"


def test_a_term_may_be_zero_without_a_gradient() -> None:
    class Zero(Quadratic):
        def loss(self, batch: Batch) -> dict[str, Any]:
            return super().loss(batch) | {"mine": torch.zeros(())}

    updates = Updates(Zero(Embedder("few", height=32, width=16)), TrainSection())
    updates.update([Batch(torch.zeros(2, 3, 32, 16), torch.zeros(2), 1)])
