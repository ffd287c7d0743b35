"""Prompts of PAD, additional tokens in every block: general prompts for all images, expert prompts for some."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PromptPool(nn.Module):
    """General prompts and a pool of expert prompts for each block; every task opens more slots of the pool.

    A slot consists of several expert prompts and a key. An image uses the open slots whose keys are most similar (by
    cosine) to the mean of the image's tokens. Slots that earlier tasks opened get no gradient.

    Source: PAD (CVPR 2026), official code. The keys are parameters in PAD's official code and buffers in lreid.
    Choosing slots passes no gradient to the keys, so keys never change in either case. All initial values are uniform
    in (-0.02, 0.02).

    Args:
        width: length of a token.
        general: number of general prompts per block.
        length: number of prompts per slot.
        slots: number of slots per block, for all tasks together.
        chosen: number of slots that an image uses.
    """

    keys: Tensor  # (blocks, slots, width)

    def __init__(
        self, blocks: int, width: int, *, general: int = 6, length: int = 6, slots: int = 36, chosen: int = 4
    ) -> None:
        super().__init__()
        self.general = nn.Parameter(torch.empty(blocks, general, width).uniform_(-0.02, 0.02))
        self.experts = nn.Parameter(torch.empty(blocks, slots, length, width).uniform_(-0.02, 0.02))
        self.register_buffer("keys", torch.empty(blocks, slots, width).uniform_(-0.02, 0.02))
        self.chosen, self.open, self.frozen = chosen, 0, 0

    def begin_task(self, slots: int) -> None:
        """Freeze all open slots, and open up to ``slots`` of the closed slots."""
        self.frozen, self.open = self.open, min(self.open + slots, self.experts.shape[1])

    def forward(self, block: int, tokens: Tensor) -> Tensor:
        """Return the prompts (B, P, width) of a block for the tokens (B, N, width) of its images."""
        queries = F.normalize(tokens.detach().mean(1), dim=1)  # (B, width)
        usable = self.open or self.chosen
        cosines = queries @ F.normalize(self.keys[block, :usable], dim=1).T.to(queries)  # (B, slots)
        places = cosines.topk(min(self.chosen, usable), dim=1).indices  # (B, chosen)
        own = self.experts[block]
        experts = torch.cat([own[: self.frozen].detach(), own[self.frozen :]])[places].flatten(1, 2)
        general = self.general[block].expand(tokens.shape[0], -1, -1)
        return torch.cat([general, experts], 1).to(tokens)

    def get_extra_state(self) -> Tensor:
        """Return three numbers: slots chosen per image, open slots, and frozen slots."""
        return torch.tensor([self.chosen, self.open, self.frozen])

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the three numbers that :meth:`get_extra_state` returned."""
        self.chosen, self.open, self.frozen = state.tolist()
