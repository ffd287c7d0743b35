"""DKP++: DKP with distillation, and with training on images in the style of the previous domain."""

from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from lreid.losses.affinity import affinity_kl_loss
from lreid.losses.dkp import dkp_set_triplet_loss
from lreid.methods.base import Batch, Embedder, Rule, Task
from lreid.methods.dask import StyleBatch, StylePad, StyleRehearser, StyleSteps
from lreid.methods.dkp import DKP


class DKPpp(DKP):
    """DKP++ (TPAMI 2025), in the form of its official code.

    From the second task on, DKP++ also trains on rehearsed images: copies of the batch in the style of the previous
    domain (:class:`~lreid.methods.dask.StyleRehearser`). DKP++ computes the loss terms of :class:`DKP` for the original
    and for the rehearsed images. DKP++ adds two loss terms:

    * ``triplet_both``: the set triplet loss on the features of both versions of each image; the mean feature is that of
      the rehearsed version;
    * ``distill_rehearsed``: distillation of the affinities between rehearsed images; the teacher is the previous
      network after weight averaging. DKP++ swaps the two arguments of DASK's KL divergence (``reverse=True`` in
      :func:`~lreid.losses.affinity.affinity_kl_loss`).
    """

    saves: ClassVar = {"rehearser": "domain"}
    pixels = True
    defaults: ClassVar = {"transfer_weight": 1.5}
    divisible = False  # the random style needs the images of the entire batch

    def __init__(
        self,
        model: Embedder,
        *,
        distillation_weight: Annotated[float, Rule("weight of the loss term distill_rehearsed", least=0)] = 0.75,
        both_weight: Annotated[float, Rule("weight of the loss term triplet_both", least=0)] = 0.75,
        rehearsal: Annotated[bool, Rule("also train on images in the previous domain's style; False: DKP")] = True,
        distillation_temperature: Annotated[float, Rule("temperature of the affinities", above=0)] = 0.1,
        style_steps: StyleSteps = 200,
        style_batch: StyleBatch = 32,
        style_pad: StylePad = 0,
        **dkp: Any,
    ) -> None:
        super().__init__(model, **DKPpp.defaults | dkp)
        self.weights |= {"triplet_both": both_weight, "distill_rehearsed": distillation_weight}
        self.weights["triplet_rehearsed"] = self.weights["triplet"]
        self.rehearsal, self.distillation_temperature = rehearsal, distillation_temperature
        self.rehearser = StyleRehearser(model, style_steps=style_steps, style_batch=style_batch, style_pad=style_pad)

    def retention_terms(self, features: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Compute the distillation loss with prototypes, and all loss terms of the rehearsed images."""
        terms = super().retention_terms(features, batch)
        if self.rehearser.kernels is None:
            return terms
        images = self.rehearser.rehearse(batch.pixels)  # (B, 3, H, W)
        rehearsed = self.drawn(images)  # (B, 1 + S, dim)
        old = F.normalize(self.teacher.model(images), dim=1)  # (B, dim)
        of_rehearsed = self.distribution_terms(rehearsed, batch)
        of_rehearsed["distill"] = affinity_kl_loss(
            rehearsed[:, 0], old, temperature=self.distillation_temperature, reverse=True
        )
        joint_loss = dkp_set_triplet_loss(torch.cat([rehearsed, features], 1), batch.labels)
        return terms | {"triplet_both": joint_loss} | {f"{name}_rehearsed": term for name, term in of_rehearsed.items()}

    @property
    def smallest_batch(self) -> int:
        """Minimum number of images in a batch: 2 if DKP++ rehearses, because the style network has BatchNorm layers."""
        return 2 if self.rehearsal else super().smallest_batch

    def end_task(self, task: Task) -> None:
        """Store the prototypes of the task's identities, and learn the style of the task."""
        super().end_task(task)
        if self.rehearsal:
            self.rehearser.learn(task)
