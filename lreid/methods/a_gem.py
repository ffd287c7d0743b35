"""A-GEM: change the gradient of new images where it would increase the loss of stored images."""

from typing import Annotated, Any, ClassVar

from torch import Tensor

from lreid.methods.base import Embedder, Rule
from lreid.methods.er import ER


class AGEM(ER):
    """Averaged gradient episodic memory (Chaudhry et al., "Efficient Lifelong Learning with A-GEM", ICLR 2019, Eq. 11).

    Let g be the gradient of the incoming batch and r the gradient of stored images. If g opposes r (g·r < 0), g is
    projected to g - (g·r / r·r) r. If g does not oppose r, lreid uses g unchanged. The projected gradient is the
    gradient of a weighted sum of two losses. lreid minimises this sum: the loss of the incoming batch plus -g·r / r·r
    times the loss of the stored images. As for all baselines in ER-ACE's paper, images enter the memory by reservoir
    sampling. A-GEM replays images of past tasks only.
    """

    unused: ClassVar[tuple[str, ...]] = ("replay_weight",)
    divisible = False

    def __init__(
        self,
        model: Embedder,
        *,
        task_free: Annotated[bool, Rule("also use stored images of the current task")] = False,
        **er: Any,
    ) -> None:
        super().__init__(model, task_free=task_free, **er)

    def replay_terms(self, count: int, incoming: Tensor) -> dict[str, Tensor]:
        """Compute the loss of stored images, multiplied by the weight from :meth:`projection`."""
        terms = super().replay_terms(count, incoming)
        return {name: term * self.projection(incoming, term) for name, term in terms.items()}

    def projection(self, incoming: Tensor, stored: Tensor) -> Tensor:
        """Compute the weight ``max(0, -g·r / r·r)`` of the stored images' loss, a scalar without gradient."""
        new, old = self.gradient(incoming), self.gradient(stored)
        return (-(new @ old) / (old @ old).clamp(min=1e-12)).clamp(min=0).to(stored.dtype)
