"""ER-AML: a metric loss on new images, whose negatives can be limited to identities of the incoming batch."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from lreid.losses._ops import check, check_rows, check_shapes, to_loss


class SampledPairs(NamedTuple):
    """V triplets of an incoming image (anchor), a positive and a negative; fields are row numbers ``(V,)`` int64.

    Attributes:
        anchor: rows of the incoming batch, ascending.
        positive: rows in the concatenation of the incoming batch and the memory.
        negative: rows in the concatenation of the incoming batch and the memory.
    """

    anchor: Tensor
    positive: Tensor
    negative: Tensor


def sample_pairs(
    labels: Tensor,
    memory_labels: Tensor,
    generator: torch.Generator,
    *,
    negatives: Literal["incoming", "all"] = "incoming",
) -> SampledPairs:
    """Draw one positive and one negative for each incoming image, each with equal probability.

    The positives of an image are all other images with the same label, in the batch or in the memory. Images without a
    positive or without a negative are left out.

    Source: Caccia et al., "Reducing Representation Drift in Online Continual Learning" (ER-AML), Algorithm 1,
    ``FetchPosNeg``, in the form of the official code for streams without task boundaries.

    Args:
        labels: ``(B,)`` integers, the labels of the incoming batch.
        memory_labels: ``(M,)`` integers, the labels of the stored images.
        generator: random number generator on the CPU; the same state draws the same pairs.
        negatives: ``incoming`` draws a negative from those images in batch and memory whose label differs from the
            anchor's and occurs in the batch. ``all`` draws a negative with any different label, so the features of old
            classes change more (ER-AML, Section 3.3).

    Returns:
        Row numbers, on the CPU. Row ``i < B`` is image i of the batch, and row ``B + j`` is image j in the memory.
    """
    check(negatives in ("incoming", "all"), f"unknown negatives {negatives!r}; use incoming or all")
    fit = labels.ndim == memory_labels.ndim == 1
    check_shapes(fit, "labels must be (B,) and memory_labels (M,)", labels, memory_labels)
    labels = labels.cpu()
    candidates = torch.cat([labels, memory_labels.to(labels)])  # (B + M,)
    same = labels[:, None] == candidates  # (B, B + M)
    itself = torch.eye(len(labels), len(candidates), dtype=torch.bool)
    positive, negative = same & ~itself, ~same
    if negatives == "incoming":
        negative &= torch.isin(candidates, labels)
    anchor = (positive.any(1) & negative.any(1)).nonzero()[:, 0]  # (V,)
    return SampledPairs(anchor, _draw(positive[anchor], generator), _draw(negative[anchor], generator))


def _draw(allowed: Tensor, generator: torch.Generator) -> Tensor:
    """Draw one allowed column for each row: ``(V, n)`` bool to ``(V,)`` int64."""
    return torch.multinomial(allowed.double(), 1, generator=generator)[:, 0]


def er_aml_loss(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor,
    labels: Tensor,
    negative_labels: Tensor,
    *,
    temperature: float = 0.2,
    base_temperature: float = 0.07,
    denominator: Literal["all", "negatives"] = "all",
) -> Tensor:
    """Compute the supervised contrastive loss (SupCon) of V anchors against 2V candidates, mean over anchors.

    The candidates are the positives and the negatives of all anchors. A candidate with an anchor's label is a positive
    of this anchor, even if it was drawn as the negative of another anchor. As in ER-AML's official code, every feature
    ``x`` is divided by ``|x| + 1e-5``.

    Source: Caccia et al. (ER-AML), Eq. 1, as in ER-AML's official code. In the official code, the denominator contains
    all candidates, and the loss is multiplied by ``temperature / 0.07``. Equation 1 prints a sum over anchors and a
    denominator of the candidates with other labels only: ``denominator="negatives"``. The loss is returned without the
    paper's weight gamma. The loss is computed in float64.

    Args:
        anchors: ``(V, D)`` float, features of incoming images that have a positive and a negative.
        positives: ``(V, D)`` float, for each anchor the features of one image with the anchor's label.
        negatives: ``(V, D)`` float, for each anchor the features of one image with a different label.
        labels: ``(V,)`` integers, the labels of the anchors and of their positives.
        negative_labels: ``(V,)`` integers, the labels of the negatives.
        temperature: divisor of the cosine similarities, above 0.
        base_temperature: above 0; the loss is multiplied by ``temperature / base_temperature``.
        denominator: candidates in the denominator: ``all``, or the ``negatives`` of the anchor.

    Returns:
        Scalar in the dtype of ``anchors`` (float32 for half precision); 0, with a gradient of 0, if V is 0.
    """
    _check_shapes(anchors, positives, negatives)
    check_rows(anchors, labels, "anchors")
    check_rows(negatives, negative_labels, "negatives")
    positive = temperature > 0 and base_temperature > 0
    check(positive, f"temperatures must be above 0, got {temperature} and {base_temperature}")
    differ = (labels != negative_labels).all()
    check(differ, "negative_labels must differ from labels: a negative has the label of its anchor")
    candidates = torch.cat([_normalized(positives), _normalized(negatives)])  # (2V, D)
    scores = _normalized(anchors) @ candidates.T / temperature  # (V, 2V)
    same = (labels[:, None] == torch.cat([labels, negative_labels])).to(scores.device, non_blocking=True)  # (V, 2V)
    own = scores.masked_fill(~same, 0).sum(1) / same.sum(1)  # (V,)
    against = scores.masked_fill(same, -torch.inf) if denominator == "negatives" else scores  # (V, 2V)
    loss = (against.logsumexp(1) - own).sum() / max(len(anchors), 1)
    return to_loss(loss * temperature / base_temperature, anchors)


def er_aml_triplet_loss(anchors: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 0.2) -> Tensor:
    """Compute the triplet loss of each anchor with its own positive and negative, mean over anchors.

    Source: Caccia et al. (ER-AML), Appendix E, where the loss is a sum over anchors. The loss is returned without the
    weight gamma = 2 of ER-AML's official code. Features are divided by their length plus 1e-5, as in
    :func:`er_aml_loss`. Distances are Euclidean; torch adds 1e-6 to every coordinate difference before it computes
    them. The loss is computed in float64.

    Args:
        anchors: ``(V, D)`` float.
        positives: ``(V, D)`` float.
        negatives: ``(V, D)`` float.
        margin: margin of the loss in units of the distance, above 0.

    Returns:
        Scalar in the dtype of ``anchors`` (float32 for half precision); 0, with a gradient of 0, if V is 0.
    """
    _check_shapes(anchors, positives, negatives)
    anchor, positive, negative = (_normalized(features) for features in (anchors, positives, negatives))
    total = F.triplet_margin_loss(anchor, positive, negative, margin=margin, reduction="sum")
    loss = total / max(len(anchors), 1)
    return to_loss(loss, anchors)


def _normalized(features: Tensor) -> Tensor:
    """Divide each row by its length plus 1e-5, in float64, so that rows of zeros have a finite gradient."""
    features = features.double()
    return features / (torch.linalg.vector_norm(features, dim=1, keepdim=True) + 1e-5)


def _check_shapes(anchors: Tensor, positives: Tensor, negatives: Tensor) -> None:
    fit = anchors.ndim == 2 and anchors.shape == positives.shape == negatives.shape
    rule = "anchors, positives and negatives must be (V, D), all of one shape"
    check_shapes(fit, rule, anchors, positives, negatives)
