"""Train a lifelong re-identification method task by task, on a benchmark or on your images."""

import argparse
import os
import shlex
from pathlib import Path

from lreid.apps.arguments.train import SHORT, short_keys, split_words
from lreid.errors import InputError
from lreid.training import distributed
from lreid.training.run import run_folder_for, train
from lreid.training.run_config import load_run_config
from lreid.training.signals import end_with_parent


def run(args: argparse.Namespace) -> None:
    """Train or resume a run. To resume without a config, the config in the run folder is used."""
    if args.options:
        from lreid.apps.options import options_text

        print(options_text(args.options), end="")
        return
    end_with_parent()
    images, overrides = split_words(args.overrides)
    overrides = [*short_keys(args), *overrides]
    files = args.config
    if args.resume and args.out is not None and not files and (args.out / "config.yaml").exists():
        if images is not None:
            raise InputError(f"{images}: --resume uses the images of {args.out}; remove this argument")
        files = [args.out / "config.yaml"]
    elif args.resume and images is None and not files and not overrides:
        require_run(args.out or run_folder_for(load_run_config(), resume=True))
    if images is None:
        if args.before is not None:
            raise InputError(f"--from {args.before}: needs your images; pass their folder as well")
        cfg, before = load_run_config(files, overrides), None
    else:
        from lreid.apps import custom

        plan = custom.plan(images, files, overrides, args.before)
        cfg, before = plan.cfg, plan.before
        if distributed.speaks():
            print(f"{plan.text}\n")
    command = "" if images is None else typed(args, images)
    args.out = args.out or run_folder_for(cfg, resume=args.resume)  # the message of a stopped run names the folder
    results = train(cfg, args.out, resume=args.resume, before=before, command=command)
    if distributed.speaks() and (results["initial"] or cfg.BENCHMARK.LEARNED_IDENTITIES) and results["galleries"]:
        from lreid.apps import custom
        from lreid.apps.report import with_images

        print(f"\n{custom.gains(results)}")
        if images is not None:
            print(f"\n{custom.next_steps(images, args.out)}")
        with_images(args.out)


def typed(args: argparse.Namespace, images: Path) -> str:
    """Return the command by which the user started a run on custom images."""
    options = {"config": args.config, "data": args.data, "from": args.before, "out": args.out}
    options |= {option: getattr(args, option) for option in SHORT}
    words = ["lreid", "train", str(images)]
    for option, values in options.items():
        for value in values if isinstance(values, list) else [values] if values else []:
            words += [f"--{option}", str(value)]
    return shlex.join([*words, *split_words(args.overrides)[1]])


def require_run(folder: Path) -> None:
    """For ``--resume`` without a config, require a run, to avoid training the built-in benchmark by mistake.

    Raises:
        InputError: there is no run; the message names runs next to the folder.
    """
    if (folder / "config.yaml").exists():
        return
    runs = sorted(each.parent for each in folder.absolute().parent.glob("*/config.yaml"))
    hint = f"; there are {', '.join(os.path.relpath(each) for each in runs)}" if runs else ""
    raise InputError(f"{folder}: contains no run to resume; pass the run's folder as --out{hint}")
