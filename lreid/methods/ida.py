"""IDA: DMML with distillation of the similarities between new images and the mean features of past identities."""

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from lreid.losses.ida import discriminant_alignment_loss
from lreid.methods.base import Batch, Embedder, Task
from lreid.methods.dwpp import DwPP


class IDA(DwPP):
    """Indirect discriminant alignment (Liu et al., ECCV 2020) with the DMML loss, as in DwoPP (BMVC 2022, Table 1).

    At the end of a task, IDA stores the mean feature ``a_c`` of each identity ``c`` of the task as an anchor. Stored
    anchors never change. IDA stores no images. The loss of later tasks is the DMML loss plus ``KL(p(.|f_old) ||
    p(.|f_new))``. For an image ``x``, ``p(c|f) = softmax_c(-|f(x) - a_c|²)`` is a distribution over all anchors.

    IDA has no official code, and DwoPP's authors did not publish their changes for re-ID. The following choices are
    therefore lreid's. The DMML loss replaces the prototypical loss of IDA's paper. The distribution covers all anchors
    at once; IDA's paper draws one anchor per class of an episode. An anchor is the mean feature of all images of an
    identity, in evaluation mode. The distillation is the mean over the images of a batch; as in DwoPP's code, small
    probabilities are raised to a minimum (:func:`~lreid.losses.discriminant_alignment_loss`).
    """

    saves: ClassVar = {"anchors": "template"}
    defaults: ClassVar = {"temperature": 1.0}

    def __init__(self, model: Embedder, **options: Any) -> None:
        super().__init__(model, **IDA.defaults | options)
        self.anchors = torch.empty(0, model.dim, device=model.mean.device)  # (A, dim), in the order of the tasks

    def distillation(self, student: Tensor, teacher: Tensor, batch: Batch) -> Tensor:
        """Compute the distillation of the similarities between images and the anchors of all past identities."""
        return discriminant_alignment_loss(student, teacher, self.anchors, **self.distillation_options)

    def end_task(self, task: Task) -> None:
        """Store the teacher, and the mean features of the task's identities as anchors."""
        super().end_task(task)
        features = self.model.extract([record.path for record in task.records])  # (n, dim)
        labels = np.array([record.pid for record in task.records])
        means = [features[labels == label].mean(0) for label in np.unique(labels)]
        self.anchors = torch.cat([self.anchors, torch.from_numpy(np.stack(means)).to(self.anchors.device)])
