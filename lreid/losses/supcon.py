"""Supervised contrastive loss whose anchors can be limited to classes of the current task."""

from collections.abc import Iterable

import torch
from torch import Tensor

from lreid.losses._ops import check_shapes, check_temperature, to_loss
from lreid.losses.relations import log_relations, without_self


def asymmetric_supcon_loss(
    projections: Tensor,
    labels: Tensor,
    current_classes: Tensor | Iterable[int],
    *,
    temperature: float,
    base_temperature: float = 0.07,
) -> Tensor:
    """Compute the asymmetric supervised contrastive loss, in which images of past classes are negatives only.

    Every view of every image is a row; rows of current classes are the anchors. An anchor's softmax is over its cosines
    to all other rows, including rows of past classes. The loss term of an anchor is the negative mean log-probability
    of the other rows of its class. The loss is the sum of the anchors' loss terms, divided by the number of *all* rows
    and multiplied by ``temperature / base_temperature``.

    Source: Cha et al., "Co²L: Contrastive Continual Learning", ICCV 2021, Eq. 10. Co²L's official code also divides by
    the number of rows and multiplies by ``temperature / base_temperature``, which weights this loss relative to the
    distillation loss. Co²L's paper prints a sum over the anchors, which is ``B * V`` times this loss with
    ``base_temperature=temperature``. If ``current_classes`` contains all labels, the loss is the usual SupCon loss
    (Khosla et al., NeurIPS 2020). If a class has only one row, the loss term of this row is 0; in Co²L's official code,
    it is NaN. The loss is computed in float64 from log-probabilities.

    Args:
        projections: ``(B, V, D)`` float unit vectors, ``V >= 1`` views of each image.
        labels: ``(B,)`` integers, in any order, with any number of images per label.
        current_classes: labels of the current task, in any order; the batch need not contain all of them.
        temperature: divisor of the cosines, above 0.
        base_temperature: above 0; the loss is multiplied by ``temperature / base_temperature``.

    Returns:
        Scalar in the dtype of ``projections`` (float32 for half precision); 0 for a batch without current classes.

    Raises:
        ValueError: a shape is wrong, or a temperature is not above 0.
    """
    fit = projections.ndim == 3 and labels.shape == projections.shape[:1]
    check_shapes(fit, "projections must be (B, V, D) and labels (B,)", projections, labels)
    check_temperature(base_temperature)
    rows = projections.flatten(0, 1)  # (BV, D) the views of an image one after the other
    anchors = is_among(labels, current_classes)  # (B,), computed before the labels are sent to the device
    labels, anchors = (each.to(rows.device, non_blocking=True) for each in (labels, anchors))
    names = labels.repeat_interleave(projections.shape[1])  # (BV,)
    log_p = log_relations(rows, temperature)  # (BV, BV - 1)
    positive = without_self(names[:, None] == names)  # (BV, BV - 1)
    terms = -log_p.masked_fill(~positive, 0).sum(1) / positive.sum(1).clamp(min=1)  # (BV,)
    total = (terms * anchors.repeat_interleave(projections.shape[1])).sum()
    return to_loss(total / max(len(rows), 1) * (temperature / base_temperature), projections)


def is_among(labels: Tensor, classes: Tensor | Iterable[int]) -> Tensor:
    """Return a mask ``(B,)`` bool of the labels that are among ``classes``."""
    if not isinstance(classes, Tensor):
        classes = torch.tensor(list(classes), dtype=torch.int64)
    return torch.isin(labels, classes.to(labels.device))
