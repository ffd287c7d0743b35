"""Losses of adaptive knowledge accumulation (AKA): a plasticity loss on features, a stability loss on the graph."""

from torch import Tensor
from torch.nn import functional as F

from lreid.losses._ops import check_alike, check_rows, to_loss, unit
from lreid.losses.triplet import hardest_distances


def plasticity_loss(features: Tensor, labels: Tensor, *, margin: float = 0.3) -> Tensor:
    """Compute a batch-hard triplet loss with ``log(1 + exp(d))`` in place of the Euclidean distance ``d``.

    Source: Pu et al., "Lifelong Person Re-Identification via Adaptive Knowledge Accumulation", CVPR 2021, in the form
    of the official code. AKA's official code overflows in float32 if a distance is above 88. This function computes the
    loss in float64 and does not overflow.

    Args:
        features: ``(B, D)`` float: for each image, the sum of its feature and of the knowledge graph's output.
        labels: ``(B,)`` integers, in any order, with any number of images per label.
        margin: margin of the triplet loss, in units of ``log(1 + exp(d))``.

    Returns:
        Scalar in the dtype of ``features`` (float32 for half precision); 0 for a batch of one identity.
    """
    check_rows(features, labels)
    own, other = hardest_distances(features.double(), labels)  # (B,), (B,)
    gap = F.softplus(own) - F.softplus(other)  # log(1 + exp(d)) grows with d, so the hardest pairs do not change
    return to_loss((gap + margin).clamp(min=0).mean(), features)


def stability_loss(student_vertices: Tensor, teacher_vertices: Tensor) -> Tensor:
    """Compute the squared distance between the old and the new unit vector of each vertex, mean over the vertices.

    Source: Pu et al. (AKA), as for :func:`plasticity_loss`. AKA's official code multiplies the stability loss by
    0.0005; the caller of this function does so.

    Args:
        student_vertices: ``(V, D)`` float vertices of the graph in training.
        teacher_vertices: ``(V, D)`` float, the same vertices after the previous task; no gradient flows to them.

    Returns:
        Scalar in ``[0, 4]`` in the dtype of ``student_vertices`` (float32 for half precision).
    """
    check_alike(student_vertices, teacher_vertices, "student_vertices and teacher_vertices", "(V, D)")
    moved = unit(student_vertices.double()) - unit(teacher_vertices.detach().double())  # (V, D)
    return to_loss(moved.square().sum(1).mean(), student_vertices)


def smoothed_cross_entropy(
    logits: Tensor, labels: Tensor, *, smoothing: float = 0.1, num_classes: int | None = None
) -> Tensor:
    """Cross-entropy with the targets ``(1 - smoothing) * one_hot + smoothing / num_classes``, mean over rows.

    If ``num_classes`` is the number of columns of ``logits``, the loss equals ``torch.nn.functional.cross_entropy(...,
    label_smoothing=smoothing)``. AKA's official code uses 2494, the number of identities of all tasks, for classifiers
    of 500 classes. With 500 classes and ``num_classes=2494``, the targets of an image sum to about 0.92 instead of 1.

    Args:
        logits: ``(B, K)`` float logits of one classifier.
        labels: ``(B,)`` int64 in ``[0, K)``.
        smoothing: label smoothing in ``[0, 1]``.
        num_classes: number of classes that share the smoothed probability; None means ``K``. AKA's official code uses
            ``num_classes=2494``.

    Returns:
        Scalar in the dtype of ``logits`` (float32 for half precision).
    """
    check_rows(logits, labels, "logits")
    log_probs = logits.double().log_softmax(1)  # (B, K)
    target = log_probs.gather(1, labels.to(logits.device, non_blocking=True)[:, None])[:, 0]  # (B,)
    others = log_probs.sum(1) / (num_classes or logits.shape[1])  # (B,)
    return to_loss(-((1 - smoothing) * target + smoothing * others).mean(), logits)
