"""Dark Experience Replay: distillation of the logits that the model computed when it stored an image."""

from torch import Tensor

from lreid.losses._ops import check_logits, to_loss


def dark_experience_loss(student_logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """Compute the mean squared difference between the current and the stored logits of stored images.

    Source: Buzzega et al., "Dark Experience for General Continual Learning" (DER, DER++), NeurIPS 2020. DER's paper
    uses a sum over the classes. This function uses the mean over images and classes, like the official code (mammoth).
    The classifier in mammoth has all classes from the start, but the classifier in lreid grows. The mean leaves out
    classes that did not exist when an image was stored. The loss is computed in float64.

    Args:
        student_logits: ``(B, K)`` float logits of replayed images.
        teacher_logits: ``(B, K_old)`` float stored logits, with ``K_old <= K``. The stored logits are NaN for classes
            that did not exist when the image was stored; no gradient flows to them.

    Returns:
        Scalar in the dtype of ``student_logits`` (float32 for half precision); 0 if no logits are stored.
    """
    check_logits(student_logits, teacher_logits)
    stored = teacher_logits.detach().double()  # (B, K_old)
    missing = stored.isnan()
    change = (student_logits[:, : stored.shape[1]].double() - stored).masked_fill(missing, 0)
    return to_loss(change.square().sum() / (~missing).sum().clamp(min=1), student_logits)
