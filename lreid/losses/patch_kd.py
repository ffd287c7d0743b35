"""PatchKD: features of selected patches, and distillation of their logits and distances."""

import torch
from torch import Tensor
from torch.nn import functional as F

from lreid.losses._ops import check_logits, check_shapes, log_probabilities, to_loss


def patchkd_kd_loss(student_logits: Tensor, teacher_logits: Tensor, *, temperature: float = 2.0) -> Tensor:
    """Compute the cross-entropy between teacher's and student's softmax at temperature ``T``, row mean times ``T²``.

    The value is that of :func:`~lreid.losses.lwf.knowledge_distillation_loss`; the gradient follows PatchKD's official
    code. If the student has more classes than the teacher, no gradient flows to the teacher's logits. If student and
    teacher have the same classes, the gradient also flows through the teacher's logits and trains the network that
    chooses the patches.

    Source: Sun and Mu, "Patch-based Knowledge Distillation for Lifelong Person Re-Identification", ACM MM 2022.

    Args:
        student_logits: ``(B, K)`` float, the old classes first.
        teacher_logits: ``(B, K_old)`` float, ``K_old <= K``.
        temperature: divisor of the logits, above 0.

    Returns:
        Scalar in the dtype of ``student_logits`` (float32 for half precision).
    """
    check_logits(student_logits, teacher_logits)
    log_new = log_probabilities(student_logits, temperature)  # (B, K)
    old = log_probabilities(teacher_logits, temperature).exp()  # (B, K_old)
    width = old.shape[1]
    if width < log_new.shape[1]:
        old = old.detach()
    loss = -(old * log_new[:, :width]).sum() / max(len(old), 1) * temperature**2
    return to_loss(loss, student_logits)


def patchkd_conf_loss(logits: Tensor, *, temperature: float = 2.0) -> Tensor:
    """Compute the entropy of the softmax at temperature ``T``, mean over rows, times ``T²``.

    The loss trains PatchKD's choice of patches; its source is given at :func:`patchkd_kd_loss`. PatchKD applies this
    loss to the old model's logits of patches.

    Args:
        logits: ``(B, K)`` float; the gradient flows through them.
        temperature: divisor of the logits, above 0.

    Returns:
        Scalar in the dtype of ``logits`` (float32 for half precision).
    """
    return patchkd_kd_loss(logits, logits, temperature=temperature)


def patchkd_rd_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Compute the smooth-L1 loss between the relative distances of two models within each set of vectors.

    Relative distances are the Euclidean distances of a model, divided by their mean over all sets without the zero
    diagonals. In PatchKD, a set contains the patches of one image, ``(n, k, c)``, or the same patch of all images,
    ``(k, n, c)``.

    Source: PatchKD, as for :func:`patchkd_kd_loss`. The mean over the smooth-L1 terms includes the zero diagonals. The
    loss is computed in float64.

    Args:
        student: ``(S, m, D)`` float: S sets of m vectors from the model in training.
        teacher: ``(S, m, D')`` float vectors from the previous model; no gradient flows to them.

    Returns:
        Scalar in the dtype of ``student`` (float32 for half precision); 0 if each set has one vector.
    """
    fit = student.ndim == teacher.ndim == 3 and student.shape[:2] == teacher.shape[:2]
    check_shapes(fit, "student and teacher must be (S, m, D) and (S, m, D')", student, teacher)
    new, old = _relative_distances(student), _relative_distances(teacher.detach())
    return to_loss(F.smooth_l1_loss(new, old, reduction="sum") / max(new.numel(), 1), student)


def patchkd_div_loss(features: Tensor, patches: int) -> Tensor:
    """Compute the mean cosine similarity between different patches of one image, averaged over images.

    A small loss means that the patches of an image differ. The loss is 0 for one patch per image, where PatchKD's
    official code divides by 0.

    Args:
        features: ``(n * k, D)`` float; the k patches of an image are consecutive rows.
        patches: number k of patches per image, 1 or more.

    Returns:
        Scalar in the dtype of ``features`` (float32 for half precision), in [-1, 1].
    """
    fit = features.ndim == 2 and patches > 0 and len(features) % patches == 0
    check_shapes(fit, f"features must be (n * {patches}, D)", features)
    sets = F.normalize(features.double(), dim=1).unflatten(0, (-1, patches))  # (n, k, D)
    cosines = sets @ sets.mT  # (n, k, k)
    off_diagonal = cosines.sum() - cosines.diagonal(dim1=1, dim2=2).sum()
    return to_loss(off_diagonal / max(len(sets) * patches * (patches - 1), 1), features)


def patchkd_patch_features(feature_map: Tensor, theta: Tensor) -> Tensor:
    """Compute features of patches as weighted sums over the positions of a feature map.

    Source: PatchKD, as for :func:`patchkd_kd_loss`. In PatchKD's official code, ``theta`` is one-hot over the positions
    (straight-through Gumbel softmax), so each patch is a single position.

    Args:
        feature_map: ``(n, C, H, W)`` float.
        theta: ``(n, k, H, W)`` float, the weight of each position for each of k patches.

    Returns:
        Features ``(n, k, C)``; ``flatten(0, 1)`` makes the k patches of an image consecutive rows.
    """
    fit = feature_map.ndim == theta.ndim == 4 and feature_map[:, :1].shape == theta[:, :1].shape
    check_shapes(fit, "feature_map must be (n, C, H, W) and theta (n, k, H, W)", feature_map, theta)
    return theta.flatten(2) @ feature_map.flatten(2).mT  # (n, k, C)


def _relative_distances(sets: Tensor) -> Tensor:
    """Divide Euclidean distances within sets by their off-diagonal mean, ``(S, m, D)`` to ``(S, m, m)`` float64."""
    exact = sets.double()
    squares = exact.square().sum(2)  # (S, m)
    squared = squares[:, :, None] + squares[:, None] - 2 * exact @ exact.mT
    diagonal = torch.eye(sets.shape[1], dtype=torch.bool, device=sets.device)
    distances = squared.clamp(min=1e-12).sqrt().masked_fill(diagonal, 0)  # (S, m, m), above 0 except on the diagonal
    count = distances.numel() - squares.numel()
    return distances * count / distances.sum() if count else distances
