"""Find trained models by name: ``zoo:NAME`` can replace any path of a checkpoint or of initial weights.

An entry is a JSON card (:class:`Card`) ``NAME.json`` and a safetensors file ``NAME-HASH.safetensors``. The card records
the hash of the weights, so writing the card replaces an entry in one step. The entries in ``lreid/weights`` are part of
the package and work without network access. Three environment variables set up a custom zoo:

    LREID_ZOO_CARDS    folder of more cards; the weights are next to a card or are downloaded from its ``url``.
                       ``zoo:path/to/card.json`` names a single card in any folder
    LREID_ZOO_CACHE    folder for downloaded files (default: the operating system's cache folder)
    LREID_ZOO_MIRROR   address, http(s):// or file://, from which lreid tries to download weights first

``lreid zoo publish`` creates entries. Third-party checkpoints (:class:`Published`) have names too. The package
``lreid.zoo`` handles only files; :func:`lreid.load_model` builds the networks.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
