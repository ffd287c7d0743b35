"""LSTKC and LSTKC++: distillation of previous models' affinities after the labels have corrected them."""

from typing import NamedTuple

import torch
from torch import Tensor

from lreid.losses._ops import check_pairs, check_rows, to_loss
from lreid.losses.affinity import log_affinities

LEAST_PEAK = 1e-6  # the official code adds this number to the largest affinity of a row and divides by the sum


def lstkc_rskt_loss(
    student: Tensor, teacher: Tensor, labels: Tensor, *, temperature: float = 0.1, detach_target: bool = False
) -> Tensor:
    """Compute LSTKC's "rectification-based short-term knowledge transfer": distillation of corrected affinities.

    Row ``i`` of an affinity matrix is the softmax of the cosines between image ``i`` and all images of the batch,
    including itself. The row's identity is the label of image ``i``. An entry for an image of the row's identity is
    *right* if it is above all entries for other identities in the row. The diagonal entry is always right. An entry for
    an image of another identity is right if it is not above the smallest off-diagonal entry for the row's identity. The
    target takes the teacher's entry if this entry is right; otherwise it takes the student's entry if the student's is
    right. Where both models are wrong about an image of the row's identity, the target is the largest entry of both
    models for other identities in the row. Where both models are wrong about an image of another identity, the target
    is the smallest off-diagonal entry of both models for the row's identity in the row. Each row of the target is then
    normalised to sum 1. The loss is ``KL(target || student)``, mean over the rows.

    Source: Xu et al., "LSTKC: Long Short-Term Knowledge Consolidation for Lifelong Person Re-identification", AAAI
    2024, in the form of its official code. As in LSTKC's official code, gradients also flow through student entries in
    the target. If teacher and student are equal, the loss is above 0 as soon as one entry is wrong. The loss is
    computed in float64.

    Args:
        student: ``(B, D)`` float features of the model in training; they need not be unit vectors.
        teacher: ``(B, D')`` float features of the same images by the previous model; no gradient flows to them.
        labels: ``(B,)`` integers, in any order, with any number of images per label.
        temperature: divisor of the cosines, above 0.
        detach_target: whether to stop the gradient through the target.

    Returns:
        Scalar in the dtype of ``student`` (float32 for half precision); 0 for fewer than two rows.
    """
    check_rows(student, labels, "student")
    check_pairs(student, teacher)
    log_new = log_affinities(student, temperature)
    new, old = _judged(log_new, labels), _judged(log_affinities(teacher.detach(), temperature), labels)
    put_right = torch.where(new.right, new.affinities, _capped(new, old))
    target = _normalised(torch.where(old.right, old.affinities, put_right))
    return to_loss(_divergence(target.detach() if detach_target else target, log_new), student)


def lstkcpp_single_loss(
    student: Tensor, teacher: Tensor, labels: Tensor, *, temperature: float = 0.1, weighted: bool = False
) -> Tensor:
    """Compute LSTKC++'s loss for the second task, the distillation of one teacher's corrected affinities.

    Unlike the target of :func:`lstkc_rskt_loss`, this target depends only on the teacher. The target keeps the
    teacher's right entries. It replaces each wrong entry by a bound from the same row, as :func:`lstkcpp_dual_loss`
    does for two teachers.

    Source, arguments and errors are those of :func:`lstkcpp_dual_loss`.
    """
    check_rows(student, labels, "student")
    check_pairs(student, teacher)
    old = _judged(log_affinities(teacher.detach(), temperature), labels)
    target = torch.where(old.right, old.affinities, _capped(old, old))
    return _loss_to(target, student, labels, temperature, weighted)


