"""Write checkpoints of tiny networks, synthetic images, and empty files."""

from collections.abc import Iterable
from pathlib import Path

import torch
from PIL import Image
from tiny import FEW, TINY, as_arguments

from lreid.build import model_of
from lreid.checkpoint import save_checkpoint
from lreid.config import load_config
from lreid.data.records import DataSet, Record
from lreid.data.synthetic import draw, load_synthetic


def write_checkpoint(path: Path, seed: int = 0, **overrides: object) -> Path:
    """Write random weights with the config of the tiny benchmark."""
    pairs = TINY | FEW | {"DEVICE": "cpu"} | {key.replace("__", "."): value for key, value in overrides.items()}
    cfg = load_config([], as_arguments(pairs))
    torch.manual_seed(seed)
    save_checkpoint(path, {"model": model_of(cfg, pretrained=False).state_dict(), "config": cfg.dump()})
    return path


def synthetic_people(
    identities: int, images: int, distractors: int = 0, seed: int = 0, place: str = "plaza"
) -> DataSet:
    """Synthetic images of people to search for."""
    counts = {"test_identities": identities, "images_per_identity": images, "distractors": distractors}
    return load_synthetic(place, train_identities=1, **counts, seed=seed)


def write_model_and_images(folder: Path, *, identities: int, images: int) -> Path:
    """Write ``model.pt``, and synthetic test images with names of Market-1501: queries ``q/``, gallery ``g/``."""
    drawn = synthetic_people(identities, images, distractors=1)
    write_images(folder / "q", drawn.query)
    write_images(folder / "g", drawn.gallery)
    write_checkpoint(folder / "model.pt")
    return folder


def write_images(
    folder: Path, records: Iterable[Record], name: str = "{pid:04d}_c{camid}s1_{number:03d}.png"
) -> list[Path]:
    """Draw synthetic records into files of a folder."""
    paths = []
    for number, record in enumerate(records):
        path = folder / name.format(pid=record.pid, camid=record.camid, number=number)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw(record.path)).save(path)
        paths.append(path)
    return paths


def touch(folder: Path, *names: str) -> Path:
    """Create empty files."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder
