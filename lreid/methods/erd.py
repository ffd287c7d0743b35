"""ERD: DMML with two distillation terms that use episodes of exemplars."""

from typing import Annotated, Any

import torch
from torch import Tensor

from lreid.data.loaders import Batch
from lreid.losses.erd import erd_losses
from lreid.methods.dwpp import DwPP
from lreid.models.embedder import Embedder
from lreid.rules import Rule


class ERD(DwPP):
    """Episodic replay distillation (Wang et al., CVPR Workshops 2022) with the DMML loss and 500 exemplars in total.

    From the second task on, a batch of N identities has two parts, each an episode. The previous part contains N / 2
    identities from the memory. The current part contains the other identities: identities of the task, and the
    remaining identities from the memory. Two distillation terms are added to the DMML loss, each with the weight 0.5,
    as in ERD's official code:

    * ``distill`` covers the queries of the previous part. The term compares the distributions of the current and the
      previous model over the prototypes of the previous part; each model computes its own prototypes.
    * ``align`` covers all images of the current part. The term compares the distributions of the current and the
      previous model over the prototypes of the previous part, which the previous model computes.

    ERD's official code is for few-shot learning. DwoPP (BMVC 2022, Table 1) replaces ERD's cross-entropy by the DMML
    loss and gives no other details. Three choices follow ERD's official code. First, 6 of the 2 x 5 identities of a
    batch come from the memory. A batch is therefore 2.5 times as large as a batch without exemplars. Second, exemplars
    are the images nearest to the mean feature of their identity. Third, probabilities have a minimum. Three other
    choices are lreid's. First, every identity has an equal share of the memory. Second, if the memory has too few
    exemplars, the previous part of a batch is smaller. Third, the DMML loss covers the entire batch, including the
    exemplars; in ERD's official code, the loss covers the current part only. Without exemplars, the method equals
    DMML-FT.
    """

    def __init__(
        self,
        model: Embedder,
        *,
        distillation_weight: Annotated[float, Rule("weight of the loss term distill", least=0)] = 0.5,
        alignment_weight: Annotated[float, Rule("weight of the loss term align", least=0)] = 0.5,
        temperature: Annotated[float, Rule("temperature of all distributions", above=0)] = 1.0,
        whole_batch: Annotated[
            bool, Rule("compute the DMML loss over the entire batch; if False, over the current part only")
        ] = True,
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
        """Compute the DMML loss and, if the batch has exemplars, both distillation terms."""
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
        """Return the mask (B,) bool of the previous part: the first identities with exemplars, at most half of all."""
        identities = list(dict.fromkeys(labels.tolist()))
        exemplars = set(self.memory.labels.tolist())
        old = [label for label in identities if label in exemplars]
        return torch.isin(labels, torch.tensor(old[: len(identities) // 2]))
