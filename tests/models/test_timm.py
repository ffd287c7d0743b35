"""Networks of timm: sizes, tokens and maps, weights, and what is refused. Nothing is downloaded."""

from pathlib import Path

import pytest
import timm
import torch
from family import train
from fusing import steps_of
from safetensors.torch import save_file
from synthetic_tasks import synthetic_task
from torch import Tensor, nn

from lreid.build import resolved
from lreid.config import load_config
from lreid.errors import ArgumentError, InputError
from lreid.methods import build_method, method_class, method_names
from lreid.methods.start import Start
from lreid.models import Embedder, backbones, build_backbone, register_backbone
from lreid.models.backbones.timm import TimmFeatures

IMAGES = torch.randn(2, 3, 64, 32, generator=torch.Generator().manual_seed(0))


def vit(size: tuple[int, int] = (64, 32), **options: object) -> nn.Module:
    return timm.create_model("vit_tiny_patch16_224", depth=1, embed_dim=24, num_classes=0, img_size=size, **options)


def features_of(network: nn.Module, images: Tensor = IMAGES) -> Tensor:
    with torch.no_grad():
        return network.eval()(images)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("test_vit", (2, 64)),
        ("test_efficientnet", (2, 256, 4, 2)),  # without its last stride
        ("test_resnet", (2, 96, 2, 1)),
        ("test_convnext", (2, 64, 2, 1)),
        ("test_mambaout", (2, 64, 2, 1)),  # channels last in timm
        ("vit_small_patch16_dinov3", (2, 384)),
    ],
)
def test_transformers_return_vectors_and_others_maps(name: str, shape: tuple[int, ...]) -> None:
    network = build_backbone(f"timm:{name}", size=(64, 32))
    assert network.dim == shape[1] and features_of(network).shape == shape


def test_swin_returns_maps() -> None:
    swin = timm.models.SwinTransformer(
        img_size=(64, 32), embed_dim=8, depths=(1, 1), num_heads=(1, 2), window_size=4, num_classes=0
    )
    network = TimmFeatures(swin, (64, 32))
    maps = features_of(network)
    assert maps.shape == (2, 16, 8, 4)
    torch.testing.assert_close(maps.mean((2, 3)), features_of(swin))  # which pools them


def test_features_equal_those_of_timm() -> None:
    for pooling, index in (("class", lambda tokens: tokens[:, 0]), ("patches", lambda tokens: tokens[:, 1:].mean(1))):
        network = vit().eval()
        model = Embedder(TimmFeatures(network, (64, 32)), pooling=pooling, height=64, width=32)
        with torch.no_grad():
            torch.testing.assert_close(model.eval()(IMAGES), index(network.forward_features(IMAGES)))


def test_pooling_of_missing_tokens_is_refused() -> None:
    means = TimmFeatures(vit(class_token=False, global_pool="avg"), (64, 32))
    for backbone, pooling in ((means, "class"), ("small", "patches"), ("timm:test_resnet", "patches")):
        with pytest.raises(ArgumentError, match=f"pooling is {pooling}"):
            Embedder(backbone, pooling=pooling, height=64, width=32)


def test_position_embeddings_are_resampled(tmp_path: Path) -> None:
    """A grid of 4 x 4 becomes one of 4 x 2; the embedding of the class token is kept."""
    source, target = vit((64, 64)), TimmFeatures(vit((64, 32)), (64, 32))
    rows = torch.arange(4.0)[:, None, None].expand(4, 4, 24)  # changes from top to bottom alone
    state = source.state_dict()
    state["pos_embed"] = torch.cat([torch.full((1, 1, 24), 7.0), rows.reshape(1, 16, 24)], 1)
    state["head.weight"] = torch.zeros(5, 24)  # a classifier, which is left out
    save_file(state, tmp_path / "vit.safetensors")
    model = Embedder(target, str(tmp_path / "vit.safetensors"), height=64, width=32)
    found = model.backbone.network.pos_embed.detach()
    assert found.shape == (1, 9, 24) and torch.equal(found[:, 0], torch.full((1, 24), 7.0))
    grid = found[0, 1:].view(4, 2, 24)
    torch.testing.assert_close(grid[:, 0], grid[:, 1])
    torch.testing.assert_close(grid[:, 0, 0], torch.arange(4.0), atol=0.3, rtol=0)
    assert torch.equal(model.backbone.network.blocks[0].attn.qkv.weight, source.blocks[0].attn.qkv.weight)


def test_a_checkpoint_of_lreid_initialises_only_networks_of_its_size(tmp_path: Path) -> None:
    model = Embedder(TimmFeatures(vit((128, 32)), (128, 32)), height=128, width=32, neck=True)
    torch.save({"format": 1, "model": model.state_dict(), "method": {}, "config": ""}, tmp_path / "task-01.pt")
    same = Embedder(TimmFeatures(vit((128, 32)), (128, 32)), str(tmp_path / "task-01.pt"), height=128, width=32)
    assert torch.equal(same.backbone.network.pos_embed, model.backbone.network.pos_embed)
    with pytest.raises(InputError, match=r"shape \(network.pos_embed.*input size"):
        Embedder(TimmFeatures(vit((64, 32)), (64, 32)), str(tmp_path / "task-01.pt"), height=64, width=32)


