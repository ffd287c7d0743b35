"""Shapes, strides and weights of the backbones."""

import logging
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import Tensor, nn
from zoo_entries import write_card

import lreid
from lreid.config import load_config
from lreid.errors import ArgumentError, InputError
from lreid.loading import network_of
from lreid.models import Embedder, backbones, build_backbone, register_backbone


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
    ],
)
def test_the_last_stage_has_no_stride(name: str, dim: int, shape: tuple[int, int]) -> None:
    network = build_backbone(name)
    with torch.no_grad():
        maps = network.eval()(torch.zeros(2, 3, 64, 32))
    assert network.dim == dim and maps.shape == (2, dim, *shape)  # 1/8 for the small one, 1/16 for the others


@pytest.mark.slow
def test_the_same_features_as_torchvision_but_for_the_stride() -> None:
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


@pytest.mark.slow
def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    torch.save(torchvision.models.resnet34().state_dict(), tmp_path / "r34.pth")
    with pytest.raises(InputError, match=r"r34.pth: does not fit this backbone: .*missing .*use the backbone that"):
        build_backbone("resnet50", str(tmp_path / "r34.pth"))


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], set[str]]:
    caplog.set_level(logging.INFO, logger="lreid")
    return lambda: {record.message.split(": ", 1)[1] for record in caplog.records}


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
def test_any_one_prefix_before_the_names_is_stripped(tmp_path: Path, prefix: str, name: str) -> None:
    """Of a bare network, and of a model of lreid, beside tensors of other parts."""
    source = build_backbone(name)
    inner = getattr(source, "inner", "")
    bare = {key.removeprefix(inner): value for key, value in source.state_dict().items()}
    for state in (bare, {f"backbone.{inner}{key}": value for key, value in bare.items()}):
        named = {f"{prefix}{key}": value for key, value in state.items()} | {"head.weight": torch.zeros(2, 2)}
        torch.save(named, tmp_path / "weights.pth")
        network = build_backbone(name, str(tmp_path / "weights.pth"))
        for key, value in network.state_dict().items():
            assert torch.equal(value, source.state_dict()[key]), key


@pytest.mark.parametrize("nested", [True, False])
def test_two_networks_in_a_file_are_refused(tmp_path: Path, nested: bool) -> None:
    state = build_backbone("small").state_dict()
    both: dict[str, object] = {"student": state, "teacher": state}
    if not nested:
        both = {f"{who}.{key}": value for who in both for key, value in state.items()}
    torch.save(both, tmp_path / "weights.pth")
    with pytest.raises(InputError, match="weights.pth: .*student.*teacher"):
        build_backbone("small", str(tmp_path / "weights.pth"))


def test_a_misfit_shows_what_the_file_holds(tmp_path: Path) -> None:
    torch.save({f"net.other{number}.weight": torch.zeros(2, 2) for number in range(9)}, tmp_path / "weights.pth")
    with pytest.raises(InputError, match=r"missing \(.*holds .*net.other0.weight, .*net.other2.weight …") as error:
        build_backbone("small", str(tmp_path / "weights.pth"))
    assert "other3" not in str(error.value)


@pytest.mark.parametrize("key", ["state_dict", "net", "student"])
@pytest.mark.parametrize("name", ["small", {"name": "small"}, {0: torch.zeros(1)}, None])
def test_weights_under_any_one_key_beside_the_name_of_their_model(tmp_path: Path, name: object, key: str) -> None:
    source = build_backbone("small")
    torch.save({"model": name, key: source.state_dict(), "epoch": 3}, tmp_path / "small.pth")
    network = build_backbone("small", str(tmp_path / "small.pth"))
    for key, value in network.state_dict().items():
        assert torch.equal(value, source.state_dict()[key]), key


@pytest.mark.parametrize("content", [{"state_dict": None}, {"model": {0: torch.zeros(1)}}, {"epoch": 3}, {}])
def test_files_without_named_tensors_are_refused(tmp_path: Path, content: dict[str, object]) -> None:
    torch.save(content, tmp_path / "empty.pth")
    with pytest.raises(InputError, match="empty.pth: contains no named tensors, at the top or under model"):
        build_backbone("small", str(tmp_path / "empty.pth"))


