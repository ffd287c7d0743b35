"""Precision of networks, which devices have it, and their frozen copies, the teachers, which compute in float32."""

from __future__ import annotations

import copy
from typing import Literal, TypeVar

import torch
from torch import nn

from lreid.models.embedder import Embedder

KINDS: dict[str, torch.dtype | Literal["tf32"] | None] = {
    "fp32": None,
    "tf32": "tf32",
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
Network = TypeVar("Network", bound=nn.Module)


def frozen_copy(model: Network) -> Network:
    """The model as it is now, in evaluation mode, without gradients and in float32."""
    teacher = copy.deepcopy(model).eval().requires_grad_(False)
    for module in teacher.modules():
        if isinstance(module, Embedder):
            module.precision = None
    return teacher


def has_instructions(device: torch.device, precision: str) -> bool:
    """Whether a device computes in one of ``KINDS`` by itself.

    Else half precision is emulated, many times slower; of TF32 it takes no notice and computes in float32.
    """
    if precision == "fp32":
        return True
    if precision == "tf32":
        return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cuda":
        return precision == "fp16" or torch.cuda.is_bf16_supported(including_emulation=False)
    known = torch.backends.mkldnn.is_available()  # what convolutions on processors are computed by
    return known and bool(getattr(torch.ops.mkldnn, f"_is_mkldnn_{precision}_supported")())
