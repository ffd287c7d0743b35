"""DER++: replay stored images with their labels and with the logits that the model computed when it stored them."""

from typing import Annotated, Any

from torch import Tensor

from lreid.methods.base import Embedder, Rule
from lreid.methods.der import DER
from lreid.methods.er import ER


class DERpp(DER):
    """Dark Experience Replay ++ (Buzzega et al., NeurIPS 2020, Equation 6), a baseline in ER-ACE's paper.

    Each step draws two sets of stored images. The loss compares the new logits of the first set of stored images with
    their stored logits, as in DER. For the second set of stored images, the loss is the cross-entropy with the stored
    labels.

    Args:
        der: options of :class:`DER`. ``replay_weight`` is beta in DER++'s paper. ``asymmetric=True`` gives "DER++ with
            ACE", as in ER-ACE's paper.
    """

    unused = ()

    def __init__(
        self,
        model: Embedder,
        *,
        logit_weight: Annotated[float, Rule("weight alpha of the loss on stored logits", least=0)] = 0.1,
        replay_weight: float = 0.5,
        **der: Any,
    ) -> None:
        super().__init__(model, logit_weight=logit_weight, replay_weight=replay_weight, **der)

    def replay_terms(self, count: int, incoming: Tensor) -> dict[str, Tensor]:
        """Compute the replay terms of both :class:`ER` and :class:`DER`."""
        return ER.replay_terms(self, count, incoming) | super().replay_terms(count, incoming)
