"""Public names of :mod:`lreid.retrieval`."""

from lreid.retrieval.camera_norm import CameraNorm
from lreid.retrieval.index import FaissIndex, IndexCost, cost_of
from lreid.retrieval.open_set import OpenSetRate, open_set_rates
from lreid.retrieval.protocols import average_evaluations, evaluate_image_to_track, evaluate_single_shot
from lreid.retrieval.ranking import Evaluation, evaluate
from lreid.retrieval.rerank import KReciprocal, expand_queries
from lreid.retrieval.scores import cosines_of, scores_of
from lreid.retrieval.self_search import self_retrieval
from lreid.utils.identities import Labels

__all__ = [
    "CameraNorm",
    "Evaluation",
    "FaissIndex",
    "IndexCost",
    "KReciprocal",
    "Labels",
    "OpenSetRate",
    "average_evaluations",
    "cosines_of",
    "cost_of",
    "evaluate",
    "evaluate_image_to_track",
    "evaluate_single_shot",
    "expand_queries",
    "open_set_rates",
    "scores_of",
    "self_retrieval",
]
