"""GSS: replay stored images whose gradients have directions as different as possible."""

from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lreid.memory.stream import StreamMemory
from lreid.methods.base import Batch, Embedder, Rule
from lreid.methods.er import ER
from lreid.models.parts import evaluating


class GSS(ER):
    """Gradient-based sample selection, "GSS-Greedy" (Aljundi et al., NeurIPS 2019, Algorithm 2).

    The score of an incoming image is 1 plus the largest cosine between its gradient and the gradients of ``compared``
    random stored images. The memory replaces images of high score by images of low score
    (:class:`~lreid.memory.StreamMemory`, policy ``greedy``). In all other respects, GSS is :class:`ER`. It is a
    baseline in the tables of Co²L and CCLIS.

    As in the code of mammoth, which Co²L's authors ran, gradients are those of images without augmentation and of the
    network in evaluation mode, and the first images of a run have the score 0.1. To save time, mammoth first computes
    one score of the whole batch, and skips batches whose score is 1 or more; lreid scores every image.
    """

    divisible = False

    def __init__(
        self,
        model: Embedder,
        *,
        compared: Annotated[int, Rule("number of stored images to compare with; 128 in Co²L's Table 4", least=1)] = 10,
        **er: Any,
    ) -> None:
        super().__init__(model, **er)
        self.memory = StreamMemory(self.memory.budget, "greedy", seed=self.seed)
        self.compared = compared

    def extras(self, batch: Batch, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Compute the scores (k,) of images of the batch."""
        drawn = self.memory.draw(self.compared)
        if not len(drawn):
            return {"scores": np.full(len(rows), 0.1)}
        new = self.directions(batch.pixels.numpy()[rows], batch.labels[rows])  # (k, P)
        old = self.directions(self.memory.images[drawn], torch.from_numpy(self.memory.labels[drawn]))  # (n, P)
        return {"scores": 1 + (new @ old.T).amax(1).double().cpu().numpy()}

    def directions(self, pixels: np.ndarray, labels: Tensor) -> Tensor:
        """Compute the unit gradients (n, P) of the cross-entropies of images (n, H, W, 3) uint8."""
        with evaluating(self.model), evaluating(self.head_neck):
            logits = self.logits(self.model.normalise(torch.from_numpy(pixels)))  # (n, K)
        losses = F.cross_entropy(logits, self.class_of(labels).to(logits.device, non_blocking=True), reduction="none")
        return torch.stack([F.normalize(self.gradient(loss), dim=0).float() for loss in losses])
