"""The public names of :mod:`lreid.evaluation`."""

from lreid.evaluation.drift import DriftRecorder, feature_drift
from lreid.evaluation.evaluator import Evaluator, TestFigures
from lreid.evaluation.gradients import GradientRecorder, gradient_norms
from lreid.evaluation.observer import Observer
from lreid.evaluation.past import PastGalleries
from lreid.evaluation.switch import SwitchObserver
from lreid.evaluation.test_set import Rules, TestSet, load_tests

__all__ = [
    "DriftRecorder",
    "Evaluator",
    "GradientRecorder",
    "Observer",
    "PastGalleries",
    "Rules",
    "SwitchObserver",
    "TestFigures",
    "TestSet",
    "feature_drift",
    "gradient_norms",
    "load_tests",
]
