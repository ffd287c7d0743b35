"""Miniature data sets: tiny JPEG files laid out as their authors do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from PIL import Image

MakeImages = Callable[[Path, Iterable[str]], None]


@pytest.fixture
def make_images() -> MakeImages:
    """Writes one small image for every name into a folder, which is made."""

    def make(folder: Path, names: Iterable[str]) -> None:
        for name in names:
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 8), (200, 100, 50)).save(file)

    return make


@pytest.fixture
def shared_data() -> Path:
    """The folder with the two real CSV data sets."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("LREID_SHARED_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} does not exist (set LREID_SHARED_DATA)")
    return folder
