"""A plug-in: one file that registers a method, backbone, data set, metric, logger and optimiser of your own.

    lreid train --import examples/own_plugin.py METHOD.NAME near MODEL.BACKBONE patches TRAIN.OPTIMIZER sign
    python examples/own_plugin.py    # the same from Python, on the data set "shop" of this file

The file may lie anywhere. Commands import it before they run, and so do the processes that they start.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

import lreid
from lreid.data.datasets import register_dataset
from lreid.data.records import DataSet, Record
from lreid.data.spec import Layout, Spec
from lreid.data.synthetic import draw
from lreid.methods import register
from lreid.methods.dmml_ft import DMMLFineTuning
from lreid.models import register_backbone
from lreid.results import register_metric
from lreid.training.loggers import register_logger
from lreid.training.updates import register_optimizer


@register("near")  # METHOD.NAME
class Near(DMMLFineTuning):
    """DMML, and features that stay near those of the previous model."""

    keeps_teacher = True

    def __init__(self, model, *, strength=0.1, **dmml):  # METHOD.STRENGTH
        super().__init__(model, **dmml)
        self.weights = {"near": strength}

    def loss(self, batch):
        features = self.model(batch.images)
        terms = self.episode_loss(features, batch)
        if self.teacher is not None:
            terms["near"] = (features - self.teacher(batch.images)).square().sum(1).mean()
        return terms


@register_backbone("patches")  # MODEL.BACKBONE
class Patches(nn.Sequential):
    """Features of patches of 4 x 4 pixels: (B, 3, H, W) images to maps (B, 64, H/4, W/4)."""

    dim = 64

    def __init__(self):
        super().__init__(nn.Conv2d(3, 32, 4, 4), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, self.dim, 3), nn.ReLU())


def read_shop(home):
    """Records of the files shop/PERSON_CAMERA_SHOT.png below DATA.ROOT; persons 0 to 7 are for training."""
    rows = [(str(file), *map(int, file.stem.split("_"))) for file in sorted(home.glob("*.png"))]
    people = [(Record(path, person, camera), shot) for path, person, camera, shot in rows]
    train = [record for record, _ in people if record.pid < 8]
    query = [record for record, shot in people if record.pid >= 8 and shot == 0]
    gallery = [record for record, shot in people if record.pid >= 8 and shot > 0]
    return DataSet("shop", tuple(train), tuple(query), tuple(gallery))


register_dataset(Spec(name="shop", read=read_shop, title="Shop", layout=Layout(["shop"])))  # BENCHMARK.TRAIN

# Mean reciprocal rank of the first match; an array has one value per query, NaN without a match.
register_metric("mrr", lambda ranked: np.array([1 / each[0] if len(each) else np.nan for each in ranked.ranks]))


@register_logger("lines")  # TRAIN.LOGGERS
class Lines:
    """Append all values to lines.txt in the run folder."""

    def __init__(self, folder, config):
        self.path = folder / "lines.txt"

    def scalars(self, values, step, axis):
        with open(self.path, "a", encoding="utf-8") as file:
            file.writelines(f"{axis} {step}: {name} {value}\n" for name, value in values.items())

    def close(self):
        pass


@register_optimizer("sign")  # TRAIN.OPTIMIZER
class Sign(torch.optim.Optimizer):
    """Change every weight by the learning rate, in the direction of its gradient's sign (signSGD)."""

    def __init__(self, groups, lr, weight_decay):
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    each -= group["lr"] * (each.grad + group["weight_decay"] * each).sign()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "shop").mkdir()
        for person in range(12):
            for camera in (1, 2):
                for shot in range(3):
                    image = draw(f"synthetic:market/0/{100 * person}/{camera}/{shot}")
                    Image.fromarray(image).save(Path(folder) / "shop" / f"{person}_{camera}_{shot}.png")
        keys = {
            "DATA.ROOT": folder,
            "BENCHMARK.NAME": "shop",
            "BENCHMARK.TRAIN": ["shop"],
            "BENCHMARK.TASKS_PER_DATASET": 2,
            "EPISODE.IDENTITIES": 4,
            "EPISODE.SUPPORT": 2,
            "INPUT.HEIGHT": 32,
            "INPUT.WIDTH": 16,
            "MODEL.BACKBONE": "patches",
            "TRAIN.EPOCHS": 3,
            "TRAIN.LOGGERS": ["lines"],
        }
        results = lreid.train(keys, Path(folder) / "run", method="near", optimizer="sign")
        logged = (Path(folder) / "run" / "lines.txt").read_text()
    print(f"mAP {results['mAP'][-1][0]:.1f}, mean reciprocal rank {results['mrr'][-1][0]:.1f}")
