"""Write the tables of results into the pages, from the CSV lists of runs in ``docs/results``.

    python docs/tables.py

``docs/tables.yaml`` defines every table. A test fails if a page is out of date.
"""

import csv
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "docs" / "results"
DEFINITIONS = ROOT / "docs" / "tables.yaml"
BLOCK = re.compile(r"^<!-- (?P<name>[a-z0-9-]+) -->$.*?^<!-- end (?P=name) -->$", re.M | re.S)

COLUMNS = {
    "benchmark": ("benchmark", ""),
    "identities": ("identities per batch", ""),
    "rate": ("learning rate", ""),
    "seen_mAP": ("seen mAP", ".1f"),
    "seen_rank1": ("seen Rank-1", ".1f"),
    "unseen_mAP": ("unseen mAP", ".1f"),
    "unseen_rank1": ("unseen Rank-1", ".1f"),
    "merged_mAP": ("merged mAP", ".1f"),
    "merged_rank1": ("merged Rank-1", ".1f"),
    "current_mAP": ("mAP of the task just learned", ".1f"),
    **{
        f"rank1_{place}": (f"Rank-1, {place}", ".1f")
        for place in ("snow", "campus", "park", "station", "mall", "market")
    },
    "mean_over_tasks_mAP": ("average incremental mAP", ".1f"),
    "forgetting": ("forgetting", ".1f"),
    "plasticity": ("plasticity", "+.1f"),
    "reindex_free_mAP": ("mAP in old galleries", ".1f"),
    "mapped_mAP": ("mAP in mapped galleries", ".1f"),
    "as_it_is": ("as it is", ".1f"),
    "both_models": ("both models kept", ".1f"),
    "procrustes": ("Procrustes", ".1f"),
    "affine": ("affine", ".1f"),
    "network": ("network", ".1f"),
    "mapped": ("ridge", ".1f"),
    "chained": ("chain", ".1f"),
    "again": ("extracted again", ".1f"),
    "exemplars": ("exemplars", ",.0f"),
    "images_trained": ("image presentations", ",.0f"),
    "drift_stored": ("drift, stored images", ".3f"),
    "drift_held_out": ("drift, held-out images", ".3f"),
    "average_incremental_accuracy": ("average incremental accuracy", ".1f"),
    "class_accuracy": ("class-IL accuracy", ".1f"),
    "task_accuracy": ("task-IL accuracy", ".1f"),
    "accuracy_forgetting": ("accuracy forgetting", ".1f"),
    "before": ("mAP before", ""),
    "mAP": ("mAP", ".1f"),
    "gain": ("% of the gain with all labels", ".0f"),
    "train_seconds": ("training, seconds", ".0f"),
    "stored_networks_mib": ("stored networks, MiB", ".1f"),
    "stored_domain_mib": ("stored per domain, MiB", ".1f"),
    "stored_identity_kib": ("stored per identity, KiB", ".0f"),
    "adapter_kib": ("size of an adapter, KiB", ""),
}  # column of a list of runs: heading, format of its figures ("" for a setting, printed as it stands)
OVER_TASKS = {
    "mean_over_tasks_mAP",
    "forgetting",
    "plasticity",
    "reindex_free_mAP",
    "mapped_mAP",
}  # joint training has one task
COUNTS = ",.0f"  # the format of counts, which have no spread

Run = Mapping[str, str]


