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


def check(holds: object, fault: str) -> None:
    """Raise ValueError with the message ``fault`` unless a condition holds."""
    if not holds:
        raise ValueError(fault)


def check_shapes(fit: object, rule: str, *tensors: Tensor) -> None:
    """Raise ValueError unless the shapes of tensors fit; the message is the rule, followed by their shapes."""
    shapes = " and ".join(str(tuple(each.shape)) for each in tensors)
    check(fit, f"{rule}, got shape{'s' * (len(tensors) > 1)} {shapes}")


def check_rows(features: Tensor, labels: Tensor, name: str = "features") -> None:
    """Raise ValueError unless ``features`` is ``(B, D)`` with one row for each label."""
    fit = features.ndim == 2 and len(features) == len(labels)
    check_shapes(fit, f"{name} must be (B, D) with B = {len(labels)} labels", features)


def check_alike(first: Tensor, second: Tensor, names: str, shape: str = "(B, D)") -> None:
    """Raise ValueError unless both tensors are matrices of the same shape; ``shape`` names that shape in the error."""
    check_shapes(first.ndim == 2 and first.shape == second.shape, f"{names} must both be {shape}", first, second)


def check_pairs(student: Tensor, teacher: Tensor, name: str = "teacher") -> None:
    """Raise ValueError unless the two tensors are ``(B, D)`` and ``(B, D')``."""
    fit = student.ndim == teacher.ndim == 2 and len(student) == len(teacher)
    check_shapes(fit, f"student and {name} must be (B, D) and (B, D')", student, teacher)


def check_logits(student_logits: Tensor, teacher_logits: Tensor) -> None:
    """Raise ValueError unless the logits are ``(B, K)`` and ``(B, K_old)`` with ``K_old <= K``."""
    student, teacher = student_logits.shape, teacher_logits.shape
    fit = len(student) == len(teacher) == 2 and student[0] == teacher[0] and student[1] >= teacher[1]
    rule = "student_logits must be (B, K) and teacher_logits (B, K_old) with K_old <= K"
    check_shapes(fit, rule, student_logits, teacher_logits)


def check_temperature(temperature: float) -> None:
    """Raise ValueError unless the temperature is above 0."""
    check(temperature > 0, f"temperature must be above 0, got {temperature}")


def to_loss(value: Tensor, features: Tensor) -> Tensor:
    """Convert a value to the dtype of ``features``, or to float32 if ``features`` has half precision."""
    return value.to(torch.promote_types(features.dtype, torch.float32))
