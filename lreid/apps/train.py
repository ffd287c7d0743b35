"""Train a lifelong re-identification method task by task, on a benchmark or on your images.

lreid train my/folder                                   # your images: one folder per identity, or a CSV file
lreid train my/others --from runs/my-run                # other people, without the images of the first people
lreid train                                             # DwoPP on the built-in benchmark
lreid train --config configs/methods/dwpp.yaml          # a different method
lreid train --config configs/benchmarks/market1501-10.yaml --config configs/methods/dwopp.yaml
lreid train --resume --out runs/my-run                  # resumes an interrupted run
lreid train SEED 1 TRAIN.LR 1e-4                        # config keys; python -m lreid.apps.options prints all keys
lreid train --options dwopp                             # the options of a method
"""

import argparse
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from lreid.apps.arguments import add_config, add_imports, checked_config, flag, option, require_device, require_path
from lreid.errors import InputError, naming_keys

SHORT = {  # options that set a config key, with the key and the help text
    "method": ("METHOD.NAME", "lifelong method, such as dwopp or lwf"),
    "epochs": ("TRAIN.EPOCHS", "epochs per task"),
    "pattern": ("DATA.PATTERN", "pattern of your images' paths, such as {pid}/{camid}_{n}.png"),
    "root": ("DATA.ROOT", "folder of the data sets; image paths in a CSV file may be relative to this folder"),
    "device": ("DEVICE", "device of the computation: auto, cpu, cuda, cuda:1 …"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lreid train``."""
    images = "folder or CSV file of your images (optional), and config keys with their values"
    add_config(parser, "config file of a benchmark, a method, or both", images)
    add_imports(parser)
    option(parser, "--data NAME", "data set to train on; repeat the option for more data sets", [])
    for name, (key, about) in SHORT.items():
        option(parser, f"--{name} VALUE", f"{about} ({key})")
    option(parser, "--from RUN", "finished run whose model is fine-tuned on your images", dest="before", type=Path)
    out = "run folder (default: runs/BENCHMARK-METHOD-seedN; if it exists, lreid adds a number)"
    option(parser, "--out DIR", out, type=Path)
    option(parser, "--options METHOD", "print the options of the method METHOD, and do not train")
    flag(parser, "--resume", "resume from the last checkpoint of the run folder")


def split_words(words: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Separate the folder or file of images, if there is one, from the ``KEY VALUE`` pairs after it.

    The first word names images if it is not a config key and is an existing path or the only word.
    """
    from lreid.config_keys import is_key  # imported here, because it loads yacs, which --help does not need

    if words and not is_key(words[0]) and (len(words) % 2 or os.path.exists(words[0])):
        return Path(words[0]), list(words[1:])
    return None, list(words)


def short_keys(args: argparse.Namespace) -> list[str]:
    """Return the ``KEY VALUE`` pairs that the short options in ``SHORT`` set."""
    pairs = [word for option, (key, _) in SHORT.items() if (value := getattr(args, option)) for word in (key, value)]
    if args.data:
        named = "+".join(Path(each.partition(":")[2] or each).stem for each in args.data)
        pairs += ["BENCHMARK.NAME", named, "BENCHMARK.TRAIN", str(args.data)]
    return pairs


def run(args: argparse.Namespace) -> None:
    """Train or resume a run. To resume without a config, the config in the run folder is used."""
    if args.options:
        from lreid.apps.options import options_text

        print(options_text(args.options), end="")
        return
    images, overrides = split_words(args.overrides)
    overrides = [*short_keys(args), *overrides]
    _check(args, images, overrides)
    from lreid.build import load_run_config
    from lreid.training import distributed
    from lreid.training.run import run_folder_for, train
    from lreid.training.signals import end_with_parent

    end_with_parent()
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
        if distributed.is_first():
            print(f"{plan.text}\n")
    # A report shows the command that the user typed, which repeats a run on custom images.
    typed = ["lreid", "train", *(word for word in args.words if word != "--resume")]
    command = "" if images is None else shlex.join(typed)
    args.out = args.out or run_folder_for(cfg, resume=args.resume)  # the message of a stopped run names the folder
    from lreid.report.page import ReportObserver

    observers = {"report": ReportObserver()}
    results = train(cfg, args.out, resume=args.resume, before=before, command=command, observers=observers)
    if distributed.is_first():
        print(f"report: {args.out / 'report.html'}")
    if distributed.is_first() and (results["initial"] or cfg.BENCHMARK.LEARNED_IDENTITIES) and results["galleries"]:
        from lreid.apps import custom

        print(f"\n{custom.gains(results)}")
        if images is not None:
            print(f"\n{custom.next_steps(images, args.out)}")


def _check(args: argparse.Namespace, images: Path | None, overrides: Sequence[str]) -> None:
    require_device(args.device)
    cfg = checked_config(args.config, overrides)
    require_path(args.before)
    if images is not None:
        from lreid.data.custom import source_of

        with naming_keys(root="DATA.ROOT"):
            source_of(images, Path(cfg.DATA.ROOT))


def require_run(folder: Path) -> None:
    """For ``--resume`` without a config, require a run, to avoid training the built-in benchmark by mistake."""
    if (folder / "config.yaml").exists():
        return
    runs = sorted(each.parent for each in folder.absolute().parent.glob("*/config.yaml"))
    hint = f"; there are {', '.join(os.path.relpath(each) for each in runs)}" if runs else ""
    raise InputError(f"{folder}: contains no run to resume; pass the run's folder as --out{hint}")
