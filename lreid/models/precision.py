"""Half precision: who computes in it, and what it does to what a teacher says."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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


@torch.no_grad()
def teacher_divergence(teacher: nn.Module, images: Tensor) -> float:
    """What a teacher's precision changes in what it teaches, in nats.

    The losses are softmaxes over raw squared distances, which multiply a small error of the features. So compared is
    what they are made of: for each image the softmax over its negative squared distances to the others of the batch.

    Args:
        teacher: a frozen copy of a model, or a network that holds one.
        images: (B, 3, H, W), at least three.

    Returns:
        The mean over the images of KL(float32 || teacher's precision).
    """
    embedder = next(module for module in teacher.modules() if isinstance(module, Embedder))
    precision, reduced = embedder.precision, embedder(images)
    embedder.precision = None
    exact = embedder(images)
    embedder.precision = precision
    exact, reduced = _relations(exact), _relations(reduced)  # (B, B - 1) each
    return F.kl_div(reduced, exact, reduction="batchmean", log_target=True).item()


def _relations(features: Tensor) -> Tensor:
    """Log probabilities (B, B - 1) of the other images, by their squared Euclidean distance to each."""
    count = len(features)
    others = ~torch.eye(count, dtype=torch.bool, device=features.device)
    squares = torch.cdist(features.double(), features.double()).square()  # (B, B)
    return F.log_softmax(-squares[others].view(count, count - 1), dim=1)
