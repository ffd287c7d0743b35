"""Co²L: contrastive learning with replay, and distillation of the similarities between images of a batch."""

from typing import Annotated, Any, ClassVar

import torch.nn.functional as F
from torch import Tensor

from lreid.errors import require
from lreid.losses.relations import mean_squared_distillation_loss, relation_distillation_loss
from lreid.losses.supcon import asymmetric_supcon_loss
from lreid.memory.exemplars import ExemplarMemory
from lreid.methods.base import Batch, Embedder, Method, Rule, Task
from lreid.models.projection import Projected, ProjectedEmbedder


class Co2L(Method):
    """Contrastive continual learning (Cha et al., ICCV 2021), with 500 exemplars in total.

    The network and a projection head process two augmented views of every image. In the asymmetric supervised
    contrastive loss, only images of the task are anchors; exemplars are negatives. From the second task on, the
    previous network *and its projection head* process the same views. One of the following distillations (Table 6 of
    Co²L) keeps the new outputs close to the previous outputs:

    * ``ird``: the distilled distribution is a softmax over the cosines between a projection and all other projections
      of the batch (the paper's choice);
    * ``seed``: the same distillation with the encoder's features instead of projections;
    * ``embedding``, ``projection``: the squared distance between old and new features or projections;
    * ``none``: no distillation.

    The memory stores random images of every identity; the numbers of images per identity differ by at most one. The
    loss is scaled and averaged as in Co²L's official code, see :mod:`lreid.losses.supcon`. Co²L's official code keeps
    the previous model in training mode, where BatchNorm uses the statistics of the batch and its running statistics
    drift. In lreid, the previous model is in evaluation mode. Each task begins with a new optimiser. Retrieval and the
    linear probe compare features, not projections, as in Co²L's paper.

    Args:
        reid_head: whether to add a BatchNorm before the projection head. Features of a trained network share a large
            mean, so that all projections would be similar without the BatchNorm.
    """

    saves: ClassVar = {"network.head": "network", "task_classes": ""}
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
        temperature: Annotated[float, Rule("temperature tau of the contrastive loss", above=0)] = 0.5,
        asymmetric: Annotated[
            bool, Rule("use only images of the task as anchors; False gives the usual SupCon loss (Co²L, Table 3)")
        ] = True,
        replay: Annotated[bool, Rule("add exemplars to batches; if False, only the probe uses them")] = True,
        projection: Annotated[int, Rule("length of the projections; 500 in Co²L's paper for R-MNIST", least=1)] = 128,
        reid_head: Annotated[bool, Rule("for re-identification, add a BatchNorm before the projection head")] = False,
        distillation: Annotated[str, Rule("what is distilled: ird, seed, embedding, projection or none")] = "ird",
        distillation_weight: Annotated[float, Rule("distillation weight, lambda in Co²L's Eq. 9", least=0)] = 1.0,
        distillation_temperature: Annotated[
            float, Rule("temperature kappa of the cosines of the model in training, for the distillation", above=0)
        ] = 0.2,
        teacher_temperature: Annotated[
            float, Rule("temperature kappa* of the cosines of the previous model, for the distillation", above=0)
        ] = 0.01,
        teacher_in_training: Annotated[bool, Rule("let the teacher's BatchNorm use batch statistics")] = False,
        **options: Any,
    ) -> None:
        super().__init__(model, **Co2L.defaults | options)
        if not replay:
            self.exemplar_share = None
        self.temperature, self.asymmetric, self.reid_head = temperature, asymmetric, reid_head
        self.network = ProjectedEmbedder(model, projection, neck=reid_head)
        self.task_classes: tuple[int, ...] = ()
        names = ", ".join(self.distillations)
        require(distillation in self.distillations, "distillation", distillation, f"one of {names}")
        self.distillation = distillation
        self.relation_options = {"temperature": distillation_temperature, "teacher_temperature": teacher_temperature}
        self.weights = {"distill": distillation_weight}
        self.keeps_teacher, self.teacher_in_training = distillation != "none", teacher_in_training

    def begin_task(self, task: Task) -> None:
        """Record the classes of the task, because only images of these classes are anchors."""
        self.task_classes = tuple(task.classes)

    def contrast(self, projections: Tensor, batch: Batch) -> dict[str, Tensor]:
        """From unit vectors (B, 128), compute the contrastive loss term."""
        views = projections.unflatten(0, (batch.views, -1)).transpose(0, 1)  # (n, V, 128)
        labels = batch.labels[: len(views)]  # (n,)
        anchors = self.task_classes if self.asymmetric else labels
        return {"supcon": asymmetric_supcon_loss(views, labels, anchors, temperature=self.temperature)}

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the contrastive loss on all views and, from the second task on, the distillation."""
        new = self.network(batch.images)
        terms = self.contrast(F.normalize(new.projections), batch)
        if self.teacher is not None:
            old = self.teacher(batch.images)
            terms["distill"] = self.distill(new, old)
        return terms

    def distill(self, new: Projected, old: Projected) -> Tensor:
        """Compute the distillation term from the outputs of the current and the previous model."""
        if self.distillation == "embedding":
            return mean_squared_distillation_loss(new.features, old.features)
        if self.distillation == "projection":
            return mean_squared_distillation_loss(new.projections, old.projections)
        student, teacher = (
            F.normalize(each.projections if self.distillation == "ird" else each.features) for each in (new, old)
        )
        return relation_distillation_loss(student, teacher, **self.relation_options)
