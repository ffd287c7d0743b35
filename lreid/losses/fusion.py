"""Averages of two networks' weights, and rules that compute the new network's share of the average."""

from collections.abc import Mapping

import torch
from torch import Tensor

from lreid.losses._ops import check, check_shapes, unit

ROWS = 1024  # rows of the affinity matrices per block; a full matrix of 10,000 images would take 800 MB


def lstkc_alpha(new: Tensor, old: Tensor, *, scale: float = 100.0) -> float:
    """Compute LSTKC's weight of the new network: ``1 - mean_i sum_j |A_ij - B_ij|`` over all images of a task.

    Row ``i`` of ``A`` is the softmax of ``scale`` times the cosines between the new network's feature of image ``i``
    and those of all images. ``B`` is the same matrix for the features of the old network. An image's cosine with itself
    dominates its row of ``A``, so the result is near 1 unless there are near-duplicate images.

    Source: LSTKC's official code (AAAI 2024). LSTKC++ offers this rule as an option, with a scale of 400. DASK's code
    computes this weight without the diagonal of ``A`` and ``B``, but then uses the constant 0.5. This function computes
    the weight in float64.

    Args:
        new: ``(n, D)`` float features of the new network; they need not be unit vectors.
        old: ``(n, D')`` float features of the same images from the old network.
        scale: factor of the cosines before the softmax, above 0.

    Returns:
        Weight of the new network, in [-1, 1].
    """
    return 1 - _row_mean(new, old, scale, overlap=False)


def lstkcpp_alpha(new: Tensor, old: Tensor, *, scale: float = 400.0) -> float:
    """Compute LSTKC++'s weight of the new network, ``mean_i sum_j A_ij B_ij`` over pairs of different images.

    :func:`lstkc_alpha` defines ``A`` and ``B``. Even for equal networks, the weight is below 1; it is smaller if more
    images have equal similarities.

    Source: LSTKC++'s official code (TPAMI 2025). Arguments and errors are those of :func:`lstkc_alpha`, but this
    function needs at least two images.

    Returns:
        Weight of the new network, in [0, 1].
    """
    return _row_mean(new, old, scale, overlap=True)


def linear_combination(new: Mapping[str, Tensor], old: Mapping[str, Tensor], alpha: float) -> dict[str, Tensor]:
    """Compute ``alpha * new + (1 - alpha) * old`` for all entries of two state dicts, BatchNorm statistics included.

    The average of BatchNorm's ``num_batches_tracked`` is truncated to an integer. If a classifier has grown, its
    additional rows are copied from ``new``.

    Source: the official code of LSTKC, LSTKC++, DKP and DASK.

    Args:
        old: state dict of the old network, with the same names; a tensor has the same shape as in ``new``, or fewer
            rows.
        alpha: weight of the new network; a value above 1 extrapolates beyond the new network.

    Returns:
        A new state dict with the names, shapes and types of ``new``.
    """
    if new.keys() != old.keys():
        raise ValueError(f"not the same network: only one of the two has {sorted(new.keys() ^ old.keys())[0]}")
    fused = {}
    for name, value in new.items():
        before = old[name].to(value.device)
        if before.shape != value.shape and (
            not value.ndim or before.shape[1:] != value.shape[1:] or len(before) > len(value)
        ):
            raise ValueError(f"{name}: old is {tuple(before.shape)}, which does not fit new {tuple(value.shape)}")
        fused[name] = value.detach().clone()
        if torch.equal(before, value):  # a frozen weight stays as it is, without rounding
            continue
        rows = slice(len(before) if before.ndim else None)
        blend = alpha * (value[rows] if value.ndim else value) + (1 - alpha) * before
        if value.ndim:
            fused[name][rows] = blend.to(value.dtype)
        else:
            fused[name] = blend.to(value.dtype)
    return fused


def pad_ema(
    teacher: Mapping[str, Tensor], student: Mapping[str, Tensor], *, momentum: float = 0.997
) -> dict[str, Tensor]:
    """Move a teacher towards the student: ``momentum * teacher + (1 - momentum) * student``.

    All floating-point entries are averaged, including BatchNorm statistics; integer entries are copied from the
    teacher. After n calls, the initial teacher still has the weight ``momentum ** n``.

    Source: PAD's official code (CVPR 2026, ``EMATeacher``).

    Args:
        teacher, student: state dicts with the same names and shapes.
        momentum: weight of the teacher, in [0, 1].

    Returns:
        A new state dict for the teacher.
    """
    check(0 <= momentum <= 1, f"momentum must be in [0, 1], got {momentum}")
    old, new = ({name: each.shape for name, each in state.items()} for state in (teacher, student))
    check(old == new, "teacher and student must have the same names and shapes")
    return {
        name: momentum * each + (1 - momentum) * student[name].to(each.device)
        if each.is_floating_point()
        else each.clone()
        for name, each in teacher.items()
    }


def _row_mean(new: Tensor, old: Tensor, scale: float, *, overlap: bool) -> float:
    """Compute the mean over ``i`` of ``sum_j A_ij B_ij`` (``j != i``); without ``overlap``, ``sum_j |A_ij - B_ij|``."""
    fit = new.ndim == old.ndim == 2 and len(new) == len(old)
    check_shapes(fit, "new and old must be (n, D) and (n, D')", new, old)
    check(scale > 0, f"scale must be above 0, got {scale}")
    least = 2 if overlap else 1
    check(len(new) >= least, f"new and old must have {least} or more rows, got {len(new)}")
    after, before = unit(new.detach().double()), unit(old.detach().double())
    total = 0.0
    for start in range(0, len(new), ROWS):
        a, b = (_affinities(each, start, scale, not overlap) for each in (after, before))  # (rows, n)
        total += ((a * b) if overlap else (a - b).abs()).sum().item()
    return total / len(new)


def _affinities(directions: Tensor, start: int, scale: float, diagonal: bool) -> Tensor:
    cosines = directions[start : start + ROWS] @ directions.T  # (rows, n)
    if not diagonal:
        cosines.diagonal(start).fill_(-torch.inf)
    return (scale * cosines).softmax(1)
