"""iCaRL: a sigmoid per identity, exemplars selected by herding, and distillation of the previous model's sigmoids."""

import math
from typing import Any

from torch import Tensor

from lreid.losses.icarl import icarl_loss
from lreid.losses.triplet import batch_hard_triplet_loss
from lreid.methods.base import Batch, Embedder
from lreid.methods.lwf import LwF


class ICaRL(LwF):
    """iCaRL (Rebuffi et al., CVPR 2017, Algorithms 2 to 5) on BoT's network, with 500 exemplars in total.

    An image of identity y has logits ``z``. With the sigmoid ``g``, new identities N and old identities O, its loss is
    (Algorithm 3)::

        - sum_{k in N} [k = y] log g(z_k) + [k != y] log(1 - g(z_k))
        - sum_{k in O} q_k log g(z_k) + (1 - q_k) log(1 - g(z_k)),    q_k the sigmoid of the previous model

    The logged term ``bce`` is the same loss with labels instead of ``q`` as targets for old identities. The logged term
    ``distill`` is the loss minus ``bce``, so both terms sum to the loss. DwoPP's authors (BMVC 2022, Table 1) compare
    with iCaRL on re-ID but do not publish details. The following choices are therefore lreid's:

    * BoT's triplet loss is added to the loss with weight 1. Memory and batches are the same as in
      :class:`BoTFineTuning`.
    * The loss is a sum over identities, as in iCaRL's paper; the code of mammoth uses the mean.
    * With K identities, both models use the shifted sigmoid ``g(z) = 1 / (1 + (K - 1) exp(-z))``, so that ``z = 0``
      gives 1 / K. In iCaRL's official code, the bias of the linear layer learns such a shift. BoT's linear layer
      has no bias and its input features have mean 0, so the layer cannot compute mostly negative logits.
    * Retrieval compares features, as in every method of lreid. The nearest-mean classifier of iCaRL's paper covers only
      training identities, which never occur in a re-ID test set.

    Args:
        distillation_weight: weight of the distillation: 1 gives iCaRL; 0 gives fine-tuning with sigmoids and exemplars.
    """

    unused = ("temperature", "label_smoothing")

    def __init__(self, model: Embedder, *, exemplars: int = 500, **options: Any) -> None:
        super().__init__(model, exemplars=exemplars, **options)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the loss terms ``bce``, ``triplet`` and, from the second task on, ``distill``."""
        features = self.model(batch.images)  # (B, dim)
        logits = self.classifier(self.model.neck(features))  # (B, K)
        labels, classes = batch.labels.to(features.device, non_blocking=True), logits.shape[1]
        shift = math.log(max(classes - 1, 1))
        triplet = batch_hard_triplet_loss(features, labels, **self.triplet)
        terms = {"bce": classes * icarl_loss(logits - shift, labels), "triplet": triplet}
        if self.teacher is not None:
            old = self.old_classifier(self.teacher.neck(self.teacher(batch.images)))  # (B, K_old)
            terms["distill"] = classes * icarl_loss(logits - shift, labels, old - shift) - terms["bce"]
        return terms
