"""Test sets after every task: features, figures, and what they say about forgetting."""

from lreid.evaluation.evaluator import Evaluator, TestFigures
from lreid.evaluation.summary import summarise

__all__ = ["Evaluator", "TestFigures", "summarise"]
