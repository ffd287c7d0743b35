"""Learn a map from the features of one model to those of the next, after the fact and for any method.

Bi-C2R (TPAMI 2026) learns its map together with the new model. Here both models are there, and the map is learned of
images of the new task alone, whose features both give: the old images are not needed again.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import SGD

from lreid.errors import InputError
from lreid.losses import bic2r_ca_loss, bic2r_cr_loss, bic2r_dc_loss
from lreid.models import FeatureTransfer

WEIGHTS = (100.0, 1.0, 0.0005)  # of alignment, relations and direction in Bi-C2R's code
STEPS, BATCH, RATE = 1000, 64, 0.008
FEWEST = 8


def learn_transfer(
    old: np.ndarray,
    new: np.ndarray,
    labels: np.ndarray | None = None,
    *,
    steps: int = STEPS,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> FeatureTransfer:
    """A map from old features to new ones, learned of the same images by both models.

    Forward terms of Bi-C2R: :func:`~lreid.losses.bic2r.bic2r_ca_loss`, :func:`~lreid.losses.bic2r.bic2r_cr_loss` and
    :func:`~lreid.losses.bic2r.bic2r_dc_loss` with its weights, in batches of 64 by SGD at 0.008 with momentum 0.9. The
    classifier's term is left out, as no classifier is at hand and the published one tells no identities apart. The
    statistics of the norms are taken anew over all images at the end: the official code's are those of about the last
    batch.

    Args:
        old, new: (n, D) float32.
        labels: (n,) identities; None takes each image for one of its own.
        steps: updates.
        seed: of weights and batches.
        device: where to compute.

    Returns:
        In evaluation mode.

    Raises:
        InputError: the features have different widths, or there are fewer than eight images.
    """
    if old.shape[1] != new.shape[1]:
        raise InputError(
            f"features of {old.shape[1]} and {new.shape[1]} numbers: a map is learned between networks of one width"
        )
    if len(old) < FEWEST:
        raise InputError(f"a map is learned of {FEWEST} images or more, got {len(old)}")
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        transfer = FeatureTransfer(old.shape[1]).to(device).train()
    sources, targets = (F.normalize(torch.from_numpy(each).to(device), dim=1) for each in (old, new))  # (n, D)
    identities = torch.arange(len(old)) if labels is None else torch.from_numpy(np.asarray(labels))
    optimizer = SGD(transfer.parameters(), lr=RATE, momentum=0.9, weight_decay=1e-4)
    for _ in range(steps):
        rows = torch.randperm(len(old), generator=generator)[:BATCH]
        source, target = sources[rows.to(device)], targets[rows.to(device)]
        mapped = transfer(source)
        terms = (
            bic2r_ca_loss(mapped, target),
            bic2r_cr_loss(mapped, source, identities[rows]),
            bic2r_dc_loss(mapped, source, target),
        )
        optimizer.zero_grad(set_to_none=True)
        sum(weight * term for weight, term in zip(WEIGHTS, terms, strict=True)).backward()  # type: ignore[union-attr]
        optimizer.step()
    for module in transfer.modules():
        if isinstance(module, _BatchNorm):
            module.reset_running_stats()
            module.momentum = None  # the plain average
    with torch.no_grad():
        for part in sources.split(4096):
            if len(part) > 1:
                transfer(part)
    return transfer.eval()
