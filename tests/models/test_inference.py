"""Features by merged layers are those of the network itself."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lreid.errors import ArgumentError
from lreid.loading import load_model
from lreid.models import Embedder
from lreid.models.inference import Inference, merged


def noisy(model: Embedder) -> Embedder:
    """A network whose BatchNorms have statistics and weights of their own."""
    generator = torch.Generator().manual_seed(1)
    for each in model.modules():
        if isinstance(each, nn.BatchNorm2d):
            for tensor in (each.running_mean, each.running_var, each.weight, each.bias):
                assert tensor is not None
                tensor.data.uniform_(0.5, 1.5, generator=generator)
    return model.eval()


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(one.astype(np.float64), axis=1) * np.linalg.norm(other.astype(np.float64), axis=1)
    return (one.astype(np.float64) * other).sum(1) / lengths


def images_of(model: Embedder, count: int = 11) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, model.height, model.width, 3), dtype=np.uint8)


NETWORKS = ["small", "resnet18", "timm:tf_efficientnet_lite0", "timm:mobilenetv2_050", "torchreid:osnet_x0_25"]
NETWORKS_AND_NORMS = [*((each, "batch") for each in NETWORKS), ("resnet18", "ibn_a"), (NETWORKS[2], "ibn_a+grey")]


@pytest.mark.parametrize(("backbone", "norm"), NETWORKS_AND_NORMS)
def test_merged_layers_give_the_features_of_the_network(backbone: str, norm: str) -> None:
    torch.manual_seed(0)
    model = noisy(Embedder(backbone, height=64, width=32, neck=True, norm=norm))
    state = {key: value.clone() for key, value in model.state_dict().items()}
    network = merged(model)
    assert network is not model, "not merged"
    norms = [sum(isinstance(each, nn.BatchNorm2d) for each in one.modules()) for one in (network, model)]
    assert norms[0] < norms[1] / 2
    images = images_of(model)
    assert cosines(network.extract(images, batch_size=3), model.extract(images)).min() >= 0.99999
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())


class Twice(nn.Module):
    """A network that merging would change: the output of its convolution is also used before the norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.dim = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), 8

    def forward(self, images: Tensor) -> Tensor:
        maps = self.conv(images)
        return self.norm(maps) + maps


def test_a_network_that_merging_would_change_is_run_as_it_is() -> None:
    torch.manual_seed(0)
    model = noisy(Embedder(Twice(), height=16, width=8))
    assert merged(model) is model


@pytest.mark.parametrize("size", [(64, 32), (65, 33), (96, 50)])
def test_merged_layers_are_not_used_for_images_of_another_size(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    model = noisy(Embedder("timm:tf_efficientnet_lite0", height=64, width=32))  # whose padding depends on the size
    images = torch.randn(2, 3, *size)
    plain = model.extract(images)
    model.inference = Inference()
    np.testing.assert_allclose(model.extract(images), plain, atol=1e-4 * np.abs(plain).max())


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_a_network_of_another_precision_can_be_merged(kind: torch.dtype) -> None:
    torch.manual_seed(0)
    model = noisy(Embedder("small", height=32, width=16)).to(kind)
    plain = model.extract(images_of(model))
    model.inference = Inference()
    np.testing.assert_allclose(model.extract(images_of(model)), plain, atol=1e-4 * np.abs(plain).max())


def quadrupled(model: Embedder) -> None:
    for _ in range(2):  # the second time, the memory of the first weights would be free
        weights = nn.utils.parameters_to_vector(model.backbone.parameters())
        nn.utils.vector_to_parameters(2 * weights, model.backbone.parameters())


@pytest.mark.parametrize(
    "change",
    [
        torch.no_grad()(lambda model: next(model.parameters()).mul_(1.5)),
        quadrupled,
        lambda model: vars(model).update(height=64, width=32),
        lambda model: vars(model).update(pooling="gem"),
        lambda model: vars(model).update(scale=3.0),
    ],
)
def test_changed_settings_and_weights_change_the_features(change: Callable[[Embedder], object]) -> None:
    torch.manual_seed(0)
    model = noisy(Embedder("small", height=32, width=16))
    model.inference = Inference()
    images = np.random.default_rng(0).integers(0, 256, (3, 70, 40, 3), dtype=np.uint8)
    before = model.extract(images)
    assert model.inference(model) is model.inference(model)
    change(model)
    plain = copy.deepcopy(model)
    plain.inference = None
    wanted = plain.extract(images)
    assert np.abs(wanted - before).max() > 1e-2 * np.abs(before).max()
    np.testing.assert_allclose(model.extract(images), wanted, atol=1e-4 * np.abs(wanted).max())


def test_a_network_in_training_keeps_its_arithmetic() -> None:
    """Figures of runs are those of before, bit for bit."""
    torch.manual_seed(0)
    model = Embedder("small", height=32, width=16)
    assert model.inference is None
    images = images_of(model, 7)
    with torch.inference_mode():
        model.eval()
        wanted = torch.cat([model(model.normalise(torch.from_numpy(part))) for part in (images[:4], images[4:])])
    np.testing.assert_array_equal(model.extract(images, batch_size=4), wanted.numpy())


@pytest.mark.parametrize("device", ["cpu:x", "abacus"])
def test_unknown_devices_are_refused(device: str) -> None:
    with pytest.raises(ArgumentError):
        load_model("zoo:dwopp-synthetic-10", device)
