"""Retrace: long steps into a task, and back along the straight way as far as the lesson survives."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.errors import require
from lreid.losses import class_means, linear_combination
from lreid.methods.bot_ft import BoTFineTuning
from lreid.models import Embedder, GrowingClassifier, frozen_copy
from lreid.retrieval import self_retrieval

logger = logging.getLogger("lreid")

LOOKED_AT = 512  # images of a task that are searched among themselves
HALVINGS = 5  # of the way: the place is known to 1/32 of it


class Retrace(BoTFineTuning):
    r"""A method of our own, which keeps nothing between tasks but the network itself.

    A task moves the weights from :math:`w_0` to :math:`w_1`. Past tasks had a minimum near :math:`w_0`, so along the
    straight way :math:`w(\alpha) = w_0 + \alpha (w_1 - w_0)` their loss grows about as :math:`\alpha^2`, while what
    the task taught is mostly there long before the end: the first half of the way back costs the new task little and
    takes away three quarters of what the past ones lose. So the network

    1. learns with **long steps**, ``rate`` times the rate of the run. They go far, and where the way is walked back the
       network has moved in a direction that a short way does not find; a lower rate, which ends as near to
       :math:`w_0`, learns less (docs/retrace.md has that control);
    2. after the last update **goes back** to the least :math:`\alpha` at which it keeps ``keep`` of what the task
       taught. That is measured without any past image: mAP of up to 512 images of the task, whole identities evenly
       drawn, searched among themselves (:func:`~lreid.retrieval.self_retrieval`), between those of :math:`w_0` and of
       :math:`w_1`; the place is found by halving the way five times. BatchNorm's statistics are averaged with the
       weights.

    From random weights the way back costs the lesson at once, so it stays short by itself; a fixed share of 0.5
    (``fused_ft``) then ruins the first tasks. The first task is walked back, too: it may begin with a trained network.

    The losses are those of LSTKC's base (:class:`~lreid.methods.fused_ft.FusedFineTuning`): softmax without label
    smoothing behind a BatchNorm neck, the soft-margin triplet loss before it, where features are compared, and rows
    that begin as the directions of their mean features. Neck and classifier are the task's own and are thrown away with
    it. Replay would bring labels of past tasks, of which the classifier knows nothing: there are no exemplars.

    Args:
        model: the network.
        rate: factor of the learning rate.
        keep: share of what the task taught, in mAP, that the way back leaves; in (0, 1], and 1 is the whole of it.
    """

    keeps: ClassVar = {"began": "network", "task_neck": "network", "classifier": "identity"}
    neck = False

    def __init__(self, model: Embedder, *, rate: float = 4.0, keep: float = 0.95) -> None:
        super().__init__(model, label_smoothing=0.0, soft_margin=True)
        require(rate > 0, "rate", rate, "above 0")
        require(0 < keep <= 1, "keep", keep, "in (0, 1]")
        self.rate, self.keep = rate, keep
        self.began: Embedder | None = None  # the network that the task began with, until its end
        self.first_label = 0
        self.share = 1.0  # alpha of the last task
        self._new_head()

    def _new_head(self) -> None:
        device = self.model.mean.device
        self.classifier = GrowingClassifier(self.model.dim).to(device)
        self.task_neck = nn.BatchNorm1d(self.model.dim).to(device)
        self.task_neck.bias.requires_grad_(False)

    def begin_task(self, task: Task) -> None:
        """Remembers the network, and makes a head for the identities of the task alone."""
        self._new_head()
        self.began = frozen_copy(self.model)
        self.first_label = min(task.classes)
        features = torch.from_numpy(self.model.extract([record.path for record in task.records]))  # (n, dim)
        means, _ = class_means(features, torch.tensor([record.pid for record in task.records]))  # (N, dim)
        self.classifier.grow(len(means))
        with torch.no_grad():
            self.classifier.weight.copy_(F.normalize(means, dim=1))

    def parameters(self) -> Iterable[Parameter] | list[dict[str, Any]]:
        """The network and the head of the task."""
        trained = [*self.model.parameters(), *self.task_neck.parameters(), *self.classifier.parameters()]
        return [{"params": trained, "rate_factor": self.rate}]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Softmax over the identities of the task, and the triplet loss."""
        features = self.model(batch.images)  # (B, dim)
        logits = self.classifier(self.task_neck(features))  # (B, identities of the task)
        return self.softmax_triplet(features, logits, batch._replace(labels=batch.labels - self.first_label))

    def finish_task(self, task: Task) -> None:
        """Walks back as far as the lesson survives."""
        assert self.began is not None
        paths, labels, cameras = _some(task)
        new = {name: value.clone() for name, value in self.model.state_dict().items()}
        old = self.began.state_dict()

        def found(alpha: float) -> float:
            self.model.load_state_dict(linear_combination(new, old, alpha))
            return self_retrieval(self.model.extract(paths), labels, cameras)

        before, after = found(0.0), found(1.0)
        enough = before + self.keep * (after - before)
        too_far, self.share = 0.0, 1.0
        for _ in range(HALVINGS):
            middle = (too_far + self.share) / 2
            if found(middle) >= enough:
                self.share = middle
            else:
                too_far = middle
        self.model.load_state_dict(linear_combination(new, old, self.share))
        logger.info(
            "%s: taught from %.1f to %.1f mAP on its own images, keeps %.2f of the way",
            task.name,
            100 * before,
            100 * after,
            self.share,
        )

    def end_task(self, task: Task) -> None:
        """Throws away the head, and the network that the task began with."""
        super().end_task(task)
        self.began = None
        self._new_head()

    def figures(self) -> dict[str, float]:
        """Share of the way that the last task kept."""
        return super().figures() | {"share": self.share}

    def class_scores(self, features: Tensor) -> None:
        """None: there is no classifier of all identities."""

    def state_dict(self) -> dict[str, Any]:
        """Head and former network of a task at hand, besides what the bases keep."""
        began = None if self.began is None else self.began.state_dict()
        more = {"began": began, "task_neck": self.task_neck.state_dict(), "first_label": self.first_label}
        return super().state_dict() | more | {"share": self.share}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        super().load_state_dict(state)
        self.task_neck.load_state_dict(state["task_neck"])
        self.first_label, self.share = state["first_label"], state["share"]
        self.began = None
        if state["began"] is not None:
            self.began = frozen_copy(self.model)
            self.began.load_state_dict(state["began"])


def _some(task: Task) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Paths, labels and cameras of at most about LOOKED_AT images of a task: all of evenly drawn identities."""
    every = -(-len(task.records) // LOOKED_AT)
    chosen = set(sorted(task.classes)[::every])
    records = [record for record in task.records if record.pid in chosen]
    labels, cameras = (np.array([getattr(record, name) for record in records]) for name in ("pid", "camid"))
    return [record.path for record in records], labels, cameras
