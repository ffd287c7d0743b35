"""BoT-FT: fine-tuning with a softmax and a triplet loss, without protection against forgetting."""

from typing import Annotated, Any, ClassVar

import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from lreid.losses.triplet import batch_hard_triplet_loss
from lreid.methods.base import Batch, Embedder, Method, Rule, Task
from lreid.models.classifier import GrowingClassifier


class BoTFineTuning(Method):
    """Bag of Tricks (BoT; Luo et al., 2019), trained task by task: "BoT-FT" of DwoPP (BMVC 2022, Table 1).

    The loss is the sum of a cross-entropy and a triplet loss. The cross-entropy with label smoothing uses the features
    after a BatchNorm neck. The batch-hard triplet loss uses the features before the neck. DwoPP's authors do not say
    how they extend the classifier for a new task. In lreid, the classifier gets a row for each new identity, and the
    cross-entropy of a batch covers only the identities of the current task.

    With exemplars, this method is "FT+" in DwoPP's Table 1 (config file ``configs/methods/bot_ft_plus.yaml``). DwoPP's
    paper states only the number of exemplars. lreid therefore chooses the rest: herding selects the exemplars, every
    identity has an equal share of the memory, and batches draw an exemplar as often as an image of the task. With
    exemplars, the cross-entropy covers all identities so far.
    """

    saves: ClassVar = {"classifier": "identity", "first_class": ""}
    batches = "identities"
    neck = True

    def __init__(
        self,
        model: Embedder,
        *,
        margin: Annotated[float, Rule("margin of the triplet loss", least=0)] = 0.3,
        label_smoothing: Annotated[float, Rule("label smoothing: target share of all classes", least=0, most=1)] = 0.1,
        soft_margin: Annotated[bool, Rule("triplet loss log(1 + exp(d+ - d-)) instead of a margin")] = False,
        normalize_triplet: Annotated[bool, Rule("scale features to unit length before the triplet loss")] = False,
        **options: Any,
    ) -> None:
        super().__init__(model, **options)
        self.margin, self.label_smoothing = margin, label_smoothing
        self.triplet: dict[str, Any] = {"margin": None if soft_margin else margin, "normalize": normalize_triplet}
        self.classifier = GrowingClassifier(model.dim).to(model.mean.device)
        self.first_class = 0  # first class that the softmax covers

    def begin_task(self, task: Task) -> None:
        """Add a classifier row for each new identity."""
        self.first_class = 0 if self.memory else min(task.classes)
        self.classifier.cover(task.classes)

    def parameters(self) -> list[Parameter]:
        """The network and the classifier."""
        return [*self.model.parameters(), *self.classifier.parameters()]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the cross-entropy on features after the neck and the triplet loss on features before the neck."""
        features = self.model(batch.images)  # (B, dim)
        return self.softmax_triplet(features, self.classifier(self.model.neck(features)), batch)

    def softmax_triplet(self, features: Tensor, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Compute cross-entropy and triplet loss from features (B, dim) before the neck and logits (B, all classes)."""
        labels = batch.labels.to(features.device, non_blocking=True)
        own = logits[:, self.first_class :]  # (B, classes of the softmax)
        return {
            "softmax": F.cross_entropy(own, labels - self.first_class, label_smoothing=self.label_smoothing),
            "triplet": batch_hard_triplet_loss(features, labels, **self.triplet),
        }

    def class_scores(self, features: Tensor) -> Tensor | None:
        """Compute the logits of all identities so far, ``(B, K)``."""
        return self.classifier(features)  # extracted features already went through the neck
