"""PAD: distillation of the features of several layers, and of logits over a fixed bank of classes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from lreid.losses._ops import check_alike, log_probabilities, to_loss
from lreid.losses.affinity import mean_divergence


def pad_viskd_loss(
    student_features: Sequence[Tensor],
    teacher_features: Sequence[Tensor],
    student_logits: Tensor,
    teacher_logits: Tensor,
    *,
    feature_weight: float = 0.5,
    logit_weight: float = 0.5,
    temperature: float = 4.0,
) -> Tensor:
    """Mean squared difference of features, mean over the layers, plus ``T² KL(teacher || student)`` of logits.

    Source: PAD (CVPR 2026), official code (``KDLosses``); its logits are products of features and a frozen bank of
    classes, which teacher and student share. The loss is computed in float64 and from log-probabilities.

    Args:
        student_features: ``(B, D)`` float features of one or more layers; D may differ between layers.
        teacher_features: features of the same shapes. They get no gradient, nor do ``teacher_logits``.
        student_logits: ``(B, C)`` float.
        teacher_logits: ``(B, C)`` float.
        feature_weight, logit_weight: weights of the two terms.
        temperature: divides the logits, above 0.

    Returns:
        Scalar in the precision of ``student_logits``, at least float32.

    Raises:
        ValueError: the shapes do not match, no features, or the temperature is not above 0.
    """
    check_alike(student_logits, teacher_logits, "student_logits and teacher_logits", "(B, C)")
    if not student_features or len(student_features) != len(teacher_features):
        raise ValueError(
            "student_features and teacher_features must be as many, one or more, "
            f"got {len(student_features)} and {len(teacher_features)}"
        )
    squares = student_logits.new_zeros((), dtype=student_logits.dtype).double()
    for new, old in zip(student_features, teacher_features, strict=True):
        check_alike(new, old, "features of student and teacher")
        squares = squares + (new.double() - old.detach().double()).square().mean()
    log_old = log_probabilities(teacher_logits.detach(), temperature)  # (B, C)
    divergence = mean_divergence(log_old, log_probabilities(student_logits, temperature)) * temperature**2
    return to_loss(feature_weight * squares / len(student_features) + logit_weight * divergence, student_logits)
