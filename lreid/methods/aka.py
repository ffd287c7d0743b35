"""AKA: LwF with a knowledge graph over all tasks; the metric loss uses features plus the output of the graph."""

from collections.abc import Iterable
from itertools import chain
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.losses.aka import plasticity_loss, smoothed_cross_entropy, stability_loss
from lreid.methods.lwf import LwF
from lreid.models.embedder import Embedder
from lreid.models.knowledge_graph import KnowledgeGraph
from lreid.rules import Rule


class AKA(LwF):
    """Adaptive knowledge accumulation (Pu et al., CVPR 2021).

    The loss is ``softmax + plasticity + distillation + 0.0005 * stability``.

    * Plasticity: a graph of learned vertices (:class:`lreid.models.KnowledgeGraph`) adds ``g(x)`` to the features ``x``
      of a batch. The batch-hard triplet loss compares the sums ``x + g(x)`` and replaces each distance ``d`` by
      ``log(1 + exp(d))``.
    * Distillation: the same as in :class:`LwF`.
    * Stability: ``mean_v |v / |v| - v' / |v'||²``, where ``v'`` is the value of vertex ``v`` after the previous task.

    AKA's official code smooths labels over the identities of all tasks and keeps the old model in training mode; in
    lreid, both are options. lreid differs from AKA's official code in two points. First, AKA's official ResNet has no
    ReLU in its stem. Second, AKA's official code trains all later tasks at the low final learning rate of the first
    task. In lreid, every task begins with a new optimiser. The graph is trained at the learning rate of the network.

    DwoPP's authors (BMVC 2022) did not publish how they built AKA on BoT, so the following is lreid's choice. All tasks
    share one neck. The metric loss combines AKA's plasticity loss, with the weight ``plasticity_share``, and BoT's
    plain triplet loss, with the weight ``1 - plasticity_share``. ``plasticity_share=1`` gives the official loss.
    ``plasticity_share=0`` without distillation and stability gives BoT-FT.
    """

    keeps: ClassVar = {**LwF.keeps, "graph": "network", "old_vertices": "network"}
    saves: ClassVar = ["graph", "old_vertices"]

    def __init__(
        self,
        model: Embedder,
        *,
        plasticity_share: Annotated[
            float, Rule("share of AKA's plasticity loss in the metric loss, in [0, 1]", least=0, most=1)
        ] = 1.0,
        stability_weight: Annotated[float, Rule("weight of the stability term", least=0)] = 5e-4,
        vertices: Annotated[int, Rule("number of vertices of the graph, at least 1", least=1)] = 64,
        smoothing_classes: Annotated[
            int,
            Rule(
                "divisor of the label smoothing; 0 means the number of classes of the task; AKA's code uses 2494",
                least=0,
            ),
        ] = 0,
        teacher_in_training: Annotated[
            bool, Rule("let the old model's BatchNorm use the statistics of the batch, as the official code does")
        ] = False,
        **lwf: Any,
    ) -> None:
        super().__init__(model, **lwf)
        self.weights |= {"triplet": 1 - plasticity_share, "plasticity": plasticity_share, "stability": stability_weight}
        self.smoothing_classes, self.teacher_in_training = smoothing_classes, teacher_in_training
        self.graph = KnowledgeGraph(model.dim, vertices, seed=torch.initial_seed()).to(model.mean.device)
        self.old_vertices: Tensor | None = None  # (V, dim)

    def parameters(self) -> Iterable[Parameter]:
        """The network and the knowledge graph."""
        return chain(super().parameters(), self.graph.parameters())

    def softmax_triplet(self, features: Tensor, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Compute all loss terms except the distillation; for the arguments see :class:`BoTFineTuning`."""
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
        """Store the teacher, and the vertices that the stability loss of the next task needs."""
        super().end_task(task)
        self.old_vertices = self.graph.vertices.detach().clone()
