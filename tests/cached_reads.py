"""Work that all runs of one process share, and that takes longer than the rest of a tiny run."""

import copy
import functools
from dataclasses import replace

import pytest


def cache_reads_and_drawings(patch: pytest.MonkeyPatch) -> None:
    """Parse each config, look up versions and the commit, and draw each synthetic image only once."""
    from lreid import config
    from lreid.data import synthetic
    from lreid.training import run

    parse, draw = functools.cache(config.parse_yaml), functools.lru_cache(2000)(synthetic.SCHEME.read)
    patch.setattr(config, "parse_yaml", lambda text: copy.deepcopy(parse(text)))
    patch.setattr(synthetic, "SCHEME", replace(synthetic.SCHEME, read=lambda path: draw(path).copy()))
    for name in ("commit", "installed_version"):
        patch.setattr(run, name, functools.cache(getattr(run, name)))
