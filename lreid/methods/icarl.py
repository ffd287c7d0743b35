"""iCaRL: a sigmoid for each identity, exemplars by herding, and the previous model's sigmoids as targets."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lreid.data.loaders import Batch
from lreid.losses.icarl import icarl_loss
from lreid.losses.triplet import batch_hard_triplet_loss
from lreid.methods.lwf import LwF
from lreid.models.embedder import Embedder


class ICaRL(LwF):
    """iCaRL (Rebuffi et al., CVPR 2017, Algorithms 2 to 5) on BoT's network, with 500 exemplars in all.

    With logits ``z``, sigmoids ``g``, new identities N and old ones O, an image of identity y costs (Algorithm 3)::

        - sum_{k in N} [k = y] log g(z_k) + [k != y] log(1 - g(z_k))
        - sum_{k in O} q_k log g(z_k) + (1 - q_k) log(1 - g(z_k)),    q_k the sigmoid of the previous model

    The term ``bce`` is this with labels as targets everywhere, ``distill`` what ``q`` adds in their place, so their
    sum is the formula. DwoPP (BMVC 2022, Table 1), which compares with it on re-ID, publishes no recipe. Our choices:

    * BoT's triplet loss stays, with weight 1. Memory and batches are those of :class:`BoTFineTuning`.
    * Sums over identities, as in the paper; the code of mammoth takes the mean.
    * With K identities, the sigmoid is shifted to ``g(z) = 1 / (1 + (K - 1) exp(-z))`` for the current and the previous
      model, so that ``z = 0`` gives 1 / K. The paper's layer has a bias. BoT's has none and features of mean 0, so its
      logits could not be mostly negative.
    * Retrieval compares embeddings, as for every other method. The paper's nearest-mean classifier classifies the
      identities of the training set apart, and none of them is in a test set.

    Args:
        distillation_weight: 1 is iCaRL, 0 fine-tuning with sigmoids and exemplars.
    """

    unused = ("temperature", "label_smoothing")

    def __init__(self, model: Embedder, *, exemplars: int = 500, **options: Any) -> None:
        super().__init__(model, exemplars=exemplars, **options)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Binary cross-entropies with the previous network's outputs for old classes, and the triplet loss."""
        features = self.model(batch.images)  # (B, dim)
        logits = self.classifier(self.model.neck(features))  # (B, K)
        labels, classes = batch.labels.to(features.device, non_blocking=True), logits.shape[1]
        shift = math.log(max(classes - 1, 1))
        terms = {
            "bce": classes * icarl_loss(logits - shift, labels),
            "triplet": batch_hard_triplet_loss(features, labels, **self.triplet),
        }
        if self.teacher is not None:
            with torch.no_grad():
                old = self.old_classifier(self.teacher.neck(self.teacher(batch.images)))  # (B, K_old)
            terms["distill"] = classes * icarl_loss(logits - shift, labels, old - shift) - terms["bce"]
        return terms
