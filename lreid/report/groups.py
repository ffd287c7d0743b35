"""Group runs that may be averaged, and name the groups by their differences."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lreid.errors import InputError
from lreid.results import Results

DATA_KEYS = ("BENCHMARK.", "SYNTHETIC.")  # groups of config keys that the fingerprint of the protocol covers


def group_names(runs: Sequence[Results]) -> list[tuple[str, str]]:
    """Return the benchmark and method name of each run; runs with equal names may be averaged.

    Runs with equal names differ only in their seed: they have the same method, protocol (identities, splits, cameras)
    and config. If runs of a method on a benchmark have different config keys, these follow the name of the method, as
    in ``dwopp, TEMPERATURE 2.0``. Keys that change the protocol follow the name of the benchmark, as in
    ``market1501-10, ORDER_SEED 1``. If protocols differ but keys do not, the fingerprint of the protocol follows
    instead.

    Args:
        runs: contents of ``results.json``. Runs of older versions contain no config and are never averaged with others.
    """
    return list(zip(_benchmark_names(runs), _method_names(runs), strict=True))


class Group(NamedTuple):
    """Runs that are averaged; a group is a row of a table and a line of a chart.

    Attributes:
        benchmark, method: names from :func:`group_names`.
        ap: convention of average precision.
        tasks: number of tasks as text: ``10``, or ``5/10`` if the runs have finished 5 of 10 tasks.
        seed: the seed, if every run is a group of its own; otherwise empty.
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
        """One line that distinguishes the group from all other groups."""
        return ", ".join(
            filter(None, (self.method, self.benchmark, self.ap, f"{self.tasks} task{'s' * (self.tasks != '1')}"))
        )


def grouped(runs: Sequence[Results], *, each: bool = False) -> list[Group]:
    """Group runs with equal names, AP convention, finished tasks and test sets; groups keep the order of the runs."""
    groups: dict[tuple, Group] = {}
    for place, (run, names) in enumerate(zip(runs, group_names(runs), strict=True)):
        done, total = len(run["mAP"]), len(run["tasks"])
        tasks = str(total) if done == total else f"{done}/{total}"
        key = (*names, run["ap"], tasks, str(run["seed"]) if each else "")
        tests = tuple(gallery["name"] for gallery in run["galleries"])  # old runs have no fingerprint
        groups.setdefault((key, tests, each and place), Group(*key, [])).runs.append(run)
    return list(groups.values())


def require_one_run_a_seed(runs: Sequence[Results], folders: Sequence[Path]) -> None:
    """Refuse two runs with the same seed in a group, which would make the standard deviation too small.

    Raises:
        InputError: two runs of one group have the same seed; the message names their folders.
    """
    places = {id(run): folder for run, folder in zip(runs, folders, strict=True)}
    for group in grouped(runs):
        of_seed: dict[int, Path] = {}
        for run in group.runs:
            folder = places[id(run)]
            if (first := of_seed.setdefault(run["seed"], folder)) != folder:
                raise InputError(
                    f"{folder}: has the same seed and config as {first}, so the two count as one run; pass only "
                    "one of the two"
                )


def by_benchmark(groups: Sequence[Group]) -> list[tuple[list[Group], str]]:
    """Return the groups of each benchmark, with a suffix for titles that names the benchmark if there are several."""
    names = dict.fromkeys(group.benchmark for group in groups)
    return [
        ([group for group in groups if group.benchmark == name], f", {name}" if len(names) > 1 else "")
        for name in names
    ]


def labels(groups: Sequence[Group]) -> list[str]:
    """Name the groups of a benchmark by method, and by AP convention and number of tasks if these differ."""
    several_aps = len({group.ap for group in groups}) > 1
    words = [
        (group.method, f"{group.ap} AP" if several_aps else "", f"{group.tasks} tasks" if "/" in group.tasks else "")
        for group in groups
    ]
    return [", ".join(filter(None, each)) for each in words]


def short_key(key: str, keys: Collection[str]) -> str:
    """Remove the section from a config key, as in ``TEMPERATURE``, if the rest is unique in ``keys``."""
    short = key.rpartition(".")[2]
    return key if any(other != key and other.rpartition(".")[2] == short for other in keys) else short


def _benchmark_names(runs: Sequence[Results]) -> list[str]:
    """Name each run's benchmark, followed by the keys in which its protocol differs from other runs."""
    names = [run["benchmark"] for run in runs]
    for name in set(names):
        protocols = {run.get("protocol"): run for run in runs if run["benchmark"] == name}
        if len(protocols) == 1:
            continue
        marks = dict(zip(protocols, _differences(list(protocols.values()), data=True), strict=True))
        distinct = "" not in marks.values() and len(set(marks.values())) == len(marks)
        for place, run in enumerate(runs):
            if run["benchmark"] == name:
                own = run.get("protocol")
                names[place] = f"{name}, {marks[own]}" if distinct else f"{name} [{own or 'unknown'}]"
    return names


def _method_names(runs: Sequence[Results]) -> list[str]:
    """Name each run's method, followed by the keys that differ between its runs on the benchmark."""
    rivals: dict[tuple[str, str], list[int]] = {}
    for place, run in enumerate(runs):
        rivals.setdefault((run["benchmark"], run["method"]), []).append(place)
    names = [run["method"] for run in runs]
    for places in rivals.values():
        for place, difference in zip(places, _differences([runs[each] for each in places], data=False), strict=True):
            names[place] = ", ".join(filter(None, (names[place], difference)))
    return names


def _differences(runs: Sequence[Results], *, data: bool) -> list[str]:
    """Find the config keys that differ between runs, and return their values in each run.

    With ``data=True``, only keys that describe the data are compared. With ``data=False``, only the other keys are
    compared.
    """
    configs = [run["config"] for run in runs if run.get("config")]
    varied: dict[str, list[Any]] = {}  # values of keys that differ between runs
    for key in dict.fromkeys(key for config in configs for key in config):
        values = [config[key] for config in configs if key in config]
        if key.startswith(DATA_KEYS) == data and (len(values) < len(configs) or any(v != values[0] for v in values)):
            varied[key] = values

    def description(own: dict[str, Any]) -> str:
        if not own:
            return "config unknown" if configs else ""
        return ", ".join(
            f"{short_key(key, own)} {_text(own[key], values)}" if key in own else f"without {key}"
            for key, values in varied.items()
            if key not in own or any(value != own[key] for value in values)
        )

    return [description(run.get("config", {})) for run in runs]


def _text(value: Any, values: Sequence[Any]) -> str:
    """Format a value as text; if another run has a float, 2 becomes ``2.0``, so that equal values look the same."""
    numbers = any(isinstance(other, float) for other in values) and type(value) is int
    return str(float(value) if numbers else value)
