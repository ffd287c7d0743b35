"""Folders of classes whose images are squares of one colour."""

from collections.abc import Iterable
from pathlib import Path

from PIL import Image


def write_class(folder: Path, colours: Iterable[str]) -> None:
    """An image of every colour, in the order of their names."""
    folder.mkdir(parents=True)
    for number, colour in enumerate(colours):
        Image.new("RGB", (16, 16), colour).save(folder / f"{number}.png")
