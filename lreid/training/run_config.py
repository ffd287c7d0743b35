"""Load the config of a run: with every option of its method, and without keys that the method ignores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lreid.build import class_of, resolved
from lreid.config import COMMAND_LINE, CONFIGS, Source, layers, load_config, method_file
from lreid.config_keys import KEYS, Config
from lreid.errors import InputError
from lreid.methods import method_defaults

LEARNS_FROM = {
    "episodes": "episodes of support and query images and reads EPISODE.*",
    "identities": "P x K images and reads BATCH.* (STREAM.* where STREAM.SEGMENT is set)",
    "stream": "a stream and reads STREAM.* (and BATCH.* where STREAM.SEGMENT is 0)",
}


def load_run_config(files: Sequence[Source] = (), overrides: Sequence[str] = (), *, report: bool = True) -> Config:
    """:func:`lreid.config.load_config` for a run: :func:`~lreid.build.resolved`, and refused where keys are ignored.

    Benchmarks that come with lreid are meant for all methods and not looked at. Nor are the keys of EPISODE and BATCH
    in a source that sets both, or options of a method in a file for another one.

    Raises:
        InputError: such a key is set, or as for ``load_config``.
    """
    cfg = load_config(files, overrides, report=report)
    for source, keys in layers(files, overrides):
        ours = Path(source).resolve().parent == (CONFIGS / "benchmarks").resolve()
        if not ours and keys.get("METHOD.NAME", cfg.METHOD.NAME) in (cfg.METHOD.NAME, cfg.METHOD.ALIAS):
            for name, reason in _ignored(cfg, keys, typed=source == COMMAND_LINE):
                raise InputError(f"{source}: {name} is ignored by {cfg.METHOD.NAME}, {reason}; leave it out")
    if cfg.BENCHMARK.JOINT:
        _require_own_joint(files, overrides)
    return resolved(cfg)


def _require_own_joint(files: Sequence[Source], overrides: Sequence[str]) -> None:
    """Refuses ``BENCHMARK.JOINT`` that a source set together with a method, where a later one names another method."""
    joint = named = None
    for source, keys in layers(files, overrides):
        keys = method_file(keys.get("METHOD.NAME")) | keys
        if "BENCHMARK.JOINT" in keys:
            joint, named = source, keys.get("METHOD.NAME")
        elif named and keys.get("METHOD.NAME", named) != named:
            raise InputError(
                f"{source}: METHOD.NAME {keys['METHOD.NAME']} comes after {joint}, whose BENCHMARK.JOINT learns all "
                "tasks at once; add BENCHMARK.JOINT False to learn them one after the other, or True to keep it"
            )


def _ignored(cfg: Config, keys: dict[str, Any], *, typed: bool) -> Iterator[tuple[str, str]]:
    """Those of the keys that a source sets which the method of the config ignores, each with the reason.

    A file may set options that the method has no use for to their defaults, as ``config.yaml`` of a run does; what is
    ``typed`` may not.
    """
    cls = class_of(cfg)
    groups = {name.partition(".")[0] for name in keys}
    defaults = method_defaults(cls)
    for name in keys:
        group, _, last = name.partition(".")
        if group in ("EPISODE", "BATCH") and not groups >= {"EPISODE", "BATCH"}:
            if (group == "EPISODE") != (cls.batches == "episodes"):
                yield name, f"which learns from {LEARNS_FROM[cls.batches]}"
            elif typed and group == "BATCH" and (cfg.STREAM.SEGMENT or cls.batches == "stream"):
                yield name, "which learns from a stream here, by STREAM.SEGMENT"
        elif group == "STREAM" and last != "SEGMENT" and not cfg.STREAM.SEGMENT and cls.batches != "stream":
            if cfg.STREAM[last] != KEYS[name].default:
                yield name, "which learns from a stream only where STREAM.SEGMENT is above 0"
        elif (
            group == "METHOD"
            and last.lower() in cls.unused
            and (typed or cfg.METHOD.get(last, keys[name]) != defaults[last.lower()])
        ):
            yield name, "which inherits it and has no use for it"
