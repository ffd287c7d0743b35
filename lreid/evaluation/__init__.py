"""Evaluation on test sets after every task: features, metrics, and diagnostics for forgetting."""

from typing import TYPE_CHECKING

from lreid.utils.lazy import public_names

if TYPE_CHECKING:
    from lreid.evaluation.api import *  # noqa: F403

__getattr__, __dir__ = public_names(__name__)
