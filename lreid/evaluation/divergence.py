"""Measure how far a teacher in half precision departs from the same teacher in float32."""

from __future__ import annotations

import logging
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.evaluation.observer import Observer
from lreid.models.embedder import Embedder
from lreid.results import Results

logger = logging.getLogger("lreid")


class Student(Protocol):
    """What is measured: a method with its previous model, None before there is one."""

    teacher: nn.Module | None


class TeacherDivergence(Observer):
    """Says of the first batch of every task how much the precision of the teacher changes its outputs.

    Args:
        method: what is trained.
        results: gets the divergence, in nats, by task.
    """

    def __init__(self, method: Student, results: Results) -> None:
        self.method, self.results = method, results
        self.task: Task | None = None  # whose first batch is still to come

    def before_task(self, task: Task) -> None:
        """Waits for the first batch of the task."""
        self.task = task

    def before_loss(self, batch: Batch) -> None:
        """Compares the teacher with itself in fp32, if this is the batch that was waited for."""
        if self.task is not None and self.method.teacher is not None:
            nats = teacher_divergence(self.method.teacher, batch.images)
            self.results["teacher_divergence"][str(self.task.index)] = nats
            logger.info("teacher's precision: KL of %.4f nats from a teacher in fp32", nats)
        self.task = None


@torch.no_grad()
def teacher_divergence(teacher: nn.Module, images: Tensor) -> float:
    """What a teacher's precision changes in what it teaches, in nats.

    The losses are softmaxes over raw squared distances, which multiply a small error of the features. So compared is
    what they are made of: for each image the softmax over its negative squared distances to the others of the batch.

    Args:
        teacher: a frozen copy of a model, or a network that holds one.
        images: (B, 3, H, W), at least three.

    Returns:
        The mean over the images of KL(float32 || teacher's precision).
    """
    embedder = next(module for module in teacher.modules() if isinstance(module, Embedder))
    precision, reduced = embedder.precision, embedder(images)
    embedder.precision = None
    exact = embedder(images)
    embedder.precision = precision
    exact, reduced = _relations(exact), _relations(reduced)  # (B, B - 1) each
    return F.kl_div(reduced, exact, reduction="batchmean", log_target=True).item()


def _relations(features: Tensor) -> Tensor:
    """Log probabilities (B, B - 1) of the other images, by their squared Euclidean distance to each."""
    count = len(features)
    others = ~torch.eye(count, dtype=torch.bool, device=features.device)
    squares = torch.cdist(features.double(), features.double()).square()  # (B, B)
    return F.log_softmax(-squares[others].view(count, count - 1), dim=1)
