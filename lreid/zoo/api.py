"""Public names of :mod:`lreid.zoo` that are imported when they are first used."""

from lreid.zoo.card import Card, card_beside, cards, find, read_card
from lreid.zoo.hosted import Published, published
from lreid.zoo.state_dicts import read_safetensors, read_state_dict
from lreid.zoo.weights import read_entry, read_state, weights_file, write_entry

__all__ = [
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
