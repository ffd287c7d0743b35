"""Half precision: which networks compute in it, and which devices can."""

from __future__ import annotations

import torch

from lreid.models import Embedder

DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def set_precision(model: Embedder, precision: str, teacher: str) -> None:
    """Has a model's backbone, and those of its frozen copies, compute in ``fp32``, ``bf16`` or ``fp16``."""
    model.precision, model.teacher_precision = DTYPES[precision], DTYPES[teacher]


def has_instructions(device: torch.device, precision: str) -> bool:
    """Whether a device computes in ``fp32``, ``bf16`` or ``fp16`` by itself; else it is emulated, many times slower."""
    if precision == "fp32":
        return True
    if device.type == "cuda":
        return precision == "fp16" or torch.cuda.is_bf16_supported(including_emulation=False)
    known = torch.backends.mkldnn.is_available()  # what convolutions on processors are computed by
    return known and bool(getattr(torch.ops.mkldnn, f"_is_mkldnn_{precision}_supported")())
