"""ERD: DMML with two distillation terms that use episodes of exemplars."""

from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from lreid.losses.erd import erd_losses
from lreid.methods.base import Batch, Embedder, Rule
from lreid.methods.dwpp import DwPP


class ERD(DwPP):
    """Episodic replay distillation (Wang et al., CVPR Workshops 2022) with the DMML loss and 500 exemplars in total.

    From the second task on, a batch of N identities is divided into two episodes, the previous part and the current
    part. The previous part contains N / 2 identities from the memory. The current part contains the identities of the
    task and the remaining identities from the memory. Two distillation terms are added to the DMML loss, each with the
    weight 0.5, as in ERD's official code:

    * ``distill`` covers the queries of the previous part. The term compares two distributions over the prototypes of
      the previous part: one of the current and one of the previous model. Each model computes its own prototypes.
    * ``align`` covers all images of the current part. The term compares the same distributions as ``distill``, but the
      previous model computes the prototypes for both models.

    ERD's official code is for few-shot learning. DwoPP (BMVC 2022, Table 1) replaces ERD's cross-entropy by the DMML
    loss and gives no other details. lreid takes three choices from ERD's official code. First, 6 of the 2 x 5
    identities of a batch come from the memory, so a batch is 2.5 times as large as without exemplars. Second, the
    exemplars of an identity are the images nearest to its mean feature. Third, probabilities in the distillation have a
    minimum. Three other choices are lreid's own. First, every identity has an equal share of the memory. Second, if the
    memory has too few identities, the previous part of a batch is smaller than N / 2. Third, the DMML loss covers all
    images of the batch; in ERD's official code, it covers the current part only. Without exemplars, ERD equals DMML-FT.
    """

    defaults: ClassVar = {"exemplars": 500, "selection": "nearest", "exemplar_share": 0.6}

    def __init__(
        self,
        model: Embedder,
        *,
        distillation_weight: Annotated[float, Rule("weight of the loss term distill in the total loss", least=0)] = 0.5,
        alignment_weight: Annotated[float, Rule("weight of the loss term align in the total loss", least=0)] = 0.5,
        temperature: Annotated[float, Rule("temperature of all distributions in the distillation", above=0)] = 1.0,
        whole_batch: Annotated[bool, Rule("DMML loss of the whole batch; if False, of the current part")] = True,
        **options: Any,
    ) -> None:
        options = ERD.defaults | options
        super().__init__(model, distillation_weight=distillation_weight, temperature=temperature, **options)
        self.weights["align"] = alignment_weight
        self.whole_batch = whole_batch

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the DMML loss and, if the batch has exemplars, both distillation terms."""
        student = self.model(batch.images)  # (B, dim)
        previous = self.previous_part(batch.labels)  # (B,)
        rows = (torch.ones_like(previous) if self.whole_batch else ~previous).nonzero()[:, 0]
        learned = student[rows.to(student.device, non_blocking=True)]
        terms = self.episode_loss(learned, batch._replace(labels=batch.labels[rows]))
        if previous.any():
            teacher = self.teacher(batch.images)  # (B, dim)
            terms["distill"], terms["align"] = erd_losses(
                student, teacher, batch.labels, batch.num_support, previous, **self.distillation_options
            )
        return terms

    def previous_part(self, labels: Tensor) -> Tensor:
        """Return a mask (B,) bool of the previous part: the first identities with exemplars, at most half of all."""
        identities = list(dict.fromkeys(labels.tolist()))
        exemplars = set(self.memory.labels.tolist())
        old = [label for label in identities if label in exemplars]
        return torch.isin(labels, torch.tensor(old[: len(identities) // 2]))
