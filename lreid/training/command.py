"""What made a run: the command that trains the same, the keys that it changes, the state of the source."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

from yacs.config import CfgNode

from lreid.build import with_method_defaults
from lreid.config import CONFIGS, FREE_KEYS, differing_keys, leaves, load_config, method_title


def command_of(cfg: CfgNode) -> str:
    """The command that trains what a config describes, from the top of the source tree."""
    values = dict(leaves(with_method_defaults(cfg)))
    words = ["python", "tools/train.py"]
    for file in _files(cfg):
        words += ["--config", str(file.relative_to(CONFIGS.parent))]
    for key in ("SEED", *changed_by(cfg)):
        words += [key, str(values[key])]
    return shlex.join(words)


def changed_by(cfg: CfgNode) -> dict[str, Any]:
    """By key what the files of benchmark and method set, or None, where a config has another value.

    Neither the seed is among them nor where and how often a run works, nor options of another method than the config's.
    """
    cfg = with_method_defaults(cfg)
    base = with_method_defaults(load_config(_files(cfg)))
    own, values = dict(leaves(cfg)).keys() - {"SEED", *FREE_KEYS}, dict(leaves(base))
    return {key: values.get(key) for key in differing_keys(cfg, base) if key in own}


def _files(cfg: CfgNode) -> list[Path]:
    """Those of the config's benchmark and method that come with lreid."""
    named = (CONFIGS / "benchmarks" / f"{cfg.BENCHMARK.NAME}.yaml", CONFIGS / "methods" / f"{method_title(cfg)}.yaml")
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
