"""Adapted statistics against those computed by hand, layer by layer."""

import numpy as np
import pytest
import torch
from torch import nn

from lreid.errors import InputError
from lreid.models import Embedder
from lreid.models.adapt import norm_statistics


class TwoLayers(nn.Module):
    """Convolution, BatchNorm, ReLU, BatchNorm, dropout: small enough to follow by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.first, self.second = (nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4), nn.BatchNorm2d(4))
        self.dropout = nn.Dropout(0.5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.second(torch.relu(self.first(self.conv(images)))))


def embedder() -> Embedder:
    torch.manual_seed(0)
    model = Embedder("small", height=4, width=2)
    model.backbone, model.dim = TwoLayers(), 4
    with torch.no_grad():
        for layer in (model.backbone.first, model.backbone.second):
            layer.weight.uniform_(0.5, 2), layer.bias.uniform_(-1, 1)
            layer.running_mean.uniform_(-1, 1), layer.running_var.uniform_(0.5, 2)
    return model


def noise_images(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 4, 2, 3), dtype=np.uint8)


def statistics_by_hand(model: Embedder, images: np.ndarray, batches: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Mean over batches of each batch's mean and unbiased variance, in float64."""
    net = model.backbone
    mean, std = (buffer.double().numpy().reshape(3) for buffer in (model.mean, model.std))
    kernel = net.conv.weight.detach().numpy().astype(np.float64)[:, :, 0, 0]
    sums = {
        f"backbone.{layer}.running_{what}": np.zeros(4) for layer in ("first", "second") for what in ("mean", "var")
    }
    for batch in batches:
        values = ((images[batch] - mean) / std).reshape(-1, 3) @ kernel.T  # (B·H·W, 4)
        for name in ("first", "second"):
            layer = getattr(net, name)
            centre, spread = values.mean(0), values.var(0)
            sums[f"backbone.{name}.running_mean"] += centre / len(batches)
            sums[f"backbone.{name}.running_var"] += values.var(0, ddof=1) / len(batches)
            weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
            values = np.maximum((values - centre) / np.sqrt(spread + layer.eps) * weight + bias, 0)
    return sums


# the last three: no batch of a single image, which has no variance
CASES = [(6, 128, [6]), (7, 3, [3, 2, 2]), (5, 4, [3, 2]), (5, 2, [3, 2]), (3, 2, [3]), (4, 1, [2, 2])]


@pytest.mark.parametrize(("count", "batch_size", "sizes"), CASES)
def test_statistics_by_hand(count: int, batch_size: int, sizes: list[int]) -> None:
    model, images = embedder(), noise_images(count)
    order = np.random.default_rng(3).permutation(count)
    batches = np.split(order, np.cumsum(sizes)[:-1])
    wanted = statistics_by_hand(model, images, batches)
    found = norm_statistics(model, images, batch_size=batch_size, seed=3)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name] == pytest.approx(array, rel=1e-5, abs=1e-6), name


def test_a_neck_gets_no_batch_of_one_image() -> None:
    model = Embedder("small", height=16, width=8, neck=True)
    images = np.random.default_rng(0).integers(0, 256, (5, 16, 8, 3), dtype=np.uint8)
    statistics = norm_statistics(model, images, batch_size=2)
    assert statistics["neck.running_var"].shape == (model.dim,)


def test_the_model_does_not_change() -> None:
    model, images = embedder().train(), noise_images(6)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    features = model.extract(images)
    statistics = norm_statistics(model, images)
    assert model.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
        assert (name in statistics) == name.endswith(("running_mean", "running_var"))
    assert np.array_equal(model.extract(images), features)


def test_frozen_layers_keep_their_statistics() -> None:
    torch.manual_seed(0)
    model = Embedder("small", height=16, width=8)
    model.freeze(1)
    frozen = {name for name, layer in model.named_modules() if layer in model.frozen_norms}
    assert 0 < len(frozen) < sum(isinstance(layer, nn.BatchNorm2d) for layer in model.modules())
    images = np.random.default_rng(0).integers(0, 256, (8, 16, 8, 3), dtype=np.uint8)
    own = model.state_dict()
    for name, found in norm_statistics(model, images).items():
        assert np.array_equal(found, own[name].numpy()) == (name.rpartition(".")[0] in frozen), name


def test_one_image_and_networks_without_batchnorm_are_refused() -> None:
    model = embedder()
    with pytest.raises(InputError, match="two images"):
        norm_statistics(model, noise_images(1))
    model.backbone = nn.Conv2d(3, 4, 1)
    with pytest.raises(InputError, match="no BatchNorm"):
        norm_statistics(model, noise_images(3))
