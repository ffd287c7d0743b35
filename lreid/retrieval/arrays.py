"""Check features that callers pass, and convert them to tensors."""

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lreid.errors import InputError

# Ratio of squared norms to squared distances above which float32 keeps fewer than three digits of the distances.
LOSING = 2**12


def as_features(values: Any, name: str, device: torch.device | str | None = None) -> Tensor:
    """Convert features to a floating-point tensor, without a copy if they already have the dtype and device.

    Args:
        values: ``(N, D)`` array or tensor of a floating-point type. Half precision becomes float32.
        name: name of the features in error messages, such as ``"query features"``.
        device: target device, or ``None`` for the current device.

    Returns:
        ``(N, D)`` float32 or float64 tensor that needs no gradient.

    Raises:
        InputError: ``values`` is empty, not two-dimensional, or not of a floating-point type.
    """
    if not isinstance(values, Tensor):
        try:
            array = np.asarray(values)
            array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))  # torch accepts only native byte order
            array = array.copy() if min(array.strides, default=0) < 0 else array  # torch accepts no negative stride
            with warnings.catch_warnings():  # features are never written to, so an array may be read-only
                warnings.filterwarnings("ignore", "The given NumPy array is not writable")
                values = torch.from_numpy(array)
        except (TypeError, ValueError) as error:
            raise InputError(f"{name}: expected an (N, D) array of floats ({error})") from None
    if not values.is_floating_point():
        raise InputError(f"{name}: expected floats, got {values.dtype}; convert them with astype('float32')")
    if values.ndim != 2:
        raise InputError(f"{name}: expected one row per image, shape (N, D), got shape {tuple(values.shape)}")
    if values.numel() == 0:
        raise InputError(f"{name}: empty, shape {tuple(values.shape)}; there is nothing to compare")
    dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
    return values.detach().to(device=device, dtype=dtype)


def as_comparable(
    query_features: Any, gallery_features: Any, device: torch.device | str | None = None
) -> tuple[Tensor, Tensor]:
    """Convert query and gallery features to one dtype and device: ``(Q, D)`` and ``(G, D)``.

    Args:
        query_features, gallery_features: see :func:`as_features`. If either array is float64, both results are float64.
        device: target device, or ``None`` for the device of the gallery features.
    """
    gallery = as_features(gallery_features, "gallery features", device)
    queries = as_features(query_features, "query features", gallery.device)
    if queries.shape[1] != gallery.shape[1]:
        raise InputError(
            f"query features have {queries.shape[1]} numbers per row, gallery features {gallery.shape[1]}; "
            "extract both with the same model"
        )
    dtype = torch.promote_types(queries.dtype, gallery.dtype)
    return queries.to(dtype), gallery.to(dtype)


def unit_rows(features: Tensor, name: str) -> Tensor:
    """Scale the rows ``(N, D)`` to unit length in a copy; a zero vector stays zero."""
    features, inverse = directions(features, name)
    return features * inverse[:, None]


def unit_array(features: Any, name: str) -> np.ndarray:
    """Scale the rows ``(N, D)`` of :func:`as_features` to unit length, as float32 in a new array."""
    return unit_rows(as_features(features, name, "cpu"), name).float().numpy()


def directions(features: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Return features for cosine similarity, and the inverse norm ``(N,)`` of each row (1 for a zero vector).

    Very short rows are scaled up in a copy of the features, because their squares would lose precision or become 0.
    Without very short rows, the features are not copied.
    """
    squares = squared_norms(features, name)
    limits = torch.finfo(squares.dtype)
    short = torch.nonzero(squares < limits.tiny / limits.eps).flatten()
    short = short[features[short].any(1)]
    if len(short):
        features = features.clone()
        features[short] /= features[short].abs().amax(1, keepdim=True)
        squares = squared_norms(features, name)
    return features, torch.where(squares > 0, squares.rsqrt(), 1.0)


def positions(queries: Tensor, gallery: Tensor) -> tuple[Tensor, Tensor]:
    """Return features ``(Q, D)`` and ``(G, D)`` in a precision that is sufficient for Euclidean distances.

    Distances are computed from dot products, which can lose digits in float32. The result is therefore float64 if
    subtraction cancels most digits (:func:`cancels`), or if a feature is nearly zero, so that its square loses digits.
    """
    squared_norms(queries, "query features")  # raises if a value is not finite
    squares = squared_norms(gallery, "gallery features")  # (G,)
    limits = torch.finfo(squares.dtype)
    if cancels(gallery) or gallery[squares < limits.tiny / limits.eps].any():
        return queries.double(), gallery.double()
    return queries, gallery


def cancels(features: Tensor) -> bool:
    """Whether up to 256 of the features ``(N, D)`` are much nearer to each other than to zero.

    If so, distances that are computed from dot products in float32 lose most digits.
    """
    sample = features[:: max(1, -(-len(features) // 256))].unique(dim=0)  # (S, D)
    distances = torch.cdist(sample, sample, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf)
    nearest = distances.amin(1).square()  # (S,)
    return bool(sample.square().sum(1).median() > LOSING * nearest.median())


def repeated_rows(features: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Find the rows that repeat an earlier row, and the first equal row for each of these rows."""
    rows = features.cpu().numpy()
    columns = np.ascontiguousarray(rows[:, :: max(1, rows.shape[1] // 16)])  # these columns distinguish nearly all rows
    bits = columns.view(f"u{columns.itemsize}").astype(np.uint64)
    keys = bits @ np.random.default_rng(0).integers(2**63, size=bits.shape[1], dtype=np.uint64)  # modulo 2^64
    _, which, counts = np.unique(keys, return_inverse=True, return_counts=True)
    first_rows: dict[int, int] = {}
    pairs = []
    for index in np.flatnonzero(counts[which] > 1).tolist():
        first = first_rows.setdefault(hash(rows[index].tobytes()), index)
        if first != index and np.array_equal(rows[first], rows[index]):
            pairs.append((index, first))
    repeats, originals = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return repeats, originals


def squared_norms(features: Tensor, name: str) -> Tensor:
    """Compute the squared Euclidean norm of every row, and refuse values that are not finite.

    Returns:
        ``(N,)`` tensor of the features' dtype.

    Raises:
        InputError: rows contain NaN, infinity, or values whose squares overflow; the message lists these rows.
    """
    step = max(1, 2**16 // features.shape[1])  # rows per step: their squares (256 KB in float32) fit in the cache
    squares = torch.cat([rows.square().sum(1) for rows in features.split(step)])
    broken = torch.nonzero(~torch.isfinite(squares)).flatten().tolist()
    if broken:
        rows = ", ".join(map(str, broken[:5])) + (" …" if len(broken) > 5 else "")
        raise InputError(
            f"{name}: {len(broken)} of {len(features)} rows hold NaN, infinite or overflowing values "
            f"(rows {rows}); the model has diverged or the file is damaged"
        )
    return squares
