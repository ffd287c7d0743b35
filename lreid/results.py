"""Make, check, read and summarise ``results.json``: what a run is, and its figures after every task.

The content is plain values, so that it goes into JSON and into checkpoints as it is. Figures are in per cent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypedDict

import numpy as np

from lreid.errors import InputError
from lreid.files import misfit, read_json, write_text

SCHEMA = 1
Kind = Literal["seen", "unseen", "merged"]  # merged: the unseen test sets once more, as one
KINDS: tuple[Kind, ...] = ("seen", "unseen")  # that are averaged over several test sets


class Metric(NamedTuple):
    """A figure of a ranked test set.

    Attributes:
        name: its key in ``results.json``, and behind ``seen_`` and ``unseen_`` in the summary.
        title: heading in tables.
        label: the same in words.
        of: takes a :class:`lreid.retrieval.Evaluation`, gives a fraction in [0, 1].
        main: it stands in tables for a terminal and for print, and has a learning curve.
    """

    name: str
    title: str
    label: str
    of: Callable[[Any], float]
    main: bool = False


# Whatever is added here is computed after every task, averaged, saved, checked and shown.
METRICS = (
    Metric("mAP", "mAP", "mAP", lambda ranked: ranked.mAP, main=True),
    Metric("mINP", "mINP", "mINP", lambda ranked: ranked.mINP),
    Metric("rank1", "R1", "Rank-1", lambda ranked: ranked.cmc[0], main=True),
    Metric("rank5", "R5", "Rank-5", lambda ranked: ranked.cmc[4]),
    Metric("rank10", "R10", "Rank-10", lambda ranked: ranked.cmc[9]),
)
MAX_RANK = 10  # length of the CMC curve that these need


def figures_of(ranked: Any) -> dict[str, float]:
    """All :data:`METRICS` of a :class:`lreid.retrieval.Evaluation`, in per cent."""
    return {metric.name: 100 * float(metric.of(ranked)) for metric in METRICS}


class Gallery(TypedDict, total=False):
    """A test set, one column of every matrix. ``first_task`` is None where its domain is not trained."""

    name: str
    kind: Kind
    first_task: int | None
    queries: int
    gallery: int
    valid_queries: int


class Results(TypedDict, total=False):
    """The content of ``results.json``. Every metric of :data:`METRICS` has a matrix under its name.

    A matrix has one row for each finished task and one column for each of ``galleries``.
    """

    schema: int
    method: str
    benchmark: str
    protocol: str  # runs with another fingerprint are not to be compared with this one
    content: dict[str, list[str]]  # fingerprints of the images of each of "tasks" and "galleries"
    seed: int
    config: dict[str, Any]  # of all keys those that tell runs apart
    command: str  # that trains the same
    # By key of the config what the files of method and benchmark set, where the run has another value.
    changed: dict[str, Any]
    ap: str  # convention of average precision
    tasks: list[str]
    task_identities: list[int]  # how many each task has
    galleries: list[Gallery]
    mAP: list[list[float]]
    rank1: list[list[float]]
    rank5: list[list[float]]
    rank10: list[list[float]]
    mINP: list[list[float]]
    # By gallery and metric: a row for each task, of its queries in the gallery of the model after each task up to it.
    cross_model: dict[str, dict[str, list[list[float]]]]
    identity_ap: dict[str, dict[str, Any]]  # by gallery: ids, and for each task the AP of each
    identity_names: dict[str, dict[str, str]]  # by gallery, of ids as text; those without one are their own names
    summary: dict[str, float | None]
    accuracy: dict[str, dict[str, list[list[float]]]]  # of classification: a matrix for each classifier
    accuracy_summary: dict[str, dict[str, Any]]
    accuracy_curve: list[dict[str, Any]]  # within tasks: means over the tasks so far, by images seen
    images_seen: int  # of the stream, where that curve is drawn
    method_figures: dict[str, float]  # what the method says of itself
    alignment: list[dict[str, float]]  # after each task, by task: of held-out images with those in the memory
    seconds: dict[str, float]
    images_per_second: float
    peak_memory_mib: int
    loss_history: list[dict[str, float]]
    drift: list[dict[str, Any]]  # of stored and of test images at task switches
    gradient_norms: list[dict[str, Any]]  # of stored and of incoming features there
    teacher_divergence: dict[str, float]  # by task: what TRAIN.TEACHER_PRECISION changes, KL in nats
    exemplars: int
    unfused: dict[str, list[list[float]]]  # by metric: a matrix of the networks before they were averaged after tasks
    stored: dict[str, int]  # between tasks, in bytes: networks, of a domain, of an identity; templates is 1 or 0
    exemplar_bytes: int  # of their pixels, or of their paths
    steps_trained: int
    images_trained: int  # used by the method, an image as often as it was drawn
    skipped: list[str]
    skipped_images: int
    versions: dict[str, str | None]


class Figures(Protocol):
    """What a run hands over of a test set after a task, see :class:`lreid.evaluation.TestFigures`."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """By name, in per cent."""

    @property
    def identity_ap(self) -> Mapping[int, float]:
        """Average precision of each identity, in per cent."""

    @property
    def num_valid(self) -> int:
        """Queries that have a match."""

    @property
    def cross_model(self) -> Sequence[Mapping[str, float]]:
        """``metrics`` in the galleries of the models so far; empty where they were not searched."""


# ---------------------------------------------------------------- while a run goes on


def start(
    *,
    method: str,
    benchmark: str,
    protocol: str,
    content: dict[str, list[str]],
    seed: int,
    config: dict[str, Any],
    command: str,
    changed: dict[str, Any],
    ap: str,
    tasks: Sequence[str],
    task_identities: Sequence[int],
    galleries: Sequence[Gallery],
    identity_names: Mapping[str, dict[str, str]],
    skipped: Sequence[str],
    versions: dict[str, str | None],
) -> Results:
    """The content before the first task; arguments as in :class:`Results`."""
    matrices: Any = {metric.name: [] for metric in METRICS}
    return {
        "schema": SCHEMA,
        "method": method,
        "benchmark": benchmark,
        "protocol": protocol,
        "content": content,
        "seed": seed,
        "config": config,
        "command": command,
        "changed": changed,
        "ap": ap,
        "tasks": list(tasks),
        "task_identities": list(task_identities),
        "galleries": list(galleries),
        **matrices,
        "cross_model": {},
        "identity_ap": {},
        "identity_names": dict(identity_names),
        "summary": {},
        "accuracy": {},
        "accuracy_summary": {},
        "accuracy_curve": [],
        "images_seen": 0,
        "method_figures": {},
        "alignment": [],
        "seconds": {"train": 0.0, "train_cpu": 0.0, "evaluate": 0.0},
        "peak_memory_mib": 0,
        "loss_history": [],
        "drift": [],
        "gradient_norms": [],
        "teacher_divergence": {},
        "unfused": {},
        "stored": {},
        "exemplars": 0,
        "exemplar_bytes": 0,
        "steps_trained": 0,
        "images_trained": 0,
        "skipped": sorted(set(skipped)),
        "skipped_images": len(set(skipped)),
        "versions": versions,
    }


def resumed(fresh: Results, saved: Results, path: Path) -> Results:
    """The content that a run goes on with.

    Args:
        fresh: what :func:`start` gives today.
        saved: that of the checkpoint.
        path: of the checkpoint.

    Raises:
        InputError: the data are not those that the run was begun with.
    """
    if saved.get("protocol", fresh["protocol"]) != fresh["protocol"]:
        changed = "images, identities or cameras are others"
    else:
        changed = _other_content(fresh, saved)
    if changed:
        raise InputError(
            f"{path}: {changed} than those that the run was begun with; put these back, or choose another --out"
        )
    missing: Any = {key: value for key, value in fresh.items() if key not in saved}
    for metric in METRICS:  # of an earlier version that knew fewer
        missing.pop(metric.name, None)
    return saved | missing


def _other_content(fresh: Results, saved: Results) -> str:
    """Which images have been replaced, in words; those of tasks that are over may be gone."""
    then, now, done = saved.get("content", fresh["content"]), fresh["content"], len(saved["mAP"])
    for kind, names, first in (
        ("tasks", fresh["tasks"], done),
        ("galleries", [gallery["name"] for gallery in fresh["galleries"]], 0),
    ):
        for name, one, other in list(zip(names, then[kind], now[kind], strict=False))[first:]:
            if one != other:
                return f"images of {name} have another content"
    return ""


def add_task(results: Results, figures: Sequence[Figures], unfused: Sequence[Figures] = ()) -> None:
    """Puts down the figures of all galleries after a task, and summarises.

    Args:
        results: gets a row more in every matrix.
        figures: of each of its galleries.
        unfused: of each of them by the network before it was averaged; empty where it was not evaluated.
    """
    for name in names_of(results):
        matrix(results, name).append([round(figure.metrics[name], 4) for figure in figures])
        if unfused:
            results["unfused"].setdefault(name, []).append([round(figure.metrics[name], 4) for figure in unfused])
    for gallery, figure in zip(results["galleries"], figures, strict=True):
        gallery["valid_queries"] = figure.num_valid
        if figure.cross_model:
            crossed = results["cross_model"].setdefault(gallery["name"], {name: [] for name in names_of(results)})
            for name, rows in crossed.items():
                rows.append([round(metrics[name], 4) for metrics in figure.cross_model])
        history = results["identity_ap"].setdefault(gallery["name"], {"ids": list(figure.identity_ap), "ap": []})
        history["ap"].append([round(value, 4) for value in figure.identity_ap.values()])
    seconds = results["seconds"]["train"]
    results["images_per_second"] = round(results["images_trained"] / seconds, 1) if seconds else 0.0
    results["skipped_images"] = len(results["skipped"])
    results["summary"] = summary(results)


def add_accuracies(results: Results, rows: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Puts down the accuracies of classification after a task, and summarises.

    Args:
        results: ``accuracy`` gets a row more of each accuracy matrix, ``accuracy_summary`` what these say by now
            (:func:`summarise_accuracies`), both by classifier and then ``class`` or ``task``.
        rows: of :meth:`lreid.evaluation.AccuracyEvaluator.evaluate`.
    """
    for name, kinds in rows.items():
        matrices = results["accuracy"].setdefault(name, {"class": [], "task": []})
        for kind, row in kinds.items():
            matrices[kind].append([round(value, 4) for value in row])
    results["accuracy_summary"] = {
        name: {kind: summarise_accuracies(rows) for kind, rows in matrices.items()}
        for name, matrices in results["accuracy"].items()
    }


