"""PAD's prompts: tokens that every block sees, some for all images and some chosen for each image."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PromptPool(nn.Module):
    """General prompts of each block, and a pool of expert prompts that opens further slots for every task.

    An image takes the open slots whose keys have the largest cosine to the mean of its tokens. Slots of past tasks get
    no gradient.

    Source: PAD (CVPR 2026), official code. There keys are declared as trained, but the choice passes no gradient to
    them, so they stay as they were drawn; here they are not parameters. All values come from U(-0.02, 0.02).

    Args:
        blocks, width: number of blocks and length of their tokens.
        general: number of general prompts per block.
        length: number of prompts in a slot.
        slots: number of slots per block, for all tasks.
        chosen: number of slots that an image takes.
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
        """Freezes the open slots and opens further ones, as long as there are any."""
        self.frozen, self.open = self.open, min(self.open + slots, self.experts.shape[1])

    def forward(self, block: int, tokens: Tensor) -> Tensor:
        """Prompts (B, P, width) of a block for its tokens (B, N, width)."""
        queries = F.normalize(tokens.detach().mean(1), dim=1)  # (B, width)
        usable = self.open or self.chosen
        cosines = queries @ F.normalize(self.keys[block, :usable], dim=1).T.to(queries)  # (B, slots)
        places = cosines.topk(min(self.chosen, usable), dim=1).indices  # (B, chosen)
        own = self.experts[block]
        experts = torch.cat([own[: self.frozen].detach(), own[self.frozen :]])[places].flatten(1, 2)
        general = self.general[block].expand(tokens.shape[0], -1, -1)
        return torch.cat([general, experts], 1).to(tokens)

    def get_extra_state(self) -> Tensor:
        """The numbers of slots that are chosen for an image, open, and frozen."""
        return torch.tensor([self.chosen, self.open, self.frozen])

    def set_extra_state(self, state: Tensor) -> None:
        """Restores the numbers of :meth:`get_extra_state`."""
        self.chosen, self.open, self.frozen = state.tolist()
