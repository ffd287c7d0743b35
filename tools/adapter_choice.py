"""Measure how much mAP a model of the method per_task_adapters loses by wrong choices of adapters; print CSV.

    python tools/adapter_choice.py runs/rendered-domains-per_task_adapters-seed0 > choice.csv

The table has one row per test set of the run, with mAP in per cent. The mAP is chosen_mAP if every image chooses its
adapter, best_mAP if all images use the adapter of best_task (the best adapter for the test set), and none_mAP without
adapters. share_of_best is the share of images that choose the best adapter.
"""

import argparse
import csv
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lreid.apps.cli import run_tool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("run", type=Path, help="folder of a run, or one of its checkpoints")


def run(args: argparse.Namespace) -> None:
    """Measure the mAP on every test set, and print one row per test set."""
    import torch

    from lreid.build import benchmark_of, evaluator_of
    from lreid.errors import InputError
    from lreid.evaluation.evaluator import Evaluator
    from lreid.loading import load_model, model_config
    from lreid.models.adapters.bank import AdapterBank

    model, cfg = load_model(args.run), model_config(args.run)
    bank = model.backbone
    if not isinstance(bank, AdapterBank):
        raise InputError(f"{args.run}: has no adapters per task; name a run of the method per_task_adapters")
    model.inference = None  # it would keep a copy of the network
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["test_set", "chosen_mAP", "best_mAP", "none_mAP", "best_task", "share_of_best"])
    every = evaluator_of(cfg, benchmark_of(cfg))
    for test in every.tests:
        evaluator = Evaluator([test], **every.extraction, index=every.index)
        figures = {}
        for use in (None, *range(-1, len(bank))):
            bank.use = use
            figures[use] = evaluator.evaluate(model)[0].metrics["mAP"]
        best = max(range(len(bank)), key=lambda task: figures[task])
        bank.use = -1
        plain = [torch.from_numpy(each) / model.scale for each in evaluator.features(model, test)]
        share = (bank.choose(torch.cat(plain).to(bank.means)) == best).float().mean().item()
        cells = [f"{figures[use]:.2f}" for use in (None, best, -1)]
        table.writerow([test.name, *cells, best + 1, f"{share:.3f}"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add_arguments(parser)
    sys.exit(run_tool(parser, run))
