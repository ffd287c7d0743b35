"""Test sets after every task: features, figures, and what they say about forgetting."""

from lreid.evaluation.accuracy import AccuracyEvaluator, accuracy_line, append_rows
from lreid.evaluation.classification import accuracy, summarise_accuracies, task_accuracies
from lreid.evaluation.drift import (
    DriftRecorder,
    GradientRecorder,
    buffer_alignment,
    feature_drift,
    feature_gradient_norm,
)
from lreid.evaluation.evaluator import Evaluator, TestFigures
from lreid.evaluation.probe import knn_scores, linear_probe_scores, nearest_mean_scores
from lreid.evaluation.summary import summarise

__all__ = [
    "AccuracyEvaluator",
    "DriftRecorder",
    "GradientRecorder",
    "Evaluator",
    "TestFigures",
    "accuracy",
    "accuracy_line",
    "append_rows",
    "buffer_alignment",
    "feature_drift",
    "feature_gradient_norm",
    "knn_scores",
    "linear_probe_scores",
    "nearest_mean_scores",
    "summarise",
    "summarise_accuracies",
    "task_accuracies",
]
