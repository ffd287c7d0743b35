"""Retrace: long steps into a task, and back along the straight way as far as the lesson survives."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import chain
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import Parameter

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.losses.fusion import linear_combination
from lreid.methods.bot_ft import BoTFineTuning
from lreid.models.classifier import GrowingClassifier
from lreid.models.embedder import Embedder
from lreid.models.neck import bn_neck
from lreid.models.teacher import frozen_copy
from lreid.retrieval import self_retrieval
from lreid.rules import Rule

logger = logging.getLogger("lreid")

LOOKED_AT = 512  # images of a task that are searched among themselves
HALVINGS = 5  # of the way: the place is known to 1/32 of it


class Retrace(BoTFineTuning):
    """A method of our own, which keeps nothing between tasks but the network itself.

    A task moves the weights from ``w0`` to ``w1``. Past tasks had a minimum near ``w0``, so along the straight way
    ``w(alpha) = w0 + alpha (w1 - w0)`` their loss grows about as ``alpha ** 2``, while what the task taught is mostly
    there long before the end. So the network learns with long steps, ``rate`` times the rate of the run, and after the
    last update goes back to the least ``alpha`` that the lesson allows. It is measured without any past image: mAP of
    up to 512 images of the task, all those of identities that are evenly drawn, searched among themselves
    (:func:`~lreid.retrieval.self_retrieval`), at ``w0``, at ``w1``, and where the way is halved, five times. Of what
    the task taught, in mAP, the way back may cost the share ``(1 - keep) mAP(w0)``: the more a network could do before,
    the more there is to lose, and a random one goes back hardly at all. Statistics of BatchNorm are averaged with the
    weights.

    When the task is over, features are compared less ``centre`` times the mean of those 512, which the neck of the
    network holds: three quarters are between LSTKC, which compares them as they are, and BoT, whose neck takes all of
    the mean away.

    The losses are those of LSTKC's base (:class:`~lreid.methods.fused_ft.FusedFineTuning`): softmax without label
    smoothing behind a BatchNorm neck, the soft-margin triplet loss before it, where features are compared, and rows
    that begin as the directions of their mean features. Neck and classifier are the task's own and are thrown away with
    it. There are no exemplars: they would bring labels that such a classifier does not know.

    Args:
        model: the network.
    """

    keeps: ClassVar = {"began": "network", "task_neck": "network", "classifier": "identity"}

    def __init__(
        self,
        model: Embedder,
        *,
        rate: Annotated[float, Rule("factor of the learning rate", above=0)] = 2.0,
        keep: Annotated[
            float,
            Rule(
                "share of what the task taught that the way back leaves to a network that could do all "
                "before; in (0, 1], and 1 is the whole of it",
                above=0,
                most=1,
            ),
        ] = 0.93,
        centre: Annotated[
            float, Rule("share of the mean feature that is taken away before features are compared, 0 or more", least=0)
        ] = 0.75,
    ) -> None:
        super().__init__(model, label_smoothing=0.0, soft_margin=True)
        self.rate, self.keep, self.centre = rate, keep, centre
        model.neck.requires_grad_(False)  # it holds a mean, and learns nothing
        self.began: Embedder | None = None  # the network that the task began with, until its end
        self.first_label = 0
        self.share = 1.0  # alpha of the last task
        self._new_head()

    @property
    def needs_past(self) -> bool:
        """No: head and former network are of a task at hand."""
        return False

    def _new_head(self) -> None:
        self.classifier = GrowingClassifier(self.model.dim).to(self.model.mean.device)
        self.task_neck = bn_neck(self.model.dim).to(self.model.mean.device)

    def _neck(self) -> nn.BatchNorm1d:
        assert isinstance(self.model.neck, nn.BatchNorm1d)
        return self.model.neck

    def begin_task(self, task: Task) -> None:
        """Remembers the network, and makes a head for the identities of the task alone."""
        self._new_head()
        self._neck().reset_running_stats()
        self.began = frozen_copy(self.model)
        self.first_label = min(task.classes)
        self.classifier.grow(len(task.classes))
        with torch.no_grad():
            self.classifier.weight.copy_(self.mean_directions(task))

    def parameters(self) -> Iterable[Parameter] | list[dict[str, Any]]:
        """The network and the head of the task."""
        trained = chain(super().parameters(), self.task_neck.parameters())
        return [{"params": list(trained), "rate_factor": self.rate}]

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
        enough = after - (1 - self.keep) * before * (after - before)
        too_far, self.share = 0.0, 1.0
        for _ in range(HALVINGS):
            middle = (too_far + self.share) / 2
            too_far, self.share = (too_far, middle) if found(middle) >= enough else (middle, self.share)
        self.model.load_state_dict(linear_combination(new, old, self.share))
        self._neck().running_mean.copy_(torch.from_numpy(self.centre * self.model.extract(paths).mean(0)))
        told = (task.name, 100 * before, 100 * after, self.share)
        logger.info("%s: mAP of its own images from %.1f to %.1f; %.2f of the way is kept", *told)

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
        head = {"task_neck": self.task_neck.state_dict(), "first_label": self.first_label}
        return super().state_dict() | head | {"began": began, "share": self.share}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        super().load_state_dict(state)
        self.task_neck.load_state_dict(state["task_neck"])
        self.first_label, self.share = state["first_label"], state["share"]
        self.began = None if state["began"] is None else frozen_copy(self.model)
        if self.began is not None:
            self.began.load_state_dict(state["began"])


def _some(task: Task) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Paths, labels and cameras of at most about LOOKED_AT images of a task: all of evenly drawn identities."""
    every = -(-len(task.records) // LOOKED_AT)
    chosen = set(sorted(task.classes)[::every])
    records = [record for record in task.records if record.pid in chosen]
    labels, cameras = (np.array([getattr(record, name) for record in records]) for name in ("pid", "camid"))
    return [record.path for record in records], labels, cameras
