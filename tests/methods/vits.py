"""A tiny transformer, and embedders that adapt it."""

from typing import Any

import timm
import torch
from torch import Tensor

from lreid.models import Embedder
from lreid.models.backbones.timm import TimmFeatures

IMAGES = torch.randn(3, 3, 32, 16, generator=torch.Generator().manual_seed(0))
SIZE = {"height": 32, "width": 16}


def trunk() -> TimmFeatures:
    torch.manual_seed(0)
    options: dict[str, Any] = {"depth": 3, "embed_dim": 24, "num_classes": 0, "img_size": (32, 16)}
    return TimmFeatures(timm.create_model("vit_tiny_patch16_224", **options), (32, 16))


def adapted(kind: str, **options: Any) -> Embedder:
    return Embedder(trunk(), adapter=kind, adapter_size=4, **SIZE, **options).eval()


@torch.no_grad()
def features(model: Embedder) -> Tensor:
    return model.eval()(IMAGES)
