"""Losses of adaptive knowledge accumulation (AKA): a plasticity loss on features, a stability loss on the graph."""

from torch import Tensor
from torch.nn import functional as F

from lreid.losses._ops import check_alike, check_rows, to_loss, unit
from lreid.losses.triplet import hardest_distances


def plasticity_loss(features: Tensor, labels: Tensor, *, margin: float = 0.3) -> Tensor:
    """Batch-hard triplet loss on ``log(1 + exp(d))`` instead of the Euclidean distance ``d``.

    Source: Pu et al., "Lifelong Person Re-Identification via Adaptive Knowledge Accumulation", CVPR 2021, in the form
    of the official code. In float32, AKA's official code overflows for distances above 88. This function computes the
    loss in float64.

    Args:
        features: ``(B, D)`` float, for each image the sum of its feature and the output of the knowledge graph.
        labels: ``(B,)`` integers, in any order, with any number of images per label.
        margin: margin of the triplet loss, in units of ``log(1 + exp(d))``.

    Returns:
        Scalar in the precision of ``features``, at least float32; 0 for a batch of one identity.

    Raises:
        ValueError: a shape is wrong.
    """
    check_rows(features, labels)
    own, other = hardest_distances(features.double(), labels)  # (B,), (B,)
    gap = F.softplus(own) - F.softplus(other)  # log(1 + exp(d)) grows with d, so the hardest pairs do not change
    return to_loss((gap + margin).clamp(min=0).mean(), features)


def stability_loss(student_vertices: Tensor, teacher_vertices: Tensor) -> Tensor:
    """Squared distance between the old and the new unit vector of each vertex, mean over the vertices.

    Source: the same as for :func:`plasticity_loss`. AKA's official code multiplies the stability loss by 0.0005.

    Args:
        student_vertices: ``(V, D)`` float vertices of the graph in training.
        teacher_vertices: ``(V, D)`` float, the same vertices after the previous task; no gradient flows to them.

    Returns:
        Scalar in ``[0, 4]`` in the precision of ``student_vertices``, at least float32.

    Raises:
        ValueError: the shapes do not match.
    """
    check_alike(student_vertices, teacher_vertices, "student_vertices and teacher_vertices", "(V, D)")
    moved = unit(student_vertices.double()) - unit(teacher_vertices.detach().double())  # (V, D)
    return to_loss(moved.square().sum(1).mean(), student_vertices)


def smoothed_cross_entropy(
    logits: Tensor, labels: Tensor, *, smoothing: float = 0.1, num_classes: int | None = None
) -> Tensor:
    """Cross-entropy with the targets ``(1 - smoothing) * one_hot + smoothing / num_classes``, mean over rows.

    If ``num_classes`` is the number of classes of the head, the loss equals
    ``torch.nn.functional.cross_entropy(..., label_smoothing=smoothing)``. AKA's official code divides by 2494, the
    number of identities of all tasks, although a head has 500 classes. With 500 classes and a divisor of 2494, the
    targets of an image sum to about 0.92.

    Args:
        logits: ``(B, K)`` float logits of one head.
        labels: ``(B,)`` int64 in ``[0, K)``.
        smoothing: label smoothing in ``[0, 1]``.
        num_classes: number by which ``smoothing`` is divided; None means ``K``. AKA's official code uses 2494.

    Returns:
        Scalar in the precision of ``logits``, at least float32.

    Raises:
        ValueError: a shape is wrong.
    """
    check_rows(logits, labels, "logits")
    log_probs = logits.double().log_softmax(1)  # (B, K)
    target = log_probs.gather(1, labels.to(logits.device, non_blocking=True)[:, None])[:, 0]  # (B,)
    others = log_probs.sum(1) / (num_classes or logits.shape[1])  # (B,)
    return to_loss(-((1 - smoothing) * target + smoothing * others).mean(), logits)
