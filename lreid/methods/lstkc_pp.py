"""LSTKC++: distil from a previous and an older network, and average all three networks after a task."""

import copy
from typing import Annotated, Any, ClassVar

import numpy as np
from torch import Tensor

from lreid.losses.fusion import linear_combination, lstkcpp_alpha
from lreid.losses.lstkc import lstkcpp_dual_loss, lstkcpp_single_loss
from lreid.methods.base import Batch, Embedder, Rule, Task
from lreid.methods.fused_ft import FusedFineTuning
from lreid.models.classifier import ClassifyingEmbedder
from lreid.retrieval.self_search import self_retrieval

SHARES = tuple(tenth / 10 for tenth in range(11))  # candidates for the weight of the older network


class LSTKCpp(FusedFineTuning):
    """LSTKC++ (Xu et al., TPAMI 2025), in the form of its official code.

    LSTKC++ uses up to three networks: the network in training and two teachers. ``teacher`` is the network after
    training on the previous task, before averaging. ``long_teacher`` is an older network, which exists from the third
    task on. In evaluation mode, both teachers extract features of the same augmented images. LSTKC++ corrects the
    affinities of both teachers and distils them (:func:`~lreid.losses.lstkc.lstkcpp_dual_loss`). LSTKC++ ends a task in
    three steps:

    1. Average both teachers: ``old = beta * long_teacher + (1 - beta) * teacher``. Of the values 0, 0.1, … 1, beta is
       the value with the best mAP in a search of the task's images among themselves
       (:func:`~lreid.retrieval.self_retrieval`). If several values of beta are equally good, the smallest is used.
    2. Replace the network by ``alpha * new + (1 - alpha) * old``; :func:`~lreid.losses.fusion.lstkcpp_alpha` computes
       alpha.
    3. Store ``old`` as ``long_teacher``, and the new network before averaging as ``teacher``.

    After the second task, ``old`` is the network of the first task. The triplet loss compares features without scaling
    to unit length, so set ``EVAL.METRIC`` to ``euclidean``. lreid averages the classifier rows of all identities of
    ``teacher``; LSTKC++'s official code averages only the rows of identities on which ``long_teacher`` was trained.
    """

    copies: ClassVar = {**FusedFineTuning.copies, "long_teacher": "frozen_network"}

    def __init__(
        self,
        model: Embedder,
        *,
        distillation_weight: Annotated[float, Rule("weight of the distillation in the total loss", least=0)] = 1.0,
        temperature: Annotated[float, Rule("temperature of the affinities", above=0)] = 0.1,
        measured_fusion: bool = True,
        **base: Any,
    ) -> None:
        super().__init__(model, measured_fusion=measured_fusion, **base)
        self.weights = {"distill": distillation_weight}
        self.temperature = temperature
        self.long_teacher: ClassifyingEmbedder | None = None
        # The new network before fusion, and the averaged teachers, until the end of the task.
        self.trained: ClassifyingEmbedder | None = None
        self.old: ClassifyingEmbedder | None = None
        self.long_share: float | None = None  # beta of the last task; None before the third task

    def retention_terms(self, features: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Compute the distillation loss on the corrected affinities of one or two teachers."""
        short = self.teacher.model(batch.images)  # (B, dim)
        long = None if self.long_teacher is None else self.long_teacher.model(batch.images)
        if long is None:
            return {"distill": lstkcpp_single_loss(features, short, batch.labels, temperature=self.temperature)}
        return {"distill": lstkcpp_dual_loss(features, short, long, batch.labels, temperature=self.temperature)}

    def finish_task(self, task: Task) -> None:
        """Average the network with the average of both teachers."""
        if self.teacher is not None:
            self.trained = self.frozen_network()
        super().finish_task(task)

    def old_network(self, task: Task) -> ClassifyingEmbedder:
        """Return the average of both teachers that has the best mAP on the images of the task."""
        self.old = self.teacher
        if self.long_teacher is not None:
            self.long_share = max(SHARES, key=lambda share: self.self_retrieval(self._averaged(share), task))
            self.old = self._averaged(self.long_share)
        return self.old

    def figures(self) -> dict[str, float]:
        """Return the values of the base class, and beta (the weight of the older teacher) as ``long_share``."""
        return super().figures() | ({} if self.long_share is None else {"long_share": self.long_share})

    def self_retrieval(self, network: ClassifyingEmbedder, task: Task) -> float:
        """Search each image of a task among the other images of the task, and return the mAP in [0, 1]."""
        labels = np.array([record.pid for record in task.records])
        cameras = np.array([record.camid for record in task.records])
        return self_retrieval(self.extract(network, task).numpy(), labels, cameras, metric="euclidean")

    def measured_alpha(self, new: Tensor, old: Tensor) -> float:
        """Compute alpha, the weight of the new network, from the overlap of both networks' affinities."""
        return lstkcpp_alpha(new, old)

    def end_task(self, task: Task) -> None:
        """Store the network before averaging as ``teacher``, and the average of both teachers as ``long_teacher``."""
        super().end_task(task)
        if self.trained is not None:
            self.teacher, self.long_teacher = self.trained, self.old
            self.trained = self.old = None

    def _averaged(self, share: float) -> ClassifyingEmbedder:
        """Average both teachers; the older teacher has the weight ``share``."""
        average = copy.deepcopy(self.teacher)
        short, long = self.teacher.state_dict(), self.long_teacher.state_dict()
        average.load_state_dict(linear_combination(short, long, 1 - share))
        return average