# ---------------------------------------------------------------- what the matrices say


def names_of(results: Results) -> list[str]:
    """The metrics that a run has; an earlier version may have known fewer."""
    return [metric.name for metric in METRICS if metric.name in results]


def matrix(results: Results, metric: str) -> list[list[float]]:
    """A metric by finished task and gallery."""
    return results[metric]  # type: ignore[literal-required]


def is_trained(gallery: Gallery, row: int) -> bool:
    """Whether a gallery is seen and its domain had been trained after task ``row``."""
    first = gallery["first_task"]
    return gallery["kind"] == "seen" and first is not None and first <= row


def columns(results: Results, row: int, kind: Kind) -> list[int]:
    """The seen galleries whose domain was trained by task ``row``, or all of another kind."""
    return [
        column
        for column, gallery in enumerate(results["galleries"])
        if (is_trained(gallery, row) if kind == "seen" else gallery["kind"] == kind)
    ]


def average(results: Results, metric: str, row: int, kind: Kind) -> float | None:
    """Mean of a metric after task ``row`` over the :func:`columns` of a kind; None where there are none."""
    values = [matrix(results, metric)[row][column] for column in columns(results, row, kind)]
    return float(np.mean(values)) if values else None


def curve(results: Results, metric: str, kind: Kind) -> list[float | None]:
    """The :func:`average` after every finished task."""
    return [average(results, metric, row, kind) for row in range(len(matrix(results, metric)))]


