"""ER-ACE: the cross-entropy of new images covers only the classes of the incoming batch."""

import torch
from torch import Tensor
from torch.nn import functional as F

from lreid.losses._ops import check_rows, to_loss


def asymmetric_cross_entropy(logits: Tensor, labels: Tensor, seen: Tensor | None = None) -> Tensor:
    """Cross-entropy of the incoming batch, with a softmax over the classes of this batch only; mean over images.

    Classes outside the batch get no gradient, so new images do not push away the features of old classes. The model
    learns to distinguish old from new classes by a plain cross-entropy over all classes on the replayed batch.

    Source: Caccia et al., "Reducing Representation Drift in Online Continual Learning" (ER-ACE), Section 3.4, where the
    loss is a sum over images. In ER-ACE's official code, the denominator also includes the highest class seen so far
    (including this batch) and all classes with higher numbers. These additional classes depend only on how classes are
    numbered, and a growing classifier has hardly any. The default is therefore the paper's form, and ``seen`` selects
    the form of the official code. The loss is computed in float64.

    Args:
        logits: ``(B, K)`` float.
        labels: ``(B,)`` int64 in ``[0, K)``.
        seen: ``(n,)`` int64, the classes of earlier batches (the highest class is enough), for the denominator of the
            official code; None for the denominator of the paper.

    Returns:
        Scalar in the precision of ``logits``, at least float32. For a batch of one class, the paper's form is 0.

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
