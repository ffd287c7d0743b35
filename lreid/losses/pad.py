"""Losses of PAD: distillation of features and logits, and alignment of images with sentences (text prompts)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lreid.losses._ops import check, check_alike, check_rows, check_shapes, log_probabilities, to_loss, unit
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
    """Compute the weighted sum of two distillation terms, for features and for logits.

    The feature term is the mean squared difference between student and teacher, averaged over the layers. The logit
    term is ``T² KL(teacher || student)``.

    Source: PAD (CVPR 2026), official code (``KDLosses``). PAD's logits are dot products between image features and
    fixed text features, which teacher and student share. The loss is computed in float64 from log-probabilities.

    Args:
        student_features: one or more ``(B, D)`` float features of different layers; D may differ between layers.
        teacher_features: features of the teacher, with the shapes of ``student_features``. No gradient flows to the
            features and the logits of the teacher.
        student_logits: ``(B, C)`` float.
        teacher_logits: ``(B, C)`` float.
        feature_weight, logit_weight: weights of the two terms.
        temperature: divisor of the logits, above 0.

    Returns:
        Scalar in the dtype of ``student_logits`` (float32 for half precision).
    """
    check_alike(student_logits, teacher_logits, "student_logits and teacher_logits", "(B, C)")
    layers = len(student_features), len(teacher_features)
    rule = "student_features and teacher_features must have the same number of layers, one or more"
    check(layers[0] == layers[1] > 0, f"{rule}, got {layers[0]} and {layers[1]}")
    squares = student_logits.new_zeros((), dtype=student_logits.dtype).double()
    for new, old in zip(student_features, teacher_features, strict=True):
        check_alike(new, old, "features of student and teacher")
        squares = squares + (new.double() - old.detach().double()).square().mean()
    log_old = log_probabilities(teacher_logits.detach(), temperature)  # (B, C)
    divergence = mean_divergence(log_old, log_probabilities(student_logits, temperature)) * temperature**2
    return to_loss(feature_weight * squares / len(student_features) + logit_weight * divergence, student_logits)


def pad_image_text_loss(images: Tensor, texts: Tensor, labels: Tensor) -> Tensor:
    """Compute a supervised contrastive loss between images and sentences, in both directions.

    For each image, a softmax is computed over its dot products with all sentences. The loss term of an image is the
    negative mean log-probability of the sentences with its label. The loss term of a sentence is the negative mean
    log-probability of the images with its label, in a softmax over all images. The loss is the mean term of the images
    plus the mean term of the sentences. Features are not scaled to unit length, and the temperature is 1.

    Source: CLIP-ReID (AAAI 2023), whose code PAD (CVPR 2026) uses. The loss is computed in float64.

    Args:
        images, texts: ``(B, D)`` float.
        labels: ``(B,)`` integers; row i of ``images`` and row i of ``texts`` have the label ``labels[i]``.

    Returns:
        Scalar in the dtype of ``images`` (float32 for half precision).
    """
    check_alike(images, texts, "images and texts", "(B, D)")
    check_rows(images, labels, "images")
    products = images.double() @ texts.double().T  # (B, B)
    same = (labels[:, None] == labels).double()
    rows = [-(same * each.log_softmax(1)).sum(1).div(same.sum(1)).mean() for each in (products, products.T)]
    return to_loss(torch.stack(rows).sum(), images)


def pad_text_anchor_loss(
    images: Tensor, texts: Tensor, anchors: Tensor, *, scale: float = 7.0, temperature: float = 0.07
) -> Tensor:
    """Compute the anchor loss of trained text tokens: ``T² KL(anchors || texts)``, mean over images.

    For each image, ``anchors`` and ``texts`` each give a distribution over the sentences. The distribution of an image
    is the softmax of ``scale / T`` times the cosines between the image and the sentences.

    Source: PAD (CVPR 2026), official code (``TEXTKD``). The loss is computed in float64.

    Args:
        images: ``(B, D)`` float.
        texts: ``(C, D)`` float features of sentences with trained tokens.
        anchors: ``(C, D)`` float features of the same sentences with fixed tokens; no gradient flows to them.
        scale: factor of the cosines.
        temperature: ``T``, the divisor of the scaled cosines, above 0.

    Returns:
        Scalar in the dtype of ``images`` (float32 for half precision).
    """
    check_alike(texts, anchors, "texts and anchors", "(C, D)")
    fit = images.ndim == 2 and images.shape[1] == texts.shape[1]
    check_shapes(fit, f"images must be (B, {texts.shape[1]}), like texts", images)
    queries, fixed = unit(images.double()), unit(anchors.detach().double())
    log_old = log_probabilities(scale * queries @ fixed.T, temperature)  # (B, C)
    log_new = log_probabilities(scale * queries @ unit(texts.double()).T, temperature)
    return to_loss(mean_divergence(log_old, log_new) * temperature**2, images)
