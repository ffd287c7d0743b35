"""Prompts: trained vectors in every block, to which all tokens of the block attend."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lreid.errors import ArgumentError
from lreid.models.adapters import Place


class PromptedAttention(nn.Module):
    """Attention among tokens plus ``tanh(g)`` times attention to learned prompts; a head's gate ``g`` starts at 0.

    Attention to prompts has a softmax of its own, so prompts do not change attention among tokens.

    Source: zero-initialised attention of LLaMA-Adapter (Zhang et al., ICLR 2024).

    Args:
        attn: attention module of timm with one joint projection ``qkv`` for queries, keys and values.
        count: number of prompts, whose initial values are drawn from N(0, 0.02²).
    """

    def __init__(self, attn: Any, count: int) -> None:
        super().__init__()
        self.attn = attn
        self.prompts = nn.Parameter(0.02 * torch.randn(count, attn.qkv.in_features))
        self.gates = nn.Parameter(torch.zeros(attn.num_heads, 1, 1))

    def forward(self, tokens: Tensor, *args: Any, **options: Any) -> Tensor:
        """Compute outputs (B, N, C) from tokens (B, N, C)."""
        attn, heads = self.attn, self.attn.num_heads
        width = attn.qkv.out_features // 3
        weights = attn.qkv.weight.split((width, 2 * width))
        biases = (None, None) if attn.qkv.bias is None else attn.qkv.bias.split((width, 2 * width))
        queries = F.linear(tokens, weights[0], biases[0]).unflatten(-1, (heads, -1)).transpose(1, 2)  # (B, h, N, d)
        keys, values = F.linear(self.prompts, weights[1], biases[1]).unflatten(-1, (2, heads, -1)).permute(1, 2, 0, 3)
        norms = [getattr(attn, name, nn.Identity()) for name in ("q_norm", "k_norm")]
        shape = (tokens.shape[0], *keys.shape)  # (B, h, prompts, d)
        seen = F.scaled_dot_product_attention(
            norms[0](queries), norms[1](keys).expand(shape), values.expand(shape)
        )  # (B, h, N, d)
        added = F.linear((self.gates.tanh() * seen).transpose(1, 2).flatten(2), attn.proj.weight)
        return self.attn(tokens, *args, **options) + added


def insert(network: nn.Module, places: list[Place], count: int) -> None:
    """Add prompts to the attention of every block; each block has its own prompts.

    Raises:
        ArgumentError: an attention module has no joint projection of queries, keys and values.
    """
    for place in places:
        name = f"{place.name}.attn"
        attention: Any = network.get_submodule(name)
        if f"{name}.qkv" not in place.linears or attention.qkv.out_features != 3 * attention.proj.in_features:
            raise ArgumentError("adapter", f"is prompts, but {name} has no joint qkv layer; use lora or bottleneck")
        network.set_submodule(name, PromptedAttention(attention, count))
