"""Searching a gallery and scoring the search. Needs numpy, torch and, for galleries, faiss; nothing else."""

from lreid.retrieval.ranking import Evaluation, evaluate

__all__ = ["Evaluation", "evaluate"]
