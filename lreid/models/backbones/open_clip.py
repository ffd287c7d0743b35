"""CLIP models of open_clip, such as ``open_clip:ViT-B-16-quickgelu.openai``; some methods use the text tower too."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lreid.errors import ArgumentError, nearest_name, raise_if_out_of_memory, short_reason
from lreid.models.adapters.pool import PromptPool
from lreid.models.backbones import not_downloaded
from lreid.utils.extras import Extra

# Number of the block, from 0, whose class token CLIP-ReID uses as well; smaller networks use their last block.
PENULTIMATE = 10


class Unregistered:
    """Hold a module so that state dicts and copies of the model leave it out."""

    def __init__(self, module: nn.Module | None) -> None:
        self.module = module

    def __deepcopy__(self, memo: dict[int, Any]) -> Unregistered:
        return Unregistered(None)


class ClipFeatures(nn.Module):
    """CLIP's vision transformer; a feature is the class token after the last norm, then the projected class token.

    Source: CLIP-ReID (AAAI 2023) and PAD (CVPR 2026), which use the same features for testing.

    Args:
        clip: a ``CLIP`` model of open_clip with a vision transformer.

    Attributes:
        width, projected: lengths of the class token and of its projection.
        dim: length of a feature, ``width + projected``.
        lengths: lengths of an output, without and with the class token of block ``PENULTIMATE``.
        all_levels: whether outputs in evaluation mode begin with the class token of block ``PENULTIMATE``. Outputs in
            training mode always begin with the class token of block ``PENULTIMATE``.
        prompts: prompts of PAD; None for other methods.
        clip: the whole CLIP model, for methods that use CLIP's text tower.
    """

    prompts: PromptPool | None

    def __init__(self, clip: Any) -> None:
        super().__init__()
        self.visual = clip.visual
        self.width, self.projected = self.visual.proj.shape
        self.dim = self.width + self.projected
        self.lengths = (self.dim, self.width + self.dim)
        self.all_levels = False
        self.prompts = None
        self.clip = Unregistered(clip)

    def put_prompts(self, **options: int) -> PromptPool:
        """Add PAD's prompts to every block, with the options of :class:`~lreid.models.adapters.pool.PromptPool`."""
        blocks = len(self.visual.transformer.resblocks)
        self.prompts = PromptPool(blocks, self.width, **options).to(self.visual.proj.device)
        return self.prompts

    def forward(self, images: Tensor) -> Tensor:
        """Compute features (B, dim) of images (B, 3, H, W); (B, width + dim) in training or with ``all_levels``."""
        visual = self.visual
        patches = visual.conv1(images).flatten(2).transpose(1, 2)  # (B, N, width)
        first = visual.class_embedding.expand(patches.shape[0], 1, -1)
        tokens = visual.ln_pre(torch.cat([first, patches], 1) + visual.positional_embedding)  # (B, 1 + N, width)
        blocks = visual.transformer.resblocks
        for number, block in enumerate(blocks):
            if self.prompts is None:
                tokens = block(tokens)
            else:
                prompts = self.prompts(number, tokens)  # (B, P, width)
                tokens = block(torch.cat([tokens[:, :1], prompts, tokens[:, 1:]], 1))
                tokens = torch.cat([tokens[:, :1], tokens[:, 1 + prompts.shape[1] :]], 1)
            if number == min(PENULTIMATE, len(blocks) - 1):
                penultimate = tokens[:, 0]
        last = visual.ln_post(tokens[:, 0])
        levels = [penultimate] if self.training or self.all_levels else []
        return torch.cat([*levels, last, last @ visual.proj], 1)

    def adapted(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Resample a state dict's position embeddings to the image size, and load the state dict into both towers.

        The resampling is bilinear, as in the official code of CLIP-ReID and PAD; open_clip's default is bicubic.
        """
        if self.clip.module is not None and "text_projection" in state:
            state = dict(state)
            resize = Extra("open_clip.model", "clip").resize_pos_embed
            resize(state, self.clip.module, interpolation="bilinear", antialias=False)
            self.clip.module.load_state_dict(state, strict=False)
        return state


def build(name: str, *, hub: bool, size: tuple[int, int]) -> nn.Module:
    """Build a CLIP model by its name in open_clip, with random or published weights.

    Args:
        name: name of the model, a dot, and a tag that names published weights, such as ``ViT-B-16-quickgelu.openai``.
        hub: whether to download the weights of the tag.
        size: height and width of the images, to which the position embeddings are resampled.

    Raises:
        ArgumentError: open_clip does not have this model or tag; the model has no vision transformer or does not
            support this image size; or the weights cannot be downloaded.
        InputError: open_clip is not installed.
    """
    open_clip: Any = Extra("open_clip", "clip").load()
    kind, _, tag = name.partition(".")
    if kind not in (models := open_clip.list_models()):
        nearest = nearest_name(kind, models)
        raise ArgumentError(
            "backbone", f"open_clip:{kind} is no model of open_clip; the nearest is open_clip:{nearest}"
        )
    tags = open_clip.list_pretrained_tags_by_model(kind)
    if hub and tag not in tags:
        raise ArgumentError("weights", f"is hub, but open_clip:{name} names none of the tags {', '.join(tags)}")
    try:
        clip = open_clip.create_model(kind, force_image_size=size)
        published = open_clip.create_model(kind, tag).state_dict() if hub else {}  # with all position embeddings
    except Exception as error:  # a download or an invalid size may raise anything
        raise_if_out_of_memory(error, f"open_clip:{name}")
        if hub:
            raise not_downloaded("hub", error, f"the weights {tag}") from None
        raise ArgumentError(
            "backbone", f"open_clip:{name} cannot be built ({short_reason(error)}); use another model"
        ) from None
    if not hasattr(clip, "text_projection") or not hasattr(clip.visual, "class_embedding"):
        raise ArgumentError("backbone", f"open_clip:{kind} is not a CLIP model with a vision transformer; use ViT-B-16")
    features = ClipFeatures(clip)
    features.adapted(published)
    return features


BACKBONES = {"open_clip:": build}
