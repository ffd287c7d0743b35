"""What made a run: the command that trains the same, the keys that it changes, the state of the source."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

from lreid.config import CONFIGS, differing_keys, leaves, method_title
from lreid.config_keys import FREE_KEYS, KEYS, Config
from lreid.methods import method_class
from lreid.training.run_config import load_run_config

OF_A_METHOD = ("METHOD.", "EPISODE.", "BATCH.")  # groups of keys that another method has otherwise


def command_of(cfg: Config, method: str | None = None, *, before: Path | None = None) -> str:
    """The command that trains what a config describes.

    Args:
        cfg: the resolved config.
        method: another one to train in the same way, which has its own options and batches.
        before: the checkpoint that a run on custom images fine-tunes from.
    """
    values = dict(leaves(cfg))
    words = ["lreid", "train"]
    if before is not None:
        words += [cfg.BENCHMARK.TRAIN[0].partition(":")[2], "--from", str(before)]
    for file in _files(cfg, method):
        words += ["--config", str(file.relative_to(CONFIGS.parent))]
    # Refused where they are typed, since the method ignores them.
    ignored = "BATCH." if method_class(cfg.METHOD.NAME).batches == "episodes" else "EPISODE."
    others = OF_A_METHOD if method else (ignored,)
    elsewhere = ["DATA.ROOT"] * (KEYS["DATA.ROOT"].default != cfg.DATA.ROOT)
    for key in ("SEED", *elsewhere, *changed_by(cfg)):
        if not key.startswith(others):
            words += [key, str(values[key])]
    return shlex.join(words)


def changed_by(cfg: Config) -> dict[str, Any]:
    """By key what the files of benchmark and method set, or None, where a config has another value.

    Neither the seed is among them nor where and how often a run works, nor options of another method than the config's.
    """
    base = load_run_config(_files(cfg))
    own, values = dict(leaves(cfg)).keys() - {"SEED", *FREE_KEYS}, dict(leaves(base))
    return {key: values.get(key) for key in differing_keys(cfg, base) if key in own}


def _files(cfg: Config, method: str | None = None) -> list[Path]:
    """Those of the config's benchmark and of its method, or another one, that come with lreid."""
    method = method or method_title(cfg)
    named = (CONFIGS / "benchmarks" / f"{cfg.BENCHMARK.NAME}.yaml", CONFIGS / "methods" / f"{method}.yaml")
    return [file for file in named if file.exists()]


def commit() -> str | None:
    """The commit of the source tree, and whether files have changed since; None where lreid runs out of none."""
    tree = Path(__file__).parents[2]
    if not (tree / ".git").exists():
        return None
    describe = ["git", "-C", str(tree), "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=, with changes"]
    try:
        return subprocess.run(describe, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git here, or a tree of somebody else
        return None
