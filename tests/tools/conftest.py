"""Tools leave the logger as they found it."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    """Restore the level of lreid's logger, which a benchmark raises."""
    logger = logging.getLogger("lreid")
    before = logger.level
    yield
    logger.setLevel(before)
