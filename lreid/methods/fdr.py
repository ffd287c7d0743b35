"""FDR: keep the class probabilities of stored images close to those at the end of their task."""

from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from lreid.methods.base import Embedder, Rule
from lreid.methods.der import DER


class FDR(DER):
    """Function distance regularisation (Benjamin et al., ICLR 2019), a baseline in Co²L's Table 1.

    The memory stores each image together with its logits at the end of its task. In later tasks, a loss term is the
    Euclidean distance between the new and the stored softmax of a stored image, mean over the images. Classes that were
    added after the image was stored have the stored probability 0.

    The code of mammoth, which Co²L's authors ran, makes a separate step for this term, gives every task the same share
    of the memory, and computes the stored logits of augmented images. lreid adds the term to the loss of the incoming
    images, fills the memory by reservoir sampling, and stores the logits of images without augmentation.
    """

    unused: ClassVar[tuple[str, ...]] = ("replay_weight", "task_free", "asymmetric")

    def __init__(
        self,
        model: Embedder,
        *,
        logit_weight: Annotated[float, Rule("weight alpha of the distance (Co²L: 1.0; 0.3 for 500)", least=0)] = 1.0,
        **der: Any,
    ) -> None:
        super().__init__(model, logit_weight=logit_weight, **der)
        self.recompute = True

    def logit_loss(self, logits: Tensor, stored: Tensor) -> Tensor:
        """Compute the mean distance between the softmax of logits (n, K) and that of stored logits (n, K_old)."""
        old = stored.masked_fill(stored.isnan(), -torch.inf).softmax(1)  # (n, K_old)
        old = F.pad(old, (0, logits.shape[1] - old.shape[1]))  # (n, K)
        return torch.linalg.vector_norm(logits.softmax(1) - old, dim=1).mean()
