"""Deep Meta Metric Learning (DMML): classify each query of an episode by its distances to the supports."""

from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from lreid.losses._ops import Distance, check, check_rows, distances, to_loss
from lreid.losses.episodes import prototypes, split_episode


def dmml_loss(
    features: Tensor,
    labels: Tensor,
    num_support: int,
    *,
    margin: float = 0.4,
    metric: Distance = "sqeuclidean",
    clamp: bool = True,
    feature_penalty: float = 5e-4,
    mining: Literal["hard", "center"] = "hard",
    reduction: Literal["mean", "none"] = "mean",
) -> Tensor:
    """Compute the DMML loss of one episode, in the form of DwoPP's official code.

    Let ``d+`` be the distance of a query to the farthest support of its own class. Let ``d_c`` be the distance of the
    query to the nearest support of another class ``c``. The loss term of a query is::

        log(1 + sum_c exp(d+ - max(d_c - margin, 0)))

    The loss is the mean of the loss terms of all queries, plus ``feature_penalty`` times the mean squared norm of all
    features. The loss is computed in float64.

    Source: Chen et al., "Deep Meta Metric Learning", ICCV 2019; Wang et al., "Positive Pair Distillation Considered
    Harmful", BMVC 2022, Eq. 2. Both papers print a sum over queries instead of a mean. The BMVC paper also prints the
    opposite sign, the Euclidean distance without a square, no clamp at 0, and no penalty. The defaults follow DwoPP's
    official code. For the BMVC paper's form with the correct sign, pass ``metric="euclidean", clamp=False,
    feature_penalty=0`` and multiply the loss by the number of queries.

    Args:
        features: ``(B, D)`` float outputs of the network, not scaled to unit length.
        labels: ``(B,)`` integers, in any order. The first ``num_support`` rows of each label are its supports; the
            other rows are queries. Classes may have different numbers of rows; a class without queries still serves as
            a negative.
        num_support: number of supports per class, at least 1.
        margin: number subtracted from the distances to other classes, in units of the metric.
        metric: ``sqeuclidean`` (official code), ``euclidean`` (paper), or ``cosine``. As in the official code,
            ``cosine`` is the negative dot product of unscaled features, without margin or clamp.
        clamp: whether to raise a distance to 0 if it is negative after the margin is subtracted; a raised distance gets
            no gradient.
        feature_penalty: weight of the mean squared norm of the features.
        mining: supports to compare with. ``hard`` uses the farthest support of the query's own class and the nearest
            support of each other class; ``center`` uses the mean support of each class, without margin and clamp.
        reduction: ``mean``, or ``none`` to return the term of each query ``(Q,)`` in the order of
            :func:`~lreid.losses.episodes.split_episode`; the full penalty is then added to each term.

    Returns:
        Scalar, or ``(Q,)``, in the dtype of ``features`` (float32 for half precision).

    Raises:
        ValueError: a shape or an option is invalid, or the batch has no query.
    """
    check_rows(features, labels)
    check(mining in ("hard", "center"), f"unknown mining {mining!r}; use hard or center")
    check(reduction in ("mean", "none"), f"unknown reduction {reduction!r}; use mean or none")
    episode = split_episode(labels, num_support, features.device)
    exact = features.double()
    queries = exact[episode.query]  # (Q, D)
    if mining == "center":
        distance = distances(queries, prototypes(exact, episode), metric)  # (Q, N)
    else:
        supports = exact[episode.support.flatten()]  # (N * S, D)
        to_supports = distances(queries, supports, metric).unflatten(1, episode.support.shape)  # (Q, N, S)
        distance = to_supports.min(2).values  # (Q, N)
        if metric != "cosine":
            distance = distance - margin
            distance = distance.clamp(min=0) if clamp else distance
        target = episode.target[:, None]  # (Q, 1)
        farthest_own = to_supports.max(2).values.gather(1, target)  # (Q, 1)
        distance = distance.scatter(1, target, farthest_own)
    terms = F.cross_entropy(-distance, episode.target, reduction=reduction)
    loss = terms + feature_penalty * exact.square().sum(1).mean()
    return to_loss(loss, features)
