"""Co²L: contrastive learning with replay, and distillation of the relations between images of a batch."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.errors import require
from lreid.losses.relations import mean_squared_distillation_loss, relation_distillation_loss
from lreid.losses.supcon import asymmetric_supcon_loss
from lreid.memory.exemplars import ExemplarMemory
from lreid.methods.base import Method
from lreid.models.embedder import Embedder
from lreid.models.projection import Projected, ProjectedEmbedder
from lreid.rules import Rule


class Co2L(Method):
    """Contrastive continual learning (Cha et al., ICCV 2021), with 500 exemplars in all.

    Two views of every image go through the network and a projection head. The asymmetric supervised contrastive loss
    takes the images of the task for anchors and exemplars for negatives only. From the second task on a
    distillation is added, of the previous model *and its head* on the same views (Table 6):

    * ``ird``: cosines of a projection with the others of the batch, as a distribution (the paper's choice);
    * ``seed``: the same of the encoder's features;
    * ``embedding``, ``projection``: squared distance of features, or of projections;
    * ``none``.

    The memory keeps a uniform choice of every identity, as many of one as of another but for one image. Factors and
    means are those of the official code, see :mod:`lreid.losses.supcon`. It keeps the previous model in training
    mode, so that it normalises by the statistics of the batch and its running ones drift; here it is in evaluation
    mode. Each task begins with a fresh optimiser. Retrieval compares features, as the paper's linear probe does, not
    projections.
    """

    keeps: ClassVar = {**Method.keeps, "head": "network"}
    batches = "identities"
    views = 2
    defaults: ClassVar = {"exemplars": 500, "selection": "random", "fill_memory": True, "least_images": 1}
    network: ProjectedEmbedder
    memory: ExemplarMemory
    distillations: ClassVar[tuple[str, ...]] = ("ird", "seed", "embedding", "projection", "none")

    def __init__(
        self,
        model: Embedder,
        *,
        temperature: Annotated[float, Rule("temperature of the contrastive loss, tau", above=0)] = 0.5,
        asymmetric: Annotated[
            bool, Rule("do not use exemplars as anchors; False is plain SupCon on all images (Table 3)")
        ] = True,
        replay: Annotated[
            bool, Rule('add exemplars to batches; False keeps them for the probe alone (Table 2, "without buffer")')
        ] = True,
        distillation: Annotated[str, Rule("ird, seed, embedding, projection or none, of Table 6")] = "ird",
        distillation_weight: Annotated[float, Rule("lambda of Equation 9", least=0)] = 1.0,
        distillation_temperature: Annotated[
            float, Rule("kappa, temperature of the relations of the model in training", above=0)
        ] = 0.2,
        teacher_temperature: Annotated[
            float, Rule("kappa*, temperature of the relations of the previous model", above=0)
        ] = 0.01,
        teacher_in_training: Annotated[
            bool, Rule("let the previous model normalise by the statistics of the batch, as the official code does")
        ] = False,
        projection: Annotated[int, Rule("width of the projections; 500 in the paper's rows of R-MNIST", least=1)] = 128,
        reid_head: Annotated[
            bool,
            Rule(
                "for re-identification, a BatchNorm before the projection head: the features of a trained "
                "network share most of their length, so that projections would all but agree"
            ),
        ] = False,
        **options: Any,
    ) -> None:
        super().__init__(model, **Co2L.defaults | options)
        if not replay:
            self.exemplar_share = None
        names = ", ".join(self.distillations)
        require(distillation in self.distillations, "distillation", distillation, f"one of {names}")
        self.temperature, self.asymmetric, self.distillation = temperature, asymmetric, distillation
        self.relation_options = {"temperature": distillation_temperature, "teacher_temperature": teacher_temperature}
        self.weights = {"distill": distillation_weight}
        self.keeps_teacher, self.teacher_in_training = distillation != "none", teacher_in_training
        self.reid_head = reid_head
        self.network = ProjectedEmbedder(model, projection, neck=reid_head)
        self.task_classes: tuple[int, ...] = ()

    def begin_task(self, task: Task) -> None:
        """Records the classes of the task, whose images are the anchors."""
        self.task_classes = tuple(task.classes)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Contrast on all views, and distillation once there is a previous network."""
        new = self.network(batch.images)
        terms = self.contrast(F.normalize(new.projections), batch)
        if self.teacher is not None:
            with torch.no_grad():
                old = self.teacher(batch.images)
            terms["distill"] = self.distill(new, old)
        return terms

    def contrast(self, projections: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The contrastive term of unit vectors (B, 128)."""
        views = projections.unflatten(0, (batch.views, -1)).transpose(0, 1)  # (n, V, 128)
        labels = batch.labels[: len(views)]  # (n,)
        anchors = self.task_classes if self.asymmetric else labels
        return {"supcon": asymmetric_supcon_loss(views, labels, anchors, temperature=self.temperature)}

    def distill(self, new: Projected, old: Projected) -> Tensor:
        """The distillation term between the outputs of the trained model and of the previous one."""
        if self.distillation == "embedding":
            return mean_squared_distillation_loss(new.features, old.features)
        if self.distillation == "projection":
            return mean_squared_distillation_loss(new.projections, old.projections)
        student, teacher = (
            F.normalize(each.projections if self.distillation == "ird" else each.features) for each in (new, old)
        )
        return relation_distillation_loss(student, teacher, **self.relation_options)

    def state_dict(self) -> dict[str, Any]:
        """The projection head and the classes of the task, besides the teacher and the memory."""
        return super().state_dict() | {"head": self.network.head.state_dict(), "task_classes": list(self.task_classes)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.network.head.load_state_dict(state["head"])
        self.task_classes = tuple(state["task_classes"])
