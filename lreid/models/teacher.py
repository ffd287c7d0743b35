"""The teacher: the previous model, kept for distillation."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

from lreid.models.embedder import Embedder

Network = TypeVar("Network", bound=nn.Module)


def frozen_copy(model: Network) -> Network:
    """The model as it is now, in evaluation mode, without gradients and in the precision of teachers."""
    teacher = copy.deepcopy(model).eval().requires_grad_(False)
    for module in teacher.modules():
        if isinstance(module, Embedder):
            module.precision = module.teacher_precision
    return teacher
