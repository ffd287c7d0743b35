"""Exemplars: images of past tasks that a method may keep, and how they are chosen."""

from lreid.memory.exemplars import ExemplarMemory
from lreid.memory.selection import SELECTIONS, select

__all__ = ["SELECTIONS", "ExemplarMemory", "select"]