def test_a_misfit_is_one_line(tmp_path: Path, logged: Callable[[], set[str]]) -> None:
    state = torchvision.models.resnet18().state_dict()
    del state["bn1.weight"]
    state["conv1.weight"] = torch.zeros(64, 4, 7, 7)
    torch.save(state, tmp_path / "r18.pth")
    with pytest.raises(
        InputError, match=r"1 tensor missing \(resnet.bn1.weight\); 1 tensor of another shape \(resnet.conv1"
    ):
        build_backbone("resnet18", str(tmp_path / "r18.pth"))
    assert logged() == set()  # as it says how many, and which is the first


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
    for key, value in network.state_dict().items():
        assert torch.equal(value, state[f"backbone.{key}"]), key
    assert logged() == {"tensors left out: " + ", ".join(sorted(key for key in state if key.startswith("neck.")))}


def test_half_precision_becomes_single(tmp_path: Path) -> None:
    name = "zoo:dwopp-synthetic-10"
    network = network_of(load_config([], ["MODEL.BACKBONE", "small"]), weights=name)
    assert {value.dtype for value in network.parameters()} == {torch.float32}
    with pytest.raises(InputError, match=f"{name}: does not fit this backbone: .*missing"):
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


def test_bad_names() -> None:
    with pytest.raises(InputError, match="backbone is 'resnet5'; the nearest name is resnet50"):
        build_backbone("resnet5")
    with pytest.raises(ArgumentError, match="weights is imagenet, but small has no ImageNet weights"):
        build_backbone("small", "imagenet")
    with pytest.raises(InputError, match="gone.pth: no such file; name one, none, imagenet"):
        build_backbone("resnet18", "gone.pth")
    with pytest.raises(InputError, match="an empty name: no such file; name one, none, imagenet"):
        build_backbone("resnet18", "")


def test_no_network_says_where_to_get_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("Connection refused")

    monkeypatch.setattr(torchvision.models, "get_model", refuse)
    with pytest.raises(InputError, match=r"https://.*resnet50.*\.pth"):
        build_backbone("resnet50", "imagenet")


def test_torchreid_networks_are_adapted() -> None:
    pytest.importorskip("torchreid")
    network = build_backbone("torchreid:osnet_x0_25")
    images = torch.zeros(2, 3, 64, 32)
    assert network.train()(images).shape == network.eval()(images).shape == (2, network.dim)
    with pytest.raises(InputError, match="torchreid:osnet_x9"):
        build_backbone("torchreid:osnet_x9")


@pytest.mark.parametrize("name", ["osnet_x1_0", "osnet_ain_x1_0"])
def test_weights_of_torchreid_that_cannot_be_downloaded_are_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torchreid")

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr("gdown.download", refuse)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"imagenet.*\(no route to host\); download https://\S+"):
        build_backbone(f"torchreid:{name}", "imagenet")


class Patches(nn.Module):
    """A network of one's own: a linear map of patches."""

    dim = 6

    def __init__(self, imagenet: bool = False) -> None:
        super().__init__()
        self.imagenet = imagenet
        self.conv = nn.Conv2d(3, self.dim, 4, 4)

    def forward(self, images: Tensor) -> Tensor:
        return self.conv(images)  # (B, 6, H/4, W/4)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone afterwards."""
    monkeypatch.setattr(backbones, "_registered", {})


def test_registered_networks_are_built_by_name(registry: None) -> None:
    assert register_backbone("patches")(Patches) is Patches
    model = Embedder("patches", height=8, width=4)
    assert (model.name, model.dim, model.backbone.imagenet) == ("patches", 6, False)
    images = torch.randn(2, 3, 8, 4)
    torch.testing.assert_close(model(images), model.backbone(images).mean((2, 3)))
    assert build_backbone("patches", "imagenet").imagenet
    with pytest.raises(ArgumentError, match="backbone is 'patch'; the nearest name is patches"):
        build_backbone("patch")
    register_backbone("patches")(lambda: nn.Identity())  # a cell that is run twice
    assert isinstance(build_backbone("patches"), nn.Identity)


def test_a_backbone_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("from torch import nn", "def flat():", "    return nn.Flatten()", 'BACKBONES = {"flat": flat}')
    (tmp_path / "flat.py").write_text("\n".join(lines))
    monkeypatch.setattr(backbones, "__path__", [*backbones.__path__, str(tmp_path)])
    assert isinstance(build_backbone("flat"), nn.Flatten)


def test_a_family_is_given_the_rest_of_the_name(registry: None) -> None:
    @register_backbone("wide:")
    def wide(name: str) -> nn.Module:
        network = Patches()
        network.dim = int(name)
        return network

    assert build_backbone("wide:12").dim == 12
    with pytest.raises(ArgumentError, match="backbone is 'wide'; the nearest name is wide:"):
        build_backbone("wide")


