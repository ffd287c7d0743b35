"""Reading ``results.json``, and the averages that tables, plots and page show alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from lreid.errors import InputError
from lreid.files import misfit, read_json

Results = dict[str, Any]
Kind = Literal["seen", "unseen"]
KINDS: tuple[Kind, ...] = ("seen", "unseen")

NUMBER = (int, float)
FIGURE = (int, float, type(None))
CURVES = {"step": [NUMBER], "since_switch": [NUMBER]}
ANYTIME = {"anytime_accuracy": [NUMBER]}
LARGEST = 1e100  # squares and sums of figures must stay finite

# What tables, plots and page read, in the notation of lreid.files.misfit.
FORM = {
    "method": str,
    "benchmark": str,
    "seed": int,
    "ap": str,
    "tasks": [str],
    "galleries": [{"name": str, "kind": str, "first_task": (int, type(None)), "queries?": int, "gallery?": int}],
    "mAP": [[NUMBER]],
    "rank1": [[NUMBER]],
    "rank5?": [[NUMBER]],
    "rank10?": [[NUMBER]],
    "summary": {str: FIGURE},
    "protocol?": str,
    "config?": {},
    "identity_ap?": {str: {"ids": [int], "ap": [[NUMBER]]}},
    "seconds?": {str: NUMBER},
    "images_per_second?": NUMBER,
    "peak_memory_mib?": NUMBER,
    "exemplars?": int,
    "skipped_images?": int,
    "steps_trained?": int,
    "images_trained?": int,
    "loss_history?": [{"task": int, "epoch": int, str: NUMBER}],
    "drift?": [{"task": int, str: CURVES}],
    "gradient_norms?": [{"task": int, str: [FIGURE]}],
    "accuracy?": {str: {"class": [[NUMBER]], "task": [[NUMBER]]}},
    "accuracy_summary?": {str: {"class": ANYTIME, "task": ANYTIME}},
    "alignment?": [{str: NUMBER}],
    "versions?": {str: str},
}


def read_results(run: str | Path) -> Results:
    """Reads the results of a run.

    Args:
        run: a run folder, or the ``results.json`` in one.

    Raises:
        InputError: there is no such file, or it is not a results file of schema 1 that is whole.
    """
    path = Path(run) / "results.json" if Path(run).is_dir() else Path(run)
    try:
        results = read_json(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; name the folder of a run that finished a task") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    except ValueError as error:
        raise InputError(f"{path}: not valid JSON ({error}); go on with --resume to write it anew") from None
    if not isinstance(results, dict) or results.get("schema") != 1:
        raise InputError(f"{path}: not a results file of schema 1")
    fault = results_fault(results)
    if fault:
        raise InputError(f"{path}: {fault}; not a results file that is whole: go on with --resume to write it anew")
    return results


def results_fault(results: Any) -> str | None:
    """What is wrong with the content of a ``results.json``, in words; None where all fits together."""
    if fault := misfit(results, FORM) or _no_figure(results):
        return fault
    tasks, galleries = len(results["tasks"]), results["galleries"]
    if not tasks or not galleries:
        return "tasks or galleries has nothing in it"
    for metric in ("mAP", "rank1", "rank5", "rank10"):
        rows = results.get(metric, results["mAP"])
        if not len(rows) == len(results["mAP"]) <= tasks or any(len(row) != len(galleries) for row in rows):
            return f"{metric} is no matrix of finished tasks and galleries"
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
    for name, history in results.get("identity_ap", {}).items():
        rows = history["ap"]
        if len(rows) != len(results["mAP"]) or any(len(row) != len(history["ids"]) for row in rows):
            return f"identity_ap of {name!r} is no matrix of finished tasks and identities"
    for entry in results.get("loss_history", []):
        if not 0 <= entry["task"] < tasks or entry["epoch"] < 1:
            return f"loss_history has epoch {entry['epoch']} of task {entry['task']}, of {tasks} tasks"
    return None


def _no_figure(results: Results) -> str | None:
    """A number to be read that is infinite, NaN or too large to reckon with, in words; None where there is none."""
    read = {name.removesuffix("?") for name in FORM}
    waiting = [(key, value) for key, value in results.items() if key in read]
    while waiting:  # a config may be nested more deeply than functions can call themselves
        key, value = waiting.pop()
        if isinstance(value, (int, float)) and not abs(value) < LARGEST:
            return f"{key} has a number that is not finite or beyond {LARGEST:g}"
        if isinstance(value, (dict, list)):
            waiting += [(key, each) for each in (value.values() if isinstance(value, dict) else value)]
    return None


def is_trained(gallery: dict[str, Any], row: int) -> bool:
    """Whether a gallery is seen and its domain had been trained after task ``row``."""
    return gallery["kind"] == "seen" and gallery["first_task"] <= row


def average(results: Results, metric: str, row: int, kind: Kind) -> float | None:
    """Mean of a metric after task ``row`` over the seen galleries trained by then, or over the unseen ones.

    Args:
        results: the content of ``results.json``.
        metric: ``mAP``, ``rank1``, …; per cent.
        row: index of a finished task.
        kind: which galleries.

    Returns:
        None where there is no such gallery.
    """
    values = [
        value
        for gallery, value in zip(results["galleries"], results[metric][row], strict=True)
        if (is_trained(gallery, row) if kind == "seen" else gallery["kind"] == "unseen")
    ]
    return sum(values) / len(values) if values else None


def curve(results: Results, metric: str, kind: Kind) -> list[float | None]:
    """The :func:`average` after every finished task."""
    return [average(results, metric, row, kind) for row in range(len(results[metric]))]
