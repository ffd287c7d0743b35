"""Which runs may be averaged, and what tells the others apart."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from lreid.report.results import Results

DATA_KEYS = ("BENCHMARK.", "SYNTHETIC.")  # groups of the config that the protocol's fingerprint stands for


def group_names(runs: Sequence[Results]) -> list[tuple[str, str]]:
    """The name of the benchmark and of the method of each run; runs that may be averaged have the same two.

    Those are runs of one method under one protocol (identities, splits, cameras) with one config, which differ in
    their seed alone. The keys of the config in which runs of a method on a benchmark differ stand behind the
    method's name, as in ``dwopp, TEMPERATURE 2.0``. Those that make another protocol stand behind the benchmark's,
    as in ``market1501-10, ORDER_SEED 1``, or the protocol's fingerprint where the config does not tell.

    Args:
        runs: contents of ``results.json``. Runs of older versions hold no config and are not averaged with others.
    """
    return [(_benchmark_name(run, runs), _method_name(run, runs)) for run in runs]


def short_key(key: str, keys: Collection[str]) -> str:
    """A key without its group, ``TEMPERATURE``, where no other of ``keys`` is called so; else the whole key."""
    short = key.rpartition(".")[2]
    return key if any(other != key and other.rpartition(".")[2] == short for other in keys) else short


def _benchmark_name(run: Results, runs: Sequence[Results]) -> str:
    name, own = run["benchmark"], run.get("protocol")
    protocols = {other.get("protocol"): other for other in runs if other["benchmark"] == name}
    if len(protocols) == 1:
        return name
    marks = {key: _difference(other, list(protocols.values()), True) for key, other in protocols.items()}
    if "" in marks.values() or len(set(marks.values())) < len(marks):
        return f"{name} [{own or 'unknown'}]"
    return f"{name}, {marks[own]}"


def _method_name(run: Results, runs: Sequence[Results]) -> str:
    same = (run["benchmark"], run["method"])
    rivals = [other for other in runs if (other["benchmark"], other["method"]) == same]
    return ", ".join(filter(None, (run["method"], _difference(run, rivals, False))))


def _difference(run: Results, rivals: Sequence[Results], data: bool) -> str:
    """The keys and values of a run's config that tell it from its rivals (itself among them).

    ``data`` is whether keys that describe the data are looked at, or all others.
    """
    own = run.get("config", {})
    configs = [rival["config"] for rival in rivals if rival.get("config")]
    if not own:
        return "config unknown" if configs else ""
    words = []
    for key in dict.fromkeys(key for config in configs for key in config):
        if key.startswith(DATA_KEYS) != data:
            continue
        values = [config[key] for config in configs if key in config]
        if key not in own:  # a key of another version
            words.append(f"without {key}")
        elif any(value != own[key] for value in values):
            words.append(f"{short_key(key, own)} {_text(own[key], values)}")
    return ", ".join(words)


def _text(value: Any, values: Sequence[Any]) -> str:
    """A value as text; 2 as ``2.0`` where another run has it as a float, since both mean the same."""
    numbers = any(isinstance(other, float) for other in values) and type(value) is int
    return str(float(value) if numbers else value)
