"""IDA: DMML with new features held to the means of past identities as the previous model holds them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.losses.ida import discriminant_alignment_loss
from lreid.methods.dwpp import DwPP
from lreid.models.embedder import Embedder
from lreid.rules import Rule


class IDA(DwPP):
    """Indirect discriminant alignment (Liu et al., ECCV 2020) on the DMML loss, as in DwoPP (BMVC 2022, Table 1).

    At the end of a task the mean feature ``a_c`` of each of its identities, an anchor, is stored and never changed
    again; no image is needed. On images ``x`` of later tasks, with ``p(c | f) = softmax_c(-|f(x) - a_c|²)`` over all
    anchors, ``KL(p(. | f_old) || p(. | f_new))`` is added to the DMML loss.

    There is no official code, and what DwoPP changed for re-ID is not published. Our choices: the DMML loss in place of
    the prototypical one, and all anchors at once, where the paper draws as many as an episode has classes. Anchors are
    means over all images of an identity in evaluation mode. The loss is a mean over the images of a batch, with the
    probability floor of DwoPP's code; see :func:`~lreid.losses.discriminant_alignment_loss`.
    """

    keeps: ClassVar = {**DwPP.keeps, "anchors": "template"}

    def __init__(
        self,
        model: Embedder,
        *,
        temperature: Annotated[float, Rule("temperature of both distributions", above=0)] = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(model, temperature=temperature, **options)
        self.anchors = torch.empty(0, model.dim, device=model.mean.device)  # (A, dim), in the order of the tasks

    def distillation(self, student: Tensor, teacher: Tensor, batch: Batch) -> Tensor:
        """Alignment of new and old features relative to the anchors of all past classes."""
        return discriminant_alignment_loss(student, teacher, self.anchors, **self.distillation_options)

    def end_task(self, task: Task) -> None:
        """Keeps the teacher, and the class means of the task as anchors for good."""
        super().end_task(task)
        features = self.model.extract([record.path for record in task.records])  # (n, dim)
        labels = np.array([record.pid for record in task.records])
        means = [features[labels == label].mean(0) for label in task.classes]
        self.anchors = torch.cat([self.anchors, torch.from_numpy(np.stack(means)).to(self.anchors.device)])

    def state_dict(self) -> dict[str, Any]:
        """The teacher and the anchors."""
        return super().state_dict() | {"anchors": self.anchors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.anchors = state["anchors"].to(self.anchors.device)
