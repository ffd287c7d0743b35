"""ERD: DMML with episodes of exemplars, whose prototypes distil the previous model."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor

from lreid.data.loaders import Batch
from lreid.losses.erd import erd_losses
from lreid.methods.dwpp import DwPP
from lreid.models.embedder import Embedder
from lreid.rules import Rule


class ERD(DwPP):
    """Episodic replay distillation (Wang et al., CVPR Workshops 2022) on the DMML loss, with 500 exemplars in all.

    From the second task on a batch of N identities is two episodes. The previous part is N / 2 exemplar identities.
    The current part is the others: those of the task with a few further exemplar identities among them. To the DMML
    loss come two distillations, each of weight 0.5 as in the official code:

    * ``distill``: over the queries of the previous part, between the models' distributions over its prototypes;
    * ``align``: over all images of the current part, over the previous part's prototypes by the previous model.

    The official code is of few-shot learning. DwoPP (BMVC 2022, Table 1) puts the DMML loss in place of the
    cross-entropy and says nothing else. Three things follow that code: 6 of the 2 x 5 identities of a batch are
    exemplars (so a batch is 2.5 times as large as one without), exemplars are the images nearest to their mean, and
    probabilities have a minimum. Three things are ours: every identity has an equal share of the memory, the previous
    part is smaller if there are too few exemplars, and DMML runs over the whole batch, so that exemplars also teach
    with their labels; in that code it runs over the current part. Without exemplars the method is DMML-FT.
    """

    def __init__(
        self,
        model: Embedder,
        *,
        distillation_weight: Annotated[float, Rule("weight of the two terms", least=0)] = 0.5,
        alignment_weight: Annotated[float, Rule("weight of the two terms", least=0)] = 0.5,
        temperature: Annotated[float, Rule("temperature of all distributions", above=0)] = 1.0,
        whole_batch: Annotated[bool, Rule("False takes the DMML loss of the current part only")] = True,
        exemplars: int = 500,
        selection: str = "nearest",
        exemplar_share: float = 0.6,
        **options: Any,
    ) -> None:
        super().__init__(
            model,
            distillation_weight=distillation_weight,
            temperature=temperature,
            exemplars=exemplars,
            selection=selection,
            exemplar_share=exemplar_share,
            **options,
        )
        self.weights["align"] = alignment_weight
        self.whole_batch = whole_batch

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """DMML, and both distillation terms on the images of past tasks in the batch."""
        student = self.model(batch.images)  # (B, dim)
        previous = self.previous_part(batch.labels)  # (B,)
        rows = (torch.ones_like(previous) if self.whole_batch else ~previous).nonzero()[:, 0]
        learned = student[rows.to(student.device, non_blocking=True)]
        terms = self.episode_loss(learned, batch._replace(labels=batch.labels[rows]))
        if previous.any():
            with torch.no_grad():
                teacher = self.teacher(batch.images)  # (B, dim)
            terms["distill"], terms["align"] = erd_losses(
                student, teacher, batch.labels, batch.num_support, previous, **self.distillation_options
            )
        return terms

    def previous_part(self, labels: Tensor) -> Tensor:
        """The rows (B,) bool of the first exemplar identities in a batch, at most half of all its identities."""
        identities = list(dict.fromkeys(labels.tolist()))
        exemplars = set(self.memory.labels.tolist())
        old = [label for label in identities if label in exemplars]
        return torch.isin(labels, torch.tensor(old[: len(identities) // 2]))
