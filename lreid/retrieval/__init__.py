"""Scoring retrieval: rankings and their figures, protocols, re-ranking, open-set search. Needs numpy and torch only."""

from lreid.retrieval.open_set import OpenSetRate, open_set_rates
from lreid.retrieval.protocols import average_evaluations, evaluate_image_to_track, evaluate_single_shot
from lreid.retrieval.ranking import Evaluation, evaluate
from lreid.retrieval.rerank import KReciprocal, expand_queries

__all__ = [
    "Evaluation",
    "KReciprocal",
    "OpenSetRate",
    "average_evaluations",
    "evaluate",
    "evaluate_image_to_track",
    "evaluate_single_shot",
    "expand_queries",
    "open_set_rates",
]
