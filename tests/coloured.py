"""Folders of classes whose images are squares of one colour."""

from collections.abc import Iterable
from pathlib import Path

from PIL import Image


def write_squares(home: Path) -> Path:
    """Four classes of coloured squares; every image has a shade of its own."""
    for name, hue in (("a", 0), ("b", 90), ("c", 180), ("d", 270)):
        write_class(home / "train" / name, [f"hsl({hue + shade},100%,50%)" for shade in range(4)])
        write_class(home / "test" / name, [f"hsl({hue + shade},100%,50%)" for shade in (5, 6)])
    return home


def write_class(folder: Path, colours: Iterable[str]) -> None:
    """An image of every colour, in the order of their names."""
    folder.mkdir(parents=True)
    for number, colour in enumerate(colours):
        Image.new("RGB", (16, 16), colour).save(folder / f"{number}.png")
