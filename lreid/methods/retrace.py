"""Retrace: train with a high learning rate, then interpolate the weights back towards the previous weights."""

import logging
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from lreid.losses.fusion import linear_combination
from lreid.methods.base import Batch, Embedder, Rule, Task
from lreid.methods.bot_ft import BoTFineTuning
from lreid.models.classifier import GrowingClassifier
from lreid.models.embedder import frozen_copy
from lreid.models.parts import bn_neck
from lreid.retrieval.self_search import self_retrieval

logger = logging.getLogger("lreid")

MEASURED = 512  # number of images of a task on which the mAP is measured
BISECTIONS = 5  # alpha is found with an accuracy of 1/32


class Retrace(BoTFineTuning):
    """Interpolate the weights back towards the weights before the task: lreid's own method, without exemplars.

    Training on a task moves the weights from ``w0`` to ``w1``. Interpolated weights are ``w(alpha) = w0 + alpha (w1 -
    w0)``. The loss of past tasks has a minimum near ``w0``, so it grows approximately as ``alpha ** 2``. The gain on
    the new task grows faster: most of it is reached at an ``alpha`` well below 1. Retrace therefore trains with
    ``rate`` times the learning rate of the run. After the last update, Retrace sets the weights to ``w(alpha)`` with
    the smallest ``alpha`` that retains the gain on the task.

    The gain is measured without images of past tasks. To measure the gain, Retrace searches about 512 training images
    of the task among themselves (:func:`~lreid.retrieval.self_retrieval`). Retrace takes all images of evenly spaced
    identities. The gain is the increase of the mAP from ``w0`` to ``w1``. Five bisection steps between ``w0`` and
    ``w1`` find ``alpha``. The interpolated weights may lose up to the fraction ``(1 - keep) mAP(w0)`` of the gain. A
    network with a high mAP before the task can forget more, so its weights are interpolated further towards ``w0``. A
    randomly initialised network stays near ``w1``, because its mAP before the task is low. The running statistics of
    BatchNorm are interpolated together with the weights.

    For retrieval, Retrace subtracts ``centre`` times the mean feature of the measured images from every feature. The
    BatchNorm neck of the network stores the mean feature to subtract. The default ``centre=0.75`` lies between LSTKC,
    which subtracts nothing, and BoT, whose neck subtracts the full mean.

    Retrace uses the losses of LSTKC's baseline (:class:`~lreid.methods.fused_ft.FusedFineTuning`). The losses are a
    softmax without label smoothing on features after a BatchNorm neck, and a soft-margin triplet loss on features
    before the neck. The initial classifier rows are the directions of the mean features. A neck and a classifier are
    created for each task and discarded after it. The classifier has no rows for identities of past tasks, so Retrace
    does not support exemplars.
    """

    finishing = "interpolating weights"
    copies: ClassVar = {**BoTFineTuning.copies, "began": "frozen_network"}
    saves: ClassVar = {"task_neck": "network", "labels": "", "share": ""}

    def __init__(
        self,
        model: Embedder,
        *,
        rate: Annotated[float, Rule("factor by which the learning rate of the run is multiplied", above=0)] = 2.0,
        keep: Annotated[float, Rule("share of the gain to retain (if mAP was 100 %); 1 = all", above=0, most=1)] = 0.93,
        centre: Annotated[float, Rule("share of the mean feature that is subtracted", least=0)] = 0.75,
    ) -> None:
        super().__init__(model, label_smoothing=0.0, soft_margin=True)
        self.labels = torch.empty(0, dtype=torch.int64)  # labels of the task's identities, ascending
        self._new_head()
        self.rate, self.keep, self.centre = rate, keep, centre
        self.centring: Any = model.neck.requires_grad_(False)  # the neck stores a mean and is not trained
        self.began: Embedder | None = None  # the previous network, until the end of the task
        self.share = 1.0  # alpha of the last task

    @property
    def needs_past(self) -> bool:
        """Return False, because the head and the previous network exist only within a task."""
        return False

    def _new_head(self) -> None:
        self.classifier = GrowingClassifier(self.model.dim).to(self.model.mean.device)
        self.task_neck = bn_neck(self.model.dim).to(self.model.mean.device)

    def begin_task(self, task: Task) -> None:
        """Store a copy of the network, and create a head for the identities of the task."""
        self._new_head()
        self.labels = torch.tensor(task.classes)
        self.classifier.grow(len(task.classes))
        self.centring.reset_running_stats()
        self.began = frozen_copy(self.model)
        with torch.no_grad():
            self.classifier.weight.copy_(self.mean_directions(task))

    def parameters(self) -> list[dict[str, Any]]:
        """The network and the head of the task."""
        trained = nn.ModuleList([self.model, self.classifier, self.task_neck])
        return [{"params": list(trained.parameters()), "rate_factor": self.rate}]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute BoT's loss terms over the identities of the task."""
        features = self.model(batch.images)  # (B, dim)
        logits = self.classifier(self.task_neck(features))  # (B, identities of the task)
        rows = torch.searchsorted(self.labels, batch.labels)
        return self.softmax_triplet(features, logits, batch._replace(labels=rows))

    def class_scores(self, features: Tensor) -> None:
        """Return None, because no classifier covers the identities of all tasks."""

    def finish_task(self, task: Task) -> None:
        """Set the weights to the interpolation with the smallest alpha that retains the gain on the task."""
        paths, labels, cameras = _sample(task)
        new = {name: value.clone() for name, value in self.model.state_dict().items()}
        old = self.began.state_dict()

        def measure(alpha: float) -> float:
            self.model.load_state_dict(linear_combination(new, old, alpha))
            return self_retrieval(self.model.extract(paths), labels, cameras)

        before, after = measure(0.0), measure(1.0)
        enough = after - (1 - self.keep) * before * (after - before)
        too_low, self.share = 0.0, 1.0
        for _ in range(BISECTIONS):
            middle = (too_low + self.share) / 2
            too_low, self.share = (too_low, middle) if measure(middle) >= enough else (middle, self.share)
        self.model.load_state_dict(linear_combination(new, old, self.share))
        self.centring.running_mean.copy_(torch.from_numpy(self.centre * self.model.extract(paths).mean(0)))
        line = "%s: the weights keep %.2f of the update (alpha); mAP on training images, not a test: %.1f, then %.1f"
        logger.info(line, task.name, self.share, 100 * before, 100 * after)

    def end_task(self, task: Task) -> None:
        """Discard the head of the task and the previous network."""
        super().end_task(task)
        self._new_head()
        self.began = None

    def figures(self) -> dict[str, float]:
        """Return the interpolation weight alpha of the last task, as ``share``."""
        return super().figures() | {"share": self.share}


def _sample(task: Task) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return paths, labels and cameras of all images of every n-th identity, about ``MEASURED`` images of a task."""
    every = -(-len(task.records) // MEASURED)
    chosen = set(sorted(task.classes)[::every])
    records = [record for record in task.records if record.pid in chosen]
    labels, cameras = (np.array([getattr(record, name) for record in records]) for name in ("pid", "camid"))
    return [record.path for record in records], labels, cameras