def lstkcpp_dual_loss(
    student: Tensor, short: Tensor, long: Tensor, labels: Tensor, *, temperature: float = 0.1, weighted: bool = False
) -> Tensor:
    """Compute LSTKC++'s loss from the third task on, the distillation of two teachers' corrected affinities.

    :func:`lstkc_rskt_loss` defines right and wrong entries. Unlike the target of :func:`lstkc_rskt_loss`, this target
    depends only on the teachers and has no gradient. Where both teachers are right, the target is the mean of their
    entries. Where one teacher is right, the target is its entry. Where both teachers are wrong about an image of the
    row's identity, the target is the largest entry of both teachers for other identities in the row. Where both
    teachers are wrong about an image of another identity, the target is the smallest off-diagonal entry of both
    teachers for the row's identity in the row.

    Source: Xu et al., "Long Short-Term Knowledge Decomposition and Consolidation for Lifelong Person Re-Identification"
    (LSTKC++), TPAMI 2025, in the form of its official code.

    Args:
        student: ``(B, D)`` float features of the model in training; they need not be unit vectors.
        short: ``(B, D')`` float features of the same images by the short-term teacher, the model after training on the
            last task, before averaging.
        long: ``(B, D'')`` float features of the same images by the long-term teacher, an average of older models. No
            gradient flows to the features of the teachers.
        labels: ``(B,)`` integers, in any order, with any number of images per label.
        temperature: divisor of the cosines, above 0.
        weighted: whether to weight every entry by ``|s - a / (m + 1e-6)|``. In this weight, ``s`` is 1 for two images
            of one identity and otherwise 0, ``a`` is the student's affinity, and ``m`` is the largest affinity in the
            row. The same option of LSTKC++'s official code is off by default.

    Returns:
        Scalar in the dtype of ``student`` (float32 for half precision); 0 for fewer than two rows.
    """
    check_rows(student, labels, "student")
    check_pairs(student, short, "short")
    check_pairs(student, long, "long")
    recent, older = (_judged(log_affinities(each.detach(), temperature), labels) for each in (short, long))
    right_entry = torch.where(recent.right, recent.affinities, older.affinities)
    blended = torch.where(recent.right & older.right, (recent.affinities + older.affinities) / 2, right_entry)
    target = torch.where(recent.right | older.right, blended, _capped(recent, older))
    return _loss_to(target, student, labels, temperature, weighted)


class _Judged(NamedTuple):
    """A matrix of affinities with a mask of its right entries, those that agree with the labels."""

    affinities: Tensor  # (B, B)
    same: Tensor  # (B, B) bool, whether both images show one identity
    right: Tensor  # (B, B) bool
    highest_other: Tensor  # (B, 1), 0 where there is no other identity
    lowest_own: Tensor  # (B, 1), infinite where the image is the only one of its identity


def _judged(log_affinity: Tensor, labels: Tensor) -> _Judged:
    affinities, same = log_affinity.exp(), _same(labels, log_affinity)
    itself = torch.eye(len(same), dtype=torch.bool, device=same.device)
    highest_other = affinities.masked_fill(same, 0).max(1, keepdim=True).values
    lowest_own = affinities.masked_fill(~same | itself, torch.inf).min(1, keepdim=True).values
    right = torch.where(same, (affinities > highest_other) | itself, affinities <= lowest_own)
    return _Judged(affinities, same, right, highest_other, lowest_own)


def _capped(a: _Judged, b: _Judged) -> Tensor:
    """Compute the bounds ``(B, B)`` that replace entries which are wrong in both matrices."""
    return torch.where(a.same, a.highest_other.maximum(b.highest_other), a.lowest_own.minimum(b.lowest_own))


def _same(labels: Tensor, like: Tensor) -> Tensor:
    labels = labels.to(like.device, non_blocking=True)
    return labels[:, None] == labels


def _normalised(target: Tensor) -> Tensor:
    return target / target.sum(1, keepdim=True)


def _divergence(target: Tensor, log_new: Tensor, weights: Tensor | float = 1.0) -> Tensor:
    positive = target.clamp(min=torch.finfo(target.dtype).tiny)  # the gradient of log(0) is not finite
    entries = torch.xlogy(target, positive) - target * log_new  # (B, B)
    return (weights * entries).sum() / max(len(target), 1)


def _loss_to(target: Tensor, student: Tensor, labels: Tensor, temperature: float, weighted: bool) -> Tensor:
    log_new = log_affinities(student, temperature)  # (B, B)
    weights: Tensor | float = 1.0
    if weighted:
        affinities = log_new.exp()
        peaks = affinities.max(1, keepdim=True).values  # (B, 1)
        weights = (_same(labels, student).double() - affinities / (peaks + LEAST_PEAK)).abs()
    return to_loss(_divergence(_normalised(target), log_new, weights), student)
