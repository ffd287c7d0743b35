"""Distillation of relations: each image's similarities to the other images of the batch, as a distribution."""

import torch
from torch import Tensor

from lreid.losses._ops import check_alike, check_pairs, log_probabilities, to_loss, without_column


def relation_distillation_loss(
    student: Tensor, teacher: Tensor, *, temperature: float = 0.2, teacher_temperature: float = 0.01
) -> Tensor:
    """Compute instance-wise relation distillation (IRD): distil each image's similarities to the rest of the batch.

    For each row, a model's distribution is the softmax of the cosines to all other rows, divided by a temperature. The
    loss is the cross-entropy between the teacher's and the student's distribution, mean over the rows. If teacher and
    student are equal, the loss is still above 0, because the teacher's entropy is not subtracted and the two
    temperatures differ.

    Source: Cha et al., "Co²L: Contrastive Continual Learning", ICCV 2021, Eqs. 11-13. Co²L's paper prints the sum over
    the rows. This function uses the mean, like Co²L's official code. Applied to outputs of the projection head, the
    loss is IRD. Applied to outputs of the encoder, the loss is "SEED" in Co²L's Table 6 (Eqs. 14-16). The loss is
    computed in float64 from log-probabilities.

    Args:
        student: ``(B, D)`` float unit vectors of the model in training, one row for each view of each image.
        teacher: ``(B, D')`` float unit vectors of the same views by the previous model; no gradient flows to them.
        temperature: divisor of the student's cosines, above 0 (κ in Co²L's paper).
        teacher_temperature: divisor of the teacher's cosines, above 0 (κ* in Co²L's paper).

    Returns:
        Scalar in the dtype of ``student`` (float32 for half precision); 0 for fewer than three rows.

    Raises:
        ValueError: the shapes do not match, or a temperature is not above 0.
    """
    check_pairs(student, teacher)
    log_old = log_relations(teacher.detach(), teacher_temperature)  # (B, B - 1)
    log_new = log_relations(student, temperature)
    return to_loss(mean_cross_entropy(log_old, log_new), student)


def mean_squared_distillation_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Compute the squared Euclidean distance between old and new features, mean over the rows.

    Source: Co²L, Eqs. 17 and 18. Co²L's Table 6 compares this loss with IRD, both on encoder outputs and on projection
    outputs before scaling to unit length. The loss equals ``D`` times the mean squared difference of all entries.

    Args:
        student: ``(B, D)`` float features of the model in training.
        teacher: ``(B, D)`` float features of the same rows by the previous model; no gradient flows to them.

    Returns:
        Scalar in the dtype of ``student`` (float32 for half precision); 0 for no rows.
    """
    check_alike(student, teacher, "student and teacher")
    squares = (student.double() - teacher.detach().double()).square()  # (B, D)
    return to_loss(squares.sum() / max(len(squares), 1), student)


def log_relations(vectors: Tensor, temperature: float) -> Tensor:
    """Compute the log-softmax of each row's dot products with all other rows: ``(n, D)`` to ``(n, n - 1)`` float64."""
    exact = vectors.double()
    return log_probabilities(without_self(exact @ exact.T), temperature)


def without_self(matrix: Tensor) -> Tensor:
    """Remove the diagonal of a matrix: ``(n, n)`` to ``(n, n - 1)``; the other entries keep their order."""
    return without_column(matrix, torch.arange(len(matrix), device=matrix.device))


def mean_cross_entropy(log_old: Tensor, log_new: Tensor) -> Tensor:
    """Compute the cross-entropy between old and new log-probabilities ``(n, m)``, mean over rows; 0 without rows."""
    return -(log_old.exp() * log_new).sum() / max(len(log_new), 1)
