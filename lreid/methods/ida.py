"""IDA: DMML with distilled similarities between new images and the mean features of past identities."""

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
    """Indirect discriminant alignment (Liu et al., ECCV 2020) with the DMML loss, as in DwoPP (BMVC 2022, Table 1).

    At the end of a task, the mean feature ``a_c`` of each identity ``c`` of the task is stored as an anchor. Anchors
    never change. No image is stored. The loss of later tasks is the DMML loss plus
    ``KL(p(. | f_old) || p(. | f_new))``. For an image ``x`` of the task, ``p(c | f) = softmax_c(-|f(x) - a_c|²)`` is a
    distribution over all anchors.

    IDA has no official code, and DwoPP's authors did not publish their changes for re-ID. The following choices are
    therefore lreid's. The DMML loss replaces the prototypical loss. All anchors are used at once; IDA's paper draws one
    anchor per class of an episode. An anchor is the mean over all images of an identity, in evaluation mode. The
    distillation is a mean over the images of a batch, with the probability floor of DwoPP's code; see
    :func:`~lreid.losses.discriminant_alignment_loss`.
    """

    keeps: ClassVar = {**DwPP.keeps, "anchors": "template"}
    saves: ClassVar = ["anchors"]

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
        """Compute the distillation of the similarities to the anchors of all past identities."""
        return discriminant_alignment_loss(student, teacher, self.anchors, **self.distillation_options)

    def end_task(self, task: Task) -> None:
        """Store the teacher, and the mean features of the task's identities as anchors."""
        super().end_task(task)
        features = self.model.extract([record.path for record in task.records])  # (n, dim)
        labels = np.array([record.pid for record in task.records])
        means = [features[labels == label].mean(0) for label in np.unique(labels)]
        self.anchors = torch.cat([self.anchors, torch.from_numpy(np.stack(means)).to(self.anchors.device)])
