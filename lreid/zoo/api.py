"""Public names of :mod:`lreid.zoo` that are imported when they are first used."""

from lreid.zoo.card import Card, card_beside, cards, find, read_card
from lreid.zoo.hosted import Published, published
from lreid.zoo.names import PEOPLE, PREFIX, SMALL_PEOPLE, SMALL_VEHICLES, VEHICLES, is_entry
from lreid.zoo.weights import read_entry, weights_file, write_entry

__all__ = [
    "PEOPLE",
    "PREFIX",
    "SMALL_PEOPLE",
    "SMALL_VEHICLES",
    "VEHICLES",
    "Card",
    "Published",
    "card_beside",
    "cards",
    "find",
    "is_entry",
    "published",
    "read_card",
    "read_entry",
    "weights_file",
    "write_entry",
]
