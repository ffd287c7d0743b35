"""Shapes, strides and weights of the backbones."""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from open_clip.transformer import VisionTransformer
from safetensors.torch import save_file
from torch import Tensor, nn
from zoo_entries import write_card

import lreid
from lreid.config import load_config
from lreid.errors import ArgumentError, InputError
from lreid.loading import network_of
from lreid.models import Embedder, backbones, build_backbone, register_backbone


def assert_same_tensors(network: nn.Module, wanted: dict[str, Tensor]) -> None:
    for key, value in network.state_dict().items():
        assert torch.equal(value, wanted[key]), key


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dim", "shape"),
    [
        ("small", 256, (8, 4)),
        ("resnet18", 512, (4, 2)),
        ("resnet34", 512, (4, 2)),
        ("resnet50", 2048, (4, 2)),
        ("resnet50_layer3", 1024, (4, 2)),
        ("resnet101", 2048, (4, 2)),
        ("mobilenet_v2", 1280, (4, 2)),
        ("timm:mobilenetv2_100", 1280, (4, 2)),
        ("timm:tf_efficientnet_lite0", 1280, (4, 2)),
    ],
)
def test_the_last_stage_has_no_stride(name: str, dim: int, shape: tuple[int, int]) -> None:
    network = build_backbone(name)
    with torch.no_grad():
        maps = network.eval()(torch.zeros(2, 3, 64, 32))
    assert network.dim == dim and maps.shape == (2, dim, *shape)  # 1/8 for the small one, 1/16 for the others


@pytest.mark.slow
def test_features_equal_those_of_torchvision_except_for_the_stride() -> None:
    source = torchvision.models.resnet50().eval()
    network = build_backbone("resnet50")
    network.resnet.load_state_dict(source.state_dict(), strict=False)
    images = torch.randn(2, 3, 64, 32)
    for module in (network.eval().resnet.layer4[0].conv2, network.resnet.layer4[0].downsample[0]):
        module.stride = (2, 2)  # put back for the comparison
    source.fc = torch.nn.Identity()
    with torch.no_grad():
        torch.testing.assert_close(network(images).mean((2, 3)), source(images))


@pytest.mark.slow
def test_weights_of_a_whole_network_load_without_the_last_stage(tmp_path: Path) -> None:
    source = torchvision.models.resnet50()
    torch.save(source.state_dict(), tmp_path / "weights.pth")
    network = build_backbone("resnet50_layer3", str(tmp_path / "weights.pth")).eval()
    images = torch.randn(1, 3, 64, 32)
    with torch.no_grad():
        stem = source.eval().maxpool(source.relu(source.bn1(source.conv1(images))))
        expected = source.layer3(source.layer2(source.layer1(stem)))
        torch.testing.assert_close(network(images), expected)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], set[str]]:
    caplog.set_level(logging.INFO, logger="lreid")
    advice = ", which the network does not need"
    return lambda: {record.message.split(": ", 1)[1].replace(advice, "") for record in caplog.records}


def test_ignored_and_missing_tensors_are_logged(tmp_path: Path, logged: Callable[[], set[str]]) -> None:
    source = torchvision.models.resnet18()
    state = {key: value for key, value in source.state_dict().items() if key != "bn1.num_batches_tracked"}
    torch.save({"state_dict": {f"module.{key}": value for key, value in state.items()}}, tmp_path / "r18.pth")
    network = build_backbone("resnet18", str(tmp_path / "r18.pth"))
    assert torch.equal(network.resnet.conv1.weight, source.conv1.weight)
    assert logged() == {
        "tensors left out: resnet.fc.bias, resnet.fc.weight",
        "tensors missing: resnet.bn1.num_batches_tracked",
    }


PREFIXES = ("_orig_mod.", "model.", "module.", "backbone.", "student.", "net.", "encoder.", "module._orig_mod.")


@pytest.mark.parametrize("prefix", [*PREFIXES, "_orig_mod.module.", "model.student.backbone.", "net._orig_mod."])
@pytest.mark.parametrize("name", ["small", "resnet18_reduced"])
def test_any_prefix_of_the_names_is_removed(tmp_path: Path, prefix: str, name: str) -> None:
    source = build_backbone(name)
    inner = getattr(source, "inner", "")
    bare = {key.removeprefix(inner): value for key, value in source.state_dict().items()}
    for state in (bare, {f"backbone.{inner}{key}": value for key, value in bare.items()}):
        named = {f"{prefix}{key}": value for key, value in state.items()} | {"head.weight": torch.zeros(2, 2)}
        torch.save(named, tmp_path / "weights.pth")
        assert_same_tensors(build_backbone(name, str(tmp_path / "weights.pth")), source.state_dict())


