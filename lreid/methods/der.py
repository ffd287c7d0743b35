"""DER: replay with the logits that images had when they were stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.devices import to_device
from lreid.losses.der import dark_experience_loss
from lreid.losses.er_ace import asymmetric_cross_entropy
from lreid.methods.er import ER
from lreid.models.embedder import Embedder
from lreid.rules import Rule


class DER(ER):
    """Dark Experience Replay (Buzzega et al., NeurIPS 2020, Equation 4), a baseline of Co²L's and CCLIS's tables.

    An image is stored with the logits that it had when it came in, and stored images are held to theirs; their labels
    are not learned from again. Logits of identities that came later are left out of the comparison.

    The official code offers an image to the memory whenever it is drawn, so that over many epochs stored logits are of
    all of them; :class:`ER` offers it once, and those of the first epoch would hold a young network to noise. So with
    ``reid_head`` images are stored again with the logits that they have at the end of their task, without augmentation,
    and are not compared before.
    """

    unused: ClassVar[tuple[str, ...]] = ("replay_weight",)

    def __init__(
        self,
        model: Embedder,
        *,
        logit_weight: Annotated[
            float, Rule("alpha, weight of the stored logits; Co²L's Table 4 has 0.5 for R-MNIST", least=0)
        ] = 0.5,
        asymmetric: Annotated[bool, Rule("use the incoming loss of ER-ACE instead of plain cross-entropy")] = False,
        **er: Any,
    ) -> None:
        super().__init__(model, **er)
        self.weights["logits"] = logit_weight
        self.asymmetric = asymmetric
        self.first_logits: dict[str, np.ndarray] = {}  # logits (identities,) by path, until the memory has them

    def replay_terms(self, count: int, incoming: Tensor) -> dict[str, Tensor]:
        """The distance of stored images to the logits that they had when they came."""
        own = self.task_free and not self.reid_head
        rows = self.drawn(count, exclude=() if own else self.task_classes)
        if not len(rows):
            return {}
        replay = self.read(rows)
        stored = torch.from_numpy(self.memory.extras["logits"][replay.rows])  # (n, identities then)
        return {"logits": dark_experience_loss(self.logits(replay.images), to_device(stored, replay.images.device))}

    def incoming_loss(self, batch: Batch) -> Tensor:
        """Cross-entropy of the new images, whose logits are set aside for the memory."""
        logits = self.logits(batch.images)  # (B, identities)
        for path, row in zip(batch.paths, logits.detach().float().cpu().numpy(), strict=True):
            if path not in self.offered:
                self.first_logits.setdefault(path, row)
        if self.asymmetric:
            return asymmetric_cross_entropy(logits, batch.labels)
        return F.cross_entropy(logits, batch.labels.to(logits.device, non_blocking=True))

    def finish_task(self, task: Task) -> None:
        """For re-identification, stores the logits of the task's images again."""
        rows = np.flatnonzero(np.isin(self.memory.labels, task.classes))
        if self.reid_head and len(rows):
            features = torch.from_numpy(self.model.extract(self.memory.images[rows]))  # (n, dim)
            with torch.no_grad():
                logits = self.class_scores(features.to(self.classifier.weight))  # (n, identities)
            self.memory.extras["logits"][rows] = logits.cpu().numpy()

    def extras(self, paths: Sequence[str]) -> dict[str, np.ndarray]:
        """The logits that images had when they were first seen."""
        return {"logits": np.stack([self.first_logits.pop(path) for path in paths])}  # (k, identities)
