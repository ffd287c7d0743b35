"""Contrastive learning without labels: the SimCLR loss, and Contrast Scoring, which selects training images."""

import torch
from torch import Tensor

from lreid.losses._ops import check_alike, check_shapes, to_loss, unit
from lreid.losses.supcon import asymmetric_supcon_loss


def nt_xent_loss(projections: Tensor, *, temperature: float) -> Tensor:
    """Compute NT-Xent, the normalised, temperature-scaled cross-entropy: each view recognises its image's other view.

    The softmax of a view is over its cosines to all other views in the batch. The loss is the negative log-probability
    of the other view of the same image, mean over the ``2B`` views.

    Source: Chen et al., "A Simple Framework for Contrastive Learning of Visual Representations" (SimCLR), ICML 2020,
    Eq. 1. The loss equals the supervised contrastive loss (SupCon) in which every image is a class of its own.

    Args:
        projections: ``(B, 2, D)`` float unit vectors, two augmented views of each image.
        temperature: divisor of the cosines, above 0. Contrast Scoring's paper uses 0.07 for subsets of ImageNet and 0.5
            for other data.

    Returns:
        Scalar in the dtype of ``projections`` (float32 for half precision); 0 for one image.
    """
    check_shapes(projections.ndim == 3 and projections.shape[1] == 2, "projections must be (B, 2, D)", projections)
    images = torch.arange(len(projections))
    return asymmetric_supcon_loss(projections, images, images, temperature=temperature, base_temperature=temperature)


def contrast_scores(projections: Tensor, flipped: Tensor) -> Tensor:
    """Compute Contrast Scoring's scores: the distance between the projections of an image and of its mirror image.

    The score is 1 minus the cosine of both projections. A high score means that the model does not yet represent the
    image well. There is no random augmentation, so the score depends only on the image and the model.

    Source: Contrast Scoring (on-device contrastive learning from unlabelled streams), Eqs. 3 and 4.

    Args:
        projections: ``(B, D)`` float outputs of the projection head; they need not be unit vectors.
        flipped: ``(B, D)`` float outputs for the same images flipped left to right.

    Returns:
        Scores ``(B,)`` in ``[0, 2]`` in the dtype of ``projections`` (float32 for half precision); 1 if a projection is
        all zeros.

    Raises:
        ValueError: an argument is not ``(B, D)``, or the shapes differ.
    """
    check_alike(projections, flipped, "projections and flipped")
    cosines = (unit(projections.double()) * unit(flipped.double())).sum(1)  # (B,)
    return to_loss((1 - cosines).clamp(0, 2), projections)
