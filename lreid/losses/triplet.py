"""Batch-hard triplet loss: each anchor is compared with its farthest positive and its nearest negative in the batch."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from lreid.losses._ops import check, check_rows, check_shapes, squared_distances, to_loss, unit


def batch_hard_triplet_loss(
    features: Tensor,
    labels: Tensor,
    *,
    margin: float | None = 0.3,
    normalize: bool = False,
    reduction: Literal["mean", "none"] = "mean",
) -> Tensor:
    """Compute the batch-hard triplet loss ``max(0, d+ - d- + margin)`` on Euclidean distances, mean over the batch.

    Source: Hermans et al., "In Defense of the Triplet Loss", 2017; Luo et al., "Bag of Tricks" (BoT), 2019. If every
    identity has the same number of images in the batch, the value equals that of BoT's official code. For other
    batches, and for batches of one identity, BoT's official code returns a wrong value or an error. This function also
    handles batches with different numbers of images per identity, and batches of one identity. The loss is computed in
    float64.

    Args:
        features: ``(B, D)`` float; BoT uses the features before its BatchNorm neck.
        labels: ``(B,)`` integers, in any order, with any number of images per label. The only image of an identity is
            its own positive.
        margin: margin in units of the distance, or None for the soft margin ``log(1 + exp(d+ - d-))``.
        normalize: whether to scale the features to unit length first.
        reduction: ``mean``, or ``none`` to return the loss term of every row ``(B,)``, in the order of the rows.

    Returns:
        Scalar, or ``(B,)``, in the dtype of ``features`` (float32 for half precision); 0 for a batch of one identity.

    Raises:
        ValueError: a shape is wrong, or the reduction is unknown.
    """
    check_rows(features, labels)
    check(reduction in ("mean", "none"), f"unknown reduction {reduction!r}; use mean or none")
    exact = features.double()
    own, other = hardest_distances(unit(exact) if normalize else exact, labels)
    gap = own - other  # (B,)
    loss = F.softplus(gap) if margin is None else (gap + margin).clamp(min=0)
    return to_loss(loss if reduction == "none" else loss.mean(), features)


def hardest_distances(
    anchors: Tensor, labels: Tensor, points: Tensor | None = None, point_labels: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute each anchor's distance to the farthest point with its label and to the nearest point with another label.

    Args:
        anchors: ``(B, D)`` float64.
        labels: ``(B,)`` integers.
        points: ``(n, D)`` float64; None means that the anchors are the points.
        point_labels: ``(n,)`` integers, which include the label of every anchor; None means ``labels``.

    Returns:
        Distances to the farthest point with the same label and to the nearest point with another label, both ``(B,)``
        float64. The distance to the nearest point with another label is infinite if there is no such point. As in the
        official code of BoT and AKA, distances below 1e-6 count as 1e-6 and have no gradient.
    """
    check_shapes(labels.ndim == 1, "labels must be (B,)", labels)
    labels = labels.to(anchors.device, non_blocking=True)
    points = anchors if points is None else points
    same = labels[:, None] == (labels if point_labels is None else point_labels)  # (B, n)
    distance = squared_distances(anchors, points).clamp(min=1e-12).sqrt()  # (B, n)
    farthest_own = distance.masked_fill(~same, -torch.inf).max(1).values
    nearest_other = distance.masked_fill(same, torch.inf).min(1).values
    return farthest_own, nearest_other
