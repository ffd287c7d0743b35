"""Train a method in PyTorch Lightning's training loop, with lreid's augmentation.

    python examples/own_lightning.py

Install lightning first, which lreid itself does not need: pip install lightning
"""

import albumentations as A
import lightning
import torch
from torch.utils.data import DataLoader

from lreid.data.datasets import Sources
from lreid.data.erasing import RandomErasing
from lreid.data.images import Images
from lreid.data.loaders import TaskBatches
from lreid.data.samplers import IdentitySampler
from lreid.data.tasks import build_benchmark
from lreid.data.transforms import Augment
from lreid.evaluation import Evaluator, load_tests
from lreid.methods.lwf import LwF
from lreid.models import Embedder
from lreid.models.inputs import IMAGENET


class Learner(lightning.LightningModule):
    """The hooks that Lightning calls, for one task of a method."""

    def __init__(self, method):
        super().__init__()
        self.method, self.network = method, method.network  # a method is no module, its network is

    def training_step(self, batch, number):
        terms = self.method.loss(batch)  # by name, each a scalar
        self.log_dict(terms, batch_size=len(batch.labels))
        return self.method.total(terms)

    def on_train_batch_end(self, outputs, batch, number):
        self.method.end_step(batch)

    def transfer_batch_to_device(self, batch, device, number):
        return batch.to(device, augment)

    def configure_optimizers(self):
        return torch.optim.Adam(self.method.parameters(), lr=1e-3)


people = {"train_identities": 24, "test_identities": 12, "images_per_identity": 5, "distractors": 0, "seed": 0}
benchmark = build_benchmark("mine", train=["synthetic:plaza", "synthetic:station"], sources=Sources(synthetic=people))
lightning.seed_everything(0)
method = LwF(Embedder("small", height=32, width=16, neck=LwF.neck))
mean, std = IMAGENET
augment = Augment([A.HorizontalFlip(p=0.5), RandomErasing(fill=mean)], mean=mean, std=std)
evaluator = Evaluator(load_tests(benchmark.tests, height=32, width=16))

for task in benchmark:
    images = Images(task.records, height=32, width=16)
    sampler = IdentitySampler(images.pids, identities=8, images=4, passes="images", seed=task.index)
    loader = DataLoader(TaskBatches(images, sampler, augment, epochs=10), batch_size=None)  # all 10 epochs
    method.begin_task(task)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Learner(method), loader)
    method.finish_task(task)
    for test, figures in zip(benchmark.tests, evaluator.evaluate(method.model), strict=True):
        print(f"after {task.name}: {test.name} mAP {figures.metrics['mAP']:.1f}, Rank-1 {figures.metrics['rank1']:.1f}")
    print("    " + ", ".join(f"{name} {term:.2f}" for name, term in trainer.callback_metrics.items()))
    method.end_task(task)
