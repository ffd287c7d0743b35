"""ER-ACE: the cross-entropy of new images covers only the classes of the incoming batch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from lreid.losses._ops import check_rows, to_loss


def asymmetric_cross_entropy(logits: Tensor, labels: Tensor, seen: Tensor | None = None) -> Tensor:
    """Cross-entropy of the incoming batch over the classes in it, averaged over images.

    The other classes get no gradient, so features of old classes are not pushed away by images that the model
    does not know yet. Old and new classes are distinguished on the replayed batch: plain cross-entropy over all
    classes.

    Source: Caccia et al., "Reducing Representation Drift in Online Continual Learning" (ER-ACE), Section 3.4,
    which sums over images. The official code leaves more classes in the denominator: all from the highest
    class seen so far on, this batch's included, that is the classes to come and, by ``>=`` for ``>``, that one
    class. Which class is the highest follows from the numbering alone, and a classifier that grows has hardly
    any class to come; so here the paper is the default, and ``seen`` gives the value of the code. Computed in
    float64.

    Args:
        logits: ``(B, K)`` float.
        labels: ``(B,)`` int64 in ``[0, K)``.
        seen: ``(any,)`` int64, classes of the batches before, or the highest of them alone: the denominator
            of the official code. None for that of the paper.

    Returns:
        Scalar in the precision of ``logits``, at least float32; 0 for a batch of one class by the paper.

    Raises:
        ValueError: ``logits`` is not ``(B, K)`` with one row for each label.
    """
    check_rows(logits, labels, "logits")
    labels = labels.to(logits.device, non_blocking=True)
    classes = torch.arange(logits.shape[1], device=logits.device)  # (K,)
    present = torch.zeros_like(classes, dtype=torch.bool).index_fill(0, labels, True)  # (K,)
    if seen is not None:
        seen = seen.to(labels.device, labels.dtype, non_blocking=True)
        present = present | (classes >= torch.cat([labels, seen]).max())
    exact = logits.double().masked_fill(~present, -torch.inf)
    return to_loss(F.cross_entropy(exact, labels), logits)
