"""Learning without Forgetting: distillation of the previous model's softmax over the old classes."""

from torch import Tensor

from lreid.losses._ops import check_logits, check_temperature, to_loss


def knowledge_distillation_loss(student_logits: Tensor, teacher_logits: Tensor, *, temperature: float = 2.0) -> Tensor:
    """Cross-entropy from the teacher's to the student's softmax at temperature ``T``, mean over rows, times ``T²``.

    The student's softmax runs over old and new classes; the teacher's softmax runs over the old classes only. New
    classes have the target 0, so the loss also lowers the student's probabilities of new classes. The teacher's entropy
    is not subtracted, so the smallest possible loss is above 0. The gradient of the loss equals the gradient of the KL
    divergence.

    Source: Li and Hoiem, "Learning without Forgetting", ECCV 2016, in the form of AKA's official code for re-ID. Other
    implementations, such as mammoth, distil over the old classes only and leave out ``T²``. To get mammoth's value,
    pass ``student_logits[:, :K_old]`` and divide by ``T²``. The loss is computed in float64 from log-probabilities.

    Args:
        student_logits: ``(B, K)`` float, the old classes first, in the teacher's order.
        teacher_logits: ``(B, K_old)`` float, ``K_old <= K``; no gradient flows to them.
        temperature: divisor of the logits, above 0.

    Returns:
        Scalar in the precision of ``student_logits``, at least float32; 0 if there is no old class.

    Raises:
        ValueError: the shapes do not match, or the temperature is not above 0.
    """
    check_logits(student_logits, teacher_logits)
    check_temperature(temperature)
    targets = (teacher_logits.detach().double() / temperature).softmax(1)  # (B, K_old)
    log_probs = (student_logits.double() / temperature).log_softmax(1)  # (B, K)
    loss = -(targets * log_probs[:, : targets.shape[1]]).sum(1).mean() * temperature**2
    return to_loss(loss, student_logits)
