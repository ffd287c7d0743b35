"""A small model and labelled images, which the commands test, search and export."""

from collections.abc import Callable
from pathlib import Path

import pytest
from example_files import write_model_and_images


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with ``model.pt``, and synthetic images: queries in ``q`` and a gallery in ``g``."""
    return write_model_and_images(tmp_path_factory.mktemp("world"), identities=4, images=4)


@pytest.fixture
def run_in_world(run_lreid: Callable[..., int], world: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run a command of lreid in the folder ``world``, and return its exit status."""
    monkeypatch.chdir(world)
    return run_lreid
