"""Refuse wrong files, names and keys before torch is imported, which takes seconds.

The library repeats these checks, because programs can use it without a command line.
"""

import argparse
import os
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from lreid.apps.arguments.test import split_checkpoints
from lreid.apps.arguments.train import short_keys, split_words
from lreid.config import check_values, load_config
from lreid.config_keys import Config
from lreid.errors import InputError, naming_keys
from lreid.utils.files import require_writable
from lreid.utils.reading import compare_checksums, raise_if_unreadable, require_regular
from lreid.utils.rules import device_fault
from lreid.zoo import PREFIX, is_entry

ELSEWHERE = ("hub:", "milvus:")  # prefixes of models and galleries that are not files


def refuse(command: str, args: argparse.Namespace) -> None:
    """Check the files and names on the command line of one of ``lreid.apps.cli.COMMANDS``.

    Raises:
        InputError: a file is missing or damaged, or a device, a model, a key or a method is unknown.
        OSError: a file cannot be reached.
    """
    for path in _outputs(command, args):
        require_writable(path)
    device = getattr(args, "device", None)
    if device and (fault := device_fault(device)):
        raise InputError(f"--device is {device!r}; {fault}")
    models = [getattr(args, name, None) for name in ("checkpoint", "model", "new")]
    if command == "train" and not args.options:
        _refuse_training(args)
    elif command == "test":
        models, _ = split_checkpoints(args)
        _refuse_test(args)
    elif command == "sweep":
        _refuse_sweep(args)
    elif command == "report":
        _require(*args.runs, advice="name the folder of a run that finished a task")
    elif command == "link":
        _require(args.cameras if args.action == "add" else args.folder)
        if args.action == "add" and not args.checkpoint:
            _require(args.folder / "people.gallery", advice="pass --checkpoint, such as zoo:people")
    elif command == "serve":
        _require(args.gallery, advice="build a gallery first")
    elif command == "search" and args.action == "compare":
        _require(*args.images, args.gallery)
    for model in filter(None, models):
        _require_model(str(model))


def _outputs(command: str, args: argparse.Namespace) -> list[Path]:
    """Return the files that a command writes after long work, except files that the command checks itself."""
    if command == "link" and args.action == "add":
        return [args.folder / "identities.json"]
    if command == "sweep" and not args.dry_run:
        return [args.out / "table.md"]
    if command == "zoo" and args.action == "publish" and args.out:
        return [args.out / f"{args.name}.json"]
    if (command == "export" and args.tool != "reid") or (command == "zoo" and args.action == "page"):
        return [args.out]
    return [args.html] if command == "report" and args.html else []


def _refuse_training(args: argparse.Namespace) -> None:
    images, pairs = split_words(args.overrides)
    cfg = _config(args.config, [*short_keys(args), *pairs])
    _require(args.before)
    if images is not None:
        from lreid.data.custom import source_of

        with naming_keys(root="DATA.ROOT"):
            source_of(images, Path(cfg.DATA.ROOT))


def _refuse_test(args: argparse.Namespace) -> None:
    if (args.query is None) != (args.gallery is None):
        raise InputError("--query and --gallery need each other; give both")
    if args.query and args.csv:
        raise InputError("--csv and --query exclude each other; give only one of the two")
    if args.pattern:
        _check_pattern("--pattern", args.pattern)
    models, overrides = split_checkpoints(args)
    if not models and args.gallery is None:
        raise InputError("--checkpoint: is missing; pass a file, a run folder or zoo:NAME")
    _config(args.config, overrides)
    _require(args.query, args.gallery, args.csv)


def _refuse_sweep(args: argparse.Namespace) -> None:
    from lreid.apps.arguments.sweep import without_pairs

    (methods, *_), pairs = without_pairs([args.methods, *args.vary])
    pairs += args.overrides
    for benchmark, method in product(args.benchmarks or [None], methods):
        _config([*args.config, *filter(None, [benchmark])], ["METHOD.NAME", method, *pairs])


def _config(files: Sequence[Path], overrides: Sequence[str]) -> Config:
    from lreid.methods import method_class, method_names

    cfg = load_config(files, overrides, report=False)
    if cfg.METHOD.NAME not in method_names():
        with naming_keys("METHOD"):
            method_class(cfg.METHOD.NAME)
    check_values(cfg)
    if cfg.DATA.PATTERN:
        _check_pattern("DATA.PATTERN", cfg.DATA.PATTERN)
    return cfg


def _check_pattern(name: str, pattern: str) -> None:
    from lreid.data.pattern import Pattern  # rarely needed

    with naming_keys(pattern=name):
        Pattern(pattern)


def _require(*paths: str | Path | None, advice: str = "check the path") -> None:
    for path in paths:
        if path and not str(path).startswith(ELSEWHERE):
            try:
                os.stat(path)
            except FileNotFoundError:
                raise InputError(f"{path}: no such file or folder; {advice}") from None


def _require_model(name: str) -> None:
    if is_entry(name) and not name.startswith(ELSEWHERE):
        from lreid.zoo.card import find

        find(name.removeprefix(PREFIX))
        return
    _require(name)
    require_regular(name)
    if os.path.isfile(name) and name.endswith(".safetensors"):
        _require_safetensors(Path(name))
    elif os.path.isfile(name) and not name.endswith(".onnx"):
        try:
            compare_checksums(name, legacy=False)
        except Exception as error:  # damage shows in many kinds of exceptions
            raise_if_unreadable(error, name)
            raise InputError(f"{name}: damaged, or not a checkpoint ({error}); use one of lreid train") from None


def _require_safetensors(weights: Path) -> None:
    from safetensors import SafetensorError, safe_open

    from lreid.zoo.card import card_beside

    card_beside(weights)
    try:
        with safe_open(weights, "numpy"):
            pass
    except SafetensorError as error:
        raise InputError(f"{weights}: cannot be loaded as safetensors ({error}); download it again") from None
