"""An adapter per task: each image takes that of the likeliest task, and nothing of a task changes later."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from family import train as learn
from fusing import steps_of
from synthetic_tasks import synthetic_task
from tiny import tiny_config
from vits import SIZE, adapted, features, trunk

import lreid
from lreid.errors import ArgumentError, InputError
from lreid.export import export
from lreid.methods import build_method
from lreid.methods.per_task_adapters import PerTaskAdapters
from lreid.models import Embedder
from lreid.models.adapters.bank import AdapterBank
from lreid.training.run import train

TRUNK = {"MODEL.BACKBONE": "timm:test_vit", "MODEL.ADAPTER": "bottleneck", "MODEL.ADAPTER_SIZE": 2}


def bank_of_two(kind: str = "bottleneck") -> tuple[Embedder, AdapterBank]:
    """Two tasks whose features differ in their means, with two adapters."""
    model = adapted(kind)
    bank = model.store_adapters()
    plain = features(model)
    for task in range(2):
        bank.restart()
        with torch.no_grad():
            for each in model.adapter_parameters():
                each += 0.1 * torch.randn(each.shape, generator=torch.Generator().manual_seed(task))
        bank.add(plain[task::2].repeat(4, 1) + 0.1 * torch.randn(4 * len(plain[task::2]), plain.shape[1]))
    return model.eval(), bank


@pytest.mark.parametrize("kind", ["prompts", pytest.param("lora", marks=pytest.mark.slow)])
def test_each_image_takes_the_adapter_of_the_likeliest_task(kind: str) -> None:
    model, bank = bank_of_two(kind)
    plain = features(Embedder(trunk(), **SIZE)).double()
    chosen = []
    for row in plain:
        distances = []
        for mean, variance in zip(bank.means.double(), bank.variances.double(), strict=True):
            log_likelihood = torch.distributions.Normal(mean, variance.sqrt()).log_prob(row).sum()
            distances.append(-log_likelihood.item())
        chosen.append(distances.index(min(distances)))
    assert chosen == [0, 1, 0]
    found = features(model)
    for image, task in enumerate(chosen):
        bank.use = task
        torch.testing.assert_close(features(model)[image], found[image], rtol=1e-5, atol=1e-6)
    bank.use = -1
    torch.testing.assert_close(features(model), plain.float())
    assert (found - plain).abs().max() > 1e-2


@pytest.mark.slow
def test_an_exported_bank_chooses_too(tmp_path: Path) -> None:
    model, _ = bank_of_two()
    assert export(model, tmp_path / "bank.pt2", form="torch") < 1e-5
    assert (tmp_path / "bank.pt2").stat().st_size > 0


def test_a_task_leaves_the_adapters_of_others() -> None:
    method = build_method("per_task_adapters", adapted("bottleneck"))
    assert isinstance(method, PerTaskAdapters)
    before = {name: each.clone() for name, each in trunk().state_dict().items()}
    without = Embedder(trunk(), **SIZE)
    values: list[Any] = []
    for index in range(2):
        method.begin_task(synthetic_task(index))
        assert torch.equal(method.bank._current(), method.bank.initial)
        learn(method, steps_of(index))
        method.finish_task(synthetic_task(index))
        method.end_task(synthetic_task(index))
        values.append(method.bank.values[-1].clone())
        plain = torch.from_numpy(without.extract([record.path for record in synthetic_task(index).records]))
        torch.testing.assert_close(method.bank.means[-1], plain.mean(0), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(method.bank.variances[-1], plain.var(0, correction=0), rtol=1e-3, atol=1e-5)
    assert torch.equal(torch.stack(values), method.bank.values) and not torch.equal(*values)
    after = method.bank.network.state_dict()
    assert all(torch.equal(each, after[name.replace(".mlp.", ".mlp.inner.")]) for name, each in before.items())
    assert method.stored(8)["domain"] == 4 * (values[0].numel() + 2 * 24)


@pytest.mark.slow
def test_a_run_loads_and_says_what_wrong_choices_cost(
    tmp_path: Path, run_tool: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = tiny_config(TRUNK, METHOD__NAME="per_task_adapters", TRAIN__EPOCHS=1)
    results = train(cfg, tmp_path / "run")
    model = lreid.load_model(tmp_path / "run")
    assert len(model.backbone) == 3 and 0 <= results["method_figures"]["own_adapter"] <= 1
    capsys.readouterr()
    assert run_tool("adapter_choice.py", str(tmp_path / "run")) in (0, None)
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert float(row["chosen_mAP"]) == pytest.approx(results["mAP"][-1][0], abs=0.01)
    assert float(row["best_mAP"]) >= 0 and 0 <= float(row["share_of_best"]) <= 1


def test_exemplars_are_refused() -> None:
    with pytest.raises(
        ArgumentError, match="exemplars is 4; it must be 0, because the classifier of a task has no rows"
    ):
        build_method("per_task_adapters", adapted("bottleneck"), exemplars=4)


def test_it_needs_an_adapter(tmp_path: Path) -> None:
    cfg = tiny_config(TRUNK, METHOD__NAME="per_task_adapters", MODEL__ADAPTER="none")
    with pytest.raises(InputError, match="MODEL.ADAPTER is 'none'; it must be an adapter, not merged"):
        train(cfg, tmp_path / "run")
