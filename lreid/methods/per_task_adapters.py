"""One adapter per task on a frozen transformer, chosen for each image by the statistics of features."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.methods.bot_ft import BoTFineTuning
from lreid.models.adapters.bank import ROWS
from lreid.models.classifier import GrowingClassifier
from lreid.models.embedder import Embedder
from lreid.models.parts import bn_neck


class PerTaskAdapters(BoTFineTuning):
    """The idea of AdalReID and DASA: every domain trains its own adapter, so that no adapter forgets.

    This is the smallest form of the idea, not the code of either. ``MODEL.ADAPTER`` is trained with the losses of BoT,
    with a neck and a classifier that are discarded after the task. Of each task the network keeps the adapter and the
    mean and variance of each feature of the frozen network over the task's images; it keeps no images and no
    identities. At test time each image takes the adapter of the likeliest task
    (:class:`~lreid.models.adapters.bank.AdapterBank`).
    ``tools/adapter_choice.py`` measures what wrong choices cost.
    """

    finishing = "storing the adapter"
    keeps: ClassVar = {**BoTFineTuning.keeps, "task_neck": "network"}
    neck = False

    def __init__(self, model: Embedder, **bot: Any) -> None:
        super().__init__(model, **bot)
        self.bank = model.store_adapters()
        self.labels = torch.empty(0, dtype=torch.int64)  # of the task, ascending
        self.right = 0.0
        self._new_head()

    def _new_head(self) -> None:
        self.classifier = GrowingClassifier(self.model.dim).to(self.model.mean.device)
        self.task_neck = bn_neck(self.model.dim).to(self.model.mean.device)

    def begin_task(self, task: Task) -> None:
        """Begins an adapter and a head for the identities of the task."""
        self._new_head()
        self.bank.restart()
        self.labels = torch.tensor(task.classes)
        self.classifier.grow(len(task.classes))

    def parameters(self) -> Iterable[Parameter]:
        """The adapter and the head of the task; the optimiser skips frozen weights."""
        return chain(super().parameters(), self.task_neck.parameters())

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """The terms of BoT over the identities of the task."""
        features = self.model(batch.images)  # (B, dim)
        logits = self.classifier(self.task_neck(features))  # (B, identities of the task)
        rows = torch.searchsorted(self.labels, batch.labels)
        return self.softmax_triplet(features, logits, batch._replace(labels=rows))

    def finish_task(self, task: Task) -> None:
        """Stores the adapter, and the statistics of the task's features without an adapter."""
        self.bank.use = -1
        try:
            features = self.features_of(task) / self.model.scale  # (n, dim)
        finally:
            self.bank.use = None
        self.bank.add(features)
        chosen = self.bank.choose(features.to(self.bank.means))
        self.right = (chosen == len(self.bank) - 1).float().mean().item()

    def finishing_images(self, task: Task) -> int:
        """Each image once."""
        return len(task.records)

    def end_task(self, task: Task) -> None:
        """Discards the head."""
        super().end_task(task)
        self._new_head()

    def class_scores(self, features: Tensor) -> None:
        """None: there is no classifier of all identities."""

    def figures(self) -> dict[str, float]:
        """The share of the last task's training images that choose its adapter, as ``own_adapter``."""
        return super().figures() | {"own_adapter": self.right}

    def stored(self, identities: int) -> dict[str, int]:
        """As in the base class; per domain the adapter and the statistics of its features."""
        nbytes = sum(getattr(self.bank, name).nbytes for name in ROWS)
        return super().stored(identities) | {"domain": nbytes // max(len(self.bank), 1)}

    def state_dict(self) -> dict[str, Any]:
        """The head of the current task, in addition to the state of the base classes."""
        head = {"task_neck": self.task_neck.state_dict(), "labels": self.labels, "right": self.right}
        return super().state_dict() | head

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state of :meth:`state_dict`."""
        super().load_state_dict(state)
        self.task_neck.load_state_dict(state["task_neck"])
        self.labels, self.right = state["labels"].cpu(), state["right"]
