#!/usr/bin/env python
"""Times a training step of every method beside that of DMML-FT, data included, in one run.

    python tools/bench_train.py                                       # the built-in benchmark's size
    python tools/bench_train.py --config configs/benchmarks/market1501-10.yaml --methods dwopp --rounds 5

Every method has learned a short first task, so that teachers, classifiers and memories are there, and is in the middle
of its second; joint training has both at once. Methods take turns in rounds, so that whatever else the machine does
hits all alike, and medians over the rounds are shown.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from yacs.config import CfgNode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lreid.cli import run_tool
from lreid.config import check_values, load_config, method_options
from lreid.data.loaders import batch_loader
from lreid.data.records import Task
from lreid.data.tasks import merge_tasks
from lreid.errors import InputError
from lreid.methods import build_method, method_names
from lreid.report.tables import align
from lreid.training.run import (
    benchmark_of,
    evaluator_of,
    model_of,
    new_results,
    pick_device,
    with_method_defaults,
)
from lreid.training.run_folder import RunFolder
from lreid.training.trainer import Trainer

BASE = "dmml_ft"  # what the others are compared with
WARM_UP = 2  # steps of the first task, and of the second before time is taken


class Contestant:
    """A method in the middle of its second task; ``cfg`` has epochs enough for all steps."""

    def __init__(self, cfg: CfgNode, folder: Path) -> None:
        torch.manual_seed(cfg.SEED)
        device = pick_device(cfg.DEVICE)
        benchmark = replace(benchmark_of(cfg), tests=())  # nothing is tested
        benchmark = replace(benchmark, tasks=benchmark.tasks[:2])
        model = model_of(cfg, pretrained=False).to(device, memory_format=torch.channels_last)
        self.method = build_method(cfg.METHOD.NAME, model, **method_options(cfg))
        if self.method.joint:
            benchmark = merge_tasks(benchmark)
        evaluator = evaluator_of(cfg, benchmark)
        self.results = new_results(cfg, benchmark, "", self.method, evaluator)
        self.trainer = Trainer(
            self.method, benchmark, evaluator, RunFolder(folder), self.results, cfg, device
        )
        self.trainer.bar = tqdm(disable=True)
        for task in benchmark.tasks[:-1]:
            self._begin(task)
            self.seconds(WARM_UP)
            self.method.end_task(task)
        self._begin(benchmark.tasks[-1])
        self.seconds(WARM_UP)
        self.results["images_trained"] = 0  # counts from here

    def _begin(self, task: Task) -> None:
        self.method.begin_task(task)
        self.trainer.epoch = 0
        pin, workers = self.trainer.device.type == "cuda", self.trainer.cfg.DATA.WORKERS
        self.loader = iter(batch_loader(self.trainer._batches(task), workers=workers, pin_memory=pin))
        self.optimizer = self.trainer._optimizer()

    def seconds(self, steps: int) -> float:
        """Seconds that so many steps take; the trainer waits for the device at their end."""
        started = time.perf_counter()
        self.trainer._train_epoch(self.loader, self.optimizer, steps)
        return time.perf_counter() - started


def measure(cfgs: dict[str, CfgNode], rounds: int, steps: int) -> dict[str, dict[str, Any]]:
    """By method: milliseconds a step, their ratio to those of ``BASE`` in the same round, images a second; medians."""
    with tempfile.TemporaryDirectory() as folder:
        contestants = {name: Contestant(cfg, Path(folder) / name) for name, cfg in cfgs.items()}
        times: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(rounds):
            for name, contestant in contestants.items():
                times[name].append(contestant.seconds(steps) / steps)
    figures = {}
    for name, contestant in contestants.items():
        step = statistics.median(times[name])
        images = contestant.results["images_trained"] / (rounds * steps)
        figures[name] = {
            "step_ms": 1000 * step,
            "ratio": statistics.median(a / b for a, b in zip(times[name], times[BASE], strict=True)),
            "images_per_second": images / step,
            "rounds_ms": [1000 * each for each in times[name]],
        }
    return figures


def main(args: argparse.Namespace) -> None:
    if min(args.rounds, args.steps) < 1:
        raise InputError("--rounds and --steps: must be 1 or more")
    logging.getLogger("lreid").setLevel(logging.WARNING)
    cfgs = {}
    for name in dict.fromkeys([BASE, *args.methods]):
        own = ["METHOD.NAME", name, "TRAIN.EPOCHS", str(WARM_UP + args.rounds * args.steps)]
        cfgs[name] = with_method_defaults(load_config(args.config, [*args.overrides, *own]))
        check_values(cfgs[name])
    figures = measure(cfgs, args.rounds, args.steps)
    cfg = cfgs[BASE]
    setting = (
        f"{cfg.MODEL.BACKBONE}, {cfg.INPUT.HEIGHT} x {cfg.INPUT.WIDTH}, {pick_device(cfg.DEVICE)}, "
        f"{torch.get_num_threads()} threads, median of {args.rounds} rounds of {args.steps} steps"
    )
    rows = [
        [name, f"{each['step_ms']:.1f}", f"{each['ratio']:.2f}", f"{each['images_per_second']:.0f}"]
        for name, each in figures.items()
    ]
    print(f"{setting}\n\n" + align([["method", "ms a step", f"x {BASE}", "images/s"], *rows]))
    if args.json:
        args.json.write_text(json.dumps({"setting": setting, "methods": figures}, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument("--methods", nargs="+", default=method_names(), metavar="NAME", help="default: all")
    parser.add_argument("--rounds", type=int, default=10, metavar="N")
    parser.add_argument("--steps", type=int, default=4, metavar="N", help="of each method a round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="keys of the config")
    sys.exit(run_tool(parser, main))
