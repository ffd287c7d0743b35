"""fast-reid's ResNet-50, and its checkpoints of three ages."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lreid
from lreid.errors import ArgumentError, InputError
from lreid.models import Embedder, build_backbone
from lreid.models.backbones.fastreid import LearnedGeM, NonLocal
from lreid.models.state_dicts import read_state_dict
from lreid.models.weights import Weights, load_neck

AGES: dict[str, dict[str, str]] = {  # names of neck and classifier in the versions of fast-reid
    "2020": {"neck.": "heads.bnneck.", "classifier": "heads.classifier.weight"},
    "2021": {"neck.": "heads.bottleneck.0.", "classifier": "heads.classifier.weight"},
    "since": {"neck.": "heads.bottleneck.0.", "classifier": "heads.weight"},
}


class Tiny(nn.Module):
    """A network with the pooling of fast-reid's head."""

    dim = 4

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.pool = nn.Conv2d(3, 4, 3), LearnedGeM()

    def forward(self, images: Tensor) -> Tensor:
        return self.pool(self.conv1(images))


def checkpoint(model: Embedder, age: str) -> dict[str, Any]:
    """A model as fast-reid writes it, with the state of its optimizer beside."""
    state = {}
    for key, value in model.state_dict().items():
        key = key.replace("backbone.pool.", "heads.pool_layer.")
        state[key.replace("neck.", AGES[age]["neck."])] = value
    if age == "2021":
        state["heads.bnneck.num_batches_tracked"] = torch.tensor(5)
    state |= {AGES[age]["classifier"]: torch.zeros(7, model.dim), "pixel_mean": torch.zeros(1, 3, 1, 1)}
    return {"model": state, "optimizer": {"state": {}}, "iteration": 3}


def randomised(model: Embedder) -> Embedder:
    generator = torch.Generator().manual_seed(0)
    for key, value in model.state_dict().items():
        if value.is_floating_point() and not key.endswith("bias"):
            value.copy_(torch.rand(value.shape, generator=generator) * 0.2 + (3 if key.endswith("pool.p") else 0.05))
    return model.eval()


@pytest.mark.parametrize("age", AGES)
def test_backbone_exponent_and_neck_of_every_age(tmp_path: Path, age: str) -> None:
    theirs = randomised(Embedder(Tiny(), neck=True))
    torch.save(checkpoint(theirs, age), tmp_path / "w.pth")
    weights = Weights("w.pth", read_state_dict(tmp_path / "w.pth"), "batch")
    ours = Embedder(Tiny(), weights, neck=True)
    load_neck(ours.neck, weights)
    for key, value in ours.state_dict().items():
        if not key.endswith("num_batches_tracked"):
            assert torch.equal(value, theirs.state_dict()[key]), key


def test_a_checkpoint_without_a_neck_is_refused() -> None:
    weights = Weights("w.pth", dict(nn.Conv2d(3, 4, 3).state_dict()), "batch")
    with pytest.raises(InputError, match="w.pth: "):
        load_neck(nn.BatchNorm1d(4), weights)


def test_non_local_is_the_sum_over_all_positions() -> None:
    torch.manual_seed(0)
    layer = NonLocal(3).double().eval()
    nn.init.normal_(layer.W[1].weight)
    maps = torch.randn(2, 3, 2, 5, dtype=torch.float64)
    with torch.no_grad():
        g, theta, phi = (each(maps).flatten(2)[:, 0] for each in (layer.g, layer.theta, layer.phi))  # (2, 10)
        expected = maps.clone()
        for image in range(2):
            seen = torch.zeros(10, dtype=torch.float64)
            for here in range(10):
                for there in range(10):
                    seen[here] += theta[image, here] * phi[image, there] * g[image, there] / 10
            expected[image] += layer.W(seen.view(1, 1, 2, 5))[0]
        torch.testing.assert_close(layer(maps), expected)


def test_unknown_names_are_refused() -> None:
    for name in ("resnet50_gem_nl", "resnet101", "resnet50_"):
        with pytest.raises(ArgumentError, match=f"fastreid:{name} "):
            build_backbone(f"fastreid:{name}")


@pytest.mark.slow
def test_an_sbs_model_loads_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file like veri_sbs_R50-ibn loads; a file of a BoT model is refused."""
    monkeypatch.setenv("LREID_ZOO_CACHE", str(tmp_path))
    entry = "fastreid-sbs-r50-ibn-market1501"
    theirs = Embedder("fastreid:resnet50_nl_gem", height=384, width=128, neck=True, norm="ibn_a").eval()
    theirs.backbone.pool.p.data.fill_(2.5)
    theirs.neck.running_mean.uniform_()
    torch.save(checkpoint(theirs, "2021"), tmp_path / f"{entry}.pth")
    ours = lreid.load_model(f"zoo:{entry}")
    assert (ours.height, ours.width, ours.dim) == (384, 128, 2048)
    images = torch.rand(1, 3, 64, 32)
    with torch.no_grad():
        torch.testing.assert_close(ours.neck(ours(images)), theirs.neck(theirs(images)))
        assert theirs.backbone.layer3(torch.rand(1, 512, 8, 4)).shape == (1, 1024, 4, 2)
    (tmp_path / f"{entry}.pth.sha256").unlink()
    torch.save(checkpoint(Embedder("fastreid:resnet50", neck=True, norm="ibn_a"), "since"), tmp_path / f"{entry}.pth")
    with pytest.raises(InputError, match=f"^zoo:{entry}: .* missing .*NL_2"):
        lreid.load_model(f"zoo:{entry}")
