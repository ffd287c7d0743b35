"""The public names of :mod:`lreid.memory`."""

from lreid.memory.exemplar_store import ExemplarStore, ImagePaths, budget_of
from lreid.memory.exemplars import ExemplarMemory
from lreid.memory.selection import SELECTIONS, select
from lreid.memory.stream import POLICIES, StreamMemory

__all__ = [
    "POLICIES",
    "SELECTIONS",
    "ExemplarMemory",
    "ExemplarStore",
    "ImagePaths",
    "StreamMemory",
    "budget_of",
    "select",
]
