"""DER: stored images are held to the logits that they once had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lreid.data.loaders import Batch
from lreid.devices import to_device
from lreid.losses import asymmetric_cross_entropy, dark_experience_loss
from lreid.methods.er import ER
from lreid.models import Embedder


class DER(ER):
    """Dark Experience Replay (Buzzega et al., NeurIPS 2020, Equation 4), a baseline of Co²L's and CCLIS's tables.

    An image is stored with the logits that it had when it came in, and stored images are held to theirs; their labels
    are not learned from again. Logits of identities that came later are left out of the comparison.

    Args:
        model: the network.
        logit_weight: alpha, of the stored logits; 0.5 is that of Co²L's Table 4 for R-MNIST.
        asymmetric: the incoming loss of ER-ACE in place of plain cross-entropy.
        er: options of :class:`ER`.
    """

    unused: ClassVar[tuple[str, ...]] = ("replay_weight",)

    def __init__(self, model: Embedder, *, logit_weight: float = 0.5, asymmetric: bool = False, **er: Any) -> None:
        super().__init__(model, **er)
        self.weights["logits"] = logit_weight
        self.asymmetric = asymmetric
        self.first_logits: dict[str, np.ndarray] = {}  # logits (identities,) by path, until the memory has them

    def replay_terms(self, count: int, incoming: Tensor) -> dict[str, Tensor]:
        """The distance of stored images to the logits that they had when they came."""
        replay = self.choose(count, incoming)
        if replay is None:
            return {}
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

    def extras(self, paths: Sequence[str]) -> dict[str, np.ndarray]:
        """The logits that images had when they were first seen."""
        return {"logits": np.stack([self.first_logits.pop(path) for path in paths])}  # (k, identities)
