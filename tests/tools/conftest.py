"""A small world to test and search in."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from example_files import write_model_and_images


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``model.pt``, and drawn images named as in Market-1501: queries in ``q/``, a gallery in ``g/``."""
    return write_model_and_images(tmp_path_factory.mktemp("world"), identities=4, images=4)


@pytest.fixture
def tool(run_tool: Callable[..., int], world: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs a tool in that world."""
    monkeypatch.chdir(world)
    return run_tool


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    """Restore the level of lreid's logger, which a benchmark raises."""
    logger = logging.getLogger("lreid")
    before = logger.level
    yield
    logger.setLevel(before)
