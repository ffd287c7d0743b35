"""Read and write cards; a card is a JSON file next to the weights, with facts about a trained model."""

import json
import os
import re
import typing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lreid.errors import InputError, nearest_name
from lreid.utils.files import list_folder, write_text
from lreid.utils.reading import NUMBER, misfit, raise_if_unreadable, read_json
from lreid.zoo.hosted import Published, published
from lreid.zoo.names import PREFIX

BUNDLED = Path(__file__).parents[1] / "weights"
RESTRICTED = BUNDLED / "research"  # for research only: the wheel contains their cards, and the repository the weights
FIGURES: dict[Any, Any] = dict.fromkeys(("mAP", "rank1", "rank5", "rank10"), NUMBER)
FIGURES |= {"kind": str, "queries": int, "images": int, str: NUMBER}  # str: the other metrics
# Types of values in the card's lists and mappings.
FORM = {"mean": [NUMBER], "std": [NUMBER], "mirrors": [str], "config": {}, "figures": {str: FIGURES}}
VERIFICATION: dict[str, Any] = dict.fromkeys(("threshold", "false_accept_rate", "true_positive_rate"), NUMBER)
VERIFICATION |= {"impostor_pairs": int, "galleries": [str]}
NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


@dataclass(frozen=True)
class Card:
    """One model of the zoo.

    Attributes:
        file: file of the card; all other attributes are keys in this file.
        name: name of the entry, as in ``zoo:NAME``, and of its files.
        title: description in one line.
        start_only: whether the model is only for initial weights (``MODEL.WEIGHTS zoo:NAME``) and not for search.
        method, benchmark, seed: method, benchmark and seed of the run.
        task, tasks: the last task that was trained (from 1), and the number of tasks.
        backbone, height, width, mean, std, neck, dim: settings of the network, as in :class:`lreid.models.Embedder`,
            and the length of its features.
        parameters: number of parameters.
        figures: for each gallery: its ``kind`` (seen, unseen), its numbers of ``queries`` and ``images``, and ``mAP``,
            ``rank1``, ``rank5``, ``rank10`` and other metrics in per cent, all measured with the stored weights.
        metric, ap, camera_filter, flip: protocol of the ``figures``, see ``EVAL`` in :mod:`lreid.config`.
        protocol: fingerprint of the benchmark's images and their order.
        images_trained: number of training images seen, including repetitions.
        trained_on: source of the training images.
        command: command of the run.
        config: every key of the run's config, by its full name.
        version: version of lreid in the run.
        licence: licence of the weights.
        sha256, bytes: SHA-256 and size of the weights file.
        url, mirrors: addresses of the weights; empty if they are next to the card.
        verification: threshold that decides whether two images show the same identity, measured on images of its
            ``galleries``. The ``threshold`` is a cosine similarity; ``false_accept_rate`` is the share of the
            ``impostor_pairs`` that reach it, and ``true_positive_rate`` the share of the genuine pairs. The entry is
            empty if the model was tested on no gallery.
        limits: limits of the model, and uses that are not advised; may be empty.
        imagenet: whether the training is known to start from ImageNet weights, directly or through another model.
    """

    file: Path
    name: str
    title: str
    start_only: bool
    method: str
    benchmark: str
    seed: int
    task: int
    tasks: int
    backbone: str
    height: int
    width: int
    mean: list[float]
    std: list[float]
    neck: bool
    dim: int
    parameters: int
    figures: dict[str, dict[str, Any]]
    metric: str
    ap: str
    camera_filter: bool
    flip: bool
    protocol: str
    images_trained: int
    trained_on: str
    command: str
    config: dict[str, Any]
    version: str
    licence: str
    sha256: str
    bytes: int
    url: str
    mirrors: list[str]
    verification: dict[str, Any]
    limits: str
    imagenet: bool

    @property
    def norm(self) -> str:
        """Config value ``MODEL.NORM`` of the network."""
        return str(self.config.get("MODEL.NORM", "batch"))

    @property
    def weights(self) -> Path:
        """Path of the weights if they are next to the card."""
        return self.file.with_name(weights_name(self.name, self.sha256))

    def write(self) -> None:
        """Write the card to its file."""
        keys = asdict(self)
        del keys["file"]
        lines = [f" {json.dumps(key)}: {_value(value)}" for key, value in keys.items()]
        write_text(self.file, "{\n" + ",\n".join(lines) + "\n}\n")


