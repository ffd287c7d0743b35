"""The networks of class-incremental learning."""

import numpy as np
import pytest
import torch
import torchvision
from torch import Tensor, nn

from lreid.errors import ArgumentError
from lreid.models import Embedder, build_backbone


def numbers(network: nn.Module) -> int:
    return sum(each.numel() for each in network.parameters())


def residual_numbers(stem: int, widths: list[int]) -> int:
    """Parameters of a ResNet-18 with a 3 x 3 stem: two blocks a stage, a shortcut where the width changes."""
    count, before = 27 * stem + 2 * stem, stem
    for width in widths:
        count += 9 * before * width + 3 * 9 * width * width + 4 * 2 * width
        count += before * width + 2 * width if width != before else 0
        before = width
    return count


@pytest.mark.parametrize(
    ("name", "widths"), [("resnet18_cifar", [64, 128, 256, 512]), ("resnet18_reduced", [20, 40, 80, 160])]
)
def test_resnets_for_small_images_have_a_stride_of_8(name: str, widths: list[int]) -> None:
    network = build_backbone(name, size=(32, 32)).eval()
    strides = [tuple(each.stride) for each in network.modules() if isinstance(each, nn.Conv2d)]
    assert sorted(strides) == [(1, 1)] * 14 + [(2, 2)] * 6  # twenty convolutions; three halvings, each with a shortcut
    assert not any(isinstance(each, nn.MaxPool2d) for each in network.modules())
    assert network.dim == widths[-1] and numbers(network) == residual_numbers(widths[0], widths)
    with torch.no_grad():
        assert network(torch.zeros(2, 3, 32, 32)).shape == (2, widths[-1], 4, 4)


@pytest.mark.parametrize(("side", "dim"), [(32, 160), (84, 640), (64, 640)])  # AML_pc: 160 (side // 2 // 2 // 2 // 4)²
def test_reduced_resnet_concatenates_regions_of_4_x_4_positions(side: int, dim: int) -> None:
    model = Embedder("resnet18_reduced", height=side, width=side).eval()
    images = torch.randn(2, 3, side, side)
    with torch.no_grad():
        maps = model.backbone.stages(model.backbone.stem(images)).double().numpy()  # (2, 160, side / 8, side / 8)
        found = model(images).numpy()
    assert model.dim == dim and found.shape == (2, dim)
    regions, expected = round((dim / 160) ** 0.5), []
    for channel in range(160):  # the order of a flattened map
        for y in range(regions):
            expected += [maps[1, channel, 4 * y : 4 * y + 4, 4 * x : 4 * x + 4].mean() for x in range(regions)]
    np.testing.assert_allclose(found[1], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dim", "blocks"), [("resnet34_cifar", 512, 16), ("resnet50_cifar", 2048, 16)])
def test_networks_of_cclis_table_8_have_the_cifar_stem(name: str, dim: int, blocks: int) -> None:
    network = build_backbone(name).eval()
    with torch.no_grad():
        assert network(torch.zeros(1, 3, 32, 32)).shape == (1, dim, 4, 4) and network.dim == dim
    assert network.resnet.conv1.weight.shape == (64, 3, 3, 3) and sum(map(len, network.stages)) == blocks


def test_the_plain_resnet_equals_that_of_torchvision() -> None:
    source = torchvision.models.resnet18().eval()
    network = build_backbone("resnet18_plain").eval()
    network.resnet.load_state_dict(source.state_dict(), strict=False)
    source.fc = nn.Identity()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(network(images).mean((2, 3)), source(images))


def test_blocks_of_the_reduced_resnet_against_their_definition() -> None:
    """A block is relu(x + bn(conv(relu(bn(conv(x))))))."""
    network = build_backbone("resnet18_reduced").eval()
    block = network.stages[0][1]
    maps = torch.randn(2, 20, 8, 8)

    def convolved(values: Tensor, weight: Tensor) -> Tensor:
        return torch.nn.functional.conv2d(values, weight, padding=1)

    with torch.no_grad():
        inner = block.bn1(convolved(maps, block.conv1.weight)).clamp(min=0)
        expected = (maps + block.bn2(convolved(inner, block.conv2.weight))).clamp(min=0)
        torch.testing.assert_close(block(maps.clone()), expected)


def test_the_network_for_digits() -> None:
    network = build_backbone("digits")
    assert numbers(network) == 20 * (3 * 25 + 1) + 50 * (20 * 25 + 1) + 500 * (50 * 16 + 1)
    model = Embedder("digits", height=28, width=28)
    assert model(torch.randn(3, 3, 28, 28)).shape == (3, 500)
    with pytest.raises(ArgumentError, match="digits.* 32 x 28"):
        network(torch.zeros(1, 3, 32, 28))
