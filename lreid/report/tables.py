"""Group the runs that may be averaged, and make tables of runs and of tested models as text, Markdown, CSV or LaTeX."""

import math
import statistics
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tabulate import tabulate

from lreid.errors import InputError, counted
from lreid.results import (
    CROSSED,
    METRICS,
    CrossedKey,
    Results,
    average,
    averaged_kinds,
    cross_average,
    is_trained,
    last_figures,
)

DATA_KEYS = ("BENCHMARK.", "SYNTHETIC.")  # groups of config keys that the fingerprint of the protocol covers
WIDTH = 100  # maximum width of a task table in characters


def group_names(runs: Sequence[Results]) -> list[tuple[str, str]]:
    """Return the benchmark and method name of each run; runs with equal names may be averaged.

    Runs with equal names differ only in their seed: they have the same method, protocol (identities, splits, cameras)
    and config. If runs of a method on a benchmark have different config keys, these follow the name of the method, as
    in ``dwopp, TEMPERATURE 2.0``. Keys that change the protocol follow the name of the benchmark, as in
    ``market1501-10, ORDER_SEED 1``. If protocols differ but keys do not, the fingerprint of the protocol follows
    instead.

    Args:
        runs: contents of ``results.json``. Runs without a config are never averaged with others.
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
        tasks = f"{self.tasks} task{'s' * (self.tasks != '1')}"
        return ", ".join(filter(None, (self.method, self.benchmark, self.ap, tasks)))


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
    """Refuse two runs with the same seed in a group, which would make the standard deviation too small."""
    places = {id(run): folder for run, folder in zip(runs, folders, strict=True)}
    for group in grouped(runs):
        of_seed: dict[int, Path] = {}
        for run in group.runs:
            folder = places[id(run)]
            if (first := of_seed.setdefault(run["seed"], folder)) != folder:
                raise InputError(f"{folder}: has the same seed and config as {first}; pass only one of the two")


def by_benchmark(groups: Sequence[Group]) -> list[tuple[list[Group], str]]:
    """Return the groups of each benchmark, with a suffix for titles that names the benchmark if there are several."""
    names = dict.fromkeys(group.benchmark for group in groups)
    return [([group for group in groups if group.benchmark == name], f", {name}" * (len(names) > 1)) for name in names]


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
    """Describe each run by the config keys that differ, either those of the data or all others."""
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


Spread = tuple[float | None, float | None]  # mean and standard deviation


class Column(NamedTuple):
    """A column of a comparison: metric key, heading, number of decimals, and whether to show the sign."""

    key: str
    title: str
    digits: int = 1
    signed: bool = False

    def text(self, mean: float | None, std: float | None = None) -> str:
        """Format a cell, see :func:`spread_text`."""
        return spread_text(mean, std, self.digits, self.signed)


# Titles of the kinds of test sets, by the prefix that their metrics have in the summary.
SETS = {"seen": "seen", "unseen": "unseen", "merged": "merged", "reindex_free": "re-index-free", "mapped": "mapped"}
SETS |= {"unfused_seen": "un-fused seen", "unfused_unseen": "un-fused unseen"}
OPTIONAL = ("merged_", "reindex_free_", "mapped_", "unfused_")  # metrics that only some runs have
CHANGES = {"forgetting": " (drop < 0)", "plasticity": "", "backward_transfer": "", "forward_transfer": ""}


def result_columns(*, main: bool = False) -> tuple[Column, ...]:
    """Make columns for the metrics after the last task on each kind of test set, and for the means over all tasks."""
    metrics = [each for each in METRICS if each.main or not main]
    return (
        *(Column(f"{key}_{each.name}", f"{title} {each.title}") for key, title in SETS.items() for each in metrics),
        Column("mean_over_tasks_mAP", "mean mAP"),
        Column("forgetting", "forgetting (drop < 0)", signed=True),
        Column("plasticity", "plasticity", signed=True),
    )


def per_set_columns(runs: Sequence[Results]) -> tuple[Column, ...]:
    """Make columns for the main metrics on every test set after the last task, and for their means."""
    columns, metrics = [], [metric for metric in METRICS if metric.main]
    for kind in SETS:
        names = dict.fromkeys(each["name"] for run in runs for each in run["galleries"] if each["kind"] == kind)
        keys = {f"test/{name}/": name for name in names} | ({f"{kind}_": f"{kind} mean"} if len(names) > 1 else {})
        columns += [Column(key + each.name, f"{title} {each.title}") for key, title in keys.items() for each in metrics]
    return tuple(columns)


TRANSFER = (
    Column("backward_transfer", "backward transfer", signed=True),
    Column("forward_transfer", "forward transfer"),
)
IMAGES_TRAINED = Column("images_trained", "images", digits=0)
COST = (
    IMAGES_TRAINED,
    Column("exemplars", "exemplars", digits=0),
    Column("train_seconds", "train s", digits=0),
    Column("peak_memory_mib", "peak MiB", digits=0),
    Column("step_ms", "ms per step"),
)
# Columns of what is stored between tasks, with their unit in bytes, by key of results.json.
STORED = {
    "networks": (Column("stored_networks_mib", "stored networks, MiB"), 2**20),
    "domain": (Column("stored_domain_mib", "stored per domain, MiB"), 2**20),
    "identity": (Column("stored_identity_kib", "stored per identity, KiB"), 2**10),
    "templates": (Column("stored_templates", "templates of people", digits=0), 1),
    "adapter": (Column("stored_adapter_mib", "adapter, MiB", digits=2), 2**20),
}
SWITCHES = (
    Column("drift_stored", "drift, stored", digits=3),
    Column("drift_held_out", "drift, held out", digits=3),
    Column("gradient_stored", "gradient, stored", digits=3),
    Column("gradient_incoming", "gradient, incoming", digits=3),
)


def task_table(results: Results) -> str:
    """Format the results after every finished task, as text for a terminal of 100 columns.

    Cells are mAP / Rank-1 in per cent, in brackets if the gallery's domain had not been trained yet. If the galleries
    do not fit side by side, the table shows averages after every task and single galleries after the last task.
    """
    done, config = len(results["mAP"]), results.get("config", {})
    head = (
        f"{results['method']} on {results['benchmark']}, seed {results['seed']}: "
        f"{done} of {counted(len(results['tasks']), 'task')}"
    )
    index = f", ranked by faiss-{config['EVAL.INDEX']}" if config.get("EVAL.BACKEND") == "faiss" else ""
    convention = f"mAP / Rank-1 in per cent, {results['ap']} AP{index}"
    if not done:
        return f"{head}\n{convention}"
    if not results["galleries"]:
        return f"{head}; nothing is measured, because there are no test images"
    lines = [head, convention, "", _by_task_and_gallery(results)]
    changes = [
        f"{key.replace('_', ' ')} {number(results['summary'][key], signed=key != 'forward_transfer')}{note}"
        for key, note in CHANGES.items()
        if results["summary"].get(key) is not None
    ]
    if changes:
        lines.append(", ".join(changes))
    if results.get("cross_model") and done > 1:
        lines += [line for key in CROSSED if results.get(key) for line in ("", past_gallery_table(results, key))]
    return "\n".join(lines)


def _by_task_and_gallery(results: Results) -> str:
    """Show single galleries after every task; if they do not fit, show averages, and single galleries at the end."""
    galleries, rows = results["galleries"], range(len(results["mAP"]))
    kinds = averaged_kinds(results)
    names = [f"{row + 1} {results['tasks'][row]}" for row in rows]
    averages = [
        [_pair(average(results, "mAP", row, kind), average(results, "rank1", row, kind)) for kind in kinds]
        for row in rows
    ]
    cells = [[_cell(results, row, column) for column in range(len(galleries))] for row in rows]
    titles = [f"{kind} mean" for kind in kinds]
    heads = ["after task", *(gallery["name"] for gallery in galleries), *titles]
    body = text_table(heads, [[name, *line, *means] for name, line, means in zip(names, cells, averages, strict=True)])
    if len(body.partition("\n")[0]) > WIDTH and kinds:
        means = [[name, *row] for name, row in zip(names, averages, strict=True)]
        by_task = text_table(["after task", *titles], means)
        last = [[gallery["name"], gallery["kind"], cell] for gallery, cell in zip(galleries, cells[-1], strict=True)]
        body = f"{by_task}\n\n{text_table([f'after task {len(rows)}', 'kind', 'mAP / Rank-1'], last)}"
        cells = cells[-1:]
    if any(cell.startswith("(") for line in cells for cell in line):
        body += "\n(in brackets: the domain had not been trained yet)"
    return body


def past_gallery_table(results: Results, key: CrossedKey = "cross_model") -> str:
    """Format the mAP of each model's queries (rows) in galleries of this model and of all earlier models (columns).

    With the key ``cross_model_mapped``, earlier galleries are mapped to the row's model. A value is the mean over the
    test sets on whose domain the column's model was trained.
    """
    rows = [[name, *map(number, values)] for name, values in past_gallery_rows([results], key)]
    free = [number(results["summary"].get(f"{CROSSED[key]}_{metric}")) for metric in ("mAP", "rank1")]
    mapped = ", mapped to the row's model" if key == "cross_model_mapped" else ""
    return (
        f"mAP: features of queries by the row's model, of the seen galleries by the column's model{mapped}\n\n"
        + text_table(["after task", *(str(row + 1) for row in range(len(rows)))], rows)
        + f"\neach gallery with the features of the model that trained its domain{mapped and ', mapped'}: "
        + " / ".join(free)
    )


def past_gallery_rows(runs: Sequence[Results], key: CrossedKey = "cross_model") -> list[tuple[str, list[float | None]]]:
    """Average the rows of :func:`past_gallery_table` over the runs of a group; a row is a task name and values."""
    rows: list[tuple[str, list[float | None]]] = []
    for row in range(min((len(run["mAP"]) for run in runs), default=0)):
        columns = [[cross_average(run, "mAP", row, past, key) for run in runs] for past in range(row + 1)]
        measured = [[value for value in column if value is not None] for column in columns]
        rows.append((f"{row + 1} {runs[0]['tasks'][row]}", [_mean(values) for values in measured]))
    return rows


def score_table(results: dict[str, Any]) -> str:
    """Format metrics of models on test sets in per cent: a row per checkpoint, test set and variant, then notes."""
    rates = sorted({rate["false_accept_rate"] for row in results["rows"] for rate in row["open_set"]}, reverse=True)
    heads = [*(metric.title for metric in METRICS), *(f"TPR@{rate:g}%" for rate in rates), "no match"]
    rows = []
    for row in results["rows"]:
        by_rate = {rate["false_accept_rate"]: rate["true_positive_rate"] for rate in row["open_set"]}
        rows.append(
            [
                row["checkpoint"],
                row["test"],
                row["variant"] + (" (transductive)" if row["transductive"] else ""),
                *(number(row.get(metric.name)) for metric in METRICS),
                *(number(by_rate.get(rate)) for rate in rates),
                str(row["num_absent"] + row["num_filtered"]),
            ]
        )
    head = f"per cent; {results['ap']} AP, {results['metric']} metric" + ("" if not rates else "; open set by cosine")
    return "\n".join(
        [head, "", text_table(["checkpoint", "test set", "features", *heads], rows, left=3), *results["notes"]]
    )


def index_table(results: dict[str, Any]) -> str:
    """Show how much accuracy indexes lose compared with exact ranking, and metrics that help to choose one."""
    exact = {(row["checkpoint"], row["test"]): row for row in results["rows"] if row["variant"] == "plain"}
    shown = [("mAP", "mAP"), ("rank1", "R1")]
    heads = ["checkpoint", "test set", "index", *(head for _, title in shown for head in (title, "minus exact"))]
    heads += ["recall@1", "@10", "@100", "queries/s", "MB", "build, s"]
    rows, depths = [], set()
    for row in results["rows"]:
        if "index" not in row:
            continue
        right, index = exact[row["checkpoint"], row["test"]], row["index"]
        depths.add("all images" if row["index"]["name"] == "flat" else f"the {index['depth']} images")
        figures = [text for key, _ in shown for text in (number(row[key]), number(row[key] - right[key], signed=True))]
        recalls = [number(index["recall"].get(k)) for k in ("1", "10", "100")]
        measures = (number(index["queries_per_second"], 0), number(index["megabytes"]), number(index["build_seconds"]))
        rows.append([row["checkpoint"], row["test"], index["name"], *figures, *recalls, *measures])
    head = f"per cent; the index returns {' or '.join(sorted(depths))} per query, and all other images rank after these"
    return "\n".join([head, "", text_table(heads, rows, left=3)])


def cross_model_table(results: dict[str, Any]) -> str:
    """For each test set, show the mAP with each model's queries (rows) and each model's gallery (columns)."""
    tables = []
    for matrix in results["cross_model"]:
        names = matrix["checkpoints"]
        rows = [[name, *map(number, line)] for name, line in zip(names, matrix["mAP"], strict=True)]
        tables.append(
            f"mAP on {matrix['test']}: features of queries by the row's model, of the gallery by the column's model\n\n"
            + text_table(["query model", *names], rows)
        )
    return "\n\n".join(tables)


def cost_columns(runs: Sequence[Results]) -> tuple[Column, ...]:
    """Return the columns of what runs cost and store; the adapter's size only if a run has an adapter."""
    adapted = any("adapter" in (run.get("stored") or {}) for run in runs)
    return *COST, *(column for key, (column, _) in STORED.items() if key != "adapter" or adapted)


