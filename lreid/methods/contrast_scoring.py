"""Contrast Scoring: learning without labels from the images of a stream on which the model's views differ most."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lreid.data.loaders import Batch
from lreid.errors import require
from lreid.losses.contrast import contrast_scores, nt_xent_loss
from lreid.memory.stream import POLICIES, StreamMemory
from lreid.methods.base import Method
from lreid.models.embedder import Embedder
from lreid.models.parts import evaluating
from lreid.models.projection import ProjectedEmbedder
from lreid.rules import Rule


class ContrastScoring(Method):
    """Self-supervised learning from an unlabelled stream.

    Source: "Enabling Efficient On-Device Self-Supervised Contrastive Learning by Data Selection", Equations 1-6.

    Of the images in the buffer and those of the segment that comes in, the ones stay whose projections differ most
    from those of their flipped selves. Then the SimCLR loss of two augmentations of the whole buffer is minimised. They
    are those of the run and should be strong: see ``configs/recipes/contrast_scoring.yaml``. Labels are stored
    for diagnostics, but nothing is learned from them, and the buffer knows of no tasks. Retrieval
    compares features, not projections.

    There is no official code, and the paper leaves open in which mode images are scored: here in evaluation mode. For
    equal scores and the age of a new image see :class:`~lreid.memory.StreamMemory`. In a second pass over a stream
    (the paper makes hundreds) an image can come to stand in the buffer twice. Where several steps are made on a
    segment, it is taken in before the first.

    Attributes:
        memory: the buffer, a :class:`~lreid.memory.StreamMemory`; of size 0 until the first segment sets it.
        rescored: how often an image of the buffer was scored again so far.
        replayed: two views of the buffer at every step, less the images that come in, which the trainer counts though
            only the buffer is learned from. So ``images_trained`` of the results counts views of the buffer.
    """

    keeps: ClassVar = {**Method.keeps, "head": "network"}
    batches = "stream"
    pixels = True
    network: ProjectedEmbedder
    memory: StreamMemory
    smallest_batch = 1  # it trains on two views of every image

    def __init__(
        self,
        model: Embedder,
        *,
        buffer: Annotated[
            int,
            Rule(
                "number of images in the buffer, which is the mini-batch; 0: as many as in the first segment", least=0
            ),
        ] = 0,
        policy: Annotated[
            str,
            Rule(
                "which images stay: scored, or for comparison another policy of StreamMemory, such as fifo or "
                "random. These need no scores",
                choices=POLICIES,
            ),
        ] = "scored",
        lazy_interval: Annotated[
            int,
            Rule(
                "T of Equation 5: an image of the buffer is scored again after this many segments; 1 means every time",
                least=1,
            ),
        ] = 1,
        temperature: Annotated[
            float, Rule("temperature of the SimCLR loss; 0.5 in the paper, for subsets of ImageNet 0.07", above=0)
        ] = 0.5,
        exemplars: Annotated[int, Rule("0, since the buffer is the memory")] = 0,
    ) -> None:
        super().__init__(model)
        require(exemplars == 0, "exemplars", exemplars, "0: Contrast Scoring keeps a buffer, whose size is an option")
        self.policy, self.lazy_interval, self.temperature = policy, lazy_interval, temperature
        self.network = ProjectedEmbedder(model)
        self.seed = torch.initial_seed()  # of the run
        self.generator = torch.Generator().manual_seed(self.seed)  # of the views
        self.memory = self.new_buffer(buffer)
        self.taken: set[int] = set()  # segments that were taken in, by id
        self.rescored = 0

    def new_buffer(self, size: int) -> StreamMemory:
        """An empty buffer for a number of images."""
        return StreamMemory(size, self.policy, seed=self.seed)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """NT-Xent between two views of the buffer, after the buffer was updated with the batch."""
        if id(batch) not in self.taken:
            self.select(batch)
            self.taken.add(id(batch))
        views = torch.cat([self.view(), self.view()])  # (2N, 3, H, W)
        self.replayed += len(views) - len(batch.labels)
        projections = F.normalize(self.network(views).projections)  # (2N, 128)
        pairs = torch.stack(projections.chunk(2), dim=1)  # (N, 2, 128)
        return {"nt_xent": nt_xent_loss(pairs, temperature=self.temperature)}

    def end_step(self, batch: Batch) -> None:
        """Forgets that the batch was taken in, so that one with its address is a new one."""
        self.taken.discard(id(batch))

    def figures(self) -> dict[str, float]:
        """Per cent of the buffer that a step has scored again, on average: Table 3 of the paper."""
        return {"rescored_percent": round(100 * self.rescored / max(self.memory.budget * self.memory.steps, 1), 4)}

    def select(self, batch: Batch) -> None:
        """Forms the next buffer from the current one and the incoming images."""
        pixels: Any = batch.pixels.numpy()  # (n, H, W, 3)
        if self.memory.budget == 0:
            self.memory = self.new_buffer(len(pixels))
        scores = {}
        if self.policy == "scored":
            due = self.memory.due(self.lazy_interval)
            if len(due):
                self.memory.extras["scores"][due] = self.scores(self.memory.images[due])
            self.rescored += len(due)
            scores["scores"] = self.scores(pixels)
        self.memory.add(pixels, batch.labels.numpy(), **scores)

    @torch.no_grad()
    def scores(self, pixels: np.ndarray) -> np.ndarray:
        """Contrast scores (n,) float32 in [0, 2] of images (n, H, W, 3) uint8; leaves the model in training mode."""
        images = self.model.normalise(torch.from_numpy(pixels))  # (n, 3, H, W)
        with evaluating(self.network):
            projections = self.network(torch.cat([images, images.flip(-1)])).projections  # (2n, 128)
        return contrast_scores(*projections.chunk(2)).cpu().numpy()

    def view(self) -> Tensor:
        """All images of the buffer (N, 3, H, W), with new augmentations."""
        seed = int(torch.randint(2**31, (), generator=self.generator))
        pixels: Any = self.memory.images  # it keeps no paths
        return self.augmented(pixels, seed=seed)

    def state_dict(self) -> dict[str, Any]:
        """The head, the generator, the size of the buffer and how often images were scored again."""
        return super().state_dict() | {
            "head": self.network.head.state_dict(),
            "generator": self.generator.get_state(),
            "buffer": self.memory.budget,
            "rescored": self.rescored,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        self.memory = self.new_buffer(state["buffer"])
        super().load_state_dict(state)
        self.network.head.load_state_dict(state["head"])
        self.generator.set_state(state["generator"].cpu())
        self.rescored = state["rescored"]
