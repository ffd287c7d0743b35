"""GDumb: tasks only fill a memory of images; after each task, a new network is trained on the memory."""

from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

from lreid.errors import require
from lreid.losses._ops import class_means
from lreid.memory.stream import StreamMemory
from lreid.methods.base import Batch, Embedder, Rule, Task
from lreid.methods.er import ER
from lreid.models.parts import bn_neck


class GDumb(ER):
    """Greedy sampler and dumb learner (Prabhu et al., ECCV 2020), the offline baseline of ER-ACE's paper.

    During a task, GDumb only stores images, about equally many of every identity. At the end of the task, a network
    with the initial weights of the run is trained on the memory. As in GDumb's official code, the optimiser is SGD with
    momentum 0.9, and gradients are clipped at norm 10. The first pass over the memory uses a tenth of the learning
    rate, and the second pass uses the full learning rate. Passes after the first two follow a cosine schedule, which
    restarts after 1, 2, 4 … passes. GDumb's official code applies CutMix in half of the steps; lreid leaves out CutMix.
    Stored images are augmented like other training images of the run.

    Evaluations within a task give the same results as before the task, because the network does not change.

    Args:
        er: options of :class:`ER`. With ``reid_head``, the initial classifier row of an identity is the direction of
            the mean feature of its stored images.
    """

    saves: ClassVar = {"start": "network"}
    unused = ("replay", "replay_weight", "task_free")
    divisible = False
    smallest_batch = 1  # incoming images are only stored

    def __init__(
        self,
        model: Embedder,
        *,
        passes: Annotated[int, Rule("passes over the memory after a task (official MNIST: 128)", least=1)] = 256,
        batch: Annotated[int, Rule("number of images per training step on the memory", least=1)] = 16,
        rate: Annotated[float, Rule("highest learning rate in training on the memory", above=0)] = 0.05,
        least_rate: Annotated[float, Rule("lowest learning rate in training on the memory", least=0)] = 0.0005,
        decay: Annotated[float, Rule("weight decay in training on the memory", least=0)] = 1e-6,
        **er: Any,
    ) -> None:
        super().__init__(model, **er)
        require(batch > 1 or not self.needs_pairs, "batch", batch, "2 or more, as BatchNorm cannot normalise one image")
        require(0 <= least_rate <= rate, "least_rate", least_rate, f"from 0 to the rate, {rate}")
        self.passes, self.batch, self.rate, self.least_rate, self.decay = passes, batch, rate, least_rate, decay
        self.memory = StreamMemory(self.memory.budget, "balanced", seed=self.seed)
        self.start = {name: value.detach().clone() for name, value in model.state_dict().items()}

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Return 0, because GDumb trains only at the end of a task."""
        return {"incoming": 0.0 * self.classifier.weight.sum()}

    def begin_rows(self, task: Task) -> None:
        """Do nothing, because :meth:`finish_task` creates a new classifier."""

    def finish_task(self, task: Task) -> None:
        """Train a new network and a new classifier on the memory."""
        self.model.load_state_dict(self.start)
        self._new_head()
        self.model.train()
        optimizer = SGD(self.parameters(), lr=self.rate, momentum=0.9, weight_decay=self.decay)
        schedule = CosineAnnealingWarmRestarts(optimizer, T_0=1, T_mult=2, eta_min=self.least_rate)
        for number in range(self.passes):
            if number < 2:
                optimizer.param_groups[0]["lr"] = self.rate * (0.1 if number == 0 else 1.0)
            else:
                schedule.step()
            order = torch.randperm(len(self.memory), generator=self.generator)
            for rows in order.split(self.batch):
                if len(rows) == 1 and self.needs_pairs:  # BatchNorm cannot normalise one image
                    continue
                optimizer.zero_grad()
                self.replay_loss(self.read(rows.numpy())).backward()
                torch.nn.utils.clip_grad_norm_([*self.parameters()], 10.0)
                optimizer.step()

    def _new_head(self) -> None:
        """Create a new classifier; with ``reid_head``, its rows are mean features of the stored images."""
        identities, device = len(self.classifier), self.model.mean.device
        self.classifier = self.new_classifier().to(device)
        self.classifier.grow(identities)
        if self.reid_head:
            self.head_neck = bn_neck(self.model.dim).to(device)
            features = torch.from_numpy(self.model.extract(self.memory.images))  # (n, dim)
            means, rows = class_means(features, self.class_of(torch.from_numpy(self.memory.labels)))
            with torch.no_grad():
                self.classifier.weight[rows] = F.normalize(means, dim=1).to(device)
