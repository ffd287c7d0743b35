"""Adapters for a frozen transformer, one per task; at test time, each image uses the adapter of its likely task."""

from typing import Any, ClassVar

from lreid.data.records import Task
from lreid.methods.bot_ft import TaskHeadFineTuning
from lreid.models.adapters.bank import ROWS
from lreid.models.embedder import Embedder


class PerTaskAdapters(TaskHeadFineTuning):
    """Train a separate adapter for every task, so that later tasks do not change it (the idea of AdalReID and DASA).

    This class is the simplest form of the idea, not the official code of AdalReID or DASA. The adapter
    (``MODEL.ADAPTER``) is trained with the losses of BoT. The neck and the classifier are discarded after the task. For
    each task, the model stores the adapter, and the mean and variance of the task's features without an adapter. The
    model stores no images and no identities. At test time, :class:`~lreid.models.adapters.bank.AdapterBank` chooses the
    adapter of the most likely task for each image. The script ``tools/adapter_choice.py`` measures how much mAP wrong
    choices cost.
    """

    saves: ClassVar = ["right"]
    finishing = "storing the adapter"
    neck = False

    def __init__(self, model: Embedder, **bot: Any) -> None:
        super().__init__(model, **bot)
        self.bank = model.store_adapters()
        self.right = 0.0

    def begin_task(self, task: Task) -> None:
        """Start a new adapter, and a head for the identities of the task."""
        super().begin_task(task)
        self.bank.restart()

    def finish_task(self, task: Task) -> None:
        """Store the adapter, and the statistics of the task's features without an adapter."""
        self.bank.use = -1
        try:
            features = self.features_of(task) / self.model.scale  # (n, dim)
        finally:
            self.bank.use = None
        self.bank.add(features)
        chosen = self.bank.choose(features.to(self.bank.means))
        self.right = (chosen == len(self.bank) - 1).float().mean().item()

    def finishing_images(self, task: Task) -> int:
        """Return the number of images of the task, because each passes through the network once."""
        return len(task.records)

    def figures(self) -> dict[str, float]:
        """Return the share of the last task's training images for which the adapter of that task is chosen."""
        return super().figures() | {"own_adapter": self.right}

    def stored(self, identities: int) -> dict[str, int]:
        """Count bytes like the base class; the bytes per domain are one adapter and its feature statistics."""
        nbytes = sum(getattr(self.bank, name).nbytes for name in ROWS)
        return super().stored(identities) | {"domain": nbytes // max(len(self.bank), 1)}