def _cost(run: Results) -> dict[str, float | None]:
    """Return the values for :func:`cost_columns`, None for values that the run did not record."""
    seconds = run.get("seconds", {})
    trained = seconds.get("train_cpu") or seconds.get("train")
    steps = run.get("steps_trained")
    stored = run.get("stored") or {}
    return {
        "images_trained": run.get("images_trained"),
        "exemplars": run.get("exemplars"),
        "train_seconds": trained,
        "peak_memory_mib": run.get("peak_memory_mib"),
        "step_ms": 1000 * trained / steps if trained and steps else None,
    } | {column.key: stored[key] / unit if key in stored else None for key, (column, unit) in STORED.items()}


def _switches(run: Results) -> dict[str, float | None]:
    """Return the values for :data:`SWITCHES`, None for values that the run did not record."""
    moved: dict[str, list[float]] = {"stored": [], "held_out": []}
    for switch in run.get("drift") or []:
        for name, curves in switch.items():
            if name != "task":
                moved["stored" if name == "buffer" else "held_out"] += curves["step"]
    norms = run.get("gradient_norms") or []
    return {f"drift_{name}": _mean(values) for name, values in moved.items()} | {
        f"gradient_{name}": _mean([value for switch in norms for value in switch.get(name, []) if value is not None])
        for name in ("stored", "incoming")
    }


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _pair(mean_ap: float | None, rank1: float | None) -> str:
    return "–" if mean_ap is None else f"{number(mean_ap)} / {number(rank1)}"


