"""The file with the weights of an entry: where it is, whether it is whole, and what is in it."""

from __future__ import annotations

import os
from pathlib import Path

import pooch
import safetensors.torch
from torch import Tensor

from lreid.errors import InputError
from lreid.zoo.cards import Card
from lreid.zoo.download import Download


def weights_file(card: Card, *, download: Download = Download()) -> Path:  # noqa: B008 (frozen)
    """The checked file with a model's weights, which is downloaded where it is not here yet.

    Args:
        card: of the model.
        download: how patient to be with the network.

    Raises:
        InputError: it is damaged, nowhere to be found, or cannot be downloaded.
    """
    beside = card.file.with_suffix(".safetensors")
    if beside.exists():
        if pooch.file_hash(str(beside)) != card.sha256:
            raise InputError(f"{beside}: is damaged or not the file of its card (another SHA-256); fetch both again")
        return beside
    if not card.url:
        raise InputError(f"{beside}: no such file; the weights must lie beside their card")
    # By its hash, so that another model of this name in another zoo has a file of its own.
    file = cache_folder() / f"{card.name}-{card.sha256[:12]}.safetensors"
    addresses = [card.url, *card.mirrors]
    if mirror := os.environ.get("LREID_ZOO_MIRROR"):
        addresses.insert(0, f"{mirror.rstrip('/')}/{card.name}.safetensors")
    download(addresses, file, sha256=card.sha256, size=card.bytes)
    return file


def cache_folder() -> Path:
    """Where downloaded weights are kept."""
    return Path(os.environ.get("LREID_ZOO_CACHE") or pooch.os_cache("lreid"))


def read_safetensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU.

    Raises:
        InputError: it is missing or damaged.
    """
    try:
        return safetensors.torch.load_file(file)
    except FileNotFoundError:
        raise InputError(f"{file}: no such file") from None
    except Exception as error:  # its header is trusted where it names types and sizes
        raise InputError(f"{file}: cannot be loaded as safetensors ({error}); fetch it again") from None
