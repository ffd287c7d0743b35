"""Trained models by name: ``zoo:NAME`` wherever a checkpoint or starting weights are named.

An entry is a JSON card (:class:`Card`) ``NAME.json`` and a safetensors file ``NAME-HASH.safetensors``, or
``NAME.safetensors`` in entries of before, so that one rename, that of the card, replaces both. Those in
``lreid/weights`` come with the package and need no network. Three environment variables configure a custom zoo:

    LREID_ZOO_CARDS    folder of further cards; their weights lie beside them or are downloaded from their ``url``.
                       ``zoo:path/to/card.json`` names a single card in any folder
    LREID_ZOO_CACHE    folder for what is downloaded (default: that of the operating system for caches)
    LREID_ZOO_MIRROR   address asked first, http(s):// or file://; it holds the safetensors files

``lreid zoo publish`` makes entries. Checkpoints that others host (:class:`Published`) have names, too. Nothing here
knows networks; :func:`lreid.load_model` does.
"""

from lreid.zoo.card import PREFIX, Card, card_beside, cards, find, read_card
from lreid.zoo.hosted import Published, published
from lreid.zoo.state_dicts import read_safetensors, read_state_dict
from lreid.zoo.weights import read_entry, read_state, weights_file, write_entry

# The entries that are taken for images of people where none is named; the small one where they are no larger than its
# input.
PEOPLE, SMALL_PEOPLE = "zoo:people", "zoo:people-small"

__all__ = [
    "PEOPLE",
    "PREFIX",
    "SMALL_PEOPLE",
    "Card",
    "Published",
    "card_beside",
    "cards",
    "find",
    "published",
    "read_card",
    "read_entry",
    "read_safetensors",
    "read_state",
    "read_state_dict",
    "weights_file",
    "write_entry",
]
