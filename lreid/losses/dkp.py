"""Losses of DKP, in which images and past identities (prototypes) are distributions of features."""

import torch
from torch import Tensor
from torch.nn import functional as F

from lreid.losses._ops import check_alike, class_means, log_probabilities, to_loss, unit
from lreid.losses.affinity import log_affinities, mean_divergence
from lreid.losses.triplet import hardest_distances


def dkp_set_triplet_loss(features: Tensor, labels: Tensor) -> Tensor:
    """Soft-margin triplet loss of samples against mean features.

    Every image has a mean feature and some samples around this mean. Each sample is an anchor. The positive is the
    farthest mean feature of the same identity, possibly of the same image. The negative is the nearest mean feature of
    another identity. The loss is ``log(1 + exp(d+ - d-))``, averaged over the anchors, with Euclidean distances to the
    positive and the negative.

    Source: Xu et al., "Distribution-aware Knowledge Prototyping for Non-exemplar Lifelong Person Re-identification"
    (DKP), CVPR 2024, official code. The loss is computed in float64.

    Args:
        features: ``(B, 1 + S, D)`` float; ``features[:, 0]`` are the means, and the rest are the samples, ``S >= 1``.
        labels: ``(B,)`` integers, in any order, with any number of images per label.

    Returns:
        Scalar in the precision of ``features``, at least float32; 0 for a batch of one identity.

    Raises:
        ValueError: a shape is wrong.
    """
    if features.ndim != 3 or features.shape[1] < 2 or labels.shape != features.shape[:1]:
        raise ValueError(
            f"features must be (B, 1 + S, D) with a sample or more and labels (B,), "
            f"got shapes {tuple(features.shape)} and {tuple(labels.shape)}"
        )
    exact, labels = features.double(), labels.to(features.device, non_blocking=True)
    samples = exact[:, 1:].flatten(0, 1)  # (B * S, D)
    own, other = hardest_distances(samples, labels.repeat_interleave(features.shape[1] - 1), exact[:, 0], labels)
    return to_loss(F.softplus(own - other).mean(), features)


def dkp_prototypes(means: Tensor, deviations: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the mean and standard deviation of each identity's distribution, per dimension.

    An identity is the equal-weight mixture of its images, which have the means ``m`` and the deviations ``s``. The mean
    of the mixture is ``mean(m)``, and the squared deviation is ``mean(s²) + mean(m²) - mean(m)²``.

    Source: the same as for :func:`dkp_set_triplet_loss`. DKP's official code calls the standard deviations
    ``mean_vars``.

    Args:
        means: ``(n, D)`` float mean feature of each image.
        deviations: ``(n, D)`` float standard deviations of each image.
        labels: ``(n,)`` integers.

    Returns:
        Means and standard deviations, both ``(N, D)`` in the precision of ``means``, and ascending labels ``(N,)``.

    Raises:
        ValueError: the shapes do not match.
    """
    check_alike(means, deviations, "means and deviations", "(n, D)")
    centers, names = class_means(means.double(), labels)
    place = torch.searchsorted(names, labels.to(names.device))  # (n,)
    squares = (means.double() - centers[place]).square() + deviations.double().square()  # (n, D)
    variances, _ = class_means(squares, labels)
    return centers.to(means.dtype), variances.sqrt().to(means.dtype), names


def dkp_pkt_loss(
    features: Tensor,
    means: Tensor,
    deviations: Tensor,
    noise: Tensor,
    *,
    relation_temperature: float = 0.1,
    temperature: float = 0.1,
    detach_target: bool = False,
) -> Tensor:
    """DKP's prototype-based knowledge transfer: past identities shape the similarities within a batch.

    For each past identity, one sample ``mean + deviation * noise`` is drawn. The vector ``r``, the softmax of an
    image's cosines to these samples, describes the image by its similarities to past identities. The target is the
    softmax of the cosines between the vectors ``r`` of all images in the batch. The loss is the KL divergence from the
    target to the softmax of the cosines between the features, mean over the rows. The model in training computes both
    distributions, and most of the gradient flows through the target.

    Source: the same as for :func:`dkp_set_triplet_loss`. The caller multiplies this loss by DKP's weight 0.1. The loss
    is computed in float64.

    Args:
        features: ``(B, D)`` float features; they need not be unit vectors.
        means: ``(P, D)`` float mean features of past identities.
        deviations: ``(P, D)`` float standard deviations of past identities.
        noise: ``(P, D)`` float, drawn from a normal distribution.
        relation_temperature: divisor of the cosines to prototypes, above 0; ``lambda_1`` in the official code.
        temperature: divisor of the cosines within the batch, above 0; ``lambda_2`` in the official code.
        detach_target: stop the gradient through the target; DKP does not stop it.

    Returns:
        Scalar in the precision of ``features``, at least float32.

    Raises:
        ValueError: the shapes do not match, or a temperature is not above 0.
    """
    check_alike(means, deviations, "means and deviations", "(P, D)")
    check_alike(means, noise, "means and noise", "(P, D)")
    if features.ndim != 2 or features.shape[1] != means.shape[1]:
        raise ValueError(
            f"features must be (B, D) as wide as the prototypes, "
            f"got shapes {tuple(features.shape)} and {tuple(means.shape)}"
        )
    past = unit(means.double() + deviations.double() * noise.double())  # (P, D)
    relations = log_probabilities(unit(features.double()) @ past.T, relation_temperature).exp()  # (B, P)
    target = log_affinities(relations, temperature)  # (B, B)
    return to_loss(
        mean_divergence(target.detach() if detach_target else target, log_affinities(features, temperature)), features
    )
