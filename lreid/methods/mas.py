"""MAS: fine-tuning that penalises changes of the weights on which the features of past images depend most."""

import copy
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter

from lreid.errors import require
from lreid.methods.base import Batch, Embedder, Rule, Task
from lreid.methods.bot_ft import BoTFineTuning


class MAS(BoTFineTuning):
    """Memory aware synapses (Aljundi et al., ECCV 2018), trained like BoT-FT.

    From the second task on, the loss is ``L + strength * sum_i w_i (t_i - t'_i)²``. ``L`` is BoT's softmax-triplet
    loss, ``t_i`` a weight of the network, and ``t'_i`` its value at the start of the task. The importance ``w_i`` is
    the mean of ``|d |F(x)|² / d t_i|`` over the images ``x`` of a task, added up over the tasks. :class:`EWC` and
    :class:`SI` have the same penalty and other importances.

    ``F(x)`` are the features that retrieval compares, those after the neck; MAS's official code uses logits. lreid
    computes the gradient of each image by itself, in evaluation mode and float32 and without augmentation; the official
    code computes one gradient per batch. The penalty covers all trained weights of the network, but neither BatchNorm
    statistics nor the classifier. Retrieval does not use the classifier, and the softmax covers only the identities of
    the current task. At the end of a task, each of its images needs one more forward and backward pass.
    """

    saves: ClassVar = {"importance": "network", "anchor": "network"}
    divisible = False  # each process would measure the importance by its own share of the images

    def __init__(
        self,
        model: Embedder,
        *,
        strength: Annotated[float, Rule("weight of the penalty of weight changes in the total loss", least=0)] = 1.0,
        decay: Annotated[float, Rule("factor of the old importance at the end of a task", least=0, most=1)] = 1.0,
        **bot: Any,
    ) -> None:
        super().__init__(model, **bot)
        require(not model.adapter_merge, "adapter_merge", True, "False, so that the trained weights stay the same")
        self.weights = {"penalty": strength}
        self.decay = decay
        self.importance: dict[str, Tensor] = {}  # by name of the weight; empty in the first task
        self.anchor: dict[str, Tensor] = {}  # weights at the start of the task; empty between tasks

    def begin_task(self, task: Task) -> None:
        """Add a classifier row for each new identity, and store the weights."""
        super().begin_task(task)
        self.anchor = {name: each.detach().clone() for name, each in trained(self.model).items()}

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute BoT's loss terms and, from the second task on, the penalty of weight changes."""
        terms, weights = super().loss(batch), trained(self.model)
        parts = [(each * (weights[name] - self.anchor[name]) ** 2).sum() for name, each in self.importance.items()]
        return terms | ({"penalty": torch.stack(parts).sum()} if parts else {})

    def end_task(self, task: Task) -> None:
        """Add the importance of the weights for this task."""
        super().end_task(task)
        for name, each in self.measured(task).items():
            self.importance[name] = (self.decay * self.importance.get(name, 0) + each).clamp(min=0)
        self.anchor = {}

    def measured(self, task: Task) -> dict[str, Tensor]:
        """Compute the importance of each weight for a task: the mean of :meth:`of_gradient` over its images."""
        network = copy.deepcopy(self.model).eval()
        network.precision = None
        weights = trained(network)
        sums = {name: torch.zeros_like(each) for name, each in weights.items()}
        for record in task.records:
            output = self.output(network, network.ready([record.path]), record.pid)
            gradients = torch.autograd.grad(output, list(weights.values()), materialize_grads=True)
            for total, gradient in zip(sums.values(), gradients, strict=True):
                total += self.of_gradient(gradient) / len(task.records)
        return sums

    def output(self, network: Embedder, image: Tensor, label: int) -> Tensor:
        """Compute the scalar whose gradient gives the importance, for one image (1, 3, H, W)."""
        return network.neck(network(image)).square().sum()

    def of_gradient(self, gradient: Tensor) -> Tensor:
        """Compute the importance of weights from the gradient for one image."""
        return gradient.abs()


def trained(network: Embedder) -> dict[str, Parameter]:
    """The trained weights of a network by name."""
    return {name: each for name, each in network.named_parameters() if each.requires_grad}
