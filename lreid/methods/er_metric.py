"""ER with a metric loss: replay with a triplet or DMML loss, without a classifier."""

from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from lreid.losses.dmml import dmml_loss
from lreid.losses.episodes import split_episode
from lreid.losses.triplet import batch_hard_triplet_loss
from lreid.methods.base import Batch, Embedder, Rule, Task
from lreid.methods.er import ER


class ERMetric(ER):
    """Experience replay with a metric loss, optionally asymmetric as in ER-ACE (Caccia et al., ICLR 2022, Section 3.4).

    :class:`ER` classifies images over all identities so far. ERMetric instead compares each image with the incoming and
    the stored images of the step, which pass through the network together. The option ``asymmetric`` applies the idea
    of ER-ACE to distances. With ``asymmetric``, incoming images are compared with incoming images only, so they do not
    push old identities away. Stored images are compared with all images of the step. No paper describes this method.
    The most similar published method, in Appendix E of ER-AML's paper, uses single pairs of images.
    """

    unused = ("reid_head",)

    def __init__(
        self,
        model: Embedder,
        *,
        metric_loss: Annotated[Literal["triplet", "dmml"], Rule("batch-hard triplet or DMML loss")] = "triplet",
        asymmetric: Annotated[bool, Rule("compare an incoming image with incoming images only")] = False,
        margin: Annotated[float, Rule("margin of the loss; BoT uses 0.3 (triplet), DMML uses 0.4", least=0)] = 0.3,
        supports: Annotated[int, Rule("supports per identity, with which dmml compares images", least=1)] = 2,
        replay_each: Annotated[int, Rule("images of a stored identity that are replayed together", least=2)] = 4,
        **er: Any,
    ) -> None:
        super().__init__(model, **er)
        self.metric_loss, self.asymmetric, self.margin = metric_loss, asymmetric, margin
        self.supports, self.replay_each = supports, replay_each

    def begin_task(self, task: Task) -> None:
        """Clear the list of images that were offered to the memory; there is no classifier to extend."""
        self.task_classes, self.offered = tuple(task.classes), set()

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute two metric losses: one with incoming images as anchors, one with stored images as anchors."""
        exclude = () if self.task_free else self.task_classes
        rows = self.memory.draw(self.replay or len(batch.labels), each=self.replay_each, exclude=exclude)
        count = len(batch.labels)
        if not len(rows):
            return {"incoming": self.anchored(self.model(batch.images), batch.labels, slice(count))}
        labels = torch.cat([batch.labels, torch.from_numpy(self.memory.labels[rows])])  # (B + n,)
        features = self.model(torch.cat([batch.images, self.read(rows).images]))  # (B + n, dim)
        compared = slice(count) if self.asymmetric else slice(None)  # images compared with incoming images
        return {
            "incoming": self.anchored(features[compared], labels[compared], slice(count)),
            "replay": self.anchored(features, labels, slice(count, None)),
        }

    def anchored(self, features: Tensor, labels: Tensor, anchors: slice) -> Tensor:
        """Compute the mean metric loss of the rows ``anchors`` of features (n, dim), compared with all rows."""
        chosen = torch.zeros(len(labels), dtype=torch.bool)  # (n,)
        chosen[anchors] = True
        if self.metric_loss == "triplet":
            terms = batch_hard_triplet_loss(features, labels, margin=self.margin, reduction="none")  # (n,)
        else:
            if labels.unique(return_counts=True)[1].max() <= self.supports:
                return 0 * features.sum()
            terms = dmml_loss(features, labels, self.supports, margin=self.margin, reduction="none")  # (Q,)
            chosen = chosen[split_episode(labels, self.supports).query]
        chosen = chosen.to(features.device, non_blocking=True)
        return (terms * chosen).sum() / chosen.sum().clamp(min=1)

    def class_scores(self, features: Tensor) -> None:
        """Return None, because this method has no classifier."""
