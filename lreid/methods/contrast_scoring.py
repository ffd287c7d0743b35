"""Contrast Scoring: learn without labels from the images of a stream that the model represents worst."""

from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lreid.losses.contrast import contrast_scores, nt_xent_loss
from lreid.memory.stream import POLICIES, StreamMemory
from lreid.methods.base import Batch, Embedder, Method, Rule
from lreid.models.parts import evaluating
from lreid.models.projection import ProjectedEmbedder


class ContrastScoring(Method):
    """Self-supervised learning from an unlabelled stream.

    Source: "Enabling Efficient On-Device Self-Supervised Contrastive Learning by Data Selection", Equations 1-6.

    The contrast score of an image is the distance between its projection and the projection of its mirror image. After
    each segment of the stream, the buffer keeps the highest-scoring images among the old buffer and the segment. Each
    update then minimises the SimCLR loss between two augmented views of the entire buffer. The augmentation should be
    strong; ``configs/recipes/contrast_scoring.yaml`` sets one. Labels are stored for diagnostics only, and task
    boundaries have no influence. Retrieval compares features, not projections.

    Contrast Scoring has no official code. Contrast Scoring's paper does not say whether the network is in evaluation
    mode while it scores images; in lreid it is. :class:`~lreid.memory.StreamMemory` defines the age of a new image and
    the order of images with equal scores. If a stream is repeated, as in Contrast Scoring's paper, an image can be in
    the buffer twice. If several updates use the same segment, only the first update changes the buffer.

    Attributes:
        memory: the image buffer, a :class:`~lreid.memory.StreamMemory`. With ``buffer=0``, the first segment determines
            the size of the buffer.
        rescored: number of times so far that the score of a buffer image was computed again.
    """

    saves: ClassVar = {"network.head": "network", "generator": "", "rescored": ""}
    batches = "stream"
    pixels = True
    network: ProjectedEmbedder
    memory: StreamMemory
    smallest_batch = 1  # the buffer gives two views of every image

    def __init__(
        self,
        model: Embedder,
        *,
        buffer: Annotated[int, Rule("number of images in the buffer; 0 means those of the first segment", least=0)] = 0,
        policy: Annotated[str, Rule("policy of the buffer: scored, or such as fifo", choices=POLICIES)] = "scored",
        lazy_interval: Annotated[int, Rule("segments until an image is scored again, T in Eq. 5", least=1)] = 1,
        temperature: Annotated[float, Rule("SimCLR temperature; for subsets of ImageNet 0.07", above=0)] = 0.5,
    ) -> None:
        super().__init__(model)
        self.policy, self.lazy_interval, self.temperature = policy, lazy_interval, temperature
        self.network = ProjectedEmbedder(model)
        self.memory = self.new_buffer(buffer)
        self.taken: set[int] = set()  # Python ids of segments that were offered to the buffer
        self.rescored = 0

    def new_buffer(self, size: int) -> StreamMemory:
        """Create an empty buffer for ``size`` images."""
        return StreamMemory(size, self.policy, seed=self.seed)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Update the buffer with the batch, then compute the NT-Xent loss between two views of the buffer."""
        if id(batch) not in self.taken:
            self.select(batch)
            self.taken.add(id(batch))
        views = torch.cat([self.view(), self.view()])  # (2N, 3, H, W)
        projections = F.normalize(self.network(views).projections)  # (2N, 128)
        pairs = torch.stack(projections.chunk(2), dim=1)  # (N, 2, 128)
        return {"nt_xent": nt_xent_loss(pairs, temperature=self.temperature)}

    def end_step(self, batch: Batch) -> None:
        """Forget the Python id of the batch, because a later batch may have the same id."""
        self.taken.discard(id(batch))

    def figures(self) -> dict[str, float]:
        """Compute the percentage of buffer images that a step scored again, on average (Contrast Scoring, Table 3)."""
        return {"rescored_percent": round(100 * self.rescored / max(self.memory.budget * self.memory.steps, 1), 4)}

    def select(self, batch: Batch) -> None:
        """Select the images of the next buffer from the current buffer and the incoming images."""
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
        """Compute contrast scores (n,) float32 in [0, 2] of images (n, H, W, 3) uint8."""
        images = self.model.normalise(torch.from_numpy(pixels))  # (n, 3, H, W)
        with evaluating(self.network):
            projections = self.network(torch.cat([images, images.flip(-1)])).projections  # (2n, 128)
        return contrast_scores(*projections.chunk(2)).cpu().numpy()

    def view(self) -> Tensor:
        """Return one augmented view of every image of the buffer, (N, 3, H, W)."""
        seed = int(torch.randint(2**31, (), generator=self.generator))
        pixels: Any = self.memory.images  # this memory stores pixels, not paths
        return self.augmented(pixels, seed=seed)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the base class, and the size of the buffer."""
        return super().state_dict() | {"buffer": self.memory.budget}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        self.memory = self.new_buffer(state["buffer"])
        super().load_state_dict(state)
