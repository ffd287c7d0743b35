"""Episodes: a batch is split into supports and queries, and class prototypes are computed from the supports."""

from typing import NamedTuple

import torch
from torch import Tensor

from lreid.losses._ops import Distance, check, check_shapes, distances, safe_quotient, safe_root, unit


class Episode(NamedTuple):
    """Row numbers of supports and queries in a batch, for N classes, S supports per class and Q queries.

    Attributes:
        support: rows of the supports of each class; a class with fewer than S supports repeats its last support.
            ``(N, S)`` int64
        weight: weight of each support in the class mean: 1 / number of supports, or 0 for a repeated support.
            ``(N, S)`` float64
        query: rows of the queries, class by class. ``(Q,)`` int64
        target: class of each query, from 0 to ``N - 1`` in ascending order of the labels. ``(Q,)`` int64
    """

    support: Tensor
    weight: Tensor
    query: Tensor
    target: Tensor


def split_episode(labels: Tensor, num_support: int, device: torch.device | None = None) -> Episode:
    """Take the first ``num_support`` rows of each label as its supports and the rest as queries.

    The split is computed on the CPU. If ``labels`` is on a GPU, the CPU waits until the labels are copied.

    Args:
        labels: ``(B,)`` integers, in any order.
        num_support: number of supports per label, at least 1. A label with at most ``num_support`` rows has no query.
        device: device of the result (default: the device of ``labels``).
    """
    check_shapes(labels.ndim == 1, "labels must be (B,)", labels)
    check(num_support >= 1, f"num_support must be at least 1, got {num_support}")
    device = device or labels.device
    _, target, counts = torch.unique(labels.cpu(), return_inverse=True, return_counts=True)
    rows = torch.argsort(target, stable=True)  # (B,) class by class, each class in batch order
    starts = counts.cumsum(0) - counts  # (N,) where each class begins in rows
    rank = torch.arange(len(rows)) - starts[target[rows]]  # (B,) numbers the rows of each class from 0
    query = rows[rank >= num_support]  # (Q,)
    fault = f"the batch of {len(rows)} holds no query: no label has more than num_support = {num_support} rows"
    check(len(query), fault)
    slot = torch.arange(num_support)  # (S,)
    support = rows[starts[:, None] + slot.minimum(counts[:, None] - 1)]  # (N, S)
    filled = (slot < counts[:, None]).double()  # (N, S)
    weight = filled / filled.sum(1, keepdim=True)
    return Episode(*(part.to(device, non_blocking=True) for part in (support, weight, query, target[query])))


def prototypes(features: Tensor, episode: Episode) -> Tensor:
    """Compute the prototype of each class, the mean feature of its supports: ``(B, D)`` to ``(N, D)``."""
    return (features[episode.support] * episode.weight[:, :, None]).sum(1)


def prototype_logits(features: Tensor, episode: Episode, metric: Distance = "sqeuclidean") -> Tensor:
    """Compute the similarity of each query to the prototype of each class (DwoPP, Eqs. 5 and 7).

    Args:
        features: ``(B, D)``.
        episode: split of the batch into supports and queries, on the same device.
        metric: ``sqeuclidean`` (official code), ``euclidean`` (paper) or ``cosine``. The first two are negative
            distances of unscaled features. ``cosine`` is the cosine similarity to the prototype. For ``cosine``, each
            dimension of a prototype is first divided by its norm over the supports of the class. The division follows
            DwoPP's official code, which normalises along the axis of the supports.

    Returns:
        ``(Q, N)`` float64.
    """
    features = features.double()
    queries, centers = features[episode.query], prototypes(features, episode)  # (Q, D), (N, D)
    if metric == "cosine":
        centers = safe_quotient(centers, safe_root(prototypes(features.square(), episode)))
        queries, centers = unit(queries), unit(centers)
    return -distances(queries, centers, metric)
