"""LSTKC++: two teachers, the previous network and an older one, whose average is fused with the new network."""

from __future__ import annotations

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

SHARES = tuple(tenth / 10 for tenth in range(11))  # of the older network, that are tried


class LSTKCpp(FusedFineTuning):
    """LSTKC++ (Xu et al., TPAMI 2025), in the form of its official code.

    Three networks: the one in training, ``teacher``, as the previous task trained it and before it was fused, and from
    the third task on ``long_teacher``, older. Both see the same augmented images in evaluation mode; their affinities,
    corrected, are distilled (:func:`~lreid.losses.lstkc.lstkcpp_dual_loss`). After a task

    1. ``old = beta * long_teacher + (1 - beta) * teacher``, where beta, of 0, 0.1, … 1, gives the best mAP when the
       images of the task are searched among themselves, those of the same identity and camera left out; the least of
       equal ones. Where no identity was seen by two cameras, every image counts as one of its own camera;
    2. the network becomes ``alpha * new + (1 - alpha) * old`` with :func:`~lreid.losses.fusion.lstkcpp_alpha`;
    3. ``long_teacher`` is ``old``, and ``teacher`` the new network as it was trained.

    After the second task ``old`` is the network of the first. Features are compared and go into the triplet loss as
    they are, so the Euclidean distance ranks them (``EVAL.METRIC``). The classifier's rows of all identities that
    ``teacher`` knows are averaged; in the official code those that ``long_teacher`` does not know stay as trained.
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
        # Until the task is closed: the network before it was fused, and what it was fused with.
        self.trained: ClassifyingEmbedder | None = None
        self.old: ClassifyingEmbedder | None = None
        self.long_share: float | None = None  # beta of the last task; none before the third

    def retention_terms(self, features: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The rectified distillation of one teacher or two."""
        assert self.teacher is not None
        with torch.no_grad():
            short = self.teacher.model(batch.images)  # (B, dim)
            long = None if self.long_teacher is None else self.long_teacher.model(batch.images)
        if long is None:
            return {"distill": lstkcpp_single_loss(features, short, batch.labels, temperature=self.temperature)}
        return {"distill": lstkcpp_dual_loss(features, short, long, batch.labels, temperature=self.temperature)}

    def finish_task(self, task: Task) -> None:
        """Fuses the network with the average of both teachers."""
        if self.teacher is not None:
            self.trained = self.frozen_network()
        super().finish_task(task)

    def old_network(self, task: Task) -> ClassifyingEmbedder:
        """The average of both teachers that searches the images of the task best."""
        assert self.teacher is not None
        self.old = self.teacher
        if self.long_teacher is not None:
            self.long_share = max(SHARES, key=lambda share: self.self_retrieval(self._averaged(share), task))
            self.old = self._averaged(self.long_share)
        return self.old

    def figures(self) -> dict[str, float]:
        """As in the base class, and the share of the older teacher in the average of both."""
        return super().figures() | ({} if self.long_share is None else {"long_share": self.long_share})

    def self_retrieval(self, network: ClassifyingEmbedder, task: Task) -> float:
        """mAP in [0, 1] of the images of a task searched among themselves."""
        labels = np.array([record.pid for record in task.records])
        cameras = np.array([record.camid for record in task.records])
        return self_retrieval(self.extract(network, task).numpy(), labels, cameras, metric="euclidean")

    def measured_alpha(self, new: Tensor, old: Tensor) -> float:
        """The share of the new network, from the overlap of affinities."""
        return lstkcpp_alpha(new, old)

    def end_task(self, task: Task) -> None:
        """Keeps the network as it was trained, and what it was fused with."""
        super().end_task(task)
        if self.trained is not None:
            self.teacher, self.long_teacher = self.trained, self.old
            self.trained = self.old = None

    def state_dict(self) -> dict[str, Any]:
        """The older teacher, in addition to the state of the base classes."""
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
        """Both teachers in one, with so much of the older one."""
        assert self.teacher is not None and self.long_teacher is not None
        average = copy.deepcopy(self.teacher)
        average.load_state_dict(
            linear_combination(self.teacher.state_dict(), self.long_teacher.state_dict(), 1 - share)
        )
        return average
