"""Class- and domain-incremental classification: data sets of classes, and accuracy as an observer of the trainer.

The re-identification path does not import this package; :mod:`lreid.build` and the registries of data sets and image
addresses name its modules, which are imported when a config needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lreid.lazy import public_names

if TYPE_CHECKING:
    from lreid.classification.evaluator import AccuracyEvaluator
    from lreid.classification.observer import AccuracyObserver

__all__ = ["AccuracyEvaluator", "AccuracyObserver"]

__getattr__, __dir__ = public_names(
    __name__,
    {"AccuracyEvaluator": "lreid.classification.evaluator", "AccuracyObserver": "lreid.classification.observer"},
)
