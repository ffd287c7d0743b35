"""LSTKC++: distil the previous network and an older network, and average both with the new network."""

import copy
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.losses.fusion import linear_combination, lstkcpp_alpha
from lreid.losses.lstkc import lstkcpp_dual_loss, lstkcpp_single_loss
from lreid.methods.fused_ft import FusedFineTuning
from lreid.models.classifier import ClassifyingEmbedder
from lreid.models.embedder import Embedder
from lreid.retrieval.self_search import self_retrieval
from lreid.rules import Rule

SHARES = tuple(tenth / 10 for tenth in range(11))  # candidates for the weight of the older network


class LSTKCpp(FusedFineTuning):
    """LSTKC++ (Xu et al., TPAMI 2025), in the form of its official code.

    There are up to three networks: the network in training; ``teacher``, which is the network after the previous task,
    before it was fused; and, from the third task on, the older ``long_teacher``. Both teachers extract features of the
    same augmented images in evaluation mode. The affinities of the teachers are corrected and distilled
    (:func:`~lreid.losses.lstkc.lstkcpp_dual_loss`). After a task, three steps follow:

    1. ``old = beta * long_teacher + (1 - beta) * teacher``. beta is the value of 0, 0.1, … 1 with the best mAP when the
      images of the task are searched among themselves (:func:`~lreid.retrieval.self_retrieval`), and the smallest of
      equally good values.
    2. The network becomes ``alpha * new + (1 - alpha) * old`` with :func:`~lreid.losses.fusion.lstkcpp_alpha`.
    3. ``long_teacher`` becomes ``old``, and ``teacher`` becomes the new network before it was fused.

    After the second task, ``old`` is the network of the first task. Triplet loss and retrieval use unnormalised
    features, so rank by Euclidean distance (``EVAL.METRIC``). The classifier rows of all identities that ``teacher``
    has are averaged; the official code averages only rows that ``long_teacher`` has.
    """

    keeps: ClassVar = {**FusedFineTuning.keeps, "long_teacher": "network"}

    def __init__(
        self,
        model: Embedder,
        *,
        distillation_weight: Annotated[float, Rule("weight of the distillation", least=0)] = 1.0,
        temperature: Annotated[float, Rule("temperature of the affinities", above=0)] = 0.1,
        measured_fusion: bool = True,
        **base: Any,
    ) -> None:
        super().__init__(model, measured_fusion=measured_fusion, **base)
        self.weights = {"distill": distillation_weight}
        self.temperature = temperature
        self.long_teacher: ClassifyingEmbedder | None = None
        # The network before it was fused, and the network it was fused with, until the end of the task.
        self.trained: ClassifyingEmbedder | None = None
        self.old: ClassifyingEmbedder | None = None
        self.long_share: float | None = None  # beta of the last task; None before the third

    def retention_terms(self, features: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Compute the distillation of the corrected affinities of one or two teachers."""
        assert self.teacher is not None
        with torch.no_grad():
            short = self.teacher.model(batch.images)  # (B, dim)
            long = None if self.long_teacher is None else self.long_teacher.model(batch.images)
        if long is None:
            return {"distill": lstkcpp_single_loss(features, short, batch.labels, temperature=self.temperature)}
        return {"distill": lstkcpp_dual_loss(features, short, long, batch.labels, temperature=self.temperature)}

    def finish_task(self, task: Task) -> None:
        """Fuse the network with the average of both teachers."""
        if self.teacher is not None:
            self.trained = self.frozen_network()
        super().finish_task(task)

    def old_network(self, task: Task) -> ClassifyingEmbedder:
        """The average of both teachers with the best mAP on the images of the task."""
        assert self.teacher is not None
        self.old = self.teacher
        if self.long_teacher is not None:
            self.long_share = max(SHARES, key=lambda share: self.self_retrieval(self._averaged(share), task))
            self.old = self._averaged(self.long_share)
        return self.old

    def figures(self) -> dict[str, float]:
        """The values of the base class, and the weight of the older teacher as ``long_share``."""
        return super().figures() | ({} if self.long_share is None else {"long_share": self.long_share})

    def self_retrieval(self, network: ClassifyingEmbedder, task: Task) -> float:
        """mAP in [0, 1] of the images of a task searched among themselves."""
        labels = np.array([record.pid for record in task.records])
        cameras = np.array([record.camid for record in task.records])
        return self_retrieval(self.extract(network, task).numpy(), labels, cameras, metric="euclidean")

    def measured_alpha(self, new: Tensor, old: Tensor) -> float:
        """Compute the weight of the new network from the overlap of affinities."""
        return lstkcpp_alpha(new, old)

    def end_task(self, task: Task) -> None:
        """Store the network before it was fused, and the network it was fused with, as the teachers."""
        super().end_task(task)
        if self.trained is not None:
            self.teacher, self.long_teacher = self.trained, self.old
            self.trained = self.old = None

    def state_dict(self) -> dict[str, Any]:
        """The state of the base class and the older teacher."""
        long = None if self.long_teacher is None else self.long_teacher.state_dict()
        return super().state_dict() | {"long_teacher": long}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.long_teacher = None
        if state["long_teacher"] is not None:
            self.long_teacher = self.frozen_network()
            self.long_teacher.load_state_dict(state["long_teacher"])

    def _averaged(self, share: float) -> ClassifyingEmbedder:
        """The average of both teachers, in which the older teacher has the weight ``share``."""
        assert self.teacher is not None and self.long_teacher is not None
        average = copy.deepcopy(self.teacher)
        average.load_state_dict(
            linear_combination(self.teacher.state_dict(), self.long_teacher.state_dict(), 1 - share)
        )
        return average
