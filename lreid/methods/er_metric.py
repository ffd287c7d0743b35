"""ER in metric form: replay in a triplet or DMML loss, without a classifier."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.losses.dmml import dmml_loss
from lreid.losses.episodes import split_episode
from lreid.losses.triplet import batch_hard_triplet_loss
from lreid.methods.er import ER
from lreid.models.embedder import Embedder
from lreid.rules import Rule


class ERMetric(ER):
    """Experience replay by a metric loss, and its asymmetric form after ER-ACE (Caccia et al., ICLR 2022, Section 3.4).

    :class:`ER` classifies over all identities so far. Here an image is compared with the incoming and the stored images
    of a step, which are forwarded together. ``asymmetric`` is what ER-ACE does to the cross-entropy, for distances: an
    incoming image learns from incoming ones only, so that it does not push old identities away, and a stored one
    learns from all. No paper has it; Appendix E of ER-AML's pulls and pushes single pairs.
    """

    unused = ("reid_head",)

    def __init__(
        self,
        model: Embedder,
        *,
        metric_loss: Annotated[
            str,
            Rule(
                "triplet (batch-hard, of every image) or dmml (of every image that is not a support)",
                choices=("triplet", "dmml"),
            ),
        ] = "triplet",
        asymmetric: Annotated[bool, Rule("compare an incoming image with incoming ones only")] = False,
        margin: Annotated[float, Rule("margin of the loss; BoT has 0.3 for triplets, DMML 0.4", least=0)] = 0.3,
        supports: Annotated[
            int, Rule("supports of dmml, images of an identity in a step that the others are compared with", least=1)
        ] = 2,
        replay_each: Annotated[
            int, Rule("images of a stored identity that are replayed together, if there are enough", least=2)
        ] = 4,
        **er: Any,
    ) -> None:
        super().__init__(model, **er)
        self.metric_loss, self.asymmetric, self.margin = metric_loss, asymmetric, margin
        self.supports, self.replay_each = supports, replay_each

    def begin_task(self, task: Task) -> None:
        """No image of the task was offered to the memory yet; there is no classifier to grow."""
        self.task_classes, self.offered = tuple(task.classes), set()

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """The metric loss with incoming images as anchors, and with stored ones."""
        exclude = () if self.task_free else self.task_classes
        rows = self.memory.draw(self.replay or len(batch.labels), each=self.replay_each, exclude=exclude)
        count = len(batch.labels)
        if not len(rows):
            return {"incoming": self.anchored(self.model(batch.images), batch.labels, slice(count))}
        labels = torch.cat([batch.labels, torch.from_numpy(self.memory.labels[rows])])  # (B + n,)
        features = self.model(torch.cat([batch.images, self.read(rows).images]))  # (B + n, dim)
        seen = slice(count) if self.asymmetric else slice(None)  # by incoming images
        return {
            "incoming": self.anchored(features[seen], labels[seen], slice(count)),
            "replay": self.anchored(features, labels, slice(count, None)),
        }

    def anchored(self, features: Tensor, labels: Tensor, anchors: slice) -> Tensor:
        """Mean loss of the rows ``anchors`` among features (n, dim); 0 where none of them is an anchor."""
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
        """None: there is no classifier."""