@pytest.mark.parametrize("name", ["small", "resnet50", "torchreid:"])
def test_names_of_the_package_are_not_taken(registry: None, name: str) -> None:
    with pytest.raises(ArgumentError, match=f"name is {name}, which is a backbone of lreid"):
        register_backbone(name)


def test_a_network_of_ones_own_needs_no_name(tmp_path: Path) -> None:
    source = Patches()
    torch.save(source.state_dict(), tmp_path / "patches.pth")
    model = Embedder(Patches(), str(tmp_path / "patches.pth"), height=8, width=4, neck=True)
    assert (model.name, model.dim, model.neck.num_features) == ("Patches", 6, 6)
    assert torch.equal(model.backbone.conv.weight, source.conv.weight)
    assert Embedder(nn.Flatten(), dim=96, height=8, width=4).extract(np.zeros((2, 8, 4, 3), np.uint8)).shape == (2, 96)
    with pytest.raises(ArgumentError, match="dim is not given, and Flatten has no attribute dim"):
        Embedder(nn.Flatten())


@pytest.mark.slow
def test_a_published_osnet_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of torchreid's layout: prefixed, with a classifier of its people and a Rank-1 of numpy."""
    pytest.importorskip("torchreid", reason="torchreid is not installed")
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
    with pytest.raises(InputError, match="^zoo:osnet_x1_0-market1501: does not fit this backbone: .* of another shape"):
        lreid.load_model("zoo:osnet_x1_0-market1501")


def test_a_checkpoint_of_transreid_fits_a_vit(tmp_path: Path) -> None:
    """Its backbone below ``base.``, neck and classifier beside; a network of one's own may have a ``base``, too."""
    pytest.importorskip("timm", reason="timm is not installed")
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


class ClipBlock(nn.Module):
    """A layer of CLIP's image encoder, under its names."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        layers = {"c_fc": nn.Linear(dim, 4 * dim), "gelu": nn.GELU(), "c_proj": nn.Linear(4 * dim, dim)}
        self.mlp = nn.Sequential(OrderedDict(layers))

    def forward(self, tokens: Tensor) -> Tensor:
        normed = self.ln_1(tokens)
        tokens = tokens + self.attn(normed, normed, normed, need_weights=False)[0]
        return tokens + self.mlp(self.ln_2(tokens))


class ClipEncoder(nn.Module):
    """CLIP's image encoder as CLIP-ReID has it: a class token, a grid of its own, features behind the last norm."""

    def __init__(self, dim: int, depth: int, heads: int, tokens: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, dim, 16, 16, bias=False)
        self.class_embedding = nn.Parameter(torch.randn(dim))
        self.positional_embedding = nn.Parameter(torch.randn(tokens + 1, dim))
        self.ln_pre, self.ln_post = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.transformer = nn.Module()
        self.transformer.resblocks = nn.Sequential(*(ClipBlock(dim, heads) for _ in range(depth)))
        self.proj = nn.Parameter(torch.randn(dim, 8))

    def forward(self, images: Tensor) -> Tensor:
        patches = self.conv1(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_embedding.expand(len(images), 1, -1), patches], 1) + self.positional_embedding
        return self.ln_post(self.transformer.resblocks(self.ln_pre(tokens)))[:, 0]


def test_a_checkpoint_of_clip_reid_fits_a_vit(tmp_path: Path) -> None:
    """Its image encoder alone: necks, classifiers, prompts and the encoder of text are left out."""
    pytest.importorskip("timm", reason="timm is not installed")
    encoder = ClipEncoder(dim=256, depth=10, heads=4, tokens=8).eval()
    state = {f"image_encoder.{key}": value for key, value in encoder.state_dict().items()}
    beside = {"bottleneck_proj.weight": torch.ones(8), "text_encoder.transformer.resblocks.0.ln_1.bias": torch.ones(8)}
    torch.save(state | beside | {"prompt_learner.cls_ctx": torch.ones(751, 4, 8)}, tmp_path / "w.pth")
    network = build_backbone("timm:vit_xsmall_patch16_clip_224", str(tmp_path / "w.pth"), size=(64, 32)).eval()
    images = torch.randn(2, 3, 64, 32)
    with torch.no_grad():
        torch.testing.assert_close(network(images), encoder(images), rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match=r"w.pth: does not fit this backbone"):
        build_backbone("timm:vit_tiny_patch16_224", str(tmp_path / "w.pth"), size=(64, 32))
