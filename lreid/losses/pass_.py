"""PASS: rotated images as separate classes, prototypes of past classes with noise, and feature distillation."""

import torch
from torch import Tensor
from torch.nn import functional as F

from lreid.losses._ops import check_shapes, label_means, to_loss

ROTATIONS = 4  # classes per label; the first is that of upright images


def rotate_batch(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate every image by 0, 90, 180 and 270 degrees; each rotation of a label is a separate class.

    Source: Zhu et al., "Prototype Augmentation and Self-Supervision for Incremental Learning" (PASS), CVPR 2021. PASS's
    images are square; after a rotation by 90 or 270 degrees, lreid resizes other images to their original size.

    Args:
        images: ``(B, C, H, W)`` float.
        labels: ``(B,)`` integers ``y``.

    Returns:
        Images ``(4B, C, H, W)`` and labels ``(4B,)``. The unrotated images come first, then all images rotated by 90
        degrees, and so on. After ``k`` quarter turns, an image of label ``y`` has the label ``4y + k``. The columns
        ``0::4`` of a classifier belong to unrotated images.
    """
    fit = images.ndim == 4 and labels.shape == images.shape[:1]
    check_shapes(fit, "images must be (B, C, H, W) and labels (B,)", images, labels)
    size = images.shape[2:]
    rotated = [images.rot90(quarters, (2, 3)) for quarters in range(ROTATIONS)]
    if size[0] != size[1]:
        rotated[1::2] = [F.interpolate(image, size, mode="bilinear", antialias=True) for image in rotated[1::2]]
    quarters = torch.arange(ROTATIONS, device=labels.device)
    return torch.cat(rotated), (ROTATIONS * labels + quarters[:, None]).flatten()


def prototype_radius(features: Tensor, labels: Tensor) -> float:
    """Compute the standard deviation of PASS's prototype noise: the root of the mean variance within classes.

    The variance within classes is ``trace(covariance) / D``, averaged over the classes. PASS measures the standard
    deviation once, after the first task. Classes with a single image are left out; PASS's official code divides by zero
    for such classes.

    Args:
        features: ``(B, D)`` float.
        labels: ``(B,)`` integers.

    Returns:
        Standard deviation per feature dimension, in the units of the features; 0 if every class has one image.
    """
    means, _, place = label_means(features, labels)
    squares = (features.double() - means[place]).square().mean(1)  # (B,)
    counts = torch.bincount(place)  # (N,)
    sums = squares.new_zeros(len(counts)).index_add(0, place, squares)  # (N,)
    variances = (sums / (counts - 1))[counts > 1]
    return variances.mean().sqrt().item() if len(variances) else 0.0


def augment_prototypes(
    prototypes: Tensor, labels: Tensor, radius: float, picks: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Add noise to prototypes, which replace images of past classes when PASS trains the classifier.

    Args:
        prototypes: ``(P, D)`` float, mean features of past classes.
        labels: ``(P,)`` integers ``y``, the classes of the prototypes without rotation.
        radius: standard deviation of the noise, from :func:`prototype_radius`.
        picks: ``(n,)`` int64 rows of ``prototypes``, drawn with replacement; PASS draws one for each image before
            rotation.
        noise: ``(n, D)`` float standard normal noise.

    Returns:
        Features ``(n, D)``, and their labels ``4y`` ``(n,)``, the labels of unrotated images.
    """
    return prototypes[picks.to(prototypes.device, non_blocking=True)] + radius * noise, ROTATIONS * labels[picks]


def feature_distillation_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Compute the Frobenius norm of the difference between the new and the old features of a batch.

    Source: PASS, as for :func:`rotate_batch`. The norm is neither squared nor divided by the batch size, so it grows
    with the square root of the batch size. The gradient of the loss has length 1, or 0 if all features are equal.

    Args:
        student: ``(B, D)`` float features of the model in training.
        teacher: ``(B, D)`` float features of the same images by the previous model; no gradient flows to them.

    Returns:
        Scalar in the dtype of ``student`` (float32 for half precision).
    """
    check_shapes(student.shape == teacher.shape, "student and teacher must have one shape", student, teacher)
    return to_loss((student.double() - teacher.detach().double()).norm(), student)
