"""Set the precision of float32 matrix products and convolutions, whose factors GPUs may round."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch


def full_precision() -> AbstractContextManager[None]:
    """Within a context, compute matrix products and convolutions with full float32 precision.

    The context overrides torch's settings (``torch.set_float32_matmul_precision``, ``allow_tf32``, ``fp32_precision``)
    and restores them afterwards.
    """
    return _set("ieee")


def tf32() -> AbstractContextManager[None]:
    """Within a context, let GPUs round the factors of products to TF32, which has 10 instead of 23 fraction bits."""
    return _set("tf32")


@contextmanager
def _set(precision: str) -> Iterator[None]:
    settings = _settings(precision)
    before = [getattr(place, name) for place, name, _ in settings]
    for place, name, value in settings:
        setattr(place, name, value)
    try:
        yield
    finally:
        for (place, name, _), value in zip(settings, before, strict=True):
            setattr(place, name, value)


def _settings(precision: str) -> list[tuple[Any, str, str | bool]]:
    """List torch's settings for a precision on GPU and CPU, as triples (object, attribute, value)."""
    cuda: Any = torch.backends.cuda
    cudnn: Any = torch.backends.cudnn
    mkldnn: Any = torch.backends.mkldnn
    if hasattr(cuda.matmul, "fp32_precision"):  # torch 2.9
        places: list[Any] = [cuda.matmul, cudnn.conv, mkldnn.matmul, mkldnn.conv]
        return [(place, "fp32_precision", precision) for place in places]
    return [(place, "allow_tf32", precision == "tf32") for place in (cuda.matmul, cudnn)]
