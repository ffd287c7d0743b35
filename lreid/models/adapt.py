"""Re-estimate BatchNorm statistics on new images, without labels or training (AdaBN: Li et al., arXiv 2016)."""

import copy
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from lreid.data.images import images_done
from lreid.errors import InputError
from lreid.models.embedder import Embedder


def norm_statistics(
    model: Embedder, images: Sequence[str] | Sequence[np.ndarray], *, batch_size: int = 128, seed: int = 0
) -> dict[str, np.ndarray]:
    """Measure mean and variance of every BatchNorm layer over images; frozen layers keep their statistics.

    The statistics of a layer are averaged over batches. Within a batch, every layer normalises by the statistics of
    this batch. The images are shuffled first, because batches of images sorted by identity would show only a few people
    each. All batches have nearly the same size and at least two images, because a single image has no variance.

    Args:
        model: the model, which this function does not change.
        images: n uint8 RGB images (H, W, 3), or paths.
        batch_size: number of images in a batch; a batch is larger only if a single image would remain for the last
            batch.

    Returns:
        Running mean and unbiased running variance ``(C,)`` float32 of every BatchNorm layer; keys are the names of
        these tensors in the state dict.

    Raises:
        InputError: there are fewer than two images, an image cannot be read, or the model has no BatchNorm.
    """
    if len(images) < 2:
        raise InputError(f"adapting BatchNorm needs two images or more, got {len(images)}")
    model = copy.deepcopy(model).eval()
    model.precision = None  # extraction computes in float32, even if training does not
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    if not layers:
        raise InputError(f"{model.name}: has no BatchNorm layer whose statistics could be adapted")
    for layer in layers:
        if layer in model.frozen_norms:
            continue
        layer.reset_running_stats()
        layer.momentum = None  # the plain average over batches
        layer.train()
    order = np.random.default_rng(seed).permutation(len(images))
    with torch.no_grad(), images_done(len(order), "adapting") as bar:
        for batch in np.array_split(order, min(math.ceil(len(order) / batch_size), len(order) // 2)):
            model._features([images[i] for i in batch], flip=False)
            bar.update(len(batch))
    ends = ("running_mean", "running_var")
    return {name: state.cpu().numpy() for name, state in model.state_dict().items() if name.endswith(ends)}
