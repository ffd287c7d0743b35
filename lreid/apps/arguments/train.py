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
from collections.abc import Sequence
from pathlib import Path

from lreid.apps.cli import add_config, option

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
    option(parser, "--data NAME", "data set to train on; repeat the option for more data sets", [])
    for name, (key, about) in SHORT.items():
        option(parser, f"--{name} VALUE", f"{about} ({key})")
    option(parser, "--from RUN", "finished run whose model is fine-tuned on your images", dest="before", type=Path)
    out = "run folder (default: runs/BENCHMARK-METHOD-seedN; if it exists, lreid adds a number)"
    option(parser, "--out DIR", out, type=Path)
    option(parser, "--options METHOD", "print the options of the method METHOD, and do not train")
    parser.add_argument("--resume", action="store_true", help="resume from the last checkpoint of the run folder")


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
