"""LwF: softmax-triplet fine-tuning that distils the previous model's logits over the old identities."""

from typing import Annotated, Any, ClassVar

from torch import Tensor

from lreid.losses.lwf import knowledge_distillation_loss
from lreid.methods.base import Batch, Embedder, Rule, Task
from lreid.methods.bot_ft import BoTFineTuning
from lreid.models.embedder import frozen_copy


class LwF(BoTFineTuning):
    """Learning without Forgetting (Li and Hoiem, ECCV 2016) in the form of AKA's official code.

    From the second task on, the previous model and its classifier process the same augmented images. The target of the
    distillation is the previous model's softmax over the old identities. AKA's code keeps the previous model in
    training mode, so that BatchNorm uses the statistics of the batch. lreid keeps the previous model in evaluation
    mode. AKA's code has one BatchNorm neck per task; in lreid, all tasks share one neck, as in BoT. With exemplars,
    this method is "LwF+" in DwoPP's Table 1 (BMVC 2022). Details of "LwF+" are not published; in lreid, all loss terms
    cover the images of the task and the exemplars.
    """

    saves: ClassVar = {"old_classifier": "network"}
    keeps_teacher = True
    teacher: Embedder | None

    def __init__(
        self,
        model: Embedder,
        *,
        distillation_weight: Annotated[float, Rule("weight of the distillation in the total loss", least=0)] = 1.0,
        temperature: Annotated[float, Rule("temperature of teacher and student", above=0)] = 2.0,
        **bot: Any,
    ) -> None:
        super().__init__(model, **bot)
        self.weights = {"distill": distillation_weight}
        self.temperature = temperature
        self.old_classifier = frozen_copy(self.classifier)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute BoT's loss terms and, from the second task on, the distillation of the previous model's logits."""
        features = self.model(batch.images)  # (B, dim)
        logits = self.classifier(self.model.neck(features))  # (B, all classes)
        terms = self.softmax_triplet(features, logits, batch)
        if self.teacher is not None:
            old_logits = self.old_classifier(self.teacher.neck(self.teacher(batch.images)))  # (B, old classes)
            terms["distill"] = knowledge_distillation_loss(logits, old_logits, temperature=self.temperature)
        return terms

    def end_task(self, task: Task) -> None:
        """Store the teacher and its classifier."""
        super().end_task(task)
        self.old_classifier = frozen_copy(self.classifier)
