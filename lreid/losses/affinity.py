"""Distillation of affinities: the distribution of each image's cosines to all images of the batch, itself included."""

from __future__ import annotations

from torch import Tensor

from lreid.losses._ops import check_pairs, log_probabilities, to_loss, unit


def affinity_kl_loss(student: Tensor, teacher: Tensor, *, temperature: float = 0.1, reverse: bool = False) -> Tensor:
    """Divergence between the affinities of teacher and student within a batch, averaged over the rows.

    Row ``i`` of an affinity matrix is the softmax of the cosines of image ``i`` to all images, itself included, over
    a temperature. The loss is ``KL(teacher || student)``.

    Source: the official code of DASK (AAAI 2025), which leaves out LSTKC's rectification
    (:func:`~lreid.losses.lstkc.lstkc_rskt_loss`). That of DKP++ (TPAMI 2025) swaps the arguments, so that it takes
    ``KL(student || teacher)``: ``reverse``. Computed in float64 and from log-probabilities.

    Args:
        student: ``(B, D)`` float features of the model in training, of any length.
        teacher: ``(B, D')`` float features of the same images by the previous model. Gets no gradient.
        temperature: divides the cosines, above 0.
        reverse: the student's affinities come first.

    Returns:
        Scalar in the precision of ``student``, at least float32; 0 for fewer than two rows.

    Raises:
        ValueError: the shapes do not match, or the temperature is not above 0.
    """
    check_pairs(student, teacher)
    new, old = log_affinities(student, temperature), log_affinities(teacher.detach(), temperature)  # (B, B)
    return to_loss(mean_divergence(new, old) if reverse else mean_divergence(old, new), student)


def log_affinities(features: Tensor, temperature: float) -> Tensor:
    """Log-softmax of each row's cosines to all rows, itself included, ``(B, D)`` to ``(B, B)`` float64.

    Raises:
        ValueError: the temperature is not above 0.
    """
    directions = unit(features.double())
    return log_probabilities(directions @ directions.T, temperature)


def mean_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """``KL(p || q)`` of each row of log-probabilities ``(B, C)``, mean over the rows; 0 if there are none."""
    return (log_p.exp() * (log_p - log_q)).sum() / max(len(log_p), 1)
