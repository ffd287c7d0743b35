"""Train a lifelong re-identification method on a benchmark, task after task."""

from __future__ import annotations

import argparse

from lreid.apps.options import load_run_config, options_text
from lreid.training.run import run_folder_for, train
from lreid.training.signals import end_with_parent


def run(args: argparse.Namespace) -> None:
    """Trains, or goes on with a run, whose own config is taken where none is named."""
    if args.options:
        print(options_text(args.options), end="")
        return
    end_with_parent()
    files = args.config
    if args.resume and args.out is not None and not files and (args.out / "config.yaml").exists():
        files = [args.out / "config.yaml"]
    cfg = load_run_config(files, args.overrides)
    train(cfg, args.out or run_folder_for(cfg, resume=args.resume), resume=args.resume)