def identity_changes(results: Results, name: str, row: int) -> np.ndarray:
    """What task ``row`` changed in the AP of each identity of a gallery: (identities,), points; empty if not known."""
    history = results.get("identity_ap", {}).get(name, {"ap": []})["ap"]
    return np.subtract(history[row], history[row - 1]) if 0 < row < len(history) else np.empty(0)


def falls_and_rises(changes: np.ndarray) -> tuple[float, float] | None:
    """Mean fall (0 or less) and mean rise (0 or more) of changes; None of none."""
    if not len(changes):
        return None
    return float(np.minimum(changes, 0).mean()), float(np.maximum(changes, 0).mean())


def task_changes(results: Results) -> list[tuple[float, float] | None]:
    """Forgetting (0 or less) and plasticity (0 or more) in every task but the first, in points of AP.

    From one task to the next the AP of a test identity falls or rises. Both are averages over all identities of the
    seen galleries that are trained by then (DwoPP, BMVC 2022, supplementary Table 4).

    Returns:
        A pair for each finished task from the second on; None where there are no identities.
    """
    galleries = results["galleries"]
    return [
        falls_and_rises(
            np.concatenate(
                [identity_changes(results, galleries[place]["name"], row) for place in columns(results, row, "seen")]
                or [np.empty(0)]
            )
        )
        for row in range(1, len(results["mAP"]))
    ]


