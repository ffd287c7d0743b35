"""Functions that several losses share: distances, safe roots, log-probabilities, class means, checks of shapes."""

from typing import Literal

import torch
from torch import Tensor

Distance = Literal["sqeuclidean", "euclidean", "cosine"]


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Compute squared Euclidean distances of all pairs: ``(n, D)`` and ``(m, D)`` float64 to ``(n, m)`` float64.

    The distances are computed as ``|a|² + |b|² - 2ab``, because the matrix product ``ab`` needs far less memory than
    ``(n, m, D)`` differences. The subtraction of large, similar numbers loses precision, so the inputs must be float64.
    """
    return a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T


def distances(a: Tensor, b: Tensor, metric: Distance) -> Tensor:
    """Compute distances of all pairs: ``(n, D)`` and ``(m, D)`` float64 to ``(n, m)`` float64.

    With ``metric="cosine"``, the distance is the negative dot product.
    """
    if metric == "cosine":
        return -a @ b.T
    if metric == "sqeuclidean":
        return squared_distances(a, b)
    if metric == "euclidean":
        return safe_root(squared_distances(a, b))
    raise ValueError(f"unknown metric {metric!r}; use sqeuclidean, euclidean or cosine")


def safe_root(squared: Tensor) -> Tensor:
    """Compute a square root whose gradient at 0 is 0. Negative inputs count as 0; they only arise from rounding."""
    zero = squared <= 0
    return squared.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)


def safe_quotient(vectors: Tensor, lengths: Tensor) -> Tensor:
    """Divide vectors by their lengths; vectors of length 0 stay 0."""
    return vectors / lengths.masked_fill(lengths == 0, 1)


def unit(vectors: Tensor) -> Tensor:
    """Scale the rows of a matrix to unit length; rows of zeros stay 0."""
    return safe_quotient(vectors, safe_root(vectors.square().sum(1, keepdim=True)))


def without_column(matrix: Tensor, left_out: Tensor) -> Tensor:
    """Remove the entry in column ``left_out[i]`` from each row ``i`` of a matrix: ``(n, m)`` to ``(n, m - 1)``."""
    columns = torch.arange(matrix.shape[1], device=matrix.device)[:-1].expand(len(matrix), -1)
    return matrix.gather(1, columns + (columns >= left_out[:, None]))


def log_probabilities(scores: Tensor, temperature: float) -> Tensor:
    """Compute the log-softmax of each row of ``scores / temperature``, in float64."""
    check_temperature(temperature)
    return (scores.double() / temperature).log_softmax(1)


def label_means(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute each label's mean ``(N, D)`` float64, the labels ``(N,)``, and the index of each row's mean ``(B,)``."""
    check_rows(features, labels)
    names, place, counts = torch.unique(labels.to(features.device), return_inverse=True, return_counts=True)
    sums = features.new_zeros(len(names), features.shape[1], dtype=torch.float64)
    return sums.index_add(0, place, features.double()) / counts[:, None], names, place


def class_means(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the mean feature of each label.

    Args:
        features: ``(B, D)`` float.
        labels: ``(B,)`` integers.

    Returns:
        Means ``(N, D)`` in the dtype of ``features`` (summed in float64), and their labels ``(N,)`` in ascending order.
    """
    means, names, _ = label_means(features, labels)
    return means.to(features.dtype), names


def check_rows(features: Tensor, labels: Tensor, name: str = "features") -> None:
    """Raise ValueError unless ``features`` is ``(B, D)`` with one row for each label."""
    if features.ndim != 2 or len(features) != len(labels):
        raise ValueError(f"{name} must be (B, D) with B = {len(labels)} labels, got shape {tuple(features.shape)}")


def check_alike(first: Tensor, second: Tensor, names: str, shape: str = "(B, D)") -> None:
    """Raise ValueError unless both tensors are matrices of the same shape; ``shape`` names that shape in the error."""
    if first.ndim != 2 or first.shape != second.shape:
        raise ValueError(f"{names} must both be {shape}, got shapes {tuple(first.shape)} and {tuple(second.shape)}")


def check_pairs(student: Tensor, teacher: Tensor, name: str = "teacher") -> None:
    """Raise ValueError unless the two tensors are ``(B, D)`` and ``(B, D')``."""
    if student.ndim != 2 or teacher.ndim != 2 or len(student) != len(teacher):
        raise ValueError(
            f"student and {name} must be (B, D) and (B, D'), "
            f"got shapes {tuple(student.shape)} and {tuple(teacher.shape)}"
        )


def check_logits(student_logits: Tensor, teacher_logits: Tensor) -> None:
    """Raise ValueError unless the logits are ``(B, K)`` and ``(B, K_old)`` with ``K_old <= K``."""
    student, teacher = tuple(student_logits.shape), tuple(teacher_logits.shape)
    if len(student) != 2 or len(teacher) != 2 or student[0] != teacher[0] or student[1] < teacher[1]:
        raise ValueError(
            "student_logits must be (B, K) and teacher_logits (B, K_old) with K_old <= K, "
            f"got shapes {student} and {teacher}"
        )


def check_temperature(temperature: float) -> None:
    """Raise ValueError unless the temperature is above 0."""
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")


def to_loss(value: Tensor, features: Tensor) -> Tensor:
    """Convert a value to the dtype of ``features``, or to float32 if ``features`` has half precision."""
    return value.to(torch.promote_types(features.dtype, torch.float32))
