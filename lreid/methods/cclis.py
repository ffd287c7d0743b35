"""CCLIS: a contrastive loss with prototypes, exemplars drawn by importance, and distillation of cosines."""

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lreid.data.images import Images
from lreid.losses.cclis import importance_scores, prototype_relation_loss, sample_nce_loss
from lreid.memory.exemplars import ImagePaths
from lreid.methods.base import Batch, Embedder, Rule, Task
from lreid.methods.co2l import Co2L
from lreid.models.classifier import GrowingClassifier
from lreid.models.parts import evaluating
from lreid.models.projection import Projected

CHUNK = 128  # images per forward pass when images are scored


class CCLIS(Co2L):
    """Contrastive continual learning with importance sampling (Li et al., AAAI 2024), with 500 exemplars in total.

    CCLIS extends :class:`Co2L` and uses one view per image. Half of each batch is drawn from the memory if the memory
    has enough images. Drawing half of the batch follows CCLIS's paper, which draws batches "in equal proportions from
    both the replay buffer and the current task" (Appendix B). CCLIS's official code instead draws images in proportion
    to the sizes of memory and task; ``exemplar_share=0`` does the same. Every identity has a prototype, a vector that
    is scaled to unit length before every step. The loss, Sample-NCE, trains the prototype of each identity to recognise
    the images of this identity in the batch. In the terms that compare two past identities, an exemplar is weighted by
    the inverse of the probability that it was drawn into the memory. The distillation ``prd`` preserves the cosines
    between images and the prototypes of the previous model. The distillations of Co²L are available for comparison with
    ``prd``.

    After a task, lreid scores all images of the task and the memory by their similarity to other identities
    (:func:`~lreid.losses.importance_scores`). The score of an image is the mean over several passes with augmentation,
    in evaluation mode. Images are then drawn into the memory with probabilities in proportion to their scores. With
    ``selection=random``, all images have the same probability, as in the ablation of CCLIS's Table 3.

    Two options reproduce faults of CCLIS's official code. With ``weigh_current``, an image of the current task is
    weighted as if its draw probability was 1 / number of images of its identity. CCLIS's official code weights images
    of the current task if each task has more than two identities. With ``score_leak``, the last scoring pass also
    compares an image with its own identity.

    Args:
        options: see :class:`Co2L`. With ``reid_head``, the initial prototype of an identity is the mean direction of
            its projected images.
    """

    saves: ClassVar = {"prototypes": "identity", "old_prototypes": "identity", "current_weights": "", "generator": ""}
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
        temperature: Annotated[float, Rule("temperature of Sample-NCE and of the importance scores", above=0)] = 0.5,
        prototype_rate: Annotated[float, Rule("learning rate factor of prototypes (official: 0.01)", least=0)] = 0.01,
        passes: Annotated[int, Rule("number of passes over the images to compute their scores", least=1)] = 5,
        weighted: Annotated[bool, Rule('weight exemplars by inverse draw probability; False: "RBS only"')] = True,
        relation_classes: Annotated[Literal["past", "all"], Rule("prototypes for prd (Eq. 13: all)")] = "past",
        weigh_current: Annotated[bool, Rule("also weight images of the current task (official code)")] = False,
        score_leak: Annotated[bool, Rule("also score the own identity in the last pass (official code)")] = False,
        **options: Any,
    ) -> None:
        super().__init__(model, temperature=temperature, **CCLIS.defaults | options)
        self.prototype_rate, self.passes, self.weighted = prototype_rate, passes, weighted
        self.weigh_current, self.score_leak = weigh_current, score_leak
        self.relation_classes = relation_classes
        width = self.network.head.width
        self.prototypes = GrowingClassifier(width).to(model.mean.device)
        self.old_prototypes = torch.empty(0, width, device=model.mean.device)  # (C_old, 128)
        self.current_weights = torch.empty(0)  # (C,) 1 / number of images of an identity of the task; 0 for past ones

    def begin_task(self, task: Task) -> None:
        """Add prototypes for new identities; weight each image of the task by 1 / number of its identity's images."""
        super().begin_task(task)
        self.prototypes.cover(task.classes)
        if self.reid_head:
            with torch.no_grad():
                self.prototypes.weight[task.classes] = self.mean_directions(task).to(self.prototypes.weight)
        if self.relation_classes == "all":  # those of new classes as they are now
            self.normalise_prototypes()
            self.old_prototypes = self.prototypes.weight.detach().clone()
        labels = torch.tensor([record.pid for record in task.records])
        sizes = torch.bincount(labels, minlength=len(self.prototypes))  # (C,)
        self.current_weights = torch.where(sizes > 0, 1 / sizes.double(), 0.0)

    @torch.no_grad()
    def features_of(self, task: Task) -> Tensor:
        """Compute projections (n, 128) of the task's images, in the same space as the prototypes."""
        return self.network.head(super().features_of(task).to(self.prototypes.weight)).cpu()

    def parameters(self) -> list[dict[str, Any]]:
        """The network, and the prototypes with a separate learning rate."""
        return [
            {"params": list(self.network.parameters())},
            {"params": list(self.prototypes.parameters()), "rate_factor": self.prototype_rate},
        ]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Scale the prototypes to unit length, then compute the same loss terms as :class:`Co2L`."""
        self.normalise_prototypes()
        return super().loss(batch)

    def contrast(self, projections: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Compute Sample-NCE (CCLIS, Equation 10), which weights images by the probability that they were drawn."""
        current = () if self.weigh_current else self.task_classes
        scores, weights = self.prototypes(projections), self.draw_weights(batch)  # (B, C), (B,)
        return {"nce": sample_nce_loss(scores, batch.labels, weights, current, temperature=self.temperature)}

    def class_scores(self, features: Tensor) -> Tensor:
        """Compute cosines (n, C) between features and prototypes; CCLIS's paper trains a linear classifier instead."""
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
        """Distil similarities to the previous model's prototypes; other distillations are those of :class:`Co2L`."""
        if self.distillation != "prd":
            return super().distill(new, old)
        scores = self.prototypes(F.normalize(new.projections))[:, : len(self.old_prototypes)]  # (B, C_old)
        old_scores = F.normalize(old.projections) @ self.old_prototypes.T
        return prototype_relation_loss(scores, old_scores, **self.relation_options)

    def end_task(self, task: Task) -> None:
        """Select exemplars; store the prototypes, which the next task uses together with the teacher."""
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
