"""A small world to test and search in, and a way to call a tool without starting Python again."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoints import write_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``model.pt``, and drawn images named as in Market-1501: queries in ``q/``, a gallery in ``g/``."""
    return write_world(tmp_path_factory.mktemp("world"), identities=4, images=4)


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
