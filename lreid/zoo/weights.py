"""Find, verify, read and write the weights file of an entry."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pooch

from lreid.errors import InputError, NotConfirmed
from lreid.utils.files import make_folder, only_one_process, remove_leftovers, write_atomically
from lreid.utils.reading import read_json
from lreid.zoo.card import RESTRICTED, Card, read_card, weights_name
from lreid.zoo.download import download
from lreid.zoo.hosted import Published, published_file

if TYPE_CHECKING:  # a download starts without torch
    from torch import Tensor

logger = logging.getLogger("lreid")


def write_entry(card: Card, content: bytes) -> None:
    """Write an entry; writing the card replaces an existing entry in one step.

    After writing the card, lreid deletes the weights of the previous card. lreid keeps all other files, even those of a
    killed publication, because file names do not prove who wrote them.

    Args:
        card: card of the model; missing folders are created.
        content: content of the weights file; the card records its hash.

    Raises:
        InputError: the entry cannot be written, or a file with the name of its card is not a card. After such an error,
            the old entry is unchanged.
    """
    folder = card.file.parent
    try:
        make_folder(folder)
        with only_one_process(folder):
            before = weights_in_place(card.file)
            remove_leftovers(folder)
            try:
                write_atomically(card.weights, lambda file: file.write(content))
            except NotConfirmed:  # the weights may not be on disk, so the card is not written
                raise InputError(f"{card.file}: not written: the disk did not confirm the weights; check it") from None
            card.write()
            if before not in (None, card.weights):
                _delete(before)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written to ({error.strerror}); choose another folder") from None


def _delete(weights: Path) -> None:
    try:
        weights.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("%s: cannot be deleted (%s); no card uses it any more", weights, error.strerror)


def weights_in_place(file: Path) -> Path | None:
    """Return the path of the weights that a card of any version of lreid records; None if there is no card.

    Raises:
        InputError: the file is not a card of lreid, so it must not be replaced.
    """
    try:
        keys = read_json(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        keys = {}
    keys = keys if isinstance(keys, dict) else {}
    sha256 = str(keys.get("sha256"))
    if not re.fullmatch("[0-9a-f]{64}", sha256) or keys.get("name") != file.stem:
        raise InputError(f"{file}: is not a card of lreid, so it is not replaced; choose a different name or --out")
    return file.with_name(weights_name(file.stem, sha256))


def read_entry(card: Card) -> tuple[Card, dict[str, Tensor]]:
    """Read card and tensors of an entry onto the CPU; if it is replaced meanwhile, both come from the new entry.

    Raises:
        InputError: :func:`weights_file` or :func:`lreid.models.state_dicts.read_safetensors` raises an error.
    """
    from lreid.models.state_dicts import read_safetensors

    try:
        return card, read_safetensors(weights_file(card))
    except InputError:
        newer = read_card(card.file)
        if newer == card:
            raise
        return read_entry(newer)


def weights_file(entry: Card | Published) -> Path:
    """Return the verified weights file of an entry, after downloading it if needed.

    Raises:
        InputError: the file is damaged or missing, or cannot be downloaded.
    """
    if isinstance(entry, Published):
        return published_file(entry)
    local = entry.weights
    try:
        if pooch.file_hash(str(local)) == entry.sha256:
            return local
        raise InputError(f"{local}: is damaged or not the file of its card (its SHA-256 differs); download both again")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise InputError(f"{local}: cannot be read ({error.strerror})") from None
    if local.parent == RESTRICTED:
        raise InputError(
            f"{local}: no such file; wheels contain no weights for research only, so copy it from lreid's repository, "
            f"lreid/weights/{RESTRICTED.name}"
        )
    if not entry.url:
        raise InputError(f"{local}: no such file; put the weights next to their card under this name")
    # The name contains the hash, so models of the same name from two zoos have different files.
    return download(local.name, [entry.url, *entry.mirrors], sha256=entry.sha256)
