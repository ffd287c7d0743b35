"""A small model and labelled images, which the commands test, search and export."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from example_files import write_model_and_images


class Done(NamedTuple):
    """Exit status of a command, and what it wrote to standard output and standard error."""

    status: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def lreid(run_lreid: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command of lreid in this process."""
    return lambda *words: Done(run_lreid(*map(str, words)), *capsys.readouterr())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with ``model.pt``, and synthetic images: queries in ``q`` and a gallery in ``g``."""
    return write_model_and_images(tmp_path_factory.mktemp("world"), identities=4, images=4)


@pytest.fixture
def in_world(lreid: Run, world: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command of lreid in the folder ``world``."""
    monkeypatch.chdir(world)
    return lreid