@pytest.mark.parametrize("nested", [True, False])
def test_two_networks_in_a_file_are_refused(tmp_path: Path, nested: bool) -> None:
    state = build_backbone("small").state_dict()
    both: dict[str, object] = {"student": state, "teacher": state}
    if not nested:
        both = {f"{who}.{key}": value for who in both for key, value in state.items()}
    torch.save(both, tmp_path / "weights.pth")
    with pytest.raises(InputError, match="weights.pth: .*student.*teacher"):
        build_backbone("small", str(tmp_path / "weights.pth"))


def test_an_error_about_other_weights_names_three_tensors_of_the_file(tmp_path: Path) -> None:
    torch.save({f"net.other{number}.weight": torch.zeros(2, 2) for number in range(9)}, tmp_path / "weights.pth")
    with pytest.raises(InputError, match=r"weights.pth: .*missing \(.*net.other0.weight, .*net.other2.w") as error:
        build_backbone("small", str(tmp_path / "weights.pth"))
    assert "other3" not in str(error.value)


@pytest.mark.parametrize(
    "packed",
    [
        lambda one, two: {"model": one, "model_ema": two},
        lambda one, two: {"ema": two, "state_dict": one},
        lambda one, two: {"model": one, "ema": {"module": two, "updates": 3}},
        lambda one, two: {"model": one, "ema": {f"ema_model.{key}": each for key, each in two.items()}},
        lambda one, two: {"model": {f"module.{key}": each for key, each in one.items()}, "teacher": two},
        lambda one, two: one | {"ema": two},
        lambda one, two: one | {f"ema.{key}": each for key, each in two.items()},
    ],
)
def test_file_with_weights_and_their_averages_is_refused(tmp_path, packed):
    one, two = (build_backbone("small").state_dict() for _ in range(2))
    torch.save(packed(one, two), tmp_path / "two.pth")
    with pytest.raises(InputError, match="two.pth: .*(ema|teacher|network)"):
        build_backbone("small", str(tmp_path / "two.pth"))


@pytest.mark.parametrize("key", ["state_dict", "net", "student"])
@pytest.mark.parametrize("name", ["small", {"name": "small"}, {0: torch.zeros(1)}, None])
def test_weights_may_have_any_key_next_to_other_values(tmp_path: Path, name: object, key: str) -> None:
    source = build_backbone("small")
    torch.save({"model": name, key: source.state_dict(), "epoch": 3}, tmp_path / "small.pth")
    assert_same_tensors(build_backbone("small", str(tmp_path / "small.pth")), source.state_dict())


@pytest.mark.parametrize("content", [{"state_dict": None}, {"model": {0: torch.zeros(1)}}, {"epoch": 3}, {}])
def test_files_without_named_tensors_are_refused(tmp_path: Path, content: dict[str, object]) -> None:
    torch.save(content, tmp_path / "empty.pth")
    with pytest.raises(InputError, match="empty.pth"):
        build_backbone("small", str(tmp_path / "empty.pth"))


def test_missing_tensors_and_other_shapes_are_counted(tmp_path: Path, logged: Callable[[], set[str]]) -> None:
    state = torchvision.models.resnet18().state_dict()
    del state["bn1.weight"]
    state["conv1.weight"] = torch.zeros(64, 4, 7, 7)
    torch.save(state, tmp_path / "r18.pth")
    with pytest.raises(InputError, match=r"1 .*missing \(resnet.bn1.weight\); 1 .* shape \(resnet.conv1"):
        build_backbone("resnet18", str(tmp_path / "r18.pth"))
    assert logged() == set()


@pytest.mark.parametrize("source", ["checkpoint", "safetensors", "zoo"])
def test_training_starts_from_the_backbone_of_a_model(
    tmp_path: Path, source: str, logged: Callable[[], set[str]]
) -> None:
    model = Embedder("small", height=64, width=32, neck=True)
    state = model.state_dict()
    weights = str(tmp_path / f"model.{source}")
    if source == "checkpoint":
        torch.save({"format": 1, "model": state, "method": {}, "config": ""}, weights)
    else:
        weights = str(tmp_path / "model.safetensors")
        save_file(state, weights)
    if source == "zoo":
        card = write_card(tmp_path / "model.json", (tmp_path / "model.safetensors").read_bytes())
        card.weights.write_bytes((tmp_path / "model.safetensors").read_bytes())
        weights = f"zoo:{card.file}"
    network = network_of(load_config([], ["MODEL.BACKBONE", "small"]), weights=weights).backbone
    assert_same_tensors(network, {key.removeprefix("backbone."): value for key, value in state.items()})
    assert logged() == {"tensors left out: " + ", ".join(sorted(key for key in state if key.startswith("neck.")))}


