"""Layers by depth, with their learning rates, and BoT's neck."""

import copy

import pytest
import timm
import torch
from family import batches, task_of, train
from torch import nn

from lreid.config_keys import TrainSection
from lreid.errors import ArgumentError
from lreid.methods import build_method
from lreid.models import Embedder, bn_neck, build_backbone, evaluating
from lreid.models.backbones.timm import TimmFeatures
from lreid.models.parts import layers_of
from lreid.training.updates import Updates, parameter_groups


def model(*, neck: bool = False) -> Embedder:
    torch.manual_seed(0)
    return Embedder("small", height=32, width=16, neck=neck)


def vit(depth: int) -> TimmFeatures:
    network = timm.create_model("vit_tiny_patch16_224", depth=depth, embed_dim=24, num_classes=0, img_size=(32, 16))
    return TimmFeatures(network, (32, 16))


def sizes(layers: list[list[nn.Parameter]]) -> list[int]:
    return [sum(each.numel() for each in layer) for layer in layers]


@pytest.mark.parametrize(("network", "count"), [(vit(3), 4), (build_backbone("resnet18"), 6), (nn.Linear(3, 2), 1)])
def test_every_parameter_is_in_one_layer(network: nn.Module, count: int) -> None:
    layers = layers_of(network)
    assert len(layers) == count and sum(sizes(layers)) == sum(each.numel() for each in network.parameters())


def test_a_block_of_a_transformer_is_a_layer() -> None:
    network = vit(2)
    stem, first, last = layers_of(network)
    assert sizes([first]) == sizes([list(network.network.blocks[0].parameters())])
    assert {id(each) for each in network.network.norm.parameters()} < {id(each) for each in last}
    assert id(network.network.pos_embed) in {id(each) for each in stem}


def test_frozen_layers_do_not_change() -> None:
    torch.manual_seed(0)
    frozen = model(neck=True)
    with pytest.raises(ArgumentError, match="frozen_layers is 3.*2"):
        frozen.freeze(3)
    frozen.freeze(1)  # the stem
    before = copy.deepcopy(frozen.state_dict())
    method = build_method("bot_ft", frozen)
    method.begin_task(task_of(0))
    train(method, batches(2))
    method.model.extract(torch.zeros(2, 32, 16, 3, dtype=torch.uint8))  # switches to evaluation mode and back
    train(method, batches(1))
    changed = {name for name, value in frozen.state_dict().items() if not torch.equal(value, before[name])}
    assert not {name for name in changed if name.startswith("backbone.stem")}
    assert {name for name in before if name.startswith("backbone.blocks") and "weight" in name} <= changed


def test_layer_decay_lowers_the_rates_of_early_layers() -> None:
    """Three layers at a decay of 0.5: 1/8, 1/4, 1/2; biases at twice that; a classifier at the whole rate."""
    method = build_method("bot_ft", Embedder(vit(2), height=32, width=16, neck=True))
    method.classifier.grow(4)
    groups = parameter_groups(method, layer_decay=0.5, bias_rate=2.0)
    rates = {id(each): group["rate_factor"] for group in groups for each in group["params"]}
    assert len(rates) == sum(len(group["params"]) for group in groups) == len(list(method.parameters()))
    network = method.model.backbone.network
    found = [
        *(rates[id(each)] for each in (network.pos_embed, network.patch_embed.proj.bias)),
        *(rates[id(network.blocks[place].mlp.fc1.weight)] for place in (0, 1)),
        *(rates[id(each)] for each in (network.blocks[1].mlp.fc1.bias, network.norm.weight)),
        *(rates[id(each)] for each in (method.model.neck.weight, method.classifier.weight)),
    ]
    assert found == [0.125, 0.25, 0.25, 0.5, 1.0, 0.5, 1.0, 1.0]


def test_factors_of_a_method_are_multiplied() -> None:
    method = build_method("fused_ft", model(), later_rate=0.1)
    method.teacher = method.frozen_network()  # the second task
    groups = parameter_groups(method, layer_decay=0.5, bias_rate=1.0)
    rates = {id(each): group["rate_factor"] for group in groups for each in group["params"]}
    assert rates[id(method.classifier.weight)] == 0.1
    assert rates[id(next(method.model.backbone.stem.parameters()))] == pytest.approx(0.025)


def test_updates_use_the_rates_of_layers() -> None:
    method = build_method("bot_ft", model(neck=True))
    updates = Updates(method, TrainSection(OPTIMIZER="sgd", LAYER_DECAY=0.5))
    updates.set_rates(lambda first: 0.4)
    assert {group["lr"] for group in updates.optimizer.param_groups} == {0.1, 0.2, 0.4}
    assert [group["lr"] for group in Updates(method, TrainSection(OPTIMIZER="sgd")).optimizer.param_groups] == [0.0]


@pytest.mark.parametrize("training", [True, False])
def test_evaluating_uses_running_statistics_and_restores_the_mode(training: bool) -> None:
    neck = bn_neck(3).train(training)
    neck.running_mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
    features = torch.randn(4, 3)
    with evaluating(neck):
        seen = neck(features)
    torch.testing.assert_close(seen, (features - torch.tensor([1.0, 2.0, 3.0])) / (1 + neck.eps) ** 0.5)
    with pytest.raises(RuntimeError, match="running_mean"), evaluating(neck):
        neck(torch.zeros(2, 4))
    assert neck.training == training
    assert neck.running_mean.equal(torch.tensor([1.0, 2.0, 3.0]))


def test_the_shift_of_a_neck_is_frozen() -> None:
    neck = bn_neck(3)
    assert [name for name, each in neck.named_parameters() if each.requires_grad] == ["weight"]
    assert neck.bias.equal(torch.zeros(3))
