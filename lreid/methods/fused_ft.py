"""Fused fine-tuning: softmax and soft-margin triplet loss; after a task, average the new and the old network."""

import logging
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, cast

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.modules.batchnorm import _BatchNorm

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.errors import require
from lreid.losses.fusion import linear_combination, lstkc_alpha
from lreid.methods.bot_ft import BoTFineTuning
from lreid.models.adapt import norm_statistics
from lreid.models.classifier import ClassifyingEmbedder
from lreid.models.embedder import Embedder
from lreid.models.parts import evaluating
from lreid.rules import Rule

logger = logging.getLogger("lreid")


class FusedFineTuning(BoTFineTuning):
    """The common baseline of LSTKC, LSTKC++, DKP, DKP++ and DASK, as implemented in the official code of these methods.

    * One softmax without label smoothing covers all identities so far, although batches have no images of past
      identities. The classifier row of a new identity starts as the direction of the mean feature of the identity,
      before the neck.
    * The soft-margin batch-hard triplet loss uses features before the neck, and so does retrieval.
    * After every task but the first, the network becomes ``alpha * new + (1 - alpha) * old``, where ``old`` is the
      network at the start of the task. All weights and BatchNorm statistics are averaged, including neck and
      classifier, except the classifier rows of new identities. The fused network is evaluated, and the next task
      continues from the fused network.

    ``fusion=1`` gives the fine-tuning baseline of LSTKC's paper; ``configs/methods/lstkc_ft.yaml`` and
    ``lstkc_joint.yaml`` reproduce the fine-tuning and joint rows of the paper's tables. The options ``fusion``,
    ``later_rate`` and ``adapt_norm`` can be set separately, to measure the contribution of each.

    Args:
        model: the network, without a neck; the method adds a neck for training.
    """

    saves: ClassVar = ["network.neck"]
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
        measured_fusion: Annotated[
            bool, Rule("measure alpha on the images of the task, as LSTKC does, instead of using fusion")
        ] = False,
        adapt_norm: Annotated[
            bool,
            Rule(
                "after each task and its fusion, re-estimate the BatchNorm statistics of the embedder on "
                "the images of the task, without labels; no official code has this step"
            ),
        ] = False,
        later_rate: Annotated[float, Rule("factor of the learning rate from the second task on", least=0)] = 1.0,
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
        """Add a classifier row for each new identity; in later tasks, the row is the direction of the mean feature."""
        super().begin_task(task)
        self.first_class = 0
        if self.teacher is not None:
            with torch.no_grad():
                self.classifier.weight[task.classes] = self.mean_directions(task).to(self.classifier.weight)

    def parameters(self) -> Iterable[Parameter] | list[dict[str, Any]]:
        """The embedder, the neck and the classifier, with the task's factor of the learning rate."""
        factor = 1.0 if self.teacher is None else self.later_rate
        return [{"params": list(self.network.parameters()), "rate_factor": factor}]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute BoT's loss terms and, from the second task on, :meth:`retention_terms`."""
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
        """Fuse the network with the old network, and re-estimate BatchNorm statistics if ``adapt_norm`` is set."""
        if self.teacher is not None:
            self.fuse_with(self.old_network(task), task)
        if self.adapt_norm:
            paths = [record.path for record in task.records]
            statistics = norm_statistics(self.model, paths)
            self.model.load_state_dict({k: torch.from_numpy(array) for k, array in statistics.items()}, strict=False)

    def old_network(self, task: Task) -> ClassifyingEmbedder:
        """Return the network to average with the new network after a task: the network at the start of the task."""
        assert self.teacher is not None
        return self.teacher

    def fuse_with(self, old: ClassifyingEmbedder, task: Task) -> None:
        """Replace the network by the average of itself and an old network."""
        alpha = self.fusion
        if self.measured_fusion:
            alpha = self.measured_alpha(self.extract(self.network, task), self.extract(old, task))
            logger.info("%s: the new network has the weight %.3f in the average", task.name, alpha)
        self.share = alpha
        if alpha != 1:
            self.network.load_state_dict(linear_combination(self.network.state_dict(), old.state_dict(), alpha))

    def measured_alpha(self, new: Tensor, old: Tensor) -> float:
        """Compute the weight of the new network from features (n, dim) of all images of a task by both networks."""
        return lstkc_alpha(new, old)

    def figures(self) -> dict[str, float]:
        """Return the weight of the new network in the average after the last task, as ``share``."""
        return super().figures() | ({} if self.share is None else {"share": self.share})

    def features_of(self, task: Task) -> Tensor:
        """Features of the task's images by :meth:`extract`; they initialise the classifier rows of new identities."""
        return self.extract(self.network, task)

    def extract(self, network: ClassifyingEmbedder, task: Task) -> Tensor:
        """Extract features (n, dim) float32 on the CPU of all images of a task, without augmentation."""
        return torch.from_numpy(network.model.extract([record.path for record in task.records]))

    def frozen_network(self) -> ClassifyingEmbedder:
        """See the base class."""
        return cast(ClassifyingEmbedder, super().frozen_network())
