"""ER-ACE: the cross-entropy of new images covers only the classes of the incoming batch."""

import torch
from torch import Tensor
from torch.nn import functional as F

from lreid.losses._ops import check_rows, to_loss


def asymmetric_cross_entropy(logits: Tensor, labels: Tensor, seen: Tensor | None = None) -> Tensor:
    """Compute the cross-entropy of the incoming batch over the classes of this batch only, mean over images.

    Classes outside the batch get no gradient, so new images do not push away the features of old classes. The model
    learns to distinguish old from new classes by the usual cross-entropy over all classes on stored images.

    Source: Caccia et al., "Reducing Representation Drift in Online Continual Learning" (ER-ACE), Section 3.4, where the
    loss is a sum over images. In ER-ACE's official code, the denominator also includes the highest class so far
    (including this batch) and all classes above it. These additional classes depend only on how the classes are
    numbered, and a growing classifier has hardly any of them. By default, this function computes the paper's form; with
    ``seen``, it computes the form of the official code. The loss is computed in float64.

    Args:
        logits: ``(B, K)`` float.
        labels: ``(B,)`` int64 in ``[0, K)``.
        seen: ``(n,)`` int64 classes of earlier batches (the highest class is enough) for the official denominator; None
            for the paper's denominator.

    Returns:
        Scalar in the dtype of ``logits`` (float32 for half precision). For a batch with one class, the loss in the
        paper's form is 0.
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
