"""DER: replay stored images and preserve the logits that the model computed when it stored them."""

from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lreid.losses.der import dark_experience_loss
from lreid.losses.er_ace import asymmetric_cross_entropy
from lreid.methods.base import Batch, Embedder, Rule, Task
from lreid.methods.er import ER
from lreid.utils.devices import to_device


class DER(ER):
    """Dark Experience Replay (Buzzega et al., NeurIPS 2020, Equation 4), a baseline in the tables of Co²L and CCLIS.

    The memory stores each image together with its logits at the time of storing. In later steps, a loss term keeps the
    model's logits for a stored image close to the stored logits. DER does not use the labels of stored images. The loss
    term ignores logits of identities that were added after the image was stored.

    DER's official code offers an image to the memory again in every epoch, so stored logits come from all epochs.
    :class:`ER` offers an image only in the first epoch, when the logits of its identity are still untrained. With
    ``reid_head``, the logits of the task's images are therefore computed again, without augmentation, at the end of the
    task. Images of the current task are not replayed before the task ends.
    """

    unused: ClassVar[tuple[str, ...]] = ("replay_weight",)

    def __init__(
        self,
        model: Embedder,
        *,
        logit_weight: Annotated[float, Rule("weight alpha of the loss on stored logits (Co²L: 0.5)", least=0)] = 0.5,
        asymmetric: Annotated[bool, Rule("use ER-ACE's loss of incoming images, not the plain cross-entropy")] = False,
        **er: Any,
    ) -> None:
        super().__init__(model, **er)
        self.weights["logits"] = logit_weight
        self.asymmetric = asymmetric
        self.recompute = self.reid_head  # whether stored logits are those at the end of the task
        self.first_logits: dict[str, np.ndarray] = {}  # logits (identities,) by path, needed until end_step

    def replay_terms(self, count: int, incoming: Tensor) -> dict[str, Tensor]:
        """Compute the squared difference between new and stored logits of stored images."""
        own = self.task_free and not self.recompute
        rows = self.drawn(count, exclude=() if own else self.task_classes)
        if not len(rows):
            return {}
        replay = self.read(rows)
        stored = torch.from_numpy(self.memory.extras["logits"][replay.rows])  # (n, identities then)
        return {"logits": self.logit_loss(self.logits(replay.images), to_device(stored, replay.images.device))}

    def logit_loss(self, logits: Tensor, stored: Tensor) -> Tensor:
        """Compute the distance between logits (n, K) and stored logits (n, K_old), NaN where classes came later."""
        return dark_experience_loss(logits, stored)

    def incoming_loss(self, batch: Batch) -> Tensor:
        """Compute the cross-entropy of the incoming images, and record their logits for the memory."""
        logits = self.logits(batch.images)  # (B, identities)
        for path, row in zip(batch.paths, logits.detach().float().cpu().numpy(), strict=True):
            if path not in self.offered:
                self.first_logits.setdefault(path, row)
        if self.asymmetric:
            return asymmetric_cross_entropy(logits, batch.labels)
        return F.cross_entropy(logits, batch.labels.to(logits.device, non_blocking=True))

    def finish_task(self, task: Task) -> None:
        """With ``recompute``, replace the stored logits of the task's images by logits of the trained network."""
        rows = np.flatnonzero(np.isin(self.memory.labels, task.classes))
        if self.recompute and len(rows):
            features = torch.from_numpy(self.model.extract(self.memory.images[rows]))  # (n, dim)
            with torch.no_grad():
                logits = self.class_scores(features.to(self.classifier.weight))  # (n, identities)
            self.memory.extras["logits"][rows] = logits.cpu().numpy()

    def extras(self, batch: Batch, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the logits (k, identities) that the model computed in the first training step on each image."""
        return {"logits": np.stack([self.first_logits.pop(batch.paths[row]) for row in rows])}  # (k, identities)
