#!/usr/bin/env python
"""Measure the time of training steps, including data loading, and print ratios of times from the same run.

    python tools/bench_train.py step                       # the parts of a step, and the network alone
    python tools/bench_train.py methods                    # every method compared with DMML-FT
    python tools/bench_train.py methods --methods contrast_scoring --variant METHOD.POLICY fifo \\
        --variant METHOD.LAZY_INTERVAL 1 --variant METHOD.LAZY_INTERVAL 50
    python tools/bench_train.py growth                     # step time and memory from the second task to the tenth

Options --config and KEY VALUE choose another setting, for instance the papers' setting without the papers' data:

    python tools/bench_train.py step MODEL.BACKBONE resnet50 INPUT.HEIGHT 256 INPUT.WIDTH 128 EPISODE.IDENTITIES 8 \\
        EPISODE.SUPPORT 5

The compared methods alternate in rounds, so that other programs affect all methods equally. The output shows medians
over the rounds. Every method is measured in the middle of its second task, when it has a teacher, a classifier and a
memory.
"""

import argparse
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lreid.apps.cli import run_tool


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(action: str, what: str, *, rounds: int, steps: int) -> argparse.ArgumentParser:
        sub = commands.add_parser(action, help=what)
        sub.set_defaults(action=action)
        sub.add_argument("--config", type=Path, action="append", default=[], metavar="FILE")
        sub.add_argument("--rounds", type=int, default=rounds, metavar="N")
        sub.add_argument("--steps", type=int, default=steps, metavar="N", help="steps per turn")
        sub.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="keys of the config")
        return sub

    sub = command("step", "the parts of a step, and the networks alone", rounds=10, steps=1)
    sub.add_argument(
        "--method", default="dwopp", metavar="NAME", help="method with one network and at most one teacher"
    )
    sub.add_argument("--evaluate", action="store_true", help="also time an evaluation")
    sub = command(
        "methods", "every method compared with DMML-FT, or one method with several options", rounds=10, steps=4
    )
    sub.add_argument("--methods", nargs="+", metavar="NAME", help="default: all")
    sub.add_argument(
        "--variant",
        nargs="+",
        action="append",
        default=[],
        metavar="KEY VALUE",
        help="additional keys of a variant; repeat it, and variants are compared with the first one",
    )
    sub.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    sub = command("growth", "a later task compared with the second, and memory over the tasks", rounds=10, steps=4)
    sub.add_argument(
        "--methods", nargs="+", default=["dmml_ft", "dwpp", "dwopp", "bot_ft", "lwf", "aka", "er"], metavar="NAME"
    )
    sub.add_argument("--tasks", type=int, default=10, metavar="N")
    sub = command("memory", "memory in MiB after some steps of every task, as JSON", rounds=1, steps=1)
    sub.add_argument("--method", required=True, metavar="NAME")
    sub.add_argument("--tasks", type=int, default=10, metavar="N")
    return top


if __name__ == "__main__" and {"-h", "--help"} & set(sys.argv):
    sys.exit(run_tool(parser(), lambda args: None))  # here, because the imports below take seconds

import torch
from torch import Tensor, nn

from lreid.build import benchmark_of, evaluator_of, learned, method_of, resolved
from lreid.config import check_values, load_config
from lreid.config_keys import Config
from lreid.data.loaders import Batch, batch_loader
from lreid.data.records import Task
from lreid.errors import InputError
from lreid.methods import method_names
from lreid.report.tables import text_table
from lreid.training.run import batching_of, new_results
from lreid.training.run_folder import RunFolder
from lreid.training.trainer import Trainer
from lreid.utils.devices import computing, keep_freed_memory, pick_device

BASE = "dmml_ft"  # method with which the others are compared
WARM_UP = 2  # steps of each task that are not measured
FOREVER = ["TRAIN.CHECKPOINT_MINUTES", "1e9", "TRAIN.EPOCHS", "1000000"]  # no checkpoints, no end of the task


