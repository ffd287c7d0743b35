"""Adapters change nothing at first, are all that trains, and are merged without changing features."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from vits import IMAGES, SIZE, adapted, features, trunk

from lreid.apps.cli import run_command
from lreid.checkpoint import load_model_state
from lreid.errors import ArgumentError, InputError
from lreid.models import Embedder
from lreid.models.adapters import add_adapter
from lreid.models.adapters.prompts import PromptedAttention

LORA = pytest.param("lora", marks=pytest.mark.slow)  # peft takes five seconds to import
KINDS = pytest.mark.parametrize("kind", ["bottleneck", "prompts", LORA])


def disturb(model: Embedder) -> None:
    """Trains every parameter of the adapter a little, in effect."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for each in model.adapter_parameters():
            each += 0.1 * torch.randn(each.shape, generator=generator)


@KINDS
def test_a_new_adapter_changes_no_features_and_only_it_trains(kind: str) -> None:
    model, plain = adapted(kind), Embedder(trunk(), **SIZE)
    assert torch.equal(features(model), features(plain))
    frozen = {id(each) for each in model.backbone.parameters() if not each.requires_grad}
    assert len(frozen) == len(list(plain.parameters()))
    model.train()(IMAGES).square().sum().backward()
    trained = model.adapter_parameters()
    assert trained and all(each.grad is not None for each in trained)
    disturb(model)
    assert (features(model) - features(plain)).abs().max() > 1e-2


@KINDS
def test_only_the_last_blocks_get_an_adapter(kind: str) -> None:
    model = adapted(kind, adapter_layers=1)
    names = [name for name, each in model.backbone.named_parameters() if each.requires_grad]
    assert names and all("blocks.2." in name for name in names)


@pytest.mark.slow
def test_merged_features_equal_unmerged_ones() -> None:
    model, plain = adapted("lora", adapter_merge=True), Embedder(trunk(), **SIZE)
    disturb(model)
    before = features(model)
    model.merge_adapter()
    torch.testing.assert_close(features(model), before, atol=1e-5, rtol=0)
    disturb(model)
    before = features(model)
    assert torch.equal(features(model), before)
    model.remove_adapter()
    torch.testing.assert_close(features(model), before, atol=1e-5, rtol=0)
    assert model.state_dict().keys() == plain.state_dict().keys()
    kept = adapted("lora")
    disturb(kept)
    state = {name: each.clone() for name, each in kept.state_dict().items()}
    kept.merge_adapter()  # adapter_merge is False
    assert all(torch.equal(each, state[name]) for name, each in kept.state_dict().items())


def test_prompts_against_loops() -> None:
    torch.manual_seed(0)
    attn = timm.layers.Attention(8, num_heads=2, qkv_bias=True).double()
    layer = PromptedAttention(attn, 3).double()
    nn.init.normal_(layer.gates)
    nn.init.normal_(layer.prompts)
    tokens = torch.randn(2, 5, 8, dtype=torch.float64)
    wanted = attn(tokens).detach().clone()
    weight, bias = attn.qkv.weight.detach(), attn.qkv.bias.detach()
    for image in range(2):
        for token in range(5):
            mixed = torch.zeros(8, dtype=torch.float64)
            for head in range(2):
                rows = slice(4 * head, 4 * head + 4)
                query = (weight[:8] @ tokens[image, token] + bias[:8])[rows]
                keys = [(weight[8:16] @ each + bias[8:16])[rows] for each in layer.prompts.detach()]
                values = [(weight[16:] @ each + bias[16:])[rows] for each in layer.prompts.detach()]
                shares = torch.stack([query @ key / 2 for key in keys]).softmax(0)
                seen = sum(share * value for share, value in zip(shares, values, strict=True))
                mixed[rows] = torch.tanh(layer.gates[head]).item() * seen
            wanted[image, token] += attn.proj.weight.detach() @ mixed
    torch.testing.assert_close(layer(tokens).detach(), wanted)


def test_statistics_of_a_frozen_network_do_not_change() -> None:
    class Normed(nn.Module):
        dim = 24

        def __init__(self) -> None:
            super().__init__()
            self.norm, self.inner = nn.BatchNorm2d(3), trunk()

        def forward(self, images: Tensor) -> Tensor:
            return self.inner(self.norm(images))

    model = Embedder(Normed(), adapter="prompts", **SIZE)
    model.train()(IMAGES)
    assert model.backbone.norm.num_batches_tracked == 0


@pytest.mark.parametrize(
    ("backbone", "options", "message"),
    [
        ("small", {"adapter": "lora"}, "adapter is lora, but small"),
        ("vit", {"adapter": "bottleneck", "adapter_size": 25}, "adapter_size is 25.* 24"),
        ("vit", {"adapter": "lora", "adapter_size": 25}, "adapter_size is 25.* 24"),
        ("vit", {"adapter": "prompts", "adapter_size": 0}, "adapter_size is 0"),
        ("vit", {"adapter": "prompts", "adapter_layers": 4}, "adapter_layers is 4.* 3"),
        ("vit", {"adapter": "prompts", "adapter_merge": True}, "adapter_merge is True"),
        ("vit", {"adapter": "lore"}, "adapter is 'lore'.* lora"),
    ],
)
def test_unsupported_adapters_are_refused(backbone: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Embedder(trunk() if backbone == "vit" else backbone, **SIZE, **options)


def test_prompts_need_a_joint_projection() -> None:
    class Separate(nn.Module):
        dim = 3

        def __init__(self) -> None:
            super().__init__()
            self.attn = nn.Sequential(nn.Linear(3, 3))

        def forward(self, images: Tensor) -> Tensor:
            return self.attn(images.mean((2, 3)))

    with pytest.raises(ArgumentError, match="adapter is prompts, but 0.attn"):
        add_adapter(nn.Sequential(Separate()), "prompts", 1, 0, IMAGES[:1], "mine")


def test_state_of_another_adapter_is_refused() -> None:
    state = adapted("bottleneck").state_dict()
    for other in ("prompts", "none"):
        model = adapted(other) if other != "none" else Embedder(trunk(), **SIZE)
        with pytest.raises(InputError, match=f"task-01.pt: .*{other}"):
            load_model_state(model, state, Path("task-01.pt"))


@pytest.mark.parametrize("words", ["MODEL.ADAPTER lora", "MODEL.ADAPTER_SIZE -1", "MODEL.ADAPTER_MERGE True"])
def test_invalid_values_of_keys_end_in_one_line(words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("train", ["--out", str(tmp_path / "run"), *words.split()]) == 2
    (line,) = [each for each in capsys.readouterr().err.splitlines() if "MODEL.ADAPTER" in each]
    assert not (tmp_path / "run" / "checkpoints").exists() and "Traceback" not in line
