"""Searching galleries and scoring the search. Needs numpy, torch and, for galleries, faiss or pymilvus."""

from lreid.retrieval.filters import Filter
from lreid.retrieval.gallery import Gallery, Matches
from lreid.retrieval.open_set import OpenSetRate, open_set_rates
from lreid.retrieval.protocols import average, evaluate_image_to_track, evaluate_single_shot
from lreid.retrieval.ranking import Evaluation, evaluate
from lreid.retrieval.rerank import KReciprocal, expand_queries

__all__ = [
    "Evaluation",
    "Filter",
    "Gallery",
    "KReciprocal",
    "Matches",
    "OpenSetRate",
    "average",
    "evaluate",
    "evaluate_image_to_track",
    "evaluate_single_shot",
    "expand_queries",
    "open_set_rates",
]