class Contestant:
    """A method that is in the middle of task number ``tasks``, after short earlier tasks."""

    def __init__(self, cfg: Config, tasks: int = 2) -> None:
        torch.manual_seed(cfg.SEED)
        self.device = pick_device(cfg.DEVICE)
        benchmark = benchmark_of(cfg)
        benchmark = replace(benchmark, tests=(), tasks=benchmark.tasks[:tasks])  # nothing is tested
        self.method = method_of(cfg, self.device, pretrained=False)
        benchmark = learned(cfg, benchmark)
        evaluator = evaluator_of(cfg, benchmark)
        results = new_results(cfg, benchmark, "", evaluator)
        self.folder = tempfile.TemporaryDirectory()
        self.batching = batching_of(cfg, self.device)
        self.trainer = Trainer(
            self.method, benchmark, evaluator, RunFolder(Path(self.folder.name)), results, batching=self.batching
        )
        self.tasks = list(benchmark.tasks)
        for task in self.tasks[:-1]:
            self.begin(task)
            self.method.end_task(task)
        self.begin(self.tasks[-1])
        self.method.model.images_trained = 0  # count only images from now on

    def begin(self, task: Task) -> None:
        """Begin a task, and run the warm-up steps."""
        self.method.begin_task(task)
        workers = self.batching.data.WORKERS
        batches = self.batching.batches(self.method, task)
        self.loader: Iterator[Batch] = batch_loader(batches, workers=workers, pin_memory=self.device.type == "cuda")
        self.updates = self.trainer.begin_updates()
        self.method.model.train()
        self.seconds(WARM_UP)

    def seconds(self, steps: int = 1) -> float:
        """Measure the seconds of some training steps, from loading the data to updating the parameters."""

        def work() -> None:
            for _ in range(steps):
                self.step()

        return timed(work, self.device)

    def step(self) -> None:
        """Make one training step, with all batches of one update."""
        self.trainer.step(self.loader, self.updates, self.trainer.options.ACCUMULATE)


