"""Trained models by name: ``zoo:NAME`` wherever a checkpoint or starting weights are named.

An entry is a JSON card (:class:`Card`) ``NAME.json`` and a safetensors file ``NAME-HASH.safetensors``, or
``NAME.safetensors`` in entries of before, so that one rename, that of the card, replaces both. Those in
``lreid/weights`` come with the package and need no network. Three environment variables configure a custom zoo:

    LREID_ZOO_CARDS    folder of further cards; their weights are next to them or are downloaded from their ``url``.
                       ``zoo:path/to/card.json`` names a single card in any folder
    LREID_ZOO_CACHE    folder for what is downloaded (default: that of the operating system for caches)
    LREID_ZOO_MIRROR   address asked first, http(s):// or file://; it holds the safetensors files

``lreid zoo publish`` makes entries. Checkpoints that others host (:class:`Published`) have names, too. Nothing here
knows networks; :func:`lreid.load_model` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lreid.lazy import public_names

if TYPE_CHECKING:
    from lreid.zoo.api import *  # noqa: F403

PREFIX = "zoo:"  # before the name of an entry
# The entries that are taken for images of people where none is named; the small one where they are no larger than its
# input.
PEOPLE, SMALL_PEOPLE = "zoo:people", "zoo:people-small"
VEHICLES, SMALL_VEHICLES = "zoo:vehicles", "zoo:vehicles-small"

__getattr__, __dir__ = public_names(__name__)
