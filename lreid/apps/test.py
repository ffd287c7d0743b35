"""Test trained models: write a table of metrics, a JSON file, and a page of ranked images.

lreid test --checkpoint runs/my-run/checkpoints/task-10.pt             # on the benchmark of the run
lreid test --checkpoint runs/my-run                                    # the models after every task
lreid test --checkpoint zoo:dwopp-synthetic-10                         # a model of the zoo
lreid test --checkpoint task-10.pt --config configs/benchmarks/veri776-10.yaml
lreid test --checkpoint task-10.pt --query my/queries --gallery my/gallery
lreid test --gallery people.gallery --query my/labelled                # a saved gallery
lreid test --checkpoint task-10.pt --csv my/index.csv --adapt-norm features --rerank
lreid test --checkpoint runs/my-run --cross-model EVAL.AP trapezoidal  # config keys
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lreid.apps.arguments import (
    add_config,
    add_imports,
    checked_config,
    flag,
    option,
    require_model,
    require_path,
    require_pattern,
    split_pairs,
)
from lreid.errors import InputError

if TYPE_CHECKING:
    from lreid.apps.checkpoint_test import Measurement

# Options that add measurements.
MEASUREMENTS: tuple["Measurement", ...] = ("adapt_norm", "rerank", "expand", "cross_model")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lreid test``."""
    models = "checkpoints, zoo:NAME, or run folders (the models after every task); not needed for a saved gallery"
    option(parser, "--checkpoint FILE", models, [], nargs="+")
    add_config(parser, "config file of the benchmark to test on (default: the benchmark of the run)")
    add_imports(parser)
    option(parser, "--query DIR", "folder of your query images", type=Path)
    option(parser, "--gallery DIR", "folder of your gallery images, or a gallery made by lreid search build")
    option(parser, "--pattern P", "pattern of image paths in both folders, such as {pid}/{camid}_{n}.png")
    option(parser, "--csv FILE", "CSV file that lists your images, with the splits query and gallery", type=Path)
    out = "folder for test.json and ranked.html (default: RUN/test, one subfolder per test set)"
    option(parser, "--out DIR", out, type=Path)
    flag(parser, "--rerank", "also report metrics with k-reciprocal re-ranking")
    flag(parser, "--expand", "also report metrics with query expansion")
    option(parser, "--adapt-norm", "also report metrics of features standardised per camera", choices=("features",))
    pairs = "also report the mAP for each pair of a model that extracts the queries and a model of the gallery"
    flag(parser, "--cross-model", pairs)
    flag(parser, "--blur", "blur the images on the page")


def run(args: argparse.Namespace) -> None:
    """Test the models, write ``test.json`` and ``ranked.html``, and print the table."""
    files, overrides = split_pairs(args.checkpoint)
    overrides += args.overrides
    _check(args, files, overrides)
    from lreid.gallery.store import SCHEME

    if args.query:  # the pattern in the config of the run is meant for other folders
        overrides += ["DATA.PATTERN", args.pattern or ""]
    if args.gallery and (args.gallery.startswith(SCHEME) or Path(args.gallery).is_file()):
        _test_gallery(args, [Path(file) for file in files], overrides)
        return
    from lreid.apps.checkpoint_test import score_checkpoints

    _print(
        score_checkpoints(
            [Path(file) for file in files],
            args.out,
            config=args.config,
            overrides=overrides,
            images=(args.query, Path(args.gallery)) if args.query else args.csv,
            extras=[name for name in MEASUREMENTS if getattr(args, name)],
            blur=args.blur,
        )
    )


def _check(args: argparse.Namespace, models: Sequence[str], overrides: Sequence[str]) -> None:
    if (args.query is None) != (args.gallery is None):
        raise InputError("--query and --gallery need each other; give both")
    if args.query and args.csv:
        raise InputError("--csv and --query exclude each other; give only one of the two")
    if args.pattern:
        require_pattern("--pattern", args.pattern)
    if not models and args.gallery is None:
        raise InputError("--checkpoint: is missing; pass a file, a run folder or zoo:NAME")
    checked_config(args.config, overrides)
    for path in (args.query, args.gallery, args.csv):
        require_path(path)
    for model in models:
        require_model(model)


def _test_gallery(args: argparse.Namespace, checkpoints: Sequence[Path], overrides: Sequence[str]) -> None:
    for name in ("config", *MEASUREMENTS, "blur"):
        if getattr(args, name) not in (None, False, []):
            raise InputError(f"--{name.replace('_', '-')}: is not for a saved gallery ({args.gallery}); remove it")
    if len(checkpoints) > 1:
        raise InputError(f"--checkpoint: {args.gallery} belongs to one model; pass only that model, or none")
    from lreid.apps.gallery_test import score_gallery
    from lreid.gallery.store import SCHEME

    checkpoint = checkpoints[0] if checkpoints else None
    out = args.out or Path(f"{args.gallery.removeprefix(SCHEME).strip('/').split('/')[-1]}-test")
    _print(score_gallery(args.gallery, args.query, checkpoint=checkpoint, out=out, overrides=overrides))


def _print(results: dict[str, Any]) -> None:
    from lreid.report.tables import cross_model_table, index_table, score_table

    print(f"\n{score_table(results)}")
    if any(row.get("index", {"name": "flat"})["name"] != "flat" for row in results["rows"]):  # flat finds all
        print(f"\n{index_table(results)}")
    if results["cross_model"]:
        print(f"\n{cross_model_table(results)}")