def timed(work: Callable[[], Any], device: torch.device) -> float:
    """Measure the seconds of a call, including the call's work on the device."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    started = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - started


# --------------------------------------------------------------- where the time of a step goes


class Stored(nn.Module):
    """A network that returns features which were computed before."""

    def __init__(self, features: Tensor, neck: nn.Module) -> None:
        super().__init__()
        self.features, self.neck = features, neck

    def forward(self, images: Tensor) -> Tensor:
        return self.features


def step(args: argparse.Namespace) -> None:
    """Measure the parts of a training step, and compare the step with the passes of the networks alone."""
    cfg = configured(args, ["METHOD.NAME", args.method])
    contestant = Contestant(cfg)
    method: Any = contestant.method  # some methods have a teacher; loss() replaces the networks
    model, device = contestant.method.model, contestant.device
    teacher: Any = method.teacher
    batch = next(contestant.loader).to(device, contestant.batching.augment)
    model.train()
    features = model(batch.images).detach()  # (B, dim)
    gradient = torch.randn_like(features)
    leaf = features.clone().requires_grad_()

    def student() -> None:
        model(batch.images).backward(gradient)

    @torch.no_grad()
    def look() -> None:
        teacher(batch.images)

    def loss() -> None:
        networks = method.model, teacher
        method.model, method.teacher = (Stored(leaf, model.neck), teacher and Stored(features + 0.01, model.neck))
        terms = method.loss(batch)
        method.total(terms).backward()
        method.model, method.teacher = networks

    contestant.updates.set_rates(lambda first: 0.0)
    parts: dict[str, Callable[[], Any]] = {
        "whole step": contestant.step,
        "data": lambda: next(contestant.loader).to(device, contestant.batching.augment),
        "student, forward and backward": student,
        "teacher, forward": look,
        "losses, forward and backward": loss,
        "optimiser": contestant.updates.optimizer.step,
    }
    if teacher is None:
        del parts["teacher, forward"]
    times: dict[str, list[float]] = {name: [] for name in parts}
    for turn in range(args.rounds + 1):
        for name, work in parts.items():
            seconds = timed(work, device)
            if turn:  # the first turn is for warm-up
                times[name].append(seconds)
    passes = [times[name] for name in ("student, forward and backward", "teacher, forward") if name in times]
    network = [sum(each) for each in zip(*passes, strict=True)]
    ratio = statistics.median(whole / bare for whole, bare in zip(times["whole step"], network, strict=True))
    images = len(batch.labels)
    rows = [
        [name, f"{1000 * (median := statistics.median(seconds)):.1f}", f"{images / median:.0f}"]
        for name, seconds in times.items()
    ]
    print(setting(cfg, args, f"{images} images") + "\n\n" + text_table(["part", "ms", "images/s"], rows))
    print(f"\nwhole step / bare passes of the networks, median of rounds: {ratio:.3f}")
    if args.evaluate:
        evaluator = evaluator_of(cfg, benchmark_of(cfg))
        seconds = timed(lambda: evaluator.evaluate(model), device)
        count = sum(len(test.query) + len(test.gallery) for test in evaluator.tests)
        print(f"evaluation of {count} test images: {seconds:.2f} s, {count / seconds:.0f} images/s")


# --------------------------------------------------------------- every method


def methods(args: argparse.Namespace) -> None:
    """Compare the step time of every method with that of DMML-FT, or compare one method with several options."""
    named = args.methods or method_names()
    chosen = dict.fromkeys(named if args.variant else [BASE, *named])
    contestants = {
        " ".join([name, *variant]): Contestant(configured(args, ["METHOD.NAME", name, *variant]))
        for name in chosen
        for variant in args.variant or [[]]
    }
    base = next(iter(contestants))
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(args.rounds):
        for name, contestant in contestants.items():
            times[name].append(contestant.seconds(args.steps) / args.steps)
    figures, rows = {}, []
    for name, contestant in contestants.items():
        seconds = statistics.median(times[name])
        ratio = statistics.median(a / b for a, b in zip(times[name], times[base], strict=True))
        images = contestant.method.model.images_trained / (args.rounds * args.steps)
        figures[name] = {
            "step_ms": 1000 * seconds,
            "ratio": ratio,
            "images_per_second": images / seconds,
            "rounds_ms": [1000 * each for each in times[name]],
        }
        rows.append([name, f"{1000 * seconds:.1f}", f"{ratio:.2f}", f"{images / seconds:.0f}"])
    described = setting(configured(args), args, f"{args.steps} steps each")
    print(f"{described}\n\n" + text_table(["method", "ms per step", f"x {base}", "images/s"], rows))
    if args.json:
        args.json.write_text(json.dumps({"setting": described, "methods": figures}, indent=1) + "\n")


# --------------------------------------------------------------- from task to task


def growth(args: argparse.Namespace) -> None:
    """Compare the step time of a later task with that of the second task, and measure memory over the tasks."""
    if args.tasks < 2:
        raise InputError(f"--tasks {args.tasks}: must be 2 or more, as the second task is compared")
    rows = []
    for name in args.methods:
        cfg = configured(args, ["METHOD.NAME", name])
        early, late = Contestant(cfg), Contestant(cfg, args.tasks)
        times = [(early.seconds(args.steps), late.seconds(args.steps)) for _ in range(args.rounds)]
        ratio = statistics.median(after / before for before, after in times)
        command = [sys.executable, __file__, "memory", "--method", name, "--tasks", str(args.tasks), *settings(args)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        memory = json.loads(done.stdout.splitlines()[-1])
        rows.append(
            [
                name,
                *(f"{1000 * statistics.median(each) / args.steps:.1f}" for each in zip(*times, strict=True)),
                f"{ratio:.3f}",
                f"{memory[1]:.0f}",
                f"{memory[-1]:.0f}",
                f"{memory[-1] / memory[1]:.3f}",
            ]
        )
    last = f"task {args.tasks}"
    heads = ["method", "ms, task 2", last, "ratio", "MiB, task 2", last, "ratio"]
    print(setting(configured(args), args, f"{args.steps} steps each") + "\n\n" + text_table(heads, rows))


def memory(args: argparse.Namespace) -> None:
    """Print, as JSON, the resident memory in MiB after some training steps of every task."""
    keep_freed_memory()
    cfg = configured(args, ["METHOD.NAME", args.method])
    contestant, resident = Contestant(cfg, tasks=1), []
    for task in benchmark_of(cfg).tasks[: args.tasks]:
        if task.index:  # the first task has begun
            contestant.begin(task)
        contestant.seconds(4)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        resident.append(pages * 4096 / 2**20)
        contestant.method.end_task(task)
    print(json.dumps(resident))


# --------------------------------------------------------------- the command line


def configured(args: argparse.Namespace, own: list[str] = []) -> Config:  # noqa: B006
    cfg = resolved(load_config(args.config, [*args.overrides, *FOREVER, *own]))
    check_values(cfg)
    return cfg


def settings(args: argparse.Namespace) -> list[str]:
    """Command-line arguments that pass the setting of this process to another process."""
    return [*(part for file in args.config for part in ("--config", str(file))), *args.overrides]


def setting(cfg: Config, args: argparse.Namespace, each: str) -> str:
    device = pick_device(cfg.DEVICE)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} threads"
    size = f"{cfg.INPUT.HEIGHT} x {cfg.INPUT.WIDTH}"
    what = f"{cfg.MODEL.BACKBONE}, {size}, {cfg.TRAIN.PRECISION}, {device}, {where}"
    return f"{what}, median of {args.rounds} rounds, {each}"


def main(args: argparse.Namespace) -> None:
    if min(args.rounds, args.steps) < 1:
        raise InputError("--rounds and --steps: must be 1 or more")
    logging.getLogger("lreid").setLevel(logging.WARNING)
    with computing(rounded=configured(args).TRAIN.PRECISION == "tf32", deterministic=False):
        torch.backends.cudnn.benchmark = True  # as in a run
        {"step": step, "methods": methods, "growth": growth, "memory": memory}[args.action](args)


if __name__ == "__main__":
    sys.exit(run_tool(parser(), main))
