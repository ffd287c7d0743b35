"""The previous model, kept to be distilled."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

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


def teacher_state(teacher: nn.Module | None) -> dict[str, Any] | None:
    """Of a checkpoint; None before there is a teacher."""
    return teacher.state_dict() if teacher is not None else None


def restored_teacher(model: Network, state: dict[str, Any] | None) -> Network | None:
    """The teacher that :func:`teacher_state` was taken of, out of a model of the same build."""
    if state is None:
        return None
    teacher = frozen_copy(model)
    teacher.load_state_dict(state)
    return teacher
