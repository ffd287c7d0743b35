"""Write, read and check ``results.json``."""

import json
from pathlib import Path
from typing import Any

from lreid.errors import InputError
from lreid.results.content import NUMBER, SCHEMA, Results, keys, names_of
from lreid.results.metrics import METRICS
from lreid.utils.files import write_text
from lreid.utils.reading import escaped, misfit, read_json, require_not_newer

LARGEST = 1e100  # squares and sums of figures must stay finite

# The form of all keys that are read, in the notation of lreid.utils.reading.misfit.
FORM = {
    **{name + "?" * (not key.needed): key.form for name, key in keys().items() if key.form is not None},
    **{metric.name + "?" * (metric.name not in ("mAP", "rank1")): [[NUMBER]] for metric in METRICS},
}


def write(path: Path, results: Results) -> None:
    """Write ``results.json`` atomically, as :func:`~lreid.utils.reading.escaped` text that :func:`read` restores."""
    write_text(path, json.dumps(escaped(results)) + "\n")


def read(run: str | Path) -> Results:
    """Read the results of a run from a run folder or a ``results.json``.

    Raises:
        InputError: the file does not exist, is damaged, or is not a results file of this schema.
    """
    path = Path(run) / "results.json" if Path(run).is_dir() else Path(run)
    try:
        results = read_json(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; name the folder of a run that finished a task") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); correct its permissions") from None
    except ValueError as error:
        raise InputError(f"{path}: not valid JSON ({error}); continue with --resume to write it again") from None
    if isinstance(results, dict):
        require_not_newer(path, results.get("schema"), SCHEMA, f"not a results file of schema {SCHEMA}")
    if not isinstance(results, dict) or results.get("schema") != SCHEMA:
        raise InputError(f"{path}: not a results file of schema {SCHEMA}; name the folder of a run")
    rename_old_keys(results)
    if reason := fault(results):
        raise InputError(f"{path}: {reason}; the file is damaged: continue with --resume to write it again")
    return results  # type: ignore[return-value]


def rename_old_keys(results: Any) -> None:
    """Rename keys of earlier versions to their current names, in place."""
    summaries = results.get("accuracy_summary")
    for kinds in summaries.values() if isinstance(summaries, dict) else ():
        for figures in kinds.values() if isinstance(kinds, dict) else ():
            if isinstance(figures, dict) and "forgetting" in figures:
                figures["accuracy_forgetting"] = figures.pop("forgetting")


def fault(results: Any) -> str | None:
    """Describe the first fault in the content of a ``results.json``; None if there is none."""
    if reason := misfit(results, FORM) or _no_figure(results):
        return reason
    tasks, galleries = len(results["tasks"]), results["galleries"]
    if not tasks:
        return "tasks is empty"
    for metric in names_of(results):
        rows = results[metric]
        if not len(rows) == len(results["mAP"]) <= tasks or any(len(row) != len(galleries) for row in rows):
            return f"{metric} is not a matrix of finished tasks and galleries"
    for gallery in galleries:
        if gallery["kind"] not in ("seen", "unseen", "merged"):
            return f"kind of gallery {gallery['name']!r} is {gallery['kind']!r}, not seen, unseen or merged"
        if ("queries" in gallery) != ("gallery" in gallery):
            return f"gallery {gallery['name']!r} has one of queries and gallery, not both"
        first = gallery["first_task"]
        if (first is None) == (gallery["kind"] == "seen") or not (first is None or 0 <= first < tasks):
            return f"first_task of gallery {gallery['name']!r} is {first}, of {tasks} tasks"
    for name, kinds in results.get("accuracy", {}).items():
        if any(len(row) != place for rows in kinds.values() for place, row in enumerate(rows, start=1)):
            return f"accuracy of {name!r} has rows that do not grow with the tasks"
    for metric, rows in results.get("unfused", {}).items():
        if len(rows) != len(results["mAP"]) or any(len(row) != len(galleries) for row in rows):
            return f"unfused {metric} is not a matrix of finished tasks and galleries"
    if (crossed := results.get("cross_model")) and (reason := _no_cross_model(results, crossed)):
        return reason
    for name, history in results.get("identity_ap", {}).items():
        rows = history["ap"]
        if len(rows) != len(results["mAP"]) or any(len(row) != len(history["ids"]) for row in rows):
            return f"identity_ap of {name!r} is not a matrix of finished tasks and identities"
    for entry in results.get("loss_history", []):
        if not 0 <= entry["task"] < tasks or entry["epoch"] < 1:
            return f"loss_history has epoch {entry['epoch']} of task {entry['task']}, of {tasks} tasks"
    return None


def _no_cross_model(results: dict[str, Any], crossed: dict[str, Any]) -> str | None:
    names = [gallery["name"] for gallery in results["galleries"]]
    if sorted(crossed) != sorted(names):
        return "cross_model is not of the galleries"
    lengths = list(range(1, len(results["mAP"]) + 1))
    for gallery, matrices in crossed.items():
        for metric in names_of(results):  # type: ignore[arg-type]
            if [len(row) for row in matrices.get(metric, [])] != lengths:
                return f"cross_model of {gallery!r} has no {metric} whose rows grow with the tasks"
    return None


def _no_figure(results: dict[str, Any]) -> str | None:
    """Describe the first number that is infinite, NaN or too large to compute with; None if there is none."""
    read_keys = {name.removesuffix("?") for name in FORM}
    waiting = [(key, value) for key, value in results.items() if key in read_keys]
    while waiting:  # a loop, because a config may be nested too deeply for recursion
        key, value = waiting.pop()
        if isinstance(value, (int, float)) and not abs(value) < LARGEST:
            return f"{key} has a number that is not finite or beyond {LARGEST:g}"
        if isinstance(value, (dict, list)):
            waiting += [(key, each) for each in (value.values() if isinstance(value, dict) else value)]
    return None
