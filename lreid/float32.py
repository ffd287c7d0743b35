"""Precision of float32 products and convolutions; by default torch lets a GPU round some of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch


def full_precision() -> AbstractContextManager[None]:
    """Inside, they are those of float32, as features and rankings are promised to be.

    Overrides any other setting of torch, made by ``torch.set_float32_matmul_precision``, ``allow_tf32`` or the settings
    called ``fp32_precision``. Outside what was set holds again.
    """
    return _set("ieee")


def tf32() -> AbstractContextManager[None]:
    """Inside, GPUs that can round their factors to TF32, which has 10 of the 23 bits of the fraction."""
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
    """Places, names and values of what decides it, on GPUs and processors."""
    cuda: Any = torch.backends.cuda
    cudnn: Any = torch.backends.cudnn
    mkldnn: Any = torch.backends.mkldnn
    if hasattr(cuda.matmul, "fp32_precision"):  # torch 2.9
        places: list[Any] = [cuda.matmul, cudnn.conv, mkldnn.matmul, mkldnn.conv]
        return [(place, "fp32_precision", precision) for place in places]
    return [(place, "allow_tf32", precision == "tf32") for place in (cuda.matmul, cudnn)]
