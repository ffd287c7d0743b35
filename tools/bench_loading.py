#!/usr/bin/env python
"""Compare lreid's loading speed with common code: images per second on one core, seconds per epoch of two batches.

python tools/bench_loading.py        # JPEG files of 128 x 384 pixels, and of 64 x 128 as in Market-1501
python tools/bench_loading.py --rounds 9 --workers 4
"""

import argparse
import os
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lreid.apps.cli import run_tool


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--rounds", type=int, default=7, help="rounds of measurements (default: %(default)s)")
    top.add_argument("--workers", type=int, default=2, help="loading processes (default: %(default)s)")
    return top


if __name__ == "__main__" and {"-h", "--help"} & set(sys.argv):
    sys.exit(run_tool(parser(), lambda args: None))  # here, because the imports below take seconds

os.environ.setdefault("OMP_NUM_THREADS", "1")  # measures one core
os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

import albumentations as A
import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T

from lreid.config import find_config
from lreid.data.images import Images
from lreid.data.loaders import TaskBatches, batch_loader
from lreid.data.records import Record
from lreid.data.samplers import IdentitySampler
from lreid.data.synthetic import draw as draw_image
from lreid.data.synthetic import load_synthetic
from lreid.data.transforms import Augment, load_pipeline

HEIGHT, WIDTH = 256, 128
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IDENTITIES, IMAGES_EACH = 32, 6  # per batch; an epoch has two batches
BATCH = IDENTITIES * IMAGES_EACH
PROGRESS = 0.5  # fraction of the task that is done
RECIPE = "flip-crop10-erase"  # augmentation of BoT
OFFICIAL_WORKERS = 24
TASK_EPOCHS = 8


class Files(Dataset[torch.Tensor]):
    """Load images in the common way: every access decodes, resizes, converts and augments a file."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.transform = T.Compose(
            [
                T.Resize((HEIGHT, WIDTH), interpolation=T.InterpolationMode.BICUBIC),
                T.RandomHorizontalFlip(),
                T.Pad(10),
                T.RandomCrop((HEIGHT, WIDTH)),
                T.ToTensor(),
                T.Normalize(MEAN, STD),
                T.RandomErasing(p=0.5, scale=(0.02, 0.4), ratio=(0.3, 3.3)),
            ]
        )

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(self.records[index].path) as image:
            return self.transform(image.convert("RGB"))


def write_files(folder: Path, height: int, width: int) -> list[Record]:
    """Write JPEG files of synthetic people: the images of two batches."""
    drawn = load_synthetic(
        "plaza",
        train_identities=2 * IDENTITIES,
        test_identities=1,
        images_per_identity=IMAGES_EACH,
        distractors=0,
        seed=0,
    )
    folder.mkdir()
    records = []
    for number, record in enumerate(drawn.train):
        path = folder / f"{number}.jpg"
        image = Image.fromarray(draw_image(record.path)).resize((width, height), Image.Resampling.BICUBIC)
        image.save(path, quality=75)
        records.append(record._replace(path=str(path)))
    return records


def steps_of(name: str) -> list[Any]:
    """Load the steps of one of lreid's pipelines."""
    values = {"INPUT.HEIGHT": HEIGHT, "INPUT.WIDTH": WIDTH, "INPUT.MEAN": list(MEAN)}
    return load_pipeline(find_config(name), values)