@pytest.mark.parametrize("name", ["timm:test_vit", "timm:test_resnet"])
def test_weights_of_another_architecture_are_refused(tmp_path: Path, name: str) -> None:
    torch.save(timm.create_model("test_convnext").state_dict(), tmp_path / "convnext.pth")
    with pytest.raises(InputError, match=r"convnext.pth[^\n]*$"):
        build_backbone(name, str(tmp_path / "convnext.pth"), size=(64, 32))


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("timm:test_vit", (250, 128), "height is 250; .* 240 or 256"),
        ("timm:test_vit", (256, 8), "width is 8; .* 16$"),
        ("timm:nest_tiny", (256, 128), "timm:nest_tiny .*256 x 128"),
        ("timm:vit_bas_patch16_224", (256, 128), "timm:vit_bas_patch16_224 .*timm:vit_base_pat"),
        ("timm:test_vit.openia", (64, 32), "timm:test_vit.openia.* timm:test_vit.r160_in1"),
    ],
)
def test_invalid_networks_and_sizes_are_refused(name: str, size: tuple[int, int], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        build_backbone(name, size=size)


def test_failed_downloads_name_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    make = timm.create_model

    def fail(name: str, pretrained: bool, **options: object) -> nn.Module:
        if pretrained:
            raise OSError("cannot reach the hub")
        return make(name, **options)

    monkeypatch.setattr(timm, "create_model", fail)
    address = "https://huggingface.co/timm/test_vit.r160_in1k/resolve/main/model.safetensors"
    with pytest.raises(ArgumentError, match=f"weights is hub.*download {address}"):
        build_backbone("timm:test_vit", "hub", size=(64, 32))
    with pytest.raises(ArgumentError, match="timm.*none|download https"):
        build_backbone("timm:test_vit_relpos", "hub", size=(64, 32))
    with pytest.raises(ArgumentError, match="weights is imagenet, but timm:test_vit .*hub"):
        build_backbone("timm:test_vit", "imagenet", size=(64, 32))


def test_weights_of_the_hub_determine_the_normalisation() -> None:
    words = ["MODEL.BACKBONE", "timm:vit_base_patch16_clip_224.openai", "MODEL.WEIGHTS", "hub"]
    cfg = resolved(load_config([], words))
    assert cfg.INPUT.MEAN == [0.48145466, 0.4578275, 0.40821073]
    assert resolved(cfg) == cfg  # checkpoints contain resolved configs
    recipe = resolved(load_config(["recipes/clip"]))
    assert recipe.INPUT.MEAN == recipe.INPUT.STD == [0.5] * 3  # set by the config


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transformer of one block, registered as ``MODEL.BACKBONE tokens``."""
    monkeypatch.setattr(backbones, "_registered", {})

    @register_backbone("tokens")
    def build(size: tuple[int, int]) -> nn.Module:
        return TimmFeatures(vit(size), size)


MAPS = {"dkp", "dkp_pp", "patch_kd"}
OTHER_INPUTS = {"contrast_scoring", "gdumb", "pad"}  # other batches, or CLIP
UNTRAINED = {name for name in method_names() if issubclass(method_class(name), Start)}


@pytest.mark.parametrize("name", sorted(set(method_names()) - MAPS - OTHER_INPUTS - UNTRAINED))
def test_methods_of_features_train_transformers(tokens: None, name: str) -> None:
    cls = method_class(name)
    torch.manual_seed(0)
    options = {"style_steps": 1, "style_batch": 2} if name == "dask" else {}
    method = build_method(name, Embedder("tokens", height=32, width=16, neck=cls.neck), **options)
    weight = method.model.backbone.network.blocks[0].attn.qkv.weight
    for index in range(2):
        before = weight.detach().clone()
        method.begin_task(synthetic_task(index))
        steps = [each._replace(paths=[f"{place}" for place in range(12)], views=cls.views) for each in steps_of(index)]
        if cls.views > 1:
            steps = [each._replace(images=torch.cat([each.images, each.images])) for each in steps]
        history = train(method, steps)
        method.finish_task(synthetic_task(index))
        method.end_task(synthetic_task(index))
        assert all(torch.tensor(list(terms.values())).isfinite().all() for terms in history)
        assert not torch.equal(before, weight)


@pytest.mark.parametrize("name", sorted(MAPS))
def test_methods_of_maps_refuse_transformers(tokens: None, name: str) -> None:
    model = Embedder("tokens", height=32, width=16, neck=method_class(name).neck)
    with pytest.raises(ArgumentError, match="^backbone tokens"):
        build_method(name, model)
