"""A small world to test and search in, and a way to call a tool without starting Python again."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoints import write_checkpoint, write_images

from lreid.data.synthetic import load_synthetic


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``model.pt``, and drawn images named as in Market-1501: queries in ``q/``, a gallery in ``g/``."""
    folder = tmp_path_factory.mktemp("world")
    drawn = load_synthetic(
        "plaza", train_identities=1, test_identities=4, images_per_identity=4, distractors=1, seed=0
    )
    write_images(folder / "q", drawn.query)
    write_images(folder / "g", drawn.gallery)
    write_checkpoint(folder / "model.pt")
    return folder


@pytest.fixture
def tool(repository: Path, world: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs a tool within this process, which saves the seconds of importing torch again."""
    monkeypatch.chdir(world)

    def call(name: str, *arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(repository / "tools" / name), run_name="__main__")
        return end.value.code

    return call
