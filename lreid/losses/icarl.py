"""iCaRL: one sigmoid per class; for old classes, the previous model's sigmoids are the targets."""

import torch
from torch import Tensor
from torch.nn import functional as F

from lreid.losses._ops import check_logits, check_rows, to_loss


def icarl_loss(student_logits: Tensor, labels: Tensor, teacher_logits: Tensor | None = None) -> Tensor:
    """Compute the binary cross-entropy of every class, mean over images and classes.

    The targets of old classes are the teacher's sigmoids, even for exemplars. The target of a new class is 1 for images
    of this class, and 0 for other images.

    Source: Rebuffi et al., "iCaRL", CVPR 2017, Algorithm 3, which prints a sum over classes. This function uses the
    mean over images and classes, like mammoth's code, so its value is ``1 / K`` of the paper's sum. The loss is
    computed in float64.

    Args:
        student_logits: ``(B, K)`` float, the old classes first, in the teacher's order.
        labels: ``(B,)`` int64 in ``[0, K)``, the labels of images of the task and of exemplars.
        teacher_logits: ``(B, K_old)`` float logits of the previous model, with ``K_old <= K``; None in the first task.
            No gradient flows to the teacher's logits.

    Returns:
        Scalar in the dtype of ``student_logits`` (float32 for half precision).
    """
    check_rows(student_logits, labels, "student_logits")
    logits = student_logits.double()
    targets = torch.zeros_like(logits).scatter(1, labels.to(logits.device, non_blocking=True)[:, None], 1.0)  # (B, K)
    if teacher_logits is not None:
        check_logits(student_logits, teacher_logits)
        targets[:, : teacher_logits.shape[1]] = teacher_logits.detach().double().sigmoid()
    return to_loss(F.binary_cross_entropy_with_logits(logits, targets), student_logits)
