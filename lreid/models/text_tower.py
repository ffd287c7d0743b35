"""CLIP's text tower (text encoder), for features of sentences in which some tokens are trained per identity."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lreid.utils.extras import Extra

LEARNED = 4  # trained tokens per identity
BEFORE = 5  # tokens before the trained ones: the start token and "A photo of a"
TEMPLATE = "A photo of a X X X X {}."


class TextTower(nn.Module):
    """The frozen text tower of an open_clip model, for the sentence ``A photo of a [learned tokens] person``.

    Source: CLIP-ReID (AAAI 2023); PAD (CVPR 2026) uses the same text tower.

    Args:
        clip: a ``CLIP`` model of open_clip.
        noun: noun for the content of the images, such as ``person`` or ``vehicle``.
    """

    template: Tensor  # (tokens,), integers

    def __init__(self, clip: Any, noun: str = "person") -> None:
        super().__init__()
        self.embedding, self.transformer, self.norm = clip.token_embedding, clip.transformer, clip.ln_final
        self.positions, self.projection = clip.positional_embedding, clip.text_projection
        self.register_buffer("mask", clip.attn_mask, persistent=False)
        tokenize = Extra("open_clip", "clip").tokenize
        tokens = tokenize([TEMPLATE.format(noun)], context_length=clip.context_length)[0]
        self.register_buffer("template", tokens, persistent=False)
        self.requires_grad_(False).eval()

    @property
    def width(self) -> int:
        """Length of a token."""
        return self.embedding.weight.shape[1]

    def train(self, mode: bool = True) -> TextTower:
        """Ignore ``mode``: the text tower always stays in evaluation mode."""
        return super().train(False)

    def forward(self, learned: Tensor) -> Tensor:
        """Compute features (n, dim) of sentences with trained tokens (n, LEARNED, width)."""
        fixed = self.embedding(self.template).expand(len(learned), -1, -1)
        tokens = torch.cat([fixed[:, :BEFORE], learned, fixed[:, BEFORE + LEARNED :]], 1) + self.positions
        outputs = self.norm(self.transformer(tokens, attn_mask=self.mask))  # (n, tokens, width)
        # argmax finds the end token, which has the largest number.
        return outputs[:, self.template.argmax()] @ self.projection