@cache
def read(file: str) -> list[dict[str, str]]:
    """Read the rows of a CSV list of runs in ``docs/results``."""
    with open(RUNS / file, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@cache
def definitions() -> dict[str, dict[str, Any]]:
    """Read the definitions of the tables in ``docs/tables.yaml``, by name."""
    loaded: dict[str, dict[str, Any]] = yaml.safe_load(DEFINITIONS.read_text(encoding="utf-8"))
    return loaded


def select(table: Mapping[str, Any], row: Mapping[str, Any]) -> list[dict[str, str]]:
    """Select the runs of one table row: seeds 0, 1 and 2 of the runs whose columns have the values of the row.

    Raises:
        ValueError: no run matches, or two runs have the same seed, which means that the row mixes two settings.
    """
    wanted = {key: str(value) for key, value in (table.get("where", {}) | row).items() if key != "runs"}
    runs = [
        run
        for run in read(row.get("runs", table["runs"]))
        if run.get("seed", "0") in "012" and all(run[key] == value for key, value in wanted.items())
    ]
    seeds = [run.get("seed", "0") for run in runs]
    if not runs or len(set(seeds)) < len(seeds):
        raise ValueError(f"{row}: {len(runs)} runs with seeds {seeds}")
    return runs


def values(runs: Iterable[Run], column: str) -> list[float]:
    """Values of a column; empty if the list does not have the column."""
    return [float(run[column]) for run in runs if run.get(column)]


def figure(numbers: list[float], form: str, spread: Callable[[list[float]], float]) -> str:
    """Format the mean and spread of a cell, without the spread for a single run and for counts."""
    if not numbers:
        return ""
    middle = format(mean(numbers), form)
    middle = middle if middle.strip("+-0.") else middle.lstrip("+-")  # no -0.0
    plain = len(numbers) == 1 or form == COUNTS
    return middle if plain else f"{middle} ± {format(spread(numbers), form.lstrip('+'))}"


def runs_table(table: Mapping[str, Any]) -> list[list[str]]:
    """Make a table with one row per group of runs: its settings, then mean ± standard deviation over seeds."""
    rows = table["rows"]
    if rows == "all":  # each method of the list by itself, best first
        names = {run["method"] for run in read(table["runs"]) if "," not in run["method"]}
        rows = {f"`{name}`": name for name in names}
        best = {label: mean(values(select(table, {"method": name}), "seen_mAP")) for label, name in rows.items()}
        rows = {label: rows[label] for label in sorted(rows, key=lambda label: (-best[label], label))}
    cells = []
    for label, row in rows.items():
        row = {"method": row} if isinstance(row, str) else row
        runs = select(table, row)
        joint = runs[0].get("method", "").endswith("joint")
        line = [label, str(len(runs))]
        for column in table["columns"]:
            form = COLUMNS[column][1]
            if not form:
                line.append(runs[0][column])
            else:
                line.append("" if joint and column in OVER_TASKS else figure(values(runs, column), form, stdev))
        cells.append(line)
    headings = [table.get("heading", "method"), "seeds", *(COLUMNS[column][0] for column in table["columns"])]
    return [headings, *cells]


def differences_table(table: Mapping[str, Any]) -> list[list[str]]:
    """Make a table with one row per pair of groups: mean difference between runs of the same seed ± standard error."""
    cells = []
    for label, pair in table["rows"].items():
        first, second = ({"method": part} if isinstance(part, str) else part for part in (pair["of"], pair["less"]))
        left, right = ({run["seed"]: run for run in select(table, part)} for part in (first, second))
        before = pair.get("column_of_less", "")  # "unfused_": the figures before the weights were averaged
        line = [label, str(len(left.keys() & right.keys()))]
        for column in table["columns"]:
            gaps = [
                float(left[seed][column]) - float(right[seed][before + column])
                for seed in sorted(left.keys() & right.keys())
                if left[seed].get(column) and right[seed].get(before + column)
            ]
            line.append(figure(gaps, "+.1f", lambda gaps: stdev(gaps) / math.sqrt(len(gaps))))
        cells.append(line)
    return [["difference", "seeds", *(COLUMNS[column][0] for column in table["columns"])], *cells]


def list_table(table: Mapping[str, Any]) -> list[list[str]]:
    """Make a table of evaluations of trained models, without averages because these have neither seeds nor a spread."""
    rows = read(table["runs"])
    return [list(rows[0]), *([*row.values()] for row in rows)]


def overview_table(_: Mapping[str, Any]) -> list[list[str]]:
    """Make a table of numbers of seeds: one row per file of ``configs/methods``, one column per benchmark."""
    seeds: dict[tuple[str, str], set[str]] = defaultdict(set)
    for file in sorted(RUNS.glob("*.csv")):
        for run in read(file.name):
            if {"benchmark", "method", "seed"} <= run.keys():  # lists of trials name no benchmark
                seeds[run["benchmark"], run["method"].partition(",")[0]].add(run["seed"])  # without changed options
    benchmarks = sorted({benchmark for benchmark, _ in seeds})
    methods = sorted(
        {file.stem for file in (ROOT / "configs" / "methods").glob("*.yaml")} & {name for _, name in seeds}
    )
    counts = [[str(len(seeds[at, name])) if (at, name) in seeds else "" for at in benchmarks] for name in methods]
    return [["method", *benchmarks], *([f"`{name}`", *row] for name, row in zip(methods, counts, strict=True))]


KINDS = {"runs": runs_table, "differences": differences_table, "list": list_table, "overview": overview_table}


def markdown(name: str) -> str:
    """Format the table with this name in Markdown, in the form of its page."""
    table = definitions()[name]
    cells = KINDS[table.get("kind", "runs")](table)
    rule = ["---", *["---:"] * (len(cells[0]) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [cells[0], rule, *cells[1:]])


def written(page: str) -> str:
    """Return the text of a page with its tables up to date."""

    def block(found: re.Match[str]) -> str:
        name = found["name"]
        return f"<!-- {name} -->\n\n{markdown(name)}\n\n<!-- end {name} -->"

    return BLOCK.sub(block, page)


def pages() -> list[Path]:
    """List the pages that contain generated tables."""
    return sorted({ROOT / table["page"] for table in definitions().values()})


if __name__ == "__main__":
    for page in pages():
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
