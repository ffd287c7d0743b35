"""Indirect discriminant alignment: new features keep the old features' similarities to past classes."""

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

    Both distributions are softmaxes of the negative distances to the same anchors. The anchors are mean features of
    past classes by the model that was trained on them; they never change.

    Source: Liu et al., "Incremental Few-Shot Meta-Learning via Indirect Discriminant Alignment" (IDA), ECCV 2020, with
    prototypical networks: squared distances, ``f_old(x; phi_old)`` against ``f_old(x; phi_new)`` on images of the new
    task. There is no official code. The BMVC 2022 paper on DwoPP compares with IDA on re-ID, but does not give details.
    lreid therefore made these choices. The distance is that of the DMML loss, and the loss is a mean over images. The
    floor is that of the DwoPP and ERD codes; the IDA paper has none (``prob_floor=0``). All anchors are used at once;
    the paper draws as many as an episode has classes, and a caller can pass a subset. The second term of ERD is this
    loss, too. The loss is computed in float64.

    Args:
        student: ``(B, D)`` float features of the model in training, not normalised.
        teacher: ``(B, D)`` float features of the same images by the previous model. It gets no gradient.
        anchors: ``(A, D)`` float, mean features of past classes, at least one. It gets no gradient.
        temperature: divides the distances, above 0.
        prob_floor: in ``[0, 1)``; smaller probabilities are raised to it and have no gradient.
        metric: ``sqeuclidean``, ``euclidean``, or ``cosine``: the dot product of unnormalised features.

    Returns:
        Scalar in the precision of ``student``, at least float32; 0 for a single anchor.

    Raises:
        ValueError: a shape or an option is invalid, or there is no image or no anchor.
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
