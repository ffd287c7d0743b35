"""A network in evaluation mode for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """A module in evaluation mode, BatchNorm by its running statistics, and in the mode that it was in afterwards."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)
