#!/usr/bin/env python
"""Compare the step time of DwoPP with plain code: float32, contiguous, losses in loops, default optimiser and malloc.

    python tools/bench_plain.py --config configs/benchmarks/market1501-10.yaml --config configs/methods/dwopp.yaml
    python tools/bench_plain.py MODEL.BACKBONE resnet50 INPUT.HEIGHT 256 INPUT.WIDTH 128 EPISODE.IDENTITIES 8 \\
        EPISODE.SUPPORT 5

The variants alternate. Each turn of a variant runs in a separate process, because a change of the memory allocator
cannot be undone. For each variant, the tool takes the fastest step of every turn and prints the median over the turns.
"""

import argparse
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(folder) for folder in Path(__file__).resolve().parents[:2]]
from lreid.apps.cli import run_tool

VARIANTS = {"plain": [], "fp32": [], "bf16": ["TRAIN.PRECISION", "bf16"]}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--config", type=Path, action="append", default=[], metavar="FILE", help="config file; repeat it")
    top.add_argument("--rounds", type=int, default=3, metavar="N", help="turns per variant (default: %(default)s)")
    top.add_argument(
        "--variants",
        nargs="+",
        choices=list(VARIANTS),
        default=list(VARIANTS),
        metavar="NAME",
        help=f"some of {', '.join(VARIANTS)}; speed-ups are relative to the first one (default: all)",
    )
    top.add_argument(
        "--steps", type=int, default=2, metavar="N", help="steps per variant and round (default: %(default)s)"
    )
    top.add_argument(
        "--variant", choices=list(VARIANTS), help="only print the seconds of this variant, measured in this process"
    )
    top.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="config keys with their values")
    return top


if __name__ == "__main__" and {"-h", "--help"} & set(sys.argv):
    sys.exit(run_tool(parser(), lambda args: None))  # here, because the imports below take seconds

import torch
import torch.nn.functional as F
from torch import Tensor

from bench_train import Contestant, configured, setting, settings, timed
from lreid.data.loaders import Batch
from lreid.errors import InputError
from lreid.report.tables import text_table
from lreid.utils.devices import keep_freed_memory


def main(args: argparse.Namespace) -> None:
    if args.variant:
        print(variant(args))
        return
    times: dict[str, list[float]] = {name: [] for name in args.variants}
    for _ in range(args.rounds):
        for name in args.variants:
            own = ["--variant", name, "--steps", str(args.steps)]
            command = [sys.executable, __file__, *own, *settings(args)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise InputError(f"variant {name}: {done.stderr.strip().splitlines()[-1]}")
            times[name].append(float(done.stdout.splitlines()[-1]))
    medians = {name: statistics.median(each) for name, each in times.items()}
    rows = [
        [name, f"{median:.2f}", f"{medians[args.variants[0]] / median:.2f}", " ".join(f"{s:.2f}" for s in times[name])]
        for name, median in medians.items()
    ]
    heads = ["variant", "s per step", "speed-up", "rounds"]
    print(setting(configured(args), args, f"best of {args.steps} steps each") + "\n\n" + text_table(heads, rows))


def variant(args: argparse.Namespace) -> float:
    """Measure the seconds of the fastest step of one variant."""
    cfg = configured(args, ["METHOD.NAME", "dwopp", *VARIANTS[args.variant]])
    if args.variant != "plain":
        keep_freed_memory()
        contestant = Contestant(cfg)
        return min(contestant.seconds() for _ in range(args.steps))
    contestant = Contestant(cfg)
    method: Any = contestant.method  # a method with a teacher
    student, teacher = (each.to(memory_format=torch.contiguous_format) for each in (method.model, method.teacher))
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-4, weight_decay=1e-4)

    def plain_step() -> None:
        batch = next(contestant.loader)
        images = batch.images.contiguous()
        features = student(images)
        with torch.no_grad():
            targets = teacher(images)
        loss = looped_losses(features, targets, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    plain_step()
    return min(timed(plain_step, contestant.device) for _ in range(args.steps))


def looped_losses(features: Tensor, targets: Tensor, batch: Batch) -> Tensor:
    """Compute DMML and DwoPP's distillation in loops over queries and identities."""
    identities = list(dict.fromkeys(batch.labels.tolist()))
    rows = [[row for row, label in enumerate(batch.labels.tolist()) if label == each] for each in identities]
    supports, queries = ([each[: batch.num_support] for each in rows], [each[batch.num_support :] for each in rows])
    terms = []
    for own, own_queries in enumerate(queries):
        for query in own_queries:
            distances = [
                torch.stack([(features[query] - features[row]).square().sum() for row in each]) for each in supports
            ]
            hardest = distances[own].max()
            gaps = [hardest - each.min() + 0.4 for other, each in enumerate(distances) if other != own]
            terms.append(torch.logsumexp(torch.stack([gaps[0] * 0, *gaps]), 0))
            relations = []
            for space in (features, targets):
                means = [space[each].mean(0) for other, each in enumerate(supports) if other != own]
                relations.append(torch.stack([-(space[query] - mean).square().sum() for mean in means]))
            student, teacher = relations
            terms.append(-(F.softmax(teacher, 0) * F.log_softmax(student, 0)).sum())
    return torch.stack(terms).mean()


if __name__ == "__main__":
    sys.exit(run_tool(parser(), main))
