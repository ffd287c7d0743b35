"""Public names of :mod:`lreid.evaluation`."""

from lreid.evaluation.drift import DriftRecorder, feature_drift
from lreid.evaluation.evaluator import Evaluator, TestFigures
from lreid.evaluation.gallery_features import GalleryFeatures
from lreid.evaluation.gradients import GradientRecorder, gradient_norms
from lreid.evaluation.observer import Observer
from lreid.evaluation.switch import SwitchObserver
from lreid.evaluation.test_set import Rules, TestSet, load_tests

__all__ = [
    "DriftRecorder",
    "Evaluator",
    "GalleryFeatures",
    "GradientRecorder",
    "Observer",
    "Rules",
    "SwitchObserver",
    "TestFigures",
    "TestSet",
    "feature_drift",
    "gradient_norms",
    "load_tests",
]
