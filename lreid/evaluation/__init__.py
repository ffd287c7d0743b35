"""Test sets after every task: features, figures, and what they say about forgetting."""

from lreid.evaluation.accuracy_evaluator import AccuracyEvaluator, accuracy_line
from lreid.evaluation.alignment import buffer_alignment
from lreid.evaluation.classification import accuracy, domain_accuracies, task_accuracies
from lreid.evaluation.curve import CurveObserver
from lreid.evaluation.divergence import TeacherDivergence
from lreid.evaluation.drift import DriftRecorder, feature_drift
from lreid.evaluation.evaluator import Evaluator, TestFigures
from lreid.evaluation.gradients import GradientRecorder, gradient_norms
from lreid.evaluation.observer import Observer
from lreid.evaluation.past import PastGalleries
from lreid.evaluation.probe import knn_scores, linear_probe_scores, nearest_mean_scores
from lreid.evaluation.switch import SwitchObserver

__all__ = [
    "AccuracyEvaluator",
    "CurveObserver",
    "DriftRecorder",
    "Evaluator",
    "GradientRecorder",
    "Observer",
    "PastGalleries",
    "SwitchObserver",
    "TeacherDivergence",
    "TestFigures",
    "accuracy",
    "accuracy_line",
    "buffer_alignment",
    "domain_accuracies",
    "feature_drift",
    "gradient_norms",
    "knn_scores",
    "linear_probe_scores",
    "nearest_mean_scores",
    "task_accuracies",
]