def summary(results: Results) -> dict[str, float | None]:
    """Averages, forgetting and plasticity of a run with one finished task or more.

    Returns:
        * ``seen_mAP``, ``seen_rank1`` …: mean over the galleries whose domain has been trained, after the last task;
        * ``unseen_mAP``, ``unseen_rank1`` …: mean over the unseen galleries, after the last task; None without any;
        * ``merged_mAP``, ``merged_rank1`` …: of the merged unseen gallery beside them, after the last task (Table 2 of
          DwoPP, BMVC 2022, and AKA, CVPR 2021); there is no such key without one;
        * ``reindex_free_mAP``, ``reindex_free_rank1`` …: of the last model's queries in each seen gallery as the model
          right after its domain was first trained had extracted it, mean over these galleries (RFL-ReID of Bi-C2R,
          TPAMI 2026, with the identity for a map between the two); there is no such key where past galleries were not
          searched;
        * ``unfused_seen_mAP``, ``unfused_unseen_mAP`` …: the same means of the last network before it was averaged;
          there are no such keys where it was not evaluated;
        * ``mean_over_tasks_mAP``, ``mean_over_tasks_rank1`` …: the seen mean, averaged over all tasks;
        * ``forgetting`` (0 or less), ``plasticity`` (0 or more): means of :func:`task_changes`; None after one task;
        * ``backward_transfer``: final mAP minus that right after a gallery's domain was first trained, averaged
          over seen galleries that were not trained last; None where there is none;
        * ``forward_transfer``: mAP right before a gallery's domain was first trained, averaged over the seen galleries
          that were not trained first: what earlier tasks teach about a domain to come. GEM (NeurIPS 2017) subtracts
          that of the untrained network, which is not measured here. None where there is no such gallery.
    """
    last = len(results["mAP"]) - 1
    found: dict[str, float | None] = {}
    for metric in names_of(results):
        for kind in KINDS:
            found[f"{kind}_{metric}"] = average(results, metric, last, kind)
            if results.get("unfused"):
                trained: Any = results | results["unfused"]
                found[f"unfused_{kind}_{metric}"] = average(trained, metric, last, kind)
        if columns(results, last, "merged"):
            found[f"merged_{metric}"] = average(results, metric, last, "merged")
        if crossed := results.get("cross_model"):
            found[f"reindex_free_{metric}"] = _reindex_free(results, crossed, metric)
        over_tasks = [each for each in curve(results, metric, "seen") if each is not None]
        found[f"mean_over_tasks_{metric}"] = float(np.mean(over_tasks)) if over_tasks else None
    changes = [each for each in task_changes(results) if each is not None]
    falls, rises = zip(*changes, strict=True) if changes else ((), ())
    found["forgetting"], found["plasticity"] = (float(np.mean(each)) if each else None for each in (falls, rises))
    first = {column: results["galleries"][column]["first_task"] or 0 for column in columns(results, last, "seen")}
    final, rows = results["mAP"][last], results["mAP"]
    transfers = [final[column] - rows[task][column] for column, task in first.items() if task < last]
    before = [rows[task - 1][column] for column, task in first.items() if task > 0]
    found["backward_transfer"] = float(np.mean(transfers)) if transfers else None
    found["forward_transfer"] = float(np.mean(before)) if before else None
    return found


