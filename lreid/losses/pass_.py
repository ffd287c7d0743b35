"""PASS: rotated images as separate classes, noisy prototypes of past classes, and feature distillation."""

import torch
from torch import Tensor
from torch.nn import functional as F

from lreid.losses._ops import label_means, to_loss

ROTATIONS = 4  # classes per label; the first is that of upright images


def rotate_batch(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate every image by 0, 90, 180 and 270 degrees; each rotation of a label is a separate class.

    Source: Zhu et al., "Prototype Augmentation and Self-Supervision for Incremental Learning" (PASS), CVPR 2021, whose
    images are square. lreid resizes other images to their original size after a rotation by 90 or 270 degrees.

    Args:
        images: ``(B, C, H, W)`` float.
        labels: ``(B,)`` integers ``y``.

    Returns:
        Images ``(4B, C, H, W)`` and labels ``(4B,)``. All upright images come first, then all images rotated by 90
        degrees, and so on. After ``k`` quarter turns an image has the label ``4y + k``. The columns ``0::4`` of a
        classifier are the classes of upright images.

    Raises:
        ValueError: a shape is wrong.
    """
    if images.ndim != 4 or labels.shape != images.shape[:1]:
        raise ValueError(
            f"images must be (B, C, H, W) and labels (B,), got shapes {tuple(images.shape)} and {tuple(labels.shape)}"
        )
    size = images.shape[2:]
    rotated = [images.rot90(quarters, (2, 3)) for quarters in range(ROTATIONS)]
    if size[0] != size[1]:
        rotated[1::2] = [F.interpolate(image, size, mode="bilinear", antialias=True) for image in rotated[1::2]]
    quarters = torch.arange(ROTATIONS, device=labels.device)
    return torch.cat(rotated), (ROTATIONS * labels + quarters[:, None]).flatten()


def prototype_radius(features: Tensor, labels: Tensor) -> float:
    """Compute the standard deviation of PASS's prototype noise: the root mean variance within classes, per dimension.

    ``trace(covariance) / D`` is averaged over the classes before the root is taken. PASS measures the radius once,
    after the first task. Classes with a single image are left out; for such classes PASS's official code divides by
    zero.

    Args:
        features: ``(B, D)`` float.
        labels: ``(B,)`` integers.

    Returns:
        Standard deviation in the units of the features; 0 if every class has one image.

    Raises:
        ValueError: a shape is wrong.
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
    """Add noise to prototypes, on which PASS trains the classifier instead of images of past classes.

    Args:
        prototypes: ``(P, D)`` float, mean features of past classes.
        labels: ``(P,)`` integers ``y``, the classes of the prototypes without rotation.
        radius: standard deviation of the noise, from :func:`prototype_radius`.
        picks: ``(n,)`` int64 rows of the prototypes, drawn with replacement; PASS draws one per image before rotation.
        noise: ``(n, D)`` float, drawn from a normal distribution.

    Returns:
        Features ``(n, D)`` and labels ``4y`` ``(n,)``, which are the labels of upright images.
    """
    return prototypes[picks.to(prototypes.device, non_blocking=True)] + radius * noise, ROTATIONS * labels[picks]


def feature_distillation_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Frobenius norm of the difference between the new and the old features of a batch.

    Source: the same as for :func:`rotate_batch`. The norm is neither squared nor divided by the batch size, so it grows
    with the square root of the batch size. The gradient of the loss has the length 1, or 0 if all differences are 0.

    Args:
        student: ``(B, D)`` float features of the model in training.
        teacher: ``(B, D)`` float features of the same images by the previous model; no gradient flows to them.

    Returns:
        Scalar in the precision of ``student``, at least float32.

    Raises:
        ValueError: the shapes differ.
    """
    if student.shape != teacher.shape:
        raise ValueError(
            f"student and teacher must have one shape, got {tuple(student.shape)} and {tuple(teacher.shape)}"
        )
    return to_loss((student.double() - teacher.detach().double()).norm(), student)