def medians(calls: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], Any]) -> dict[str, Any]:
    """Measure the median seconds of every call over rounds, of which every other one has the reverse order."""
    taken: dict[str, list[Any]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for number in range(rounds):
        for name in list(calls)[:: 1 if number % 2 == 0 else -1]:
            start = clock()
            calls[name]()
            taken[name].append(clock() - start)
    return {name: np.median(seconds, axis=0) for name, seconds in taken.items()}


def throughput(records: Sequence[Record], folder: Path, rounds: int) -> None:
    """Print the images per second on one core, measured on one batch of images."""
    steps = steps_of(RECIPE)
    augment = Augment(steps, mean=MEAN, std=STD)
    *first, erasing = steps
    library = A.Compose([*first, A.Normalize(mean=MEAN, std=STD, p=1.0), erasing])
    records = records[:BATCH]
    files = Files(records)
    decoded = Images(records, height=HEIGHT, width=WIDTH, cache_gib=0.0)
    cached = Images(records, height=HEIGHT, width=WIDTH)

    def ours(images: Images) -> Callable[[], np.ndarray]:
        return lambda: augment(list(images), seed=0, progress=PROGRESS)

    def composed(images: Images) -> Callable[[], np.ndarray]:
        return lambda: np.stack([library(image=image)["image"] for image in images])

    common = "files, PIL + torchvision v1"
    calls = {
        common: lambda: torch.stack([files[index] for index in range(BATCH)]),
        "files, albumentations.Compose": composed(decoded),
        "files, the same pipeline in lreid": ours(decoded),
        "cache, albumentations.Compose": composed(cached),
        "cache, the same pipeline in lreid": ours(cached),
    }
    wanted = {"cache, the same pipeline in lreid": 8}
    seconds = medians(calls, rounds, time.process_time)
    for name, taken in seconds.items():
        ratio = seconds[common] / taken
        print(f"  {name:38s} {BATCH / taken:7.0f} images/s {ratio:6.1f} x{verdict(ratio, wanted.get(name))}")


def epochs(records: Sequence[Record], rounds: int, workers: int) -> None:
    """Print the wall time, and the CPU time of all processes, for an epoch of two batches."""
    cached = Images(records, height=HEIGHT, width=WIDTH)
    sampler = IdentitySampler(cached.pids, identities=IDENTITIES, images=IMAGES_EACH, seed=(0,))
    augment = Augment(steps_of(RECIPE), mean=MEAN, std=STD)
    assert sampler.batches_per_epoch == 2

    def official() -> None:
        for _ in DataLoader(Files(records), batch_size=BATCH, num_workers=OFFICIAL_WORKERS, shuffle=True):
            pass

    def task(workers: int) -> None:
        dataset = TaskBatches(cached, sampler, augment, epochs=TASK_EPOCHS)
        for _ in batch_loader(dataset, workers=workers, pin_memory=False):
            pass

    common = f"files, {OFFICIAL_WORKERS} workers started every epoch"
    calls = {
        common: official,
        "cache, no workers": lambda: task(0),
        f"cache, {workers} workers, with their start": lambda: task(workers),
    }
    seconds = medians(calls, rounds, lambda: np.array([time.perf_counter(), cpu_seconds()]))
    for name, taken in seconds.items():
        if name != common:
            taken = taken / TASK_EPOCHS
        wall, cpu = seconds[common] / taken
        wanted = 15 if name == "cache, no workers" else None
        print(
            f"  {name:38s} {1000 * taken[0]:7.0f} ms, {1000 * taken[1]:.0f} ms CPU, {wall:6.1f} x, {cpu:.1f} x CPU"
            + verdict(wall, wanted)
        )


def cpu_seconds() -> float:
    """CPU seconds of this process and of its workers that have ended."""
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + workers.ru_utime + workers.ru_stime


def verdict(ratio: float, wanted: float | None) -> str:
    return "" if wanted is None else f"  target {wanted} x: {'reached' if ratio >= wanted else 'NOT REACHED'}"


def main(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "This DataLoader will create")  # like the official code, more workers than cores
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as name:
        for height, width in ((384, 128), (128, 64)):
            folder = Path(name) / f"{height}x{width}"
            records = write_files(folder, height, width)
            print(f"JPEG files of {width} x {height} to {WIDTH} x {HEIGHT}, CPU time of one core:")
            throughput(records, folder, args.rounds)
        print(f"an epoch of 2 batches of {BATCH} of these files:")
        epochs(records, args.rounds, args.workers)


if __name__ == "__main__":
    sys.exit(run_tool(parser(), main))
