"""Hostile and damaged input of every kind: readers may raise InputError and nothing else."""

import json
import random
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
import yaml
from commands import Counts, World
from fuzzing import HOSTILE, corrupted_bytes, corrupted_value
from galleries import small
from PIL import Image
from zoo_entries import write_card

from lreid import results
from lreid.checkpoint import load_checkpoint, load_newest
from lreid.config import config_from_text, load_config
from lreid.config_keys import Config
from lreid.data.images import read_image
from lreid.data.tables import read_table
from lreid.errors import InputError
from lreid.gallery import Gallery, gallery_file
from lreid.link.page import write_identities_page
from lreid.link.record import LinkRecord
from lreid.models.state_dicts import read_safetensors
from lreid.zoo import read_card

warnings.filterwarnings("ignore")  # of libraries, about images
IMAGES = ("png", "jpg", "webp", "gif", "tif", "bmp", "ppm")


def readers(world: World, folder: Path) -> dict[str, tuple[Callable[[random.Random], Any], Callable[[Any], Any]]]:
    """For each kind of input, a function that makes one and a function that reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "file"

    def written(read: Callable[[Path], Any], path: Path = file) -> Callable[[bytes], Any]:
        def write_and_read(content: bytes) -> Any:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            return read(path)

        return write_and_read

    run = (world.folder / "run" / "results.json").read_bytes()
    plain = json.loads(run)
    tree = yaml.safe_load(Config().dump())
    write_card(folder / "mine.json", b"weights")
    card = (folder / "mine.json").read_bytes()
    small(at=folder / "small").save()
    gallery = (folder / "small").read_bytes()
    indexes, header, arrays, _ = gallery_file.read_gallery(folder / "small", False)
    state = load_checkpoint(world.folder / "run" / "checkpoints" / "task-02.pt")
    torch.save(state, folder / "task.pt")
    weights = safetensors.torch.save({"a": torch.arange(6.0).view(2, 3), "b": torch.ones(2)})
    table = b"path,pid,camid,split,domain,time\na.jpg,1,1,train,x,5\nb.jpg,2,1,query,x,\nc.jpg,1,2,gallery,y,7\n"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 12, 3), np.uint8)).save(folder / "a.png")
    for ending in IMAGES:
        Image.open(folder / "a.png").save(folder / f"a.{ending}")
    checkpoint = (folder / "task.pt").read_bytes()

    def gallery_of(pair: tuple[Any, Any]) -> Any:
        gallery_file.write_gallery(file, indexes, pair[0], pair[1])
        return Gallery.load(file)

    def resumed(state: dict[str, Any]) -> Any:
        (folder / "checkpoints").mkdir(exist_ok=True)
        torch.save(state, folder / "checkpoints" / "last.pt")
        return load_newest(folder / "checkpoints")

    def columns(rng: random.Random) -> dict[str, np.ndarray]:
        name, kind = rng.choice(sorted(arrays)), rng.choice((np.int64, np.int32, np.float64, np.bool_))
        if arrays[name].dtype.kind == "U":
            return {each: array for each, array in arrays.items() if each != name}
        size = rng.choice((0, 1, len(arrays[name])))
        return arrays | {name: np.array([rng.randint(-3, 20) for _ in range(size)]).astype(kind)}

    def image(name: str) -> tuple[Callable[[random.Random], Any], Callable[[Any], Any]]:
        content = (folder / name).read_bytes()
        return lambda rng: corrupted_bytes(content, rng), written(
            lambda path: read_image(str(path), height=8, width=4), folder / "images" / name
        )

    def corrected(path: Path) -> None:
        record = LinkRecord.read(path.parent)
        write_identities_page(folder / "page.html", record)
        record.find("1")
        record.undo()
        write_identities_page(folder / "page.html", record)

    results_of = written(lambda path: results.read(path.parent), folder / "run" / "results.json")
    card_of = written(read_card, folder / "cards" / "mine.json")

    def damages(content: bytes) -> Callable[[random.Random], bytes]:
        return lambda rng: corrupted_bytes(content, rng)

    as_json = lambda value: json.dumps(value).encode("utf-8", "surrogatepass")  # noqa: E731
    words = [str(each) for each in HOSTILE]
    keys = [f"{group}.{key}" for group, value in tree.items() if isinstance(value, dict) for key in value]
    record = LinkRecord()
    clip = {"camera": "a", "start": 0.0, "end": 9.0}
    record.content["clips"] = [clip | {"name": "a/x", "video": "a.mp4"}]
    row = clip | {"score": 0.5, "why": "", "crops": {"1.jpg": 0.5}}
    record.content["tracklets"] = [row | {"key": f"a/x/{each}", "identity": record.new_identity()} for each in (1, 2)]
    record.content["travel"] = [["a", "b", 3.0]]
    record = LinkRecord(record.content)
    record.name("1", "anna")
    record.apart("1", "2")
    record.remember("apart")
    return {
        "results, corrupted": (lambda rng: as_json(corrupted_value(plain, rng)), results_of),
        "results, damaged": (damages(run), results_of),
        "card, corrupted": (lambda rng: as_json(corrupted_value(json.loads(card), rng)), card_of),
        "card, damaged": (damages(card), card_of),
        "safetensors": (damages(weights), written(read_safetensors)),
        "checkpoint, damaged": (damages(checkpoint), written(load_checkpoint)),
        "checkpoint to resume from": (
            lambda rng: state | {(part := rng.choice(sorted(state))): corrupted_value(state[part], rng)},
            resumed,
        ),
        "gallery, damaged": (damages(gallery), written(Gallery.load)),
        "gallery, header": (
            lambda rng: (
                (header | {(key := rng.choice(sorted(header))): corrupted_value(header[key], rng)}, arrays)
                if rng.random() < 0.7
                else (header, columns(rng))
            ),
            gallery_of,
        ),
        "config, text": (
            lambda rng: yaml.safe_dump(corrupted_value(tree, rng)),
            lambda text: config_from_text(text, "text"),
        ),
        "config, damaged": (
            damages(yaml.safe_dump(tree).encode()),
            written(lambda path: load_config([path]), folder / "damaged.yaml"),
        ),
        "config, pairs": (
            lambda rng: [rng.choice([*keys, *words]), rng.choice(words)],
            lambda pair: load_config([], pair),
        ),
        "identities": (
            lambda rng: as_json(corrupted_value(record.content, rng)),
            written(corrected, folder / "linked" / "identities.json"),
        ),
        "table of images": (damages(table), written(read_table, folder / "index.csv")),
        **{f"image, {ending}": image(f"a.{ending}") for ending in IMAGES},
    }


def read_any(world: World, folder: Path, number: int, seed: int = 0) -> Counts:
    """Read ``number`` inputs, equally many of each kind."""
    counts, kinds = Counts(), readers(world, folder)
    for name, (make, read) in kinds.items():
        rng, reported = random.Random(f"{name} {seed}"), set()
        for _ in range(max(1, number // len(kinds))):
            given = make(rng)
            counts.numbers["inputs"] += 1
            try:
                read(given)
            except InputError as error:
                if not str(error).strip():
                    counts.wrong("tracebacks", f"{name}: an error without words")
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                about = f"{name}: {type(error).__name__} at {where.filename}:{where.lineno}: {str(error)[:200]}"
                counts.numbers["tracebacks"] += 1
                if about[:80] not in reported:
                    counts.faults.append(f"tracebacks: {about}; input {repr(given)[-300:]}")
                reported.add(about[:80])
    return counts
