"""CCLIS: contrast with prototypes, importance-sampled exemplars, and distilled relations to old prototypes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lreid.data.images import Images
from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.losses.cclis import importance_scores, prototype_relation_loss, sample_nce_loss
from lreid.memory.exemplars import ImagePaths
from lreid.methods.co2l import Co2L
from lreid.models.classifier import GrowingClassifier
from lreid.models.embedder import Embedder
from lreid.models.parts import evaluating
from lreid.models.projection import Projected
from lreid.rules import Rule

CHUNK = 128  # images per forward pass of the scoring


class CCLIS(Co2L):
    """Contrastive continual learning with importance sampling (Li et al., AAAI 2024), with 500 exemplars in all.

    Built on :class:`Co2L`, with one view. Half of each batch comes from the memory, if it holds enough images:
    batches are drawn "in equal proportions from both the replay buffer and the current task" (Appendix B). The official
    code keeps the ratio of their sizes, ``exemplar_share=0`` here. Every identity has a prototype, a row that is
    brought to unit length before every step. Sample-NCE finds the images of a prototype in the batch; between past
    identities an exemplar counts by one over the probability with which it was drawn into the memory. ``prd`` keeps the
    cosines of images and previous prototypes; Co²L's distillations are there to compare with.

    After a task all images of the task and the memory are scored by how much they look like other identities
    (:func:`~lreid.losses.importance_scores`), as a mean over passes with augmentation in evaluation mode, and
    drawn by their scores. Selection ``random`` is the ablation of Table 3: all images count alike.

    Two faults of the official code are options. It takes every task for a past one unless tasks have two
    identities (``weigh_current``), where an image of the current task counts as drawn with one over the images of
    its identity. And its last pass adds the score by an image's own identity (``score_leak``).

    Args:
        options: as in :class:`Co2L`. With ``reid_head`` prototypes begin as the directions of the projections of their
            images.
    """

    keeps: ClassVar = {**Co2L.keeps, "prototypes": "identity", "old_prototypes": "identity"}
    views = 1
    defaults: ClassVar = {
        "distillation": "prd",
        "distillation_weight": 0.6,
        "teacher_temperature": 0.1,
        "selection": "importance",
        "exemplar_share": 0.5,
    }
    unused = ("asymmetric",)
    selections = ("importance", "random")
    distillations = ("prd", *Co2L.distillations)

    def __init__(
        self,
        model: Embedder,
        *,
        temperature: Annotated[float, Rule("temperature of Sample-NCE and the scores", above=0)] = 0.5,
        prototype_rate: Annotated[
            float,
            Rule("factor of the learning rate for prototypes; officially 0.01 at a learning rate of 1.0", least=0),
        ] = 0.01,
        passes: Annotated[int, Rule("number of passes over the images for their scores", least=1)] = 5,
        weighted: Annotated[
            bool,
            Rule(
                "weigh exemplars in the loss by the probability with which they were drawn. Without, "
                'exemplars that were drawn by importance count like images of the task: "RBS only" of Table 4'
            ),
        ] = True,
        weigh_current: Annotated[
            bool, Rule("weigh images of the current task, which the official code never does")
        ] = False,
        score_leak: Annotated[
            bool, Rule("add the score by the own identity in the last pass, as the official code")
        ] = False,
        **options: Any,
    ) -> None:
        super().__init__(model, temperature=temperature, **CCLIS.defaults | options)
        self.prototype_rate, self.passes, self.weighted = prototype_rate, passes, weighted
        self.weigh_current, self.score_leak = weigh_current, score_leak
        width = self.network.head.width
        self.prototypes = GrowingClassifier(width).to(model.mean.device)
        self.old_prototypes = torch.empty(0, width, device=model.mean.device)  # (C_old, 128)
        self.current_weights = torch.empty(0)  # (C,) 1 / images of an identity of the task, 0 for past ones
        self.generator = torch.Generator().manual_seed(torch.initial_seed())

    def begin_task(self, task: Task) -> None:
        """Adds prototypes, and weighs the images of the task by one over the size of their class."""
        super().begin_task(task)
        self.prototypes.grow(len(task.classes))
        if self.reid_head:
            with torch.no_grad():
                self.prototypes.weight[task.classes] = self.mean_directions(task).to(self.prototypes.weight)
        labels = torch.tensor([record.pid for record in task.records])
        sizes = torch.bincount(labels, minlength=len(self.prototypes))  # (C,)
        self.current_weights = torch.where(sizes > 0, 1 / sizes.double(), 0.0)

    @torch.no_grad()
    def features_of(self, task: Task) -> Tensor:
        """Projections (n, 128), which prototypes are compared with."""
        return self.network.head(super().features_of(task).to(self.prototypes.weight)).cpu()

    def parameters(self) -> list[dict[str, Any]]:
        """The network, and the prototypes with a learning rate of their own."""
        return [
            {"params": list(self.network.parameters())},
            {"params": list(self.prototypes.parameters()), "rate_factor": self.prototype_rate},
        ]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """The terms of Co2L with prototypes of unit length instead of other images."""
        self.normalise_prototypes()
        return super().loss(batch)

    def contrast(self, projections: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Equation 10: contrast with prototypes, weighted by how likely an image was to be kept."""
        current = () if self.weigh_current else self.task_classes
        scores, weights = self.prototypes(projections), self.draw_weights(batch)  # (B, C), (B,)
        return {"nce": sample_nce_loss(scores, batch.labels, weights, current, temperature=self.temperature)}

    def class_scores(self, features: Tensor) -> Tensor:
        """Cosines with the prototypes; the paper trains a linear classifier instead."""
        with evaluating(self.network.head):
            return F.normalize(self.network.head(features)) @ F.normalize(self.prototypes.weight).T

    def draw_weights(self, batch: Batch) -> Tensor:
        """The probability (B,) with which each image was drawn; 0 where that was not by importance."""
        weights = self.current_weights[batch.labels]
        if self.weighted and batch.exemplars is not None and "weights" in self.memory.extras:
            stored = batch.exemplars >= 0
            weights[stored] = torch.from_numpy(self.memory.extras["weights"])[batch.exemplars[stored]]
        return weights

    def distill(self, new: Projected, old: Projected) -> Tensor:
        """Relations to the prototypes of past classes, or those of Co2L."""
        if self.distillation != "prd":
            return super().distill(new, old)
        scores = self.prototypes(F.normalize(new.projections))[:, : len(self.old_prototypes)]  # (B, C_old)
        old_scores = F.normalize(old.projections) @ self.old_prototypes.T
        return prototype_relation_loss(scores, old_scores, **self.relation_options)

    def end_task(self, task: Task) -> None:
        """Selects exemplars, and keeps the prototypes for the teacher."""
        self.normalise_prototypes()
        super().end_task(task)
        self.old_prototypes = self.prototypes.weight.detach().clone()

    def exemplar_values(self, task: Task) -> dict[str, np.ndarray]:
        """Scores of the images of a task (n,) and of those in the memory (len(memory),)."""
        if self.selection == "random":
            return super().exemplar_values(task)
        images = Images(task.records, height=self.model.height, width=self.model.width, cache_gib=0)
        cosines = torch.cat([self.pass_cosines(images), self.pass_cosines(self.memory.images)], 1)
        labels = torch.from_numpy(np.concatenate([images.pids, self.memory.labels]))  # (N,)
        scores = [
            importance_scores(one, labels, temperature=self.temperature, own_class=leak)
            for one, leak in zip(cosines, [False] * (self.passes - 1) + [self.score_leak], strict=True)
        ]
        mean = torch.stack(scores).mean(0).double().cpu().numpy()  # (N,)
        return {"values": mean[: len(images)], "kept_scores": mean[len(images) :]}

    @torch.no_grad()
    def pass_cosines(self, images: Images | ImagePaths | np.ndarray) -> Tensor:
        """Cosines (passes, n, C) of n images, with new augmentations for every pass, and all prototypes."""
        chunks = [self.prototypes.weight.new_empty(self.passes, 0, len(self.prototypes))]
        for start in range(0, len(images), CHUNK):
            pixels = images[start : start + CHUNK]  # (k, H, W, 3)
            seeds = torch.randint(2**31, (self.passes,), generator=self.generator).tolist()
            features = np.stack([self.model.extract(self.augmented(pixels, seed=seed)) for seed in seeds])
            with evaluating(self.network.head):
                projections = self.network.head(torch.from_numpy(features).flatten(0, 1).to(chunks[0]))
            projections = projections.unflatten(0, (self.passes, -1))  # (passes, k, 128)
            chunks.append(self.prototypes(F.normalize(projections, dim=2)))
        return torch.cat(chunks, 1)

    @torch.no_grad()
    def normalise_prototypes(self) -> None:
        """Brings every prototype to unit length, in place."""
        self.prototypes.weight.copy_(F.normalize(self.prototypes.weight))

    def state_dict(self) -> dict[str, Any]:
        """Prototypes, old and new, weights of the task's images and the generator."""
        return super().state_dict() | {
            "prototypes": self.prototypes.state_dict(),
            "old_prototypes": self.old_prototypes,
            "current_weights": self.current_weights,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.prototypes.load_state_dict(state["prototypes"])
        self.old_prototypes = state["old_prototypes"].to(self.old_prototypes.device)
        self.current_weights = state["current_weights"].cpu()
        self.generator.set_state(state["generator"].cpu())
