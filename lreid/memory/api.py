"""Public names of :mod:`lreid.memory`."""

from lreid.memory.exemplars import ExemplarMemory, ExemplarStore, ImagePaths, budget_of
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
