"""Bi-C2R: features of an old model, mapped into the space of a new one, are kept compatible with it.

All take what a network maps features to, and train that network and, as nothing is detached, the model behind the
features. ``old`` and ``new`` are features of the same images by both models, of unit length before and after the map.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from lreid.losses._ops import check_alike, log_probabilities, to_loss


def bic2r_ca_loss(transferred: Tensor, target: Tensor) -> Tensor:
    """Compatible alignment: squared difference, mean over images and dimensions.

    Source: Bi-C2R (TPAMI 2026), official code, which weighs it by 100 and adds that of the map back.

    Args:
        transferred: ``(B, D)`` float, mapped features.
        target: ``(B, D)`` float, those of the model whose space they are mapped to.

    Returns:
        Scalar, 0 for no image.

    Raises:
        ValueError: the shapes do not fit.
    """
    check_alike(transferred, target, "transferred and target")
    return to_loss((transferred.double() - target.double()).square().sum() / max(target.numel(), 1), transferred)


def bic2r_cr_loss(transferred: Tensor, source: Tensor, labels: Tensor, *, official_sum: bool = False) -> Tensor:
    """Compatible relations: those of mapped features to other identities of the batch are those before the map.

    Row ``i`` of a relation is the softmax of the dot products of image ``i`` with all images, itself included; its
    entries of other identities are divided by their sum. The loss is ``KL(source || transferred)`` over these, mean
    over the images.

    Source: Bi-C2R, official code, whose sum misses ``keepdim``: entry ``(i, j)`` is divided by the sum of row ``j``
    (``official_sum``). The same value to within 1 %, and next to no force: the dot products of unit vectors have no
    temperature.

    Args:
        transferred: ``(B, D)`` float, mapped features.
        source: ``(B, D')`` float, the same images before the map.
        labels: ``(B,)`` integers; entries of the same label do not count.
        official_sum: divide as the official code does.

    Returns:
        Scalar, 0 where there is one identity only.

    Raises:
        ValueError: the shapes do not fit.
    """
    if transferred.ndim != 2 or source.ndim != 2 or not len(transferred) == len(source) == len(labels):
        shapes = ", ".join(str(tuple(each.shape)) for each in (transferred, source, labels))
        raise ValueError(f"transferred, source and labels must be (B, D), (B, D') and (B,), got {shapes}")
    labels = labels.to(source.device)
    others = labels[:, None] != labels[None, :]  # (B, B)
    if not others.any():
        return to_loss(transferred.double().sum() * 0, transferred)
    log_p, log_q = (_log_relations(each, others, official_sum) for each in (source, transferred))
    terms = torch.where(others, log_p.exp() * (log_p - log_q), 0.0)
    return to_loss(terms.sum() / len(source), transferred)


def _log_relations(features: Tensor, others: Tensor, official_sum: bool) -> Tensor:
    """(B, B) float64; 0 where the identity is the same, so that no gradient is NaN."""
    rows = log_probabilities(features.double() @ features.double().T, 1.0)  # (B, B)
    sums = rows.masked_fill(~others, -torch.inf).logsumexp(1)  # (B,)
    return torch.where(others, rows - (sums[None, :] if official_sum else sums[:, None]), 0.0)


def bic2r_ad_loss(logits: Tensor, reference: Tensor, *, temperature: float = 2.0) -> Tensor:
    """Anti-forgetting by a classifier: logits of mapped features like those of the image, ``T²`` times cross-entropy.

    Source: Bi-C2R, official code, weight 0.007; a cross-entropy, so that it does not go to 0. The official code gives
    mapped features the mean and deviation of the pooled ones over the channels before the classifier, but has them at
    unit length, not standardised, first: what the classifier sees is almost constant, and the term carries next to no
    identity.

    Args:
        logits: ``(B, C)`` float of mapped features.
        reference: ``(B, C)`` float of the image.
        temperature: divides both, above 0.

    Returns:
        Scalar, 0 for no image.

    Raises:
        ValueError: the shapes do not fit, or the temperature is not above 0.
    """
    check_alike(logits, reference, "logits and reference", "(B, C)")
    log_p, log_q = (log_probabilities(each.double(), temperature) for each in (reference, logits))  # (B, C)
    return to_loss(-(temperature**2) * (log_p.exp() * log_q).sum() / max(len(logits), 1), logits)


def bic2r_dc_loss(transferred: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Direction of change: the map moves features the way that they have moved, ``1 - cos(target - source, ...)``.

    Source: Bi-C2R, official code, weight 0.0005. Its map back takes ``target - transferred`` in the place of
    ``transferred - source``, so that a perfect map costs 1 there and the identity 0; here both ways are alike.

    Args:
        transferred: ``(B, D)`` float, mapped features.
        source: ``(B, D)`` float, the same images before the map.
        target: ``(B, D)`` float, those of the model whose space they are mapped to.

    Returns:
        Scalar in [0, 2], mean over the images, 0 for none.

    Raises:
        ValueError: the shapes do not fit.
    """
    check_alike(transferred, source, "transferred and source")
    check_alike(transferred, target, "transferred and target")
    start = source.double()
    cosines = F.cosine_similarity(target.double() - start, transferred.double() - start, dim=1)
    return to_loss((1 - cosines).sum() / max(len(source), 1), transferred)
