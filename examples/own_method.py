"""Define your own lifelong method, and compare it with fine-tuning on the built-in benchmark.

    python examples/own_method.py

The class may be in a notebook cell, as here, or in a file of lreid/methods, where it needs no decorator.
"""

import tempfile
from pathlib import Path

import torch

from lreid.config import load_config
from lreid.methods import register
from lreid.methods.dmml_ft import DMMLFineTuning
from lreid.training.run import train


@register("stay_near")  # METHOD.NAME
class StayNear(DMMLFineTuning):
    """DMML, and features that stay near those of the model before this task.

    Args:
        model: the network, with ``model.dim`` features.
        strength: factor of the second term; METHOD.STRENGTH in a config.
        dmml: options of DMMLFineTuning.
    """

    keeps_teacher = True  # from the second task on self.teacher is the network as it was before, frozen

    def __init__(self, model, *, strength: float = 1.0, **dmml):
        super().__init__(model, **dmml)
        self.weights = {"near": strength}

    def loss(self, batch):
        features = self.model(batch.images)  # (B, dim)
        terms = self.episode_loss(features, batch)
        if self.teacher is not None:
            with torch.no_grad():
                old = self.teacher(batch.images)  # (B, dim)
            terms["near"] = (features - old).square().sum(1).mean()
        return terms


# Any key of lreid/config_keys.py. Two tasks of 16 people, a few seconds; leave these out for the whole benchmark.
short = """SYNTHETIC.TRAIN_IDENTITIES 32 SYNTHETIC.TEST_IDENTITIES 12 SYNTHETIC.DISTRACTORS 12
    SYNTHETIC.IMAGES_PER_IDENTITY 5 BENCHMARK.TASKS_PER_DATASET 2 EPISODE.IDENTITIES 8 EPISODE.SUPPORT 3
    TRAIN.EPOCHS 5 INPUT.HEIGHT 32 INPUT.WIDTH 16 DEVICE cpu"""

runs = {}
for name, options in (("dmml_ft", []), ("stay_near", ["METHOD.STRENGTH", "0.1"])):
    cfg = load_config(overrides=["METHOD.NAME", name, *options, *short.split()])
    with tempfile.TemporaryDirectory() as run:  # use a permanent folder to keep the results and the checkpoints
        results = runs[name] = train(cfg, Path(run))
    first, second = (row[0] for row in results["mAP"])  # one row per task, one column per test set
    print(f"{name}: mAP {first:.1f} after the first task, {second:.1f} after the second")
    terms = results["loss_history"][-1]  # of the last epoch
    print("    " + ", ".join(f"{term} {terms[term]:.3f}" for term in ("dmml", "near") if term in terms))