def cross_average(results: Results, metric: str, row: int, past: int) -> float | None:
    """A metric of the queries of the model after task ``row`` in the galleries of the one after task ``past``.

    Mean over the seen galleries whose domain had been trained by then; None where there are none.
    """
    names = [results["galleries"][column]["name"] for column in columns(results, past, "seen")]
    values = [results["cross_model"][name][metric][row][past] for name in names]
    return float(np.mean(values)) if values else None


def _reindex_free(results: Results, crossed: Mapping[str, Any], metric: str) -> float | None:
    """Mean over the seen galleries of a metric after the last task, each as it was when its domain was trained."""
    last = len(results["mAP"]) - 1
    seen = [results["galleries"][column] for column in columns(results, last, "seen")]
    values = [crossed[gallery["name"]][metric][last][gallery["first_task"] or 0] for gallery in seen]
    return float(np.mean(values)) if values else None


def summarise_accuracies(matrix: Sequence[Sequence[float]]) -> dict[str, Any]:
    """What an accuracy matrix says in a few numbers.

    Args:
        matrix: a row after each task, of :func:`task_accuracies`: ``matrix[t][i]`` after task t on test images of
            task i, for i up to t.

    Returns:
        In the unit of the matrix:

        * ``accuracy``: mean over the tasks, after the last one (Table 1 of ER-ACE, Co²L and CCLIS);
        * ``anytime_accuracy``: the mean over the tasks so far, after each task; a list (ER-ACE, Fig. 3);
        * ``average_incremental_accuracy``: the mean of these (iCaRL, CVPR 2017, Section 4);
        * ``forgetting``: for each task but the last, its best accuracy at an earlier time minus that after the last
          task, mean over these tasks (Chaudhry et al., ECCV 2018; Table 2 of CCLIS). High is bad, unlike the
          ``forgetting`` of :func:`summary`; below 0 where old tasks gain; None after one task.
          ER-ACE's official code counts the last accuracy among the best ones, so that a task that gains counts 0.

    Raises:
        InputError: no row, or row t does not have t + 1 numbers.
    """
    if not matrix or any(len(row) != task + 1 for task, row in enumerate(matrix)):
        raise InputError("accuracy matrix: row t, from 0, must hold the accuracy on tasks 0 to t")
    *earlier, last = matrix
    anytime = [float(np.mean(row)) for row in matrix]
    falls = [max(row[task] for row in earlier[task:]) - last[task] for task in range(len(earlier))]
    return {
        "accuracy": anytime[-1],
        "anytime_accuracy": anytime,
        "average_incremental_accuracy": float(np.mean(anytime)),
        "forgetting": float(np.mean(falls)) if falls else None,
    }


# ---------------------------------------------------------------- the file

NUMBER = (int, float)
FIGURE = (int, float, type(None))
CURVES = {"step": [NUMBER], "since_switch": [NUMBER]}
ANYTIME = {"anytime_accuracy": [NUMBER]}
LARGEST = 1e100  # squares and sums of figures must stay finite

