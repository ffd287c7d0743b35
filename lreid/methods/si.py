"""SI: fine-tuning that penalises changes of the weights whose past changes lowered the loss most."""

from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from lreid.methods.base import Batch, Embedder, Rule, Task
from lreid.methods.mas import MAS, trained


class SI(MAS):
    """Synaptic intelligence (Zenke et al., ICML 2017, Equations 3 to 5), trained like BoT-FT.

    The loss is that of :class:`MAS`. The importance adds up ``p_i / (d_i² + damping)`` over the tasks and is never
    below 0, as in SI's official code. ``d_i`` is the change of a weight during a task. The path integral ``p_i`` is the
    sum of ``-g_i * change`` over all updates, where ``g_i`` is the gradient of the loss without the penalty. It
    estimates how much the weight has lowered the loss. If training follows this estimate, the strength 1 weighs old and
    new tasks equally; the damping is that of the paper's experiment on CIFAR.

    The path integral needs a second backward pass per update. If several batches make one update
    (``TRAIN.ACCUMULATE``), the gradient of the last batch stands for all.
    """

    saves: ClassVar = {"path": "network"}

    def __init__(
        self,
        model: Embedder,
        *,
        damping: Annotated[float, Rule("number xi added to the squared change of a weight", above=0)] = 1e-3,
        **mas: Any,
    ) -> None:
        super().__init__(model, **mas)
        self.damping = damping
        self.path: dict[str, Tensor] = {}  # path integrals of this task by name of the weight
        self.step: dict[str, tuple[Tensor, Tensor]] = {}  # gradients, and weights before the update

    def begin_task(self, task: Task) -> None:
        """Add a classifier row for each new identity, store the weights, and start the path integrals."""
        super().begin_task(task)
        self.path = {name: torch.zeros_like(each) for name, each in self.anchor.items()}

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the loss terms of :class:`MAS`, and the gradient of those of BoT."""
        self.add_step()  # a batch of a stream may make several updates
        terms, weights = super().loss(batch), trained(self.model)
        own = self.total({name: term for name, term in terms.items() if name != "penalty"})
        gradients = torch.autograd.grad(own, list(weights.values()), retain_graph=True, materialize_grads=True)
        before = [each.detach().clone() for each in weights.values()]
        self.step = dict(zip(weights, zip(gradients, before, strict=True), strict=True))
        return terms

    def end_step(self, batch: Batch) -> None:
        """Add the last update to the path integrals."""
        super().end_step(batch)
        self.add_step()

    @torch.no_grad()
    def add_step(self) -> None:
        """Add the changes of the weights since the last gradient to the path integrals."""
        weights = trained(self.model)
        for name, (gradient, before) in self.step.items():
            self.path[name] -= gradient * (weights[name] - before)
        self.step = {}

    @torch.no_grad()
    def measured(self, task: Task) -> dict[str, Tensor]:
        """Compute the importance of each weight for a task from its path integral, which ends here."""
        weights, path, self.path = trained(self.model), self.path, {}
        changes = {name: (weights[name] - each).square() for name, each in self.anchor.items()}
        return {name: each / (changes[name] + self.damping) for name, each in path.items()}
