"""Indirect discriminant alignment: new features keep the old features' similarities to past classes."""

from __future__ import annotations

from torch import Tensor

from lreid.losses._ops import Metric, distances, log_probabilities, to_loss
from lreid.losses.distillation import floored_kl


def discriminant_alignment_loss(
    student: Tensor,
    teacher: Tensor,
    anchors: Tensor,
    *,
    temperature: float = 1.0,
    prob_floor: float = 1e-4,
    metric: Metric = "sqeuclidean",
) -> Tensor:
    """Mean over images of ``KL(p(anchor | teacher) || p(anchor | student))``.

    Both distributions are a softmax over the negative distances to the same anchors. Those are means of past
    classes in the space of the model that was trained on them, and stay as they were.

    Source: Liu et al., "Incremental Few-Shot Meta-Learning via Indirect Discriminant Alignment" (IDA), ECCV
    2020, with prototypical networks as the base: squared distances, ``f_old(x; phi_old)`` against
    ``f_old(x; phi_new)`` on images of the new task. There is no official code, and the BMVC 2022 paper on
    DwoPP, which compares with it on re-ID, does not say how. Our choices: the distance is that of the DMML
    loss; a mean over images; the floor, which is that of the DwoPP and ERD codes (the paper prints none:
    ``prob_floor=0``); and all anchors at once, where the paper draws as many as an episode has classes (a
    caller can pass a part of them). The second term of ERD is this loss too. Computed in float64.

    Args:
        student: ``(B, D)`` float features of the model in training, not normalised.
        teacher: ``(B, D)`` float features of the same images by the previous model. Gets no gradient.
        anchors: ``(A, D)`` float, at least one. Gets no gradient.
        temperature: divides the distances, above 0.
        prob_floor: in ``[0, 1)``; entries of the student below have no gradient.
        metric: ``sqeuclidean``, ``euclidean``, or ``cosine``: the dot product of the features as they are.

    Returns:
        Scalar in the precision of ``student``, at least float32; 0 for a single anchor.

    Raises:
        ValueError: a wrong shape, an unknown or impossible option, or no image or no anchor.
    """
    if student.ndim != 2 or student.shape != teacher.shape or len(student) == 0:
        raise ValueError(
            "student and teacher must both be (B, D) with at least one row, "
            f"got shapes {tuple(student.shape)} and {tuple(teacher.shape)}"
        )
    if anchors.ndim != 2 or anchors.shape[1] != student.shape[1] or len(anchors) == 0:
        raise ValueError(
            f"anchors must be (A, {student.shape[1]}) with at least one row, got shape {tuple(anchors.shape)}"
        )
    fixed = anchors.detach().double()
    old = -distances(teacher.detach().double(), fixed, metric)  # (B, A)
    new = -distances(student.double(), fixed, metric)  # (B, A)
    log_old, log_new = (log_probabilities(each, temperature) for each in (old, new))
    return to_loss(floored_kl(log_old, log_new, prob_floor), student)
