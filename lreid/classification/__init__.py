"""Class- and domain-incremental classification: data sets of classes, and accuracy as an observer of the trainer.

The re-identification path imports nothing of this package; :mod:`lreid.build` and the registries of data sets and of
image addresses name its modules, which are imported when a config asks for them.
"""

from lreid.classification.evaluator import AccuracyEvaluator
from lreid.classification.observer import AccuracyObserver

__all__ = ["AccuracyEvaluator", "AccuracyObserver"]
