"""Find, verify, read and write the weights file of an entry."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pooch

from lreid.errors import InputError, NotConfirmed
from lreid.utils.files import make_folder, only_one_process, remove_leftovers, write_atomically
from lreid.utils.reading import read_json, require_regular
from lreid.zoo.card import Card, read_card
from lreid.zoo.download import Download
from lreid.zoo.hosted import Published, published_file

if TYPE_CHECKING:  # a download starts without torch
    from torch import Tensor

logger = logging.getLogger("lreid")


def weights_name(card: Card) -> str:
    """Return the name of the weights file, which is different for every version of an entry."""
    return f"{card.name}-{card.sha256[:12]}.safetensors"


def write_entry(card: Card, content: bytes) -> None:
    """Write an entry; writing the card replaces an existing entry in one step.

    After writing the card, lreid deletes the weights of the previous card. lreid keeps all other files, even those of a
    killed publication, because file names do not prove who wrote them.

    Args:
        card: card of the model; missing folders are created.
        content: content of the weights file; the card records its hash.

    Raises:
        InputError: the entry cannot be written, or a file with the name of its card or weights belongs to no entry.
            After such an error, the old entry is unchanged.
    """
    folder, weights = card.file.parent, card.file.with_name(weights_name(card))
    try:
        make_folder(folder)
        with only_one_process(folder):
            before = weights_in_place(card.file)
            if weights.exists() and weights.name not in before and pooch.file_hash(str(weights)) != card.sha256:
                raise InputError(f"{weights}: belongs to no card, so it is not replaced; move it away")
            old = [folder / name for name, sha256 in before.items() if _is_own(folder / name, sha256, card)]
            remove_leftovers(folder)
            try:
                write_atomically(weights, lambda file: file.write(content))
            except NotConfirmed:  # the weights may not be on disk, so the card is not written
                raise InputError(
                    f"{card.file}: not written, because the disk did not confirm the weights; check the disk"
                ) from None
            card.write()
            for path in old:
                try:
                    path.unlink()
                except OSError as error:
                    logger.warning("%s: cannot be deleted (%s); no card uses it any more", path, error.strerror)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written to ({error.strerror}); choose another folder") from None


def weights_in_place(file: Path) -> dict[str, str]:
    """Return possible names of a card's weights and the SHA-256 that the card records; empty if there is no card.

    Raises:
        InputError: the file is not a card of any version of lreid, so it must not be replaced.
    """
    try:
        keys = read_json(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        keys = {}
    keys = keys if isinstance(keys, dict) else {}
    sha256 = str(keys.get("sha256"))
    if not re.fullmatch("[0-9a-f]{64}", sha256) or keys.get("name") != file.stem:
        raise InputError(f"{file}: is not a card of lreid, so it is not replaced; choose a different name or --out")
    return {f"{file.stem}-{sha256[:12]}.safetensors": sha256, f"{file.stem}.safetensors": sha256}


def _is_own(path: Path, sha256: str, new: Card) -> bool:
    """Check whether a file contains the weights of the old card (``sha256``) and belongs to no other card."""
    if path.name == weights_name(new) or not path.is_file():
        return False
    of_another = path.stem != new.name and path.with_suffix(".json").exists()
    return not of_another and pooch.file_hash(str(path)) == sha256


def read_entry(card: Card) -> tuple[Card, dict[str, Tensor]]:
    """Read card and tensors of an entry onto the CPU; if it is replaced meanwhile, both come from the new entry.

    Raises:
        InputError: :func:`weights_file` or :func:`lreid.zoo.state_dicts.read_safetensors` raises an error.
    """
    from lreid.zoo.state_dicts import read_safetensors

    try:
        return card, read_safetensors(weights_file(card))
    except InputError:
        newer = read_card(card.file)
        if newer == card:
            raise
        return read_entry(newer)


def read_state(entry: Card | Published) -> dict[str, Tensor]:
    """Read the tensors of an entry onto the CPU, under the names that the training program gave them.

    Raises:
        InputError: :func:`weights_file` raises an error, or the file is damaged.
    """
    from lreid.zoo.state_dicts import read_state_dict

    return read_state_dict(weights_file(entry)) if isinstance(entry, Published) else read_entry(entry)[1]


def weights_file(entry: Card | Published, *, download: Download = Download()) -> Path:  # noqa: B008 (frozen)
    """Return the verified weights file of an entry, after downloading it if needed.

    Raises:
        InputError: the file is damaged or missing, or cannot be downloaded.
    """
    if isinstance(entry, Published):
        return published_file(entry, cache_folder(), download=download)
    card = entry
    local = card.file.with_name(weights_name(card))
    if not local.exists():  # in entries of earlier versions, the file name contains no hash
        local = card.file.with_suffix(".safetensors")
    require_regular(local)
    try:
        if pooch.file_hash(str(local)) == card.sha256:
            return local
        raise InputError(f"{local}: is damaged or not the file of its card (its SHA-256 differs); download both again")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise InputError(f"{local}: cannot be read ({error.strerror})") from None
    if not card.url:
        raise InputError(
            f"{local}: no such file; put the weights next to their card, named like this or {weights_name(card)}"
        )
    # The name contains the hash, so models of the same name from two zoos have different files.
    file = cache_folder() / weights_name(card)
    addresses = [card.url, *card.mirrors]
    if mirror := os.environ.get("LREID_ZOO_MIRROR"):
        names = (weights_name(card), f"{card.name}.safetensors")
        addresses = [f"{mirror.rstrip('/')}/{name}" for name in names] + addresses
    download(addresses, file, sha256=card.sha256, size=card.bytes)
    return file


def cache_folder() -> Path:
    """Return the folder of downloaded weights."""
    return Path(os.environ.get("LREID_ZOO_CACHE") or pooch.os_cache("lreid"))
