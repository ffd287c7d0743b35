"""Indirect discriminant alignment (IDA): distillation of the similarities between features and past class means."""

from torch import Tensor

from lreid.losses._ops import Distance, check_shapes, distances, log_probabilities, to_loss
from lreid.losses.distillation import floored_kl


def discriminant_alignment_loss(
    student: Tensor,
    teacher: Tensor,
    anchors: Tensor,
    *,
    temperature: float = 1.0,
    prob_floor: float = 1e-4,
    metric: Distance = "sqeuclidean",
) -> Tensor:
    """Compute IDA's loss: the mean over images of ``KL(p(anchor | teacher) || p(anchor | student))``.

    Both distributions are softmaxes of the negative distances to the same anchors. An anchor is the mean feature of a
    past class, computed once by the model that was trained on that class.

    Source: Liu et al., "Incremental Few-Shot Meta-Learning via Indirect Discriminant Alignment" (IDA), ECCV 2020, in
    the form for prototypical networks. With squared distances, IDA compares ``f_old(x; phi_new)`` with ``f_old(x;
    phi_old)`` on images of the new task. IDA has no official code. DwoPP's paper (BMVC 2022) compares with IDA on re-ID
    but gives no details. The following choices are therefore lreid's. The loss uses the distance of the DMML loss and
    is a mean over images. The minimum probability comes from the official code of DwoPP and ERD; IDA's paper has no
    minimum (``prob_floor=0``). The distributions cover all anchors. IDA's paper instead draws one anchor per class of
    an episode; to do the same, pass a subset of the anchors. The second term of ERD
    (:func:`~lreid.losses.erd.erd_losses`) equals IDA's loss. The loss is computed in float64.

    Args:
        student: ``(B, D)`` float features of the model in training, not normalised.
        teacher: ``(B, D)`` float features of the same images by the previous model; no gradient flows to them.
        anchors: ``(A, D)`` float, mean features of one or more past classes; no gradient flows to them.
        temperature: divisor of the distances, above 0.
        prob_floor: minimum probability, in ``[0, 1)``; smaller probabilities are raised to it and get no gradient.
        metric: ``sqeuclidean``, ``euclidean``, or ``cosine``, the dot product of features that are not scaled to unit
            length.

    Returns:
        Scalar in the dtype of ``student`` (float32 for half precision); 0 for a single anchor.
    """
    fit = student.ndim == 2 and student.shape == teacher.shape and len(student)
    check_shapes(fit, "student and teacher must both be (B, D) with at least one row", student, teacher)
    fit = anchors.ndim == 2 and anchors.shape[1] == student.shape[1] and len(anchors)
    check_shapes(fit, f"anchors must be (A, {student.shape[1]}) with at least one row", anchors)
    fixed = anchors.detach().double()
    old = -distances(teacher.detach().double(), fixed, metric)  # (B, A)
    new = -distances(student.double(), fixed, metric)  # (B, A)
    log_old, log_new = (log_probabilities(each, temperature) for each in (old, new))
    return to_loss(floored_kl(log_old, log_new, prob_floor), student)