# What is read by whoever reads results, in the notation of lreid.files.misfit.
FORM = {
    "method": str,
    "benchmark": str,
    "seed": int,
    "ap": str,
    "tasks": [str],
    "task_identities?": [int],
    "galleries": [{"name": str, "kind": str, "first_task": (int, type(None)), "queries?": int, "gallery?": int}],
    **{metric.name + ("" if metric.name in ("mAP", "rank1") else "?"): [[NUMBER]] for metric in METRICS},
    "summary": {str: FIGURE},
    "protocol?": str,
    "content?": {str: [str]},
    "config?": {},
    "unfused?": {str: [[NUMBER]]},
    "stored?": {str: int},
    "cross_model?": {str: {str: [[NUMBER]]}},
    "command?": str,
    "changed?": {},
    "identity_ap?": {str: {"ids": [int], "ap": [[NUMBER]]}},
    "identity_names?": {str: {str: str}},
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
    "accuracy_curve?": [{"images": int, "accuracy": {str: {"class": NUMBER, "task": NUMBER}}}],
    "alignment?": [{str: NUMBER}],
    "versions?": {str: str},
}


def write(path: Path, results: Results) -> None:
    """Writes ``results.json``, atomically."""
    write_text(path, json.dumps(results) + "\n")


def read(run: str | Path) -> Results:
    """Reads the results of a run.

    Args:
        run: a run folder, or the ``results.json`` in one.

    Raises:
        InputError: there is no such file, or it is not a results file of this schema that is whole.
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
    if not isinstance(results, dict) or results.get("schema") != SCHEMA:
        raise InputError(f"{path}: not a results file of schema {SCHEMA}")
    if reason := fault(results):
        raise InputError(f"{path}: {reason}; not a results file that is whole: go on with --resume to write it anew")
    return results  # type: ignore[return-value]


def fault(results: Any) -> str | None:
    """What is wrong with the content of a ``results.json``, in words; None where all fits together."""
    if reason := misfit(results, FORM) or _no_figure(results):
        return reason
    tasks, galleries = len(results["tasks"]), results["galleries"]
    if not tasks:
        return "tasks has nothing in it"
    for metric in names_of(results):
        rows = results[metric]
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
    for metric, rows in results.get("unfused", {}).items():
        if len(rows) != len(results["mAP"]) or any(len(row) != len(galleries) for row in rows):
            return f"unfused {metric} is no matrix of finished tasks and galleries"
    if (crossed := results.get("cross_model")) and (reason := _no_cross_model(results, crossed)):
        return reason
    for name, history in results.get("identity_ap", {}).items():
        rows = history["ap"]
        if len(rows) != len(results["mAP"]) or any(len(row) != len(history["ids"]) for row in rows):
            return f"identity_ap of {name!r} is no matrix of finished tasks and identities"
    for entry in results.get("loss_history", []):
        if not 0 <= entry["task"] < tasks or entry["epoch"] < 1:
            return f"loss_history has epoch {entry['epoch']} of task {entry['task']}, of {tasks} tasks"
    return None


def _no_cross_model(results: dict[str, Any], crossed: dict[str, Any]) -> str | None:
    names = [gallery["name"] for gallery in results["galleries"]]
    if sorted(crossed) != sorted(names):
        return "cross_model is not of the galleries"
    wanted = list(range(1, len(results["mAP"]) + 1))
    for gallery, matrices in crossed.items():
        for metric in names_of(results):  # type: ignore[arg-type]
            if [len(row) for row in matrices.get(metric, [])] != wanted:
                return f"cross_model of {gallery!r} has no {metric} whose rows grow with the tasks"
    return None


def _no_figure(results: dict[str, Any]) -> str | None:
    """A number to be read that is infinite, NaN or too large to reckon with, in words; None where there is none."""
    read_keys = {name.removesuffix("?") for name in FORM}
    waiting = [(key, value) for key, value in results.items() if key in read_keys]
    while waiting:  # a config may be nested more deeply than functions can call themselves
        key, value = waiting.pop()
        if isinstance(value, (int, float)) and not abs(value) < LARGEST:
            return f"{key} has a number that is not finite or beyond {LARGEST:g}"
        if isinstance(value, (dict, list)):
            waiting += [(key, each) for each in (value.values() if isinstance(value, dict) else value)]
    return None