def _value(value: Any) -> str:
    """Format JSON with a line per key of a dictionary, and with each list on one line."""
    if not isinstance(value, dict):
        return json.dumps(value)
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {json.dumps(each)}" for key, each in value.items()) + "\n }"


def weights_name(name: str, sha256: str) -> str:
    """Return the name of a weights file, which is different for every version of an entry."""
    return f"{name}-{sha256[:12]}.safetensors"


def read_card(file: Path) -> Card:
    """Read a card.

    Raises:
        InputError: the file is missing or is not a card.
    """
    try:
        keys = read_json(file)
    except (OSError, ValueError) as error:
        raise_if_unreadable(error, file, "card", "weights need a card next to them, which lreid zoo publish writes")
        raise InputError(f"{file}: cannot be read as a card ({error}); download it again") from None
    if fault := misfit(keys, _form()) or (keys["verification"] and misfit(keys["verification"], VERIFICATION)):
        raise InputError(
            f"{file}: not a card of this version of lreid ({fault}); update lreid, download the card again, or publish "
            "the model again"
        )
    if keys["name"] != file.stem or not NAME.fullmatch(file.stem):
        raise InputError(f"{file}: is the card of {keys['name']!r}; name the file like the card, in a-z, 0-9, - and _")
    if not re.fullmatch("[0-9a-f]{64}", keys["sha256"]):
        raise InputError(f"{file}: sha256 must be 64 hexadecimal digits, got {keys['sha256']!r}")
    return Card(file=file, **keys)


def _form() -> dict[Any, Any]:
    """Return the types of all keys in the file of a card, which may have no other keys."""
    hints = typing.get_type_hints(Card)
    del hints["file"]
    return {key: typing.get_origin(hint) or hint for key, hint in hints.items()} | FORM | {str: None}


def card_beside(weights: Path) -> Card:
    """Read the card next to a weights file ``NAME-HASH.safetensors``.

    Raises:
        InputError: the card is missing, is not a card, or belongs to other weights.
    """
    card = read_card(weights.with_name(re.sub("(-[0-9a-f]{12})?$", ".json", weights.stem, count=1)))
    if weights.name != card.weights.name:
        raise InputError(f"{weights}: is not the file of its card, which names {card.weights.name}")
    return card


def cards() -> list[Card]:
    """Read lreid's cards and the cards in ``LREID_ZOO_CARDS``, which replace lreid's cards of the same name.

    Raises:
        InputError: the folder in ``LREID_ZOO_CARDS`` is missing or cannot be listed, or a file in it is not a card.
    """
    folders = [BUNDLED, RESTRICTED]
    if own := os.environ.get("LREID_ZOO_CARDS"):
        if not Path(own).is_dir():
            raise InputError(f"LREID_ZOO_CARDS {own}: no such folder; set it to a folder of cards, or unset it")
        folders.append(Path(own))
    files = {file.stem: file for folder in folders for file in list_folder(folder, "*.json")}
    return [read_card(files[name]) for name in sorted(files)]


def find(name: str) -> Card | Published:
    """Find a card by name or path ``….json``, or a third-party checkpoint by name; each with or without ``zoo:``.

    Raises:
        InputError: no model has this name; the message gives the most similar name.
    """
    name = name.removeprefix(PREFIX)
    if name.endswith(".json"):
        return read_card(Path(name))
    entries: dict[str, Card | Published] = published() | {card.name: card for card in cards()}
    if name not in entries:
        raise InputError(
            f"{PREFIX}{name}: no model of the zoo has this name; the nearest name is {nearest_name(name, entries)}; "
            "lreid zoo list shows all"
        )
    return entries[name]
