"""Shapes, strides and weights of the backbones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torchvision

from lreid.errors import InputError
from lreid.models import build_backbone


@pytest.mark.parametrize(
    ("name", "dim", "shape"),
    [
        ("small", 256, (8, 4)),
        ("resnet18", 512, (4, 2)),
        ("resnet34", 512, (4, 2)),
        ("resnet50", 2048, (4, 2)),
        ("resnet101", 2048, (4, 2)),
    ],
)
def test_the_last_stage_has_no_stride(name: str, dim: int, shape: tuple[int, int]) -> None:
    network, width = build_backbone(name)
    with torch.no_grad():
        maps = network.eval()(torch.zeros(2, 3, 64, 32))
    assert width == dim and maps.shape == (2, dim, *shape)  # 1/8 for the small one, 1/16 for the others


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_plain_torchvision_weights_load(tmp_path: Path, name: str) -> None:
    source = torchvision.models.get_model(name)
    torch.save(source.state_dict(), tmp_path / "weights.pth")
    network, _ = build_backbone(name, str(tmp_path / "weights.pth"))
    assert torch.equal(network.resnet.layer4[1].conv1.weight, source.layer4[1].conv1.weight)


def test_the_same_features_as_torchvision_but_for_the_stride() -> None:
    source = torchvision.models.resnet50().eval()
    network, _ = build_backbone("resnet50")
    network.resnet.load_state_dict(source.state_dict(), strict=False)
    images = torch.randn(2, 3, 64, 32)
    for module in (network.eval().resnet.layer4[0].conv2, network.resnet.layer4[0].downsample[0]):
        module.stride = (2, 2)  # put back for the comparison
    source.fc = torch.nn.Identity()
    with torch.no_grad():
        torch.testing.assert_close(network(images).mean((2, 3)), source(images))


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    torch.save(torchvision.models.resnet34().state_dict(), tmp_path / "r34.pth")
    with pytest.raises(
        InputError, match=r"r34.pth: does not fit this backbone: .*missing .*set MODEL.BACKBONE"
    ):
        build_backbone("resnet50", str(tmp_path / "r34.pth"))


def test_bad_names() -> None:
    with pytest.raises(InputError, match="unknown backbone 'resnet5'; the nearest known one is resnet50"):
        build_backbone("resnet5")
    with pytest.raises(InputError, match="no ImageNet weights"):
        build_backbone("small", "imagenet")
    with pytest.raises(InputError, match="gone.pth: no such file"):
        build_backbone("resnet18", "gone.pth")


def test_no_network_says_where_to_get_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("Connection refused")

    monkeypatch.setattr(torchvision.models, "get_model", refuse)
    with pytest.raises(InputError, match=r"fetch https://.*resnet50.*\.pth elsewhere and set MODEL.WEIGHTS"):
        build_backbone("resnet50", "imagenet")


def test_torchreid_networks_are_adapted() -> None:
    pytest.importorskip("torchreid")
    network, dim = build_backbone("torchreid:osnet_x0_25")
    images = torch.zeros(2, 3, 64, 32)
    assert network.train()(images).shape == network.eval()(images).shape == (2, dim)
    with pytest.raises(InputError, match="torchreid:osnet_x9"):
        build_backbone("torchreid:osnet_x9")
