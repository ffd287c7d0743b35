"""Distillation of relations: the distribution of each image's similarities to the other images of the batch."""

import torch
from torch import Tensor

from lreid.losses._ops import check_alike, check_pairs, log_probabilities, to_loss, without_column


def relation_distillation_loss(
    student: Tensor, teacher: Tensor, *, temperature: float = 0.2, teacher_temperature: float = 0.01
) -> Tensor:
    """Instance-wise relation distillation (IRD): distil each image's similarities to the other images of the batch.

    For each row, each model gives a distribution: the softmax of the row's cosines to all other rows, divided by a
    temperature. The loss is the cross-entropy from the teacher's to the student's distribution, mean over the rows. If
    both models are equal, the loss is above 0, because the teacher's entropy is not subtracted and the two temperatures
    differ.

    Source: Cha et al., "Co²L: Contrastive Continual Learning", ICCV 2021, Eqs. 11-13. Co²L's paper prints the sum over
    the rows. This function takes the mean, like Co²L's official code. Applied to outputs of the projection head, the
    loss is IRD. Applied to outputs of the encoder, the loss is "SEED" in Co²L's Table 6 (Eqs. 14-16). The loss is
    computed in float64 from log-probabilities.

    Args:
        student: ``(B, D)`` float unit vectors by the model in training, one row for each view of each image.
        teacher: ``(B, D')`` float unit vectors of the same rows by the previous model; no gradient flows to them.
        temperature: divisor of the student's cosines, above 0; κ in the paper.
        teacher_temperature: divisor of the teacher's cosines, above 0; κ* in the paper.

    Returns:
        Scalar in the precision of ``student``, at least float32; 0 for fewer than three rows.

    Raises:
        ValueError: the shapes do not match, or a temperature is not above 0.
    """
    check_pairs(student, teacher)
    log_old = log_relations(teacher.detach(), teacher_temperature)  # (B, B - 1)
    log_new = log_relations(student, temperature)
    return to_loss(mean_cross_entropy(log_old, log_new), student)


def mean_squared_distillation_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Squared Euclidean distance between old and new features, mean over the rows.

    Source: Co²L, Eqs. 17 and 18. Co²L's Table 6 compares this loss with IRD, both on outputs of the encoder and on
    unnormalised outputs of the projection head. The loss equals ``D`` times the mean squared difference over all
    entries.

    Args:
        student: ``(B, D)`` float features of the model in training.
        teacher: ``(B, D)`` float features of the same rows by the previous model; no gradient flows to them.

    Returns:
        Scalar in the precision of ``student``, at least float32; 0 for no rows.

    Raises:
        ValueError: an argument is not ``(B, D)``, or the shapes differ.
    """
    check_alike(student, teacher, "student and teacher")
    squares = (student.double() - teacher.detach().double()).square()  # (B, D)
    return to_loss(squares.sum() / max(len(squares), 1), student)


def log_relations(vectors: Tensor, temperature: float) -> Tensor:
    """Log-softmax of the dot products of each row with all other rows, ``(n, D)`` to ``(n, n - 1)`` float64.

    Raises:
        ValueError: the temperature is not above 0.
    """
    exact = vectors.double()
    return log_probabilities(without_self(exact @ exact.T), temperature)


def without_self(matrix: Tensor) -> Tensor:
    """Remove the diagonal, ``(n, n)`` to ``(n, n - 1)``; the other entries keep their order."""
    return without_column(matrix, torch.arange(len(matrix), device=matrix.device))


def mean_cross_entropy(log_old: Tensor, log_new: Tensor) -> Tensor:
    """Cross-entropy between old and new log-probabilities ``(n, m)``, mean over the rows; 0 if there are no rows."""
    return -(log_old.exp() * log_new).sum() / max(len(log_new), 1)
