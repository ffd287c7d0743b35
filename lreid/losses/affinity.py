"""Distillation of affinities: an image's affinities are the softmax of its cosines to all images of the batch."""

from torch import Tensor

from lreid.losses._ops import check_pairs, log_probabilities, to_loss, unit


def affinity_kl_loss(student: Tensor, teacher: Tensor, *, temperature: float = 0.1, reverse: bool = False) -> Tensor:
    """Compute the Kullback-Leibler (KL) divergence between teacher's and student's affinities, mean over the rows.

    Row ``i`` of an affinity matrix is the softmax of the cosines between image ``i`` and all images of the batch,
    including itself. Before the softmax, the cosines are divided by a temperature. The loss is ``KL(teacher ||
    student)``.

    Source: the official code of DASK (AAAI 2025). DASK leaves out LSTKC's correction of wrong affinities
    (:func:`~lreid.losses.lstkc.lstkc_rskt_loss`). DKP++'s official code (TPAMI 2025) uses ``KL(student || teacher)``,
    which ``reverse=True`` selects. The loss is computed in float64 from log-probabilities.

    Args:
        student: ``(B, D)`` float features of the model in training; they need not be unit vectors.
        teacher: ``(B, D')`` float features of the same images by the previous model; no gradient flows to them.
        temperature: divisor of the cosines, above 0.
        reverse: compute ``KL(student || teacher)`` instead of ``KL(teacher || student)``.

    Returns:
        Scalar in the dtype of ``student`` (float32 for half precision); 0 for fewer than two rows.
    """
    check_pairs(student, teacher)
    new, old = log_affinities(student, temperature), log_affinities(teacher.detach(), temperature)  # (B, B)
    return to_loss(mean_divergence(new, old) if reverse else mean_divergence(old, new), student)


def log_affinities(features: Tensor, temperature: float) -> Tensor:
    """Compute the log-softmax of each row's cosines to all rows, including itself: ``(B, D)`` to ``(B, B)`` float64."""
    directions = unit(features.double())
    return log_probabilities(directions @ directions.T, temperature)


def mean_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Compute the mean over rows of ``KL(p || q)`` from log-probabilities ``(B, C)``; 0 if there are no rows."""
    return (log_p.exp() * (log_p - log_q)).sum() / max(len(log_p), 1)
