"""Fused fine-tuning: softmax and soft-margin triplet loss; after a task, new and old weights are averaged."""

import logging
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from lreid.errors import require
from lreid.losses.fusion import linear_combination, lstkc_alpha
from lreid.methods.base import Batch, Embedder, Rule, Task
from lreid.methods.bot_ft import BoTFineTuning
from lreid.models.adapt import norm_statistics
from lreid.models.classifier import ClassifyingEmbedder
from lreid.models.parts import evaluating

logger = logging.getLogger("lreid")


class FusedFineTuning(BoTFineTuning):
    """The baseline that the official code of LSTKC, LSTKC++, DKP, DKP++ and DASK has in common.

    * One softmax without label smoothing covers all identities so far, although batches contain only identities of the
      task. The initial classifier row of a new identity is the direction of its mean feature before the BatchNorm neck.
    * The soft-margin batch-hard triplet loss and retrieval use features before the neck.
    * After every task except the first, the weights become ``alpha * new + (1 - alpha) * old``, where ``old`` are the
      weights at the start of the task. The average includes all weights and BatchNorm statistics, also those of neck
      and classifier, but not the classifier rows of new identities. lreid evaluates the averaged network, and the next
      task continues from it.

    The option ``fusion=1`` gives the fine-tuning baseline of LSTKC's paper. The config files
    ``configs/methods/lstkc_ft.yaml`` and ``lstkc_joint.yaml`` reproduce the fine-tuning and joint-training rows of its
    tables. To measure the effect of each part, set the options ``fusion``, ``later_rate`` and ``adapt_norm``
    separately.

    Args:
        model: the network without a BatchNorm neck; the method adds a neck for training only.
    """

    saves: ClassVar = {"network.neck": ""}
    neck = False
    keeps_teacher = True
    network: ClassifyingEmbedder
    teacher: ClassifyingEmbedder | None

    def __init__(
        self,
        model: Embedder,
        *,
        label_smoothing: float = 0.0,
        soft_margin: bool = True,
        fusion: Annotated[float, Rule("weight alpha of the new network in the average", least=0)] = 0.5,
        measured_fusion: Annotated[bool, Rule("compute alpha from the images of the task, as LSTKC does")] = False,
        adapt_norm: Annotated[bool, Rule("re-estimate BatchNorm statistics on a finished task's images")] = False,
        later_rate: Annotated[float, Rule("factor of the learning rate for all tasks after the first", least=0)] = 1.0,
        **bot: Any,
    ) -> None:
        super().__init__(model, label_smoothing=label_smoothing, soft_margin=soft_margin, **bot)
        require(fusion == 0.5 or not measured_fusion, "fusion", fusion, "left out if measured_fusion is True")
        layers = any(isinstance(each, _BatchNorm) for each in model.modules())
        require(layers or not adapt_norm, "adapt_norm", adapt_norm, f"False, as {model.name} has no BatchNorm")
        self.fusion, self.measured_fusion = fusion, measured_fusion
        self.adapt_norm, self.later_rate = adapt_norm, later_rate
        self.network = ClassifyingEmbedder(model, self.classifier)
        self.share: float | None = None  # alpha of the last task; None after the first task

    def begin_task(self, task: Task) -> None:
        """Add a classifier row for each new identity; in later tasks, it starts as the mean feature's direction."""
        super().begin_task(task)
        self.first_class = 0
        if self.teacher is not None:
            with torch.no_grad():
                self.classifier.weight[task.classes] = self.mean_directions(task).to(self.classifier.weight)

    def parameters(self) -> list[dict[str, Any]]:
        """The embedder, neck and classifier; after the first task, ``later_rate`` multiplies their learning rate."""
        factor = 1.0 if self.teacher is None else self.later_rate
        return [{"params": list(self.network.parameters()), "rate_factor": factor}]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the loss terms of BoT and, from the second task on, :meth:`retention_terms`."""
        features, logits = self.network(batch.images)
        terms = self.softmax_triplet(features, logits, batch)
        return terms if self.teacher is None else terms | self.retention_terms(features, batch)

    def retention_terms(self, features: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Compute loss terms against forgetting from features (B, dim); subclasses override this method."""
        return {}

    def class_scores(self, features: Tensor) -> Tensor:
        """Compute logits of all identities so far, ``(B, K)``."""
        with evaluating(self.network.neck):
            return self.network.logits(features)

    # ------------------------------------------------------------ after a task

    def finish_task(self, task: Task) -> None:
        """Average the network with the old network; with ``adapt_norm``, re-estimate the BatchNorm statistics."""
        if self.teacher is not None:
            self.share, old = self.fusion, self.old_network(task)
            if self.measured_fusion:
                self.share = self.measured_alpha(self.extract(self.network, task), self.extract(old, task))
                logger.info("%s: the new network has the weight %.3f in the average", task.name, self.share)
            if self.share != 1:
                fused = linear_combination(self.network.state_dict(), old.state_dict(), self.share)
                self.network.load_state_dict(fused)
        if self.adapt_norm:
            paths = [record.path for record in task.records]
            statistics = norm_statistics(self.model, paths)
            self.model.load_state_dict({k: torch.from_numpy(array) for k, array in statistics.items()}, strict=False)

    def old_network(self, task: Task) -> ClassifyingEmbedder:
        """Return the network to average with the new network: by default, the network at the start of the task."""
        return self.teacher

    def measured_alpha(self, new: Tensor, old: Tensor) -> float:
        """Compute alpha, the weight of the new network, from both networks' features (n, dim) of the task's images."""
        return lstkc_alpha(new, old)

    def figures(self) -> dict[str, float]:
        """Return alpha of the last task, the weight of the new network in the average, as ``share``."""
        return super().figures() | ({} if self.share is None else {"share": self.share})

    def features_of(self, task: Task) -> Tensor:
        """Extract features of the task's images by :meth:`extract`, to initialise classifier rows of new identities."""
        return self.extract(self.network, task)

    def extract(self, network: ClassifyingEmbedder, task: Task) -> Tensor:
        """Extract features (n, dim) float32 on the CPU of all images of a task, without augmentation."""
        return torch.from_numpy(network.model.extract([record.path for record in task.records]))
