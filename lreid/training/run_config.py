"""Load a run's config with all options of its method, and build the command that repeats the run."""

import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lreid.build import class_of, resolved
from lreid.config import (
    COMMAND_LINE,
    CONFIGS,
    Source,
    differing_keys,
    layers,
    leaves,
    load_config,
    method_file,
    method_title,
)
from lreid.config_keys import FREE_KEYS, KEYS, Config
from lreid.errors import InputError
from lreid.methods import method_class, method_defaults

LEARNS_FROM = {
    "episodes": "episodes of support and query images, set by EPISODE.*",
    "identities": "P x K images per batch, set by BATCH.* (on a stream, set by STREAM.*, if STREAM.SEGMENT is above 0)",
    "stream": "a stream, set by STREAM.* (and by BATCH.* if STREAM.SEGMENT is 0)",
}


def load_run_config(files: Sequence[Source] = (), overrides: Sequence[str] = (), *, report: bool = True) -> Config:
    """Load the config of a run, set automatic values (:func:`~lreid.build.resolved`), and refuse keys without effect.

    Keys in lreid's benchmark files are not checked, because these files serve all methods. Keys of EPISODE and BATCH
    are not checked if one source (a file or the command line) sets keys of both. Options in a file for a different
    method are not checked.

    Raises:
        InputError: a key has no effect in the method of the config, or :func:`lreid.config.load_config` raises an
            error.
    """
    cfg = load_config(files, overrides, report=report)
    for source, keys in layers(files, overrides):
        is_benchmark = Path(source).resolve().parent == (CONFIGS / "benchmarks").resolve()
        if not is_benchmark and keys.get("METHOD.NAME", cfg.METHOD.NAME) in (cfg.METHOD.NAME, cfg.METHOD.ALIAS):
            for name, reason in _ignored(cfg, keys, typed=source == COMMAND_LINE):
                raise InputError(f"{source}: {name} is ignored by {cfg.METHOD.NAME}, {reason}; remove it")
    if cfg.BENCHMARK.JOINT:
        _require_own_joint(files, overrides)
    return resolved(cfg)


def _require_own_joint(files: Sequence[Source], overrides: Sequence[str]) -> None:
    """Refuse ``BENCHMARK.JOINT`` from a method's file if a later file or the command line names another method."""
    joint = named = None
    for source, keys in layers(files, overrides):
        keys = method_file(keys.get("METHOD.NAME")) | keys
        if "BENCHMARK.JOINT" in keys:
            joint, named = source, keys.get("METHOD.NAME")
        elif named and keys.get("METHOD.NAME", named) != named:
            raise InputError(
                f"{source}: METHOD.NAME {keys['METHOD.NAME']} comes after {joint}, whose BENCHMARK.JOINT trains all "
                "tasks at once; add BENCHMARK.JOINT False to train them one after the other, or True to keep it"
            )


def _ignored(cfg: Config, keys: dict[str, Any], *, typed: bool) -> Iterator[tuple[str, str]]:
    """Yield the keys of a file or command line that have no effect in the config's method, each with the reason.

    A file may set options without effect to their defaults, as the ``config.yaml`` of a run does. On the command line
    (``typed``), options without effect are always refused.
    """
    cls = class_of(cfg)
    groups = {name.partition(".")[0] for name in keys}
    defaults = method_defaults(cls)
    for name in keys:
        group, _, last = name.partition(".")
        if group in ("EPISODE", "BATCH") and not groups >= {"EPISODE", "BATCH"}:
            if (group == "EPISODE") != (cls.batches == "episodes"):
                yield name, f"which trains on {LEARNS_FROM[cls.batches]}"
            elif typed and group == "BATCH" and (cfg.STREAM.SEGMENT or cls.batches == "stream"):
                yield name, "which trains on a stream here, because STREAM.SEGMENT is above 0"
        elif group == "STREAM" and last != "SEGMENT" and not cfg.STREAM.SEGMENT and cls.batches != "stream":
            if cfg.STREAM[last] != KEYS[name].default:
                yield name, "which trains on a stream only if STREAM.SEGMENT is above 0"
        elif (
            group == "METHOD"
            and last.lower() in cls.unused
            and (typed or cfg.METHOD.get(last, keys[name]) != defaults[last.lower()])
        ):
            yield name, "which inherits it but does not use it"


def command_of(cfg: Config, *, before: Path | None = None) -> str:
    """Build the command that trains a config.

    Args:
        cfg: the resolved config.
        before: the checkpoint from which a run on custom images fine-tunes.
    """
    values = dict(leaves(cfg))
    words = ["lreid", "train"]
    if before is not None:
        words += [cfg.BENCHMARK.TRAIN[0].partition(":")[2], "--from", str(before)]
    for file in _files(cfg):
        words += ["--config", str(file.relative_to(CONFIGS.parent))]
    # The method ignores these keys, and the command line would refuse them.
    ignored = "BATCH." if method_class(cfg.METHOD.NAME).batches == "episodes" else "EPISODE."
    elsewhere = ["DATA.ROOT"] * (KEYS["DATA.ROOT"].default != cfg.DATA.ROOT)
    for key in ("SEED", *elsewhere, *changed_by(cfg)):
        if not key.startswith(ignored):
            words += [key, str(values[key])]
    return shlex.join(words)


def changed_by(cfg: Config) -> dict[str, Any]:
    """Map each key that a config changes to its value in the files of benchmark and method, None if not there.

    The seed, options of other methods, and keys that only affect where and how often a run writes are left out.
    """
    base = load_run_config(_files(cfg))
    own, values = dict(leaves(cfg)).keys() - {"SEED", *FREE_KEYS}, dict(leaves(base))
    return {key: values.get(key) for key in differing_keys(cfg, base) if key in own}


def _files(cfg: Config) -> list[Path]:
    """List lreid's config files for a config's benchmark and method."""
    named = (CONFIGS / "benchmarks" / f"{cfg.BENCHMARK.NAME}.yaml", CONFIGS / "methods" / f"{method_title(cfg)}.yaml")
    return [file for file in named if file.exists()]


def commit() -> str | None:
    """Return the git commit and whether files have changed since; None if lreid is an installed package."""
    tree = Path(__file__).parents[2]
    if not (tree / ".git").exists():
        return None
    describe = ["git", "-C", str(tree), "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=, with changes"]
    try:
        return subprocess.run(describe, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # git is missing, or the tree belongs to another user
        return None
