"""Online iCaRL: sigmoids, a reservoir, and the previous model's sigmoids as targets (a row of ER-ACE's Table 1)."""

from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from lreid.losses._ops import class_means
from lreid.losses.icarl import icarl_loss
from lreid.methods.base import Batch, Embedder, Rule, Task
from lreid.methods.er import ER, Replay
from lreid.models.embedder import frozen_copy


class OnlineICaRL(ER):
    """iCaRL (Rebuffi et al., CVPR 2017) for streams, as in ER-ACE's paper (Caccia et al., ICLR 2022, Table 1, Fig. 4).

    As all methods of that table, it draws as many stored as incoming images, fills its memory by reservoir sampling,
    and has ER's network and classifier. Incoming and stored images are trained by the binary cross-entropy of every
    class, summed over classes. From the second task on, the incoming images are also trained towards the sigmoids of
    the model after the previous task. The classifier assigns an image to the nearest mean feature of stored images.
    :class:`~lreid.methods.icarl.ICaRL` is iCaRL for re-identification in epochs.

    The official code (AML_pc) is the same, except that its classifier has rows for all classes from the start. Its
    distillation therefore also covers classes of later tasks.
    """

    saves: ClassVar = {"old_classifier": "network"}
    unused: ClassVar[tuple[str, ...]] = ("reid_head",)
    keeps_teacher = True
    teacher: Embedder | None

    def __init__(
        self,
        model: Embedder,
        *,
        task_free: Annotated[bool, Rule("also replay images of the current task")] = False,
        distillation_weight: Annotated[float, Rule("weight of the distillation in the incoming loss", least=0)] = 1.0,
        **er: Any,
    ) -> None:
        super().__init__(model, task_free=task_free, **er)
        self.distillation_weight = distillation_weight
        self.old_classifier = frozen_copy(self.classifier)

    def incoming_loss(self, batch: Batch) -> Tensor:
        """Compute the binary cross-entropy of the incoming images, plus the distillation from the second task on."""
        logits = self.logits(batch.images)  # (B, K)
        loss = logits.shape[1] * icarl_loss(logits, batch.labels)
        if self.teacher is None:
            return loss
        targets = self.old_classifier(self.teacher(batch.images)).sigmoid()  # (B, K_old)
        old = logits[:, : targets.shape[1]]  # (B, K_old)
        distillation = F.binary_cross_entropy_with_logits(old, targets, reduction="sum") / len(logits)
        return loss + self.distillation_weight * distillation

    def replay_loss(self, replay: Replay) -> Tensor:
        """Compute the binary cross-entropy of stored images."""
        logits = self.logits(replay.images)  # (n, K)
        return logits.shape[1] * icarl_loss(logits, replay.labels)

    def class_scores(self, features: Tensor) -> Tensor:
        """Compute minus the squared distances (n, K) to the classes' mean stored features; -inf without an image."""
        scores = features.new_full((len(features), len(self.classifier)), -torch.inf)
        if len(self.memory):
            stored = torch.from_numpy(self.model.extract(self.memory.images)).to(features)  # (M, dim)
            means, rows = class_means(stored, self.class_of(torch.from_numpy(self.memory.labels)).to(features.device))
            scores[:, rows] = -torch.cdist(features, means).square()
        return scores

    def end_task(self, task: Task) -> None:
        """Store the teacher and its classifier."""
        super().end_task(task)
        self.old_classifier = frozen_copy(self.classifier)
