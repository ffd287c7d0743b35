"""AKA: LwF with one knowledge graph for all tasks; the metric loss compares the features plus the graph's outputs."""

from typing import Annotated, Any, ClassVar

from torch import Tensor
from torch.nn import Parameter

from lreid.losses.aka import plasticity_loss, smoothed_cross_entropy, stability_loss
from lreid.methods.base import Batch, Embedder, Rule, Task
from lreid.methods.lwf import LwF
from lreid.models.knowledge_graph import KnowledgeGraph


class AKA(LwF):
    """Adaptive knowledge accumulation (Pu et al., CVPR 2021).

    The loss is ``softmax + plasticity + distillation + 0.0005 * stability``.

    * Plasticity: a graph of learned vertices (:class:`lreid.models.KnowledgeGraph`) adds ``g(x)`` to the features ``x``
      of a batch. The batch-hard triplet loss compares the sums ``x + g(x)`` and uses ``log(1 + exp(d))`` in place of
      each distance ``d``.
    * Distillation: the distillation loss of :class:`LwF`.
    * Stability: ``mean_v |v / |v| - v' / |v'||²``, where ``v'`` is the value of vertex ``v`` after the previous task.

    AKA's official code smooths labels over the identities of all tasks and keeps the old model in training mode;
    options of this method do the same. lreid differs from AKA's official code in two points. First, the ResNet of AKA's
    official code has no ReLU in its stem. Second, AKA's official code trains all tasks after the first at the final,
    low learning rate of the first task. In lreid, every task begins with a new optimiser at the full learning rate. The
    knowledge graph is trained at the learning rate of the network.

    DwoPP's authors (BMVC 2022) did not publish how they combined AKA with BoT, so the following choices are lreid's.
    All tasks share one BatchNorm neck. The metric loss is a weighted sum of AKA's plasticity loss (weight
    ``plasticity_share``) and BoT's triplet loss (weight ``1 - plasticity_share``). With ``plasticity_share=1``, the
    loss is the loss of AKA's official code. With ``plasticity_share=0`` and without distillation and stability, the
    method equals BoT-FT.
    """

    saves: ClassVar = {"graph": "network", "old_vertices": "network"}

    def __init__(
        self,
        model: Embedder,
        *,
        plasticity_share: Annotated[float, Rule("share of plasticity loss in the metric loss", least=0, most=1)] = 1.0,
        stability_weight: Annotated[float, Rule("weight of the stability loss in the total loss", least=0)] = 5e-4,
        vertices: Annotated[int, Rule("number of vertices of the knowledge graph, at least 1", least=1)] = 64,
        smoothing_classes: Annotated[int, Rule("classes of label smoothing; 0 = the task's (AKA: 2494)", least=0)] = 0,
        teacher_in_training: Annotated[bool, Rule("let the teacher's BatchNorm use batch statistics")] = False,
        **lwf: Any,
    ) -> None:
        super().__init__(model, **lwf)
        self.weights |= {"triplet": 1 - plasticity_share, "plasticity": plasticity_share, "stability": stability_weight}
        self.smoothing_classes, self.teacher_in_training = smoothing_classes, teacher_in_training
        self.graph = KnowledgeGraph(model.dim, vertices, seed=self.seed).to(model.mean.device)
        self.old_vertices: Tensor | None = None  # (V, dim)

    def parameters(self) -> list[Parameter]:
        """The network and the knowledge graph."""
        return [*super().parameters(), *self.graph.parameters()]

    def softmax_triplet(self, features: Tensor, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Compute all loss terms except the distillation, with the same arguments as in :class:`BoTFineTuning`."""
        terms = super().softmax_triplet(features, logits, batch)
        labels = batch.labels.to(features.device, non_blocking=True)
        if self.smoothing_classes:
            terms["softmax"] = smoothed_cross_entropy(
                logits[:, self.first_class :],
                labels - self.first_class,
                smoothing=self.label_smoothing,
                num_classes=self.smoothing_classes,
            )
        fused = features + self.graph(features)  # (B, dim)
        terms["plasticity"] = plasticity_loss(fused, labels, margin=self.margin)
        if self.old_vertices is not None:
            terms["stability"] = stability_loss(self.graph.vertices, self.old_vertices)
        return terms

    def end_task(self, task: Task) -> None:
        """Store the teacher, and a copy of the graph's vertices for the stability loss of the next task."""
        super().end_task(task)
        self.old_vertices = self.graph.vertices.detach().clone()
