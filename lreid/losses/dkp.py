"""Losses of DKP, in which an image, or the prototype of a past identity, is a distribution of features."""

import torch
from torch import Tensor
from torch.nn import functional as F

from lreid.losses._ops import check_alike, check_shapes, class_means, log_probabilities, to_loss, unit
from lreid.losses.affinity import log_affinities, mean_divergence
from lreid.losses.triplet import hardest_distances


def dkp_set_triplet_loss(features: Tensor, labels: Tensor) -> Tensor:
    """Compute a soft-margin triplet loss between samples and mean features.

    Every image has a mean feature and several random samples around it. Each sample is an anchor. The positive of an
    anchor is the farthest mean feature of its identity; this feature may belong to the same image. The negative of an
    anchor is the nearest mean feature of another identity. The loss is ``log(1 + exp(d+ - d-))``, mean over the
    anchors, where ``d+`` and ``d-`` are the Euclidean distances to the positive and the negative.

    Source: Xu et al., "Distribution-aware Knowledge Prototyping for Non-exemplar Lifelong Person Re-identification"
    (DKP), CVPR 2024, official code. The loss is computed in float64.

    Args:
        features: ``(B, 1 + S, D)`` float: the mean feature ``features[:, 0]`` of each image, then its ``S >= 1``
            samples.
        labels: ``(B,)`` integers, in any order, with any number of images per label.

    Returns:
        Scalar in the dtype of ``features`` (float32 for half precision); 0 for a batch of one identity.
    """
    fit = features.ndim == 3 and features.shape[1] > 1 and labels.shape == features.shape[:1]
    check_shapes(fit, "features must be (B, 1 + S, D) with a sample or more and labels (B,)", features, labels)
    exact, labels = features.double(), labels.to(features.device, non_blocking=True)
    samples = exact[:, 1:].flatten(0, 1)  # (B * S, D)
    own, other = hardest_distances(samples, labels.repeat_interleave(features.shape[1] - 1), exact[:, 0], labels)
    return to_loss(F.softplus(own - other).mean(), features)


def dkp_prototypes(means: Tensor, deviations: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the mean and standard deviation of each identity's distribution, per dimension.

    The distribution of an identity is the mixture of its images' distributions, with means ``m`` and deviations ``s``,
    in equal shares. The mean of the mixture is ``mean(m)``, and its variance is ``mean(s²) + mean(m²) - mean(m)²``.

    Source: DKP's official code, as for :func:`dkp_set_triplet_loss`; it calls the standard deviations ``mean_vars``.

    Args:
        means: ``(n, D)`` float mean feature of each image.
        deviations: ``(n, D)`` float standard deviations of each image.
        labels: ``(n,)`` integers.

    Returns:
        Means and standard deviations, both ``(N, D)`` in the precision of ``means``, and ascending labels ``(N,)``.
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
    """Compute DKP's knowledge transfer from prototypes, a loss on the similarities between images of a batch.

    From each past identity, this function computes one sample ``mean + deviation * noise``. The vector ``r`` of an
    image, a softmax over its cosines to these samples, describes its similarities to past identities. The target is the
    softmax of the cosines between the vectors ``r`` of all images in the batch. The loss is the KL divergence from the
    target to the softmax of the cosines between the features, mean over the rows. The model in training computes both
    distributions, and most of the gradient flows through the target distribution.

    Source: DKP's official code, as for :func:`dkp_set_triplet_loss`. The loss is returned without DKP's weight of 0.1.
    The loss is computed in float64.

    Args:
        features: ``(B, D)`` float features; they need not be unit vectors.
        means: ``(P, D)`` float mean features of past identities.
        deviations: ``(P, D)`` float standard deviations of past identities.
        noise: ``(P, D)`` float standard normal noise.
        relation_temperature: divisor of the cosines to prototypes, above 0; ``lambda_1`` in the official code.
        temperature: divisor of the cosines within the batch, above 0; ``lambda_2`` in the official code.
        detach_target: whether to stop the gradient through the target; DKP does not stop it.

    Returns:
        Scalar in the dtype of ``features`` (float32 for half precision).
    """
    check_alike(means, deviations, "means and deviations", "(P, D)")
    check_alike(means, noise, "means and noise", "(P, D)")
    fit = features.ndim == 2 and features.shape[1] == means.shape[1]
    check_shapes(fit, "features must be (B, D) as wide as the prototypes", features, means)
    past = unit(means.double() + deviations.double() * noise.double())  # (P, D)
    relations = log_probabilities(unit(features.double()) @ past.T, relation_temperature).exp()  # (B, P)
    target = log_affinities(relations, temperature)  # (B, B)
    return to_loss(
        mean_divergence(target.detach() if detach_target else target, log_affinities(features, temperature)), features
    )
