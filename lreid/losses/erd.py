"""The two distillation terms of episodic replay distillation (ERD)."""

from typing import Any

import torch
from torch import Tensor

from lreid.losses._ops import check, check_rows
from lreid.losses.distillation import dwpp_loss
from lreid.losses.episodes import prototypes, split_episode
from lreid.losses.ida import discriminant_alignment_loss


def erd_losses(
    student: Tensor, teacher: Tensor, labels: Tensor, num_support: int, is_previous: Tensor, **options: Any
) -> tuple[Tensor, Tensor]:
    """Compute ERD's two distillation terms of a batch that consists of two episodes: previous and current part.

    1. The first term covers the queries of the previous part. This term is the KL divergence between both models'
       distributions over the prototypes of the previous part. For the first term, each model computes its own
       prototypes.
    2. The second term covers all images of the current part. This term is the KL divergence between both models'
       distributions over the prototypes of the *previous* part. For the second term, both models use the prototypes
       that the teacher computes.

    Source: Wang et al., "Incremental Meta-Learning via Episodic Replay Distillation for Few-Shot Image Recognition"
    (ERD), CVPR Workshops 2022; its official code weights each term by 0.5. As in ERD's official code, both terms are
    means over images, and probabilities below 1e-4 are raised to 1e-4.

    Args:
        student: ``(B, D)`` float features of the model in training, not normalised.
        teacher: ``(B, D)`` float features of the same images by the previous model; no gradient flows to them.
        labels: ``(B,)`` integers. In the previous part, the first ``num_support`` rows of each label are its supports.
        num_support: number of supports per class, at least 1.
        is_previous: ``(B,)`` bool, true for the rows of the previous part (identities from the memory).
        options: the options ``temperature`` (default 1), ``prob_floor`` and ``metric`` of
            :func:`~lreid.losses.discriminant_alignment_loss`.

    Returns:
        Both terms, scalars in the dtype of ``student`` (float32 for half precision).
    """
    check_rows(student, labels, "student")
    check_rows(teacher, labels, "teacher")
    fit = is_previous.dtype == torch.bool and is_previous.shape == labels.shape
    check(fit, f"is_previous must be (B,) bool, got {tuple(is_previous.shape)} {is_previous.dtype}")
    before, now = (  # rows instead of masks, because the CPU would wait until the GPU has counted a mask's entries
        mask.nonzero()[:, 0].to(student.device, non_blocking=True) for mask in (is_previous, ~is_previous)
    )
    previous, old = labels[is_previous], teacher[before]
    options = {"temperature": 1.0, **options}
    distillation = dwpp_loss(student[before], old, previous, num_support, **options)
    anchors = prototypes(old.double(), split_episode(previous, num_support, old.device))
    alignment = discriminant_alignment_loss(student[now], teacher[now], anchors, **options)
    return distillation, alignment
