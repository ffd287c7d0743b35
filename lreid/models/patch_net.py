"""PatchKD's patch sampler, which chooses positions of a feature map as patches."""

import torch
from torch import Tensor, nn

from lreid.utils.devices import to_device


class PatchNet(nn.Module):
    """Choose one position of a feature map for each of k patches; the gradient is that of a softmax.

    Two 1 x 1 convolutions, with BatchNorm and ReLU between them, compute a score for each position. In training, a
    straight-through Gumbel softmax draws the position of a patch by the scores. In evaluation mode, a patch is at the
    position with the highest score.

    Source: PatchKD (ACM MM 2022), official code.

    Args:
        dim: number of channels of the map; the hidden layer has ``2 * dim`` channels.
        patches: number k of patches.
    """

    def __init__(self, dim: int, patches: int = 3) -> None:
        super().__init__()
        self.scores = nn.Sequential(
            nn.Conv2d(dim, 2 * dim, 1, bias=False), nn.BatchNorm2d(2 * dim), nn.ReLU(inplace=True),
            nn.Conv2d(2 * dim, patches, 1),
        )  # fmt: skip

    def forward(self, maps: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return weights (n, k, h, w) for maps (n, dim, h, w): 1 at the chosen position and 0 elsewhere."""
        scores = self.scores(maps).flatten(2)  # (n, k, h * w)
        soft = scores
        if self.training:
            uniform = torch.rand(scores.shape, generator=generator)
            uniform = to_device(uniform, scores.device).to(scores.dtype).clamp(min=1e-20, max=1 - 1e-7)
            soft = scores - (-uniform.log()).log()
        soft = soft.softmax(2)
        hard = torch.zeros_like(soft).scatter(2, soft.argmax(2, keepdim=True), 1.0)
        return (hard + soft - soft.detach()).unflatten(2, maps.shape[2:])
