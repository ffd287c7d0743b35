"""Learning without Forgetting: distillation of the previous model's softmax over the old classes."""

from torch import Tensor

from lreid.losses._ops import check_logits, check_temperature, to_loss


def knowledge_distillation_loss(student_logits: Tensor, teacher_logits: Tensor, *, temperature: float = 2.0) -> Tensor:
    """Compute the cross-entropy between teacher's and student's softmax at temperature ``T``, row mean times ``T²``.

    The student's softmax is over old and new classes; the teacher's softmax is over old classes only. The target of new
    classes is 0, so the loss also lowers the student's probabilities of new classes. The minimum of the loss is above
    0, because the teacher's entropy is not subtracted. The gradient equals the gradient of the KL divergence.

    Source: Li and Hoiem, "Learning without Forgetting", ECCV 2016, in the form of AKA's official code for re-ID. Other
    implementations, such as mammoth, distil over the old classes only and leave out ``T²``. For mammoth's value, pass
    ``student_logits[:, :K_old]`` and divide the loss by ``T²``. The loss is computed in float64 from log-probabilities.

    Args:
        student_logits: ``(B, K)`` float, the old classes first, in the teacher's order.
        teacher_logits: ``(B, K_old)`` float, ``K_old <= K``; no gradient flows to them.
        temperature: divisor of the logits, above 0.

    Returns:
        Scalar in the dtype of ``student_logits`` (float32 for half precision); 0 if there is no old class.
    """
    check_logits(student_logits, teacher_logits)
    check_temperature(temperature)
    targets = (teacher_logits.detach().double() / temperature).softmax(1)  # (B, K_old)
    log_probs = (student_logits.double() / temperature).log_softmax(1)  # (B, K)
    loss = -(targets * log_probs[:, : targets.shape[1]]).sum(1).mean() * temperature**2
    return to_loss(loss, student_logits)
