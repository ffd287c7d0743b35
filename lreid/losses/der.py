"""Dark Experience Replay: distillation of the logits that stored images had when they were stored."""

from torch import Tensor

from lreid.losses._ops import check_logits, to_loss


def dark_experience_loss(student_logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """Mean squared difference between the current logits of stored images and the logits stored with the images.

    Source: Buzzega et al., "Dark Experience for General Continual Learning" (DER, DER++), NeurIPS 2020. DER's paper
    sums over the classes. This function takes the mean over images and classes, like the official code (mammoth). In
    mammoth, the classifier has all classes from the start. lreid's classifier grows, so the mean leaves out classes
    that did not exist when an image was stored. The loss is computed in float64.

    Args:
        student_logits: ``(B, K)`` float logits of replayed images.
        teacher_logits: ``(B, K_old)`` float, ``K_old <= K``, the stored logits, NaN if the class did not exist when the
            image was stored; no gradient flows to them.

    Returns:
        Scalar in the precision of ``student_logits``, at least float32; 0 if no logits are stored.

    Raises:
        ValueError: the shapes do not match.
    """
    check_logits(student_logits, teacher_logits)
    stored = teacher_logits.detach().double()  # (B, K_old)
    missing = stored.isnan()
    change = (student_logits[:, : stored.shape[1]].double() - stored).masked_fill(missing, 0)
    return to_loss(change.square().sum() / (~missing).sum().clamp(min=1), student_logits)
