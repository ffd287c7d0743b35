"""CCLIS: contrast between prototypes and images; stored images are weighted by their draw probability."""

from collections.abc import Iterable

import torch
from torch import Tensor

from lreid.losses._ops import (
    check,
    check_alike,
    check_rows,
    check_shapes,
    check_temperature,
    log_probabilities,
    to_loss,
)
from lreid.losses.relations import mean_cross_entropy
from lreid.losses.supcon import is_among


def sample_nce_loss(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor,
    current_classes: Tensor | Iterable[int],
    *,
    temperature: float = 0.5,
) -> Tensor:
    """Compute Sample-NCE, a contrastive loss in which each prototype recognises the images of its class.

    A prototype's softmax is over the images of the batch, not over the classes. The loss term of image ``j`` is ``-s_yj
    + log sum_k w_jk exp(s_yk)``. In this loss term, ``y`` is the label of ``j``, and ``s_yk`` is the cosine between
    prototype ``y`` and image ``k``, divided by the temperature. The weight ``w_jk`` is ``1 / (g_k n_k)`` if ``j`` and
    ``k`` belong to different past classes, and 1 otherwise. In the weight, ``g_k`` is the probability with which ``k``
    was drawn into the memory, and ``n_k`` is the number of images of its class in the batch. With the weights ``w_jk``,
    the stored images represent all images of their task. The loss is the mean of the loss terms over the images of the
    batch.

    Source: Li et al., "Contrastive Continual Learning with Importance Sampling and Prototype-Instance Relation
    Distillation" (CCLIS), AAAI 2024, Eqs. 9 and 10; the paper prints a sum over the batch instead of a mean. CCLIS's
    official code treats the current task like a past task unless every task has exactly two classes; an empty
    ``current_classes`` reproduces this. In CCLIS's official code, a weight of 0 makes the loss NaN. An image that was
    not drawn by importance has weight 0; for such an image, this function uses ``w_jk = 1``. The loss is computed in
    float64 from log-probabilities.

    Args:
        scores: ``(B, C)`` float cosines of each image with each prototype.
        labels: ``(B,)`` int64 in ``[0, C)``: for each image, the column of the prototype of its class.
        weights: ``(B,)`` float in ``[0, 1]``. The weight of a stored image is its score divided by the sum of the
            scores of its class, at the time it was drawn (:func:`lreid.memory.selection.importance_weights`). Weights
            of images of current classes have no effect.
        current_classes: labels of the current task, in any order.
        temperature: divisor of the cosines, above 0.

    Returns:
        Scalar in the dtype of ``scores`` (float32 for half precision); 0 for an empty batch.
    """
    check_rows(scores, labels, "scores")
    check_shapes(weights.shape == labels.shape, "weights must have the shape of labels", weights, labels)
    check_temperature(temperature)
    past = ~is_among(labels, current_classes)  # (B,)
    labels, weights, past = (each.to(scores.device, non_blocking=True) for each in (labels, weights.double(), past))
    same = labels[:, None] == labels  # (B, B)
    share = weights * same.sum(1)  # (B,) g_k n_k
    log_weights = -share.masked_fill(share <= 0, 1).log()
    weighted = past[:, None] & past & ~same  # (B, B)
    own = scores.double()[:, labels].T / temperature  # (B, B) prototype of j, image k
    log_p = torch.where(weighted, own + log_weights, own).log_softmax(1).diagonal()  # (B,)
    return to_loss(-log_p.sum() / max(len(log_p), 1), scores)


def prototype_relation_loss(
    student_scores: Tensor, teacher_scores: Tensor, *, temperature: float = 0.2, teacher_temperature: float = 0.1
) -> Tensor:
    """Prototype-instance relation distillation (PRD), which preserves each image's similarities to old prototypes.

    The loss is the cross-entropy between the teacher's and the student's softmax over prototypes of previous classes,
    mean over all images of the batch. If teacher and student are equal, the loss is still above 0, because the
    teacher's entropy is not subtracted.

    Source: CCLIS, Eqs. 13 and 14, as in the official code. CCLIS's paper instead prints a sum over the batch, and its
    softmax includes the prototypes of current classes (pass the columns of all classes to get it).

    Args:
        student_scores: ``(B, C_old)`` float cosines between images and the prototypes of previous classes.
        teacher_scores: ``(B, C_old)`` float cosines of the same images and prototypes in the previous model; no
            gradient flows to them.
        temperature: divisor of the student's cosines, above 0.
        teacher_temperature: divisor of the teacher's cosines, above 0.

    Returns:
        Scalar in the dtype of ``student_scores`` (float32 for half precision); 0 if there are fewer than two previous
        classes.
    """
    check_alike(student_scores, teacher_scores, "student_scores and teacher_scores", "(B, C_old)")
    log_old = log_probabilities(teacher_scores.detach(), teacher_temperature)  # (B, C_old)
    log_new = log_probabilities(student_scores, temperature)
    return to_loss(mean_cross_entropy(log_old, log_new), student_scores)


def importance_scores(scores: Tensor, labels: Tensor, *, temperature: float = 0.5, own_class: bool = False) -> Tensor:
    """Score images by their similarity to other classes; CCLIS draws images into the memory by these scores.

    For each prototype, a softmax over all images gives each image a probability. The score of an image is its mean
    probability over the prototypes of other classes.

    Source: CCLIS, Eq. 12. CCLIS's official code averages the scores over five passes with augmented images. By a fault
    of the official code, its last pass also contains the term of an image's own class. To reproduce the official
    scores, average over several passes and set ``own_class`` in the last pass only. With a single class, all images
    have the same score.

    Args:
        scores: ``(N, C)`` float cosines of all candidate images with the prototypes of all classes so far.
        labels: ``(N,)`` int64 in ``[0, C)``.
        temperature: divisor of the cosines, above 0.
        own_class: whether to include the term of the image's own class; the sum is divided by ``C - 1`` in either case.

    Returns:
        Scores ``(N,)`` in the dtype of ``scores`` (float32 for half precision); they are above 0 unless a softmax
        underflows.
    """
    check_rows(scores, labels, "scores")
    classes = scores.shape[1]
    labels = labels.to(scores.device)
    check(((labels >= 0) & (labels < classes)).all(), f"labels must be in [0, {classes}), the columns of scores")
    if classes == 1:
        return to_loss(torch.full_like(scores[:, 0], 1 / max(len(scores), 1)), scores)
    p = log_probabilities(scores.T, temperature).exp().T  # (N, C) each column sums to 1
    if not own_class:
        p = p.scatter(1, labels[:, None], 0)
    return to_loss(p.sum(1) / (classes - 1), scores)
