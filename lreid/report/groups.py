"""Which runs may be averaged, and what tells the others apart."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lreid.errors import InputError
from lreid.results import Results

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


class Group(NamedTuple):
    """Runs that are averaged: one line of a table, one line of a chart.

    Attributes:
        benchmark, method: of :func:`group_names`.
        ap: convention of average precision.
        tasks: ``10``, or ``5/10`` where runs are not finished.
        seed: where each run has a group of its own; else empty.
        runs: contents of ``results.json``.
    """

    benchmark: str
    method: str
    ap: str
    tasks: str
    seed: str
    runs: list[Results]

    @property
    def name(self) -> str:
        """All that tells it from others, as one line."""
        return ", ".join(filter(None, (self.method, self.benchmark, self.ap, f"{self.tasks} tasks")))


def grouped(runs: Sequence[Results], *, each: bool = False) -> list[Group]:
    """Runs of one name, AP convention, number of finished tasks and test sets together, in the order of the first runs.

    Args:
        runs: contents of ``results.json``.
        each: every run apart.
    """
    groups: dict[tuple, Group] = {}
    for place, (run, names) in enumerate(zip(runs, group_names(runs), strict=True)):
        done, total = len(run["mAP"]), len(run["tasks"])
        tasks = str(total) if done == total else f"{done}/{total}"
        key = (*names, run["ap"], tasks, str(run["seed"]) if each else "")
        tests = tuple(gallery["name"] for gallery in run["galleries"])  # old runs have no fingerprint to go by
        groups.setdefault((key, tests, each and place), Group(*key, [])).runs.append(run)
    return list(groups.values())


def require_one_run_a_seed(runs: Sequence[Results], folders: Sequence[Path]) -> None:
    """A seed that is made again is no further sample: it would count in n and make the deviation too small.

    Args:
        runs: contents of ``results.json``.
        folders: where each of them lies.

    Raises:
        InputError: two runs of one group have the same seed.
    """
    places = {id(run): folder for run, folder in zip(runs, folders, strict=True)}
    for group in grouped(runs):
        of_seed: dict[int, Path] = {}
        for run in group.runs:
            folder = places[id(run)]
            if (first := of_seed.setdefault(run["seed"], folder)) != folder:
                raise InputError(
                    f"{folder}: has the seed and config of {first}, and a seed counts once; name one of the two"
                )


def labels(groups: Sequence[Group]) -> list[str]:
    """What tells the groups of one benchmark apart: the method; AP convention and tasks only where these differ."""
    several_aps = len({group.ap for group in groups}) > 1
    words = [
        (group.method, f"{group.ap} AP" if several_aps else "", f"{group.tasks} tasks" if "/" in group.tasks else "")
        for group in groups
    ]
    return [", ".join(filter(None, each)) for each in words]


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
