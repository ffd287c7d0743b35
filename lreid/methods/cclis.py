"""CCLIS: contrastive loss with prototypes, exemplars drawn by importance, distilled similarities to prototypes."""

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

CHUNK = 128  # images per forward pass when images are scored


class CCLIS(Co2L):
    """Contrastive continual learning with importance sampling (Li et al., AAAI 2024), with 500 exemplars in total.

    CCLIS extends :class:`Co2L` and uses one view per image. Half of each batch comes from the memory if the memory has
    enough images. CCLIS's paper draws batches "in equal proportions from both the replay buffer and the current task"
    (Appendix B). CCLIS's official code draws in proportion to the sizes of memory and task; ``exemplar_share=0`` does
    the same. Every identity has a prototype, which is scaled to unit length before every step. The loss, Sample-NCE,
    trains each prototype to recognise the images of its identity in the batch. In the terms between past identities,
    the weight of an exemplar is the inverse of the probability with which the exemplar was drawn into the memory. The
    distillation ``prd`` preserves the cosines between images and previous prototypes. Co²L's distillations are
    available for comparison.

    After a task, all images of the task and the memory are scored by their similarity to other identities
    (:func:`~lreid.losses.importance_scores`). The score of an image is averaged over several passes with augmentation,
    in evaluation mode. Images are then drawn into the memory with probabilities proportional to their scores.
    ``selection=random`` is the ablation of CCLIS's Table 3, in which all images have the same probability.

    Two faults of CCLIS's official code are options. With ``weigh_current``, images of the current task are also
    weighted, as if an image was drawn with a probability of 1 / number of images of its identity. CCLIS's official code
    does so if each task has more than two identities. With ``score_leak``, the last scoring pass includes an image's
    own identity.

    Args:
        options: see :class:`Co2L`. With ``reid_head``, a prototype starts as the mean direction of the projected images
            of its identity.
    """

    keeps: ClassVar = {**Co2L.keeps, "prototypes": "identity", "old_prototypes": "identity"}
    saves: ClassVar = ["prototypes", "old_prototypes", "current_weights", "generator"]
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
            Rule("factor of the learning rate for prototypes; the official code uses 0.01 (at rate 1.0)", least=0),
        ] = 0.01,
        passes: Annotated[int, Rule("number of passes over the images to compute their scores", least=1)] = 5,
        weighted: Annotated[
            bool,
            Rule(
                "weight exemplars in the loss by the inverse probability with which they were drawn. If False, "
                'exemplars that were drawn by importance count like images of the task: "RBS only" of Table 4'
            ),
        ] = True,
        weigh_current: Annotated[
            bool, Rule("weight images of the current task, too, as the official code does")
        ] = False,
        score_leak: Annotated[
            bool, Rule("include the own identity's score in the last pass, as the official code does")
        ] = False,
        **options: Any,
    ) -> None:
        super().__init__(model, temperature=temperature, **CCLIS.defaults | options)
        self.prototype_rate, self.passes, self.weighted = prototype_rate, passes, weighted
        self.weigh_current, self.score_leak = weigh_current, score_leak
        width = self.network.head.width
        self.prototypes = GrowingClassifier(width).to(model.mean.device)
        self.old_prototypes = torch.empty(0, width, device=model.mean.device)  # (C_old, 128)
        self.current_weights = torch.empty(0)  # (C,) 1 / number of images of an identity of the task; 0 for past ones
        self.generator = torch.Generator().manual_seed(torch.initial_seed())

    def begin_task(self, task: Task) -> None:
        """Add prototypes, and compute the weights of the task's images: 1 / number of images of their class."""
        super().begin_task(task)
        self.prototypes.cover(task.classes)
        if self.reid_head:
            with torch.no_grad():
                self.prototypes.weight[task.classes] = self.mean_directions(task).to(self.prototypes.weight)
        labels = torch.tensor([record.pid for record in task.records])
        sizes = torch.bincount(labels, minlength=len(self.prototypes))  # (C,)
        self.current_weights = torch.where(sizes > 0, 1 / sizes.double(), 0.0)

    @torch.no_grad()
    def features_of(self, task: Task) -> Tensor:
        """Compute projections (n, 128) of the images of a task, in the space of the prototypes."""
        return self.network.head(super().features_of(task).to(self.prototypes.weight)).cpu()

    def parameters(self) -> list[dict[str, Any]]:
        """The network, and the prototypes with a separate learning rate."""
        return [
            {"params": list(self.network.parameters())},
            {"params": list(self.prototypes.parameters()), "rate_factor": self.prototype_rate},
        ]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Scale the prototypes to unit length, then compute the loss terms of :class:`Co2L`."""
        self.normalise_prototypes()
        return super().loss(batch)

    def contrast(self, projections: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Compute Sample-NCE (Equation 10), weighted by the probability of a draw into the memory."""
        current = () if self.weigh_current else self.task_classes
        scores, weights = self.prototypes(projections), self.draw_weights(batch)  # (B, C), (B,)
        return {"nce": sample_nce_loss(scores, batch.labels, weights, current, temperature=self.temperature)}

    def class_scores(self, features: Tensor) -> Tensor:
        """Compute cosines with the prototypes (n, C); CCLIS's paper trains a linear classifier instead."""
        with evaluating(self.network.head):
            return F.normalize(self.network.head(features)) @ F.normalize(self.prototypes.weight).T

    def draw_weights(self, batch: Batch) -> Tensor:
        """Probability (B,) with which each image was drawn; 0 for images that were not drawn by importance."""
        weights = self.current_weights[batch.labels]
        if self.weighted and batch.exemplars is not None and "weights" in self.memory.extras:
            stored = batch.exemplars >= 0
            weights[stored] = torch.from_numpy(self.memory.extras["weights"])[batch.exemplars[stored]]
        return weights

    def distill(self, new: Projected, old: Projected) -> Tensor:
        """Distil the similarities to prototypes of past classes; settings other than ``prd`` follow :class:`Co2L`."""
        if self.distillation != "prd":
            return super().distill(new, old)
        scores = self.prototypes(F.normalize(new.projections))[:, : len(self.old_prototypes)]  # (B, C_old)
        old_scores = F.normalize(old.projections) @ self.old_prototypes.T
        return prototype_relation_loss(scores, old_scores, **self.relation_options)

    def end_task(self, task: Task) -> None:
        """Select exemplars, and store the current prototypes together with the teacher."""
        self.normalise_prototypes()
        super().end_task(task)
        self.old_prototypes = self.prototypes.weight.detach().clone()

    def exemplar_values(self, task: Task) -> dict[str, np.ndarray]:
        """Compute the scores of the images of a task (n,) and of the images in the memory (len(memory),)."""
        if self.selection == "random":
            return super().exemplar_values(task)
        images = Images(task.records, height=self.model.height, width=self.model.width, cache_gib=0)
        cosines = torch.cat([self.pass_cosines(images), self.pass_cosines(self.memory.images)], 1)
        labels = torch.from_numpy(np.concatenate([images.pids, self.memory.labels]))  # (N,)
        scores = [
            importance_scores(pass_cosines, labels, temperature=self.temperature, own_class=leak)
            for pass_cosines, leak in zip(cosines, [False] * (self.passes - 1) + [self.score_leak], strict=True)
        ]
        mean = torch.stack(scores).mean(0).double().cpu().numpy()  # (N,)
        return {"values": mean[: len(images)], "kept_scores": mean[len(images) :]}

    @torch.no_grad()
    def pass_cosines(self, images: Images | ImagePaths | np.ndarray) -> Tensor:
        """Compute cosines (passes, n, C) of n images with all prototypes; each pass draws new augmentations."""
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
        """Scale every prototype to unit length, in place."""
        self.prototypes.weight.copy_(F.normalize(self.prototypes.weight))
