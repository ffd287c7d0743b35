"""Bars of work on many images."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lreid.data.images import Images
from lreid.data.records import Record
from lreid.models import Embedder


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def worked(monkeypatch: pytest.MonkeyPatch, folder: Path, stream: io.StringIO) -> str:
    """What reading six images and extracting their features writes."""
    for number in range(6):
        Image.fromarray(np.full((8, 4, 3), 40 * number, np.uint8)).save(folder / f"{number}.png")
    monkeypatch.setattr("sys.stderr", stream)
    images = Images([Record(str(folder / f"{number}.png"), number, 0) for number in range(6)], height=16, width=8)
    features = Embedder("small", height=16, width=8).extract(images, batch_size=4)
    assert len(features) == 6
    return stream.getvalue()


def test_bar_counts_images_and_disappears(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("lreid.data.images.MOMENT", 0.0)
    written = worked(monkeypatch, tmp_path, Terminal())
    for what in ("reading", "extracting"):
        assert f"{what}:   0%" in written and "| 0/6 [" in written
    assert "| 6/6 [" not in written.split("\r")[-1] and not written.split("\r")[-1].strip()


@pytest.mark.parametrize("why", ["no terminal", "only a moment", "another process has one"])
def test_there_is_no_bar(why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("lreid.data.images.MOMENT", 60.0 if why == "only a moment" else 0.0)
    monkeypatch.setenv("RANK", "1" if why == "another process has one" else "0")
    assert worked(monkeypatch, tmp_path, io.StringIO() if why == "no terminal" else Terminal()) == ""
