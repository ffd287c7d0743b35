"""Define your own backbone: train it by name like any other, or use it directly.

    python examples/own_backbone.py

The builder may be in a notebook cell, as here, or in a file of lreid/models/backbones.
"""

import tempfile
from pathlib import Path

from torch import nn

from lreid.config import load_config
from lreid.models import Embedder, register_backbone
from lreid.training.run import train


@register_backbone("patches")  # MODEL.BACKBONE
def build_patches() -> nn.Module:
    """Features of patches of 4 x 4 pixels and their surroundings: (B, 3, H, W) images to maps (B, 64, H/4, W/4)."""
    network = nn.Sequential(
        nn.Conv2d(3, 32, 4, stride=4), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU()
    )
    network.dim = 64  # width of the features
    return network


with tempfile.TemporaryDirectory() as folder:
    settings = """MODEL.BACKBONE patches BENCHMARK.TASKS_PER_DATASET 2 TRAIN.EPOCHS 10 TRAIN.LR 1e-3
        EPISODE.IDENTITIES 16 INPUT.HEIGHT 32 INPUT.WIDTH 16 DEVICE cpu
        SYNTHETIC.TRAIN_IDENTITIES 64 SYNTHETIC.TEST_IDENTITIES 20 SYNTHETIC.DISTRACTORS 0"""
    results = train(load_config(overrides=settings.split()), Path(folder) / "run")
for task, row in zip(results["tasks"], results["mAP"], strict=True):
    print(f"after {task}: mAP {row[0]:.1f}")

model = Embedder(build_patches(), height=32, width=16)  # or without a name
features = model.extract(["synthetic:plaza/0/1/1/0", "synthetic:plaza/0/1/2/0"])
print(f"{len(features)} images, {features.shape[1]} numbers each")