def test_half_precision_becomes_single(tmp_path: Path) -> None:
    name = "zoo:dwopp-synthetic-10"
    network = network_of(load_config([], ["MODEL.BACKBONE", "small"]), weights=name)
    assert {value.dtype for value in network.parameters()} == {torch.float32}
    with pytest.raises(InputError, match=f"{name}: .*missing"):
        network_of(load_config([], ["MODEL.BACKBONE", "resnet18"]), weights=name)


@pytest.mark.parametrize("kind", [float, np.float64, np.float32])
def test_checkpoints_of_torchreid_load(tmp_path: Path, kind: type, logged: Callable[[], set[str]]) -> None:
    models = pytest.importorskip("torchreid.reid.models")
    source = models.build_model("osnet_x0_25", num_classes=7, loss="softmax", pretrained=False)
    checkpoint = {"state_dict": source.state_dict(), "epoch": 3, "rank1": kind(0.9), "optimizer": {"state": {}}}
    torch.save(checkpoint, tmp_path / "model.pth.tar-3")
    network = build_backbone("torchreid:osnet_x0_25", str(tmp_path / "model.pth.tar-3"))
    state = network.network.state_dict()
    for key, value in source.state_dict().items():
        assert key.startswith("classifier") or torch.equal(value, state[key]), key
    assert logged() == {"tensors of another shape: network.classifier.bias, network.classifier.weight"}


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("resnet5", "none", "'resnet5'.*resnet50"),
        ("small", "imagenet", "imagenet, but small"),
        ("small", "hub", "hub, but small"),
        ("resnet18", "gone.pth", "gone.pth: no such file"),
        ("resnet18", "", "empty name: no such file"),
        ("torchreid:osnet_x9", "none", "torchreid:osnet_x9"),
    ],
)
def test_unknown_names_are_refused(name: str, weights: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_backbone(name, weights)


@pytest.mark.parametrize("name", ["resnet50", "torchreid:osnet_x1_0", "torchreid:osnet_ain_x1_0"])
def test_failed_downloads_name_the_address(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(torchvision.models, "get_model", fail)
    monkeypatch.setattr("gdown.download", fail)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"imagenet.*\(no route to host\); download https://\S+"):
        build_backbone(name, "imagenet")


def test_networks_of_torchreid_return_only_features() -> None:
    network = build_backbone("torchreid:osnet_x0_25")
    images = torch.zeros(2, 3, 64, 32)
    assert network.train()(images).shape == network.eval()(images).shape == (2, network.dim)


class Patches(nn.Module):
    """A custom network: a linear map of patches."""

    dim = 6

    def __init__(self, imagenet: bool = False) -> None:
        super().__init__()
        self.imagenet = imagenet
        self.conv = nn.Conv2d(3, self.dim, 4, 4)

    def forward(self, images: Tensor) -> Tensor:
        return self.conv(images)  # (B, 6, H/4, W/4)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty registry for one test."""
    monkeypatch.setattr(backbones, "_registered", {})


def test_registered_networks_are_built_by_name(registry: None) -> None:
    assert register_backbone("patches")(Patches) is Patches
    model = Embedder("patches", height=8, width=4)
    assert (model.name, model.dim, model.backbone.imagenet) == ("patches", 6, False)
    images = torch.randn(2, 3, 8, 4)
    torch.testing.assert_close(model(images), model.backbone(images).mean((2, 3)))
    assert build_backbone("patches", "imagenet").imagenet
    with pytest.raises(ArgumentError, match="'patch'.*patches"):
        build_backbone("patch")
    register_backbone("patches")(lambda: nn.Identity())  # as a cell of a notebook that runs twice
    assert isinstance(build_backbone("patches"), nn.Identity)


def test_a_backbone_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("from torch import nn", "def flat():", "    return nn.Flatten()", 'BACKBONES = {"flat": flat}')
    (tmp_path / "flat.py").write_text("\n".join(lines))
    monkeypatch.setattr(backbones, "__path__", [*backbones.__path__, str(tmp_path)])
    assert isinstance(build_backbone("flat"), nn.Flatten)


def test_the_builder_of_a_family_receives_the_rest_of_the_name(registry: None) -> None:
    @register_backbone("wide:")
    def wide(name: str) -> nn.Module:
        network = Patches()
        network.dim = int(name)
        return network

    assert build_backbone("wide:12").dim == 12
    with pytest.raises(ArgumentError, match="'wide'.*wide:"):
        build_backbone("wide")


@pytest.mark.parametrize("name", ["small", "resnet50", "torchreid:"])
def test_names_of_the_package_cannot_be_registered(registry: None, name: str) -> None:
    with pytest.raises(ArgumentError, match=f"name is {name}"):
        register_backbone(name)(Patches)


@pytest.mark.parametrize("outputs", [lambda x: (x, x), lambda x: x[:, :2], lambda x: x.flatten(2), lambda x: None])
def test_outputs_that_differ_from_dim_are_refused(outputs: Callable[[torch.Tensor], object]) -> None:
    class Wrong(nn.Module):
        dim = 3

        def forward(self, images: torch.Tensor) -> object:
            return outputs(images)

    with pytest.raises(ArgumentError, match="backbone Wrong .*3"):
        Embedder(Wrong(), height=8, width=4)(torch.zeros(2, 3, 8, 4))


def test_a_custom_network_needs_no_name(tmp_path: Path) -> None:
    source = Patches()
    torch.save(source.state_dict(), tmp_path / "patches.pth")
    model = Embedder(Patches(), str(tmp_path / "patches.pth"), height=8, width=4, neck=True)
    assert (model.name, model.dim, model.neck.num_features) == ("Patches", 6, 6)
    assert torch.equal(model.backbone.conv.weight, source.conv.weight)
    assert Embedder(nn.Flatten(), dim=96, height=8, width=4).extract(np.zeros((2, 8, 4, 3), np.uint8)).shape == (2, 96)
    with pytest.raises(ArgumentError, match="Flatten"):
        Embedder(nn.Flatten())


@pytest.mark.slow
def test_a_published_osnet_loads_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LREID_ZOO_CACHE", str(tmp_path))
    source = build_backbone("torchreid:osnet_x0_25").eval()
    state = {f"module.{key}": value for key, value in source.network.state_dict().items()}
    state["module.classifier.weight"] = torch.zeros(751, 512)
    content = {"state_dict": state, "epoch": 180, "rank1": np.float64(0.912)}
    torch.save(content, tmp_path / "osnet_x0_25-market1501.pth")
    model = lreid.load_model("zoo:osnet_x0_25-market1501")
    images = torch.randn(2, 3, 64, 32)
    with torch.no_grad():
        torch.testing.assert_close(model(images), source(images))
    assert (model.height, model.width, model.dim) == (256, 128, 512)
    (tmp_path / "osnet_x1_0-market1501.pth").write_bytes((tmp_path / "osnet_x0_25-market1501.pth").read_bytes())
    with pytest.raises(InputError, match="^zoo:osnet_x1_0-market1501: .*shape"):
        lreid.load_model("zoo:osnet_x1_0-market1501")


def test_a_checkpoint_of_transreid_fits_a_vit(tmp_path: Path) -> None:
    """TransReID's backbone has the prefix ``base.``, which a custom network may use for a layer."""
    source = build_backbone("timm:vit_tiny_patch16_224", size=(64, 32)).eval()
    state = {f"base.{key}": value for key, value in source.network.state_dict().items()}
    beside = {"bottleneck.weight": torch.ones(192), "classifier.weight": torch.zeros(751, 192)}
    torch.save(state | beside, tmp_path / "w.pth")
    network = build_backbone("timm:vit_tiny_patch16_224", str(tmp_path / "w.pth"), size=(64, 32)).eval()
    images = torch.randn(2, 3, 64, 32)
    with torch.no_grad():
        torch.testing.assert_close(network(images), source(images))

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Conv2d(3, 4, 3)

    own = Own()
    torch.save(own.state_dict(), tmp_path / "own.pth")
    again = Embedder(Own(), str(tmp_path / "own.pth"), dim=4)
    assert torch.equal(again.backbone.base.weight, own.base.weight)


def test_a_checkpoint_of_clip_reid_fits_a_vit(tmp_path: Path) -> None:
    """Only the image encoder is used, without necks, classifiers, prompts and the text encoder."""
    size = {"image_size": (64, 32), "patch_size": 16, "width": 256, "layers": 10, "heads": 4, "mlp_ratio": 4}
    encoder = VisionTransformer(**size, output_dim=8).eval()
    state = {f"image_encoder.{key}": value for key, value in encoder.state_dict().items()}
    beside = {"bottleneck_proj.weight": torch.ones(8), "text_encoder.transformer.resblocks.0.ln_1.bias": torch.ones(8)}
    torch.save(state | beside | {"prompt_learner.cls_ctx": torch.ones(751, 4, 8)}, tmp_path / "w.pth")
    network = build_backbone("timm:vit_xsmall_patch16_clip_224", str(tmp_path / "w.pth"), size=(64, 32)).eval()
    images = torch.randn(2, 3, 64, 32)
    encoder.proj = None
    with torch.no_grad():
        torch.testing.assert_close(network(images), encoder(images), rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match="w.pth"):
        build_backbone("timm:vit_tiny_patch16_224", str(tmp_path / "w.pth"), size=(64, 32))