def _cell(results: Results, row: int, column: int) -> str:
    gallery = results["galleries"][column]
    text = _pair(results["mAP"][row][column], results["rank1"][row][column])
    return text if gallery["kind"] != "seen" or is_trained(gallery, row) else f"({text})"


def group_figures(groups: Sequence[Group], columns: Sequence[Column]) -> list[list[Spread]]:
    """Compute the mean and standard deviation of each column over the runs of each group.

    For methods that learn all tasks at once, means over tasks are None, because there is a single task.
    """
    tasks: dict[str, int] = {}  # by benchmark
    for group in groups:
        tasks[group.benchmark] = max(tasks.get(group.benchmark, 0), len(group.runs[0]["tasks"]))
    spreads = []
    for group in groups:
        figures = [run["summary"] | last_figures(run) | _cost(run) | _switches(run) for run in group.runs]
        if len(group.runs[0]["tasks"]) == 1 < tasks[group.benchmark]:
            figures = [each | {"mean_over_tasks_mAP": None} for each in figures]
        spreads.append([mean_and_std([each.get(column.key) for each in figures]) for column in columns])
    return spreads


def mean_and_std(values: Sequence[float | None]) -> Spread:
    """Return mean and sample standard deviation (None for one value), or two None if any value is None."""
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return None, None
    return statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None


def spread_text(mean: float | None, std: float | None, digits: int = 1, signed: bool = False) -> str:
    """Format mean and standard deviation as text, ``82.8 ± 1.4``, without parts that are None."""
    text = number(mean, digits, signed)
    return text if std is None else f"{text} ± {number(std, digits)}"


def text_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, style: str = "simple") -> str:
    """Format a table as text; the first ``left`` columns are flush left, and the others flush right."""
    return tabulate(rows, heads, tablefmt=style, stralign="right", colalign=left * ["left"], disable_numparse=True)


def number(value: float | None, digits: int = 1, signed: bool = False) -> str:
    """Format a number as text, or as a dash if it is None."""
    if value is None or math.isnan(value):
        return "–"
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    return text if float(text) else text.lstrip("+-")  # no -0.0


def duration(seconds: float) -> str:
    """Format seconds as text: ``1 h 2 min``, ``3 min 5 s`` or ``7 s``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
