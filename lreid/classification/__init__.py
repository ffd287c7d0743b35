"""Class- and domain-incremental classification: its data sets, and an observer that measures accuracy.

Re-identification does not import this package. :mod:`lreid.build` and the registries of data sets and image addresses
import its modules when a config needs them.
"""

from typing import TYPE_CHECKING

from lreid.utils.lazy import public_names

if TYPE_CHECKING:
    from lreid.classification.evaluator import AccuracyEvaluator
    from lreid.classification.observer import AccuracyObserver

__all__ = ["AccuracyEvaluator", "AccuracyObserver"]

__getattr__, __dir__ = public_names(
    __name__,
    {"AccuracyEvaluator": "lreid.classification.evaluator", "AccuracyObserver": "lreid.classification.observer"},
)
