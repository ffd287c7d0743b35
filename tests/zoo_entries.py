"""Zoo entries of arbitrary bytes or of tiny networks with random weights."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import safetensors.torch
import yaml
from example_files import write_checkpoint

from lreid.checkpoint import load_checkpoint
from lreid.config import leaves
from lreid.zoo import Card, find


def card_of(file: Path, content: bytes, **changes: Any) -> Card:
    """A card for these bytes as weights; the other values are those of a model of the zoo."""
    keys = {"file": file, "name": file.stem, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    return dataclasses.replace(find("dwopp-synthetic-10"), **keys | changes)


def write_card(file: Path, content: bytes, **changes: Any) -> Card:
    """Write the card of :func:`card_of`."""
    card = card_of(file, content, **changes)
    card.write()
    return card


def write_entry(folder: Path, name: str = "mine", seed: int = 0, **changes: Any) -> Card:
    """Card and weights of the tiny network of :func:`checkpoints.write_checkpoint`."""
    checkpoint = load_checkpoint(write_checkpoint(folder / f"{name}.pt", seed))
    (folder / f"{name}.pt").unlink()
    content = safetensors.torch.save(checkpoint["model"])
    config = dict(leaves(yaml.safe_load(checkpoint["config"])))
    card = write_card(folder / f"{name}.json", content, config=config, **changes)
    card.weights.write_bytes(content)
    return card
