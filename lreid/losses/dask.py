"""DASK's transfer of images to the style of a past domain: random colour statistics, and one convolution per image."""

import torch
from torch import Tensor
from torch.nn import functional as F

from lreid.losses._ops import check_shapes


def dask_color_resample(images: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Give each channel of an image a new random mean and contrast, drawn from the statistics of the batch.

    The new mean of a channel is drawn from a normal distribution with the mean and variance of this channel's means in
    the batch. The new standard deviation is drawn likewise from the standard deviations in the batch. As in DASK's
    official code, a drawn standard deviation may be negative, and new pixel values may leave [0, 1].

    Source: "DASK: Distribution Rehearsing via Adaptive Style Kernel Learning for Exemplar-Free Lifelong Person
    Re-Identification", AAAI 2025, official code (``ColorTransformer``), which trains the style network on recoloured
    images. If all pixels of a channel are equal, they all become the drawn mean; DASK's official code divides by 0 in
    this case.

    Args:
        images: ``(B, C, H, W)`` float, with B of 2 or more.
        generator: random number generator, which draws ``(B, C)`` means and then ``(B, C)`` standard deviations; None
            means torch's global generator.

    Returns:
        New images ``(B, C, H, W)`` in the dtype of ``images``.
    """
    check_shapes(images.ndim == 4 and len(images) > 1, "images must be (B, C, H, W) with B of 2 or more", images)
    means, deviations = images.mean((2, 3)), images.std((2, 3))  # (B, C)
    device = torch.device("cpu") if generator is None else generator.device
    place, contrast = (
        each.mean(0)
        + each.std(0) * torch.randn(each.shape, generator=generator, dtype=each.dtype, device=device).to(each.device)
        for each in (means, deviations)
    )
    scale = contrast / deviations.masked_fill(deviations == 0, 1)  # (B, C)
    return (images - _spread(means)) * _spread(scale) + _spread(place)


def dask_decode(images: Tensor, kernels: Tensor, *, groups: int = 1) -> Tensor:
    """Apply one or several 3 x 3 convolutions to each image, with separate kernels for each image.

    Source: DASK's official code, as for :func:`dask_color_resample`. One grouped convolution replaces the loop over
    images of DASK's official code.

    Args:
        images: ``(B, C, H, W)`` float.
        kernels: ``(B, k (9 C² / groups + C))`` float. Each row contains the weights ``[out, in, 3, 3]`` and then the
            biases of k successive convolutions for one image; DASK's paper uses k = 1.
        groups: number of groups of each convolution.

    Returns:
        ``(B, C, H, W)``.
    """
    channels = images.shape[1] if images.ndim == 4 else 0
    weights = 9 * channels * channels // max(groups, 1)
    fits = channels and groups >= 1 and not channels % groups and kernels.ndim == 2 and len(kernels) == len(images)
    fits = fits and kernels.shape[1] and not kernels.shape[1] % (weights + channels)
    rule = f"images must be (B, C, H, W) and kernels (B, k (9 C² / groups + C)) with {groups} groups"
    check_shapes(fits, rule, images, kernels)
    if not len(images):
        return images
    decoded = images.flatten(0, 1)[None]  # (1, B * C, H, W)
    for kernel in kernels.split(weights + channels, dim=1):
        decoded = F.conv2d(
            decoded,
            kernel[:, :weights].reshape(-1, channels // groups, 3, 3),
            kernel[:, weights:].flatten(),
            padding=1,
            groups=groups * len(images),
        )
    return decoded.view_as(images)


def _spread(values: Tensor) -> Tensor:
    return values[:, :, None, None]
