"""Create or continue the content of ``results.json``, and record measurements of a run in it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from lreid.errors import InputError
from lreid.results.content import SCHEMA, Results, keys, matrix, names_of
from lreid.results.file import rename_old_keys
from lreid.results.metrics import METRICS
from lreid.results.summaries import summarise_accuracies, summary


class Figures(Protocol):
    """Metrics of a test set after a task, see :class:`lreid.evaluation.TestFigures`."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """Metrics by name, in per cent."""

    @property
    def identity_ap(self) -> Mapping[int, float]:
        """Average precision of each identity, in per cent."""

    @property
    def identity_queries(self) -> Mapping[int, int]:
        """Number of queries with a match for each identity."""

    @property
    def num_valid(self) -> int:
        """Number of queries with a match."""

    @property
    def cross_model(self) -> Sequence[Mapping[str, float]]:
        """Metrics of searches in the gallery features of each earlier model; empty without such searches."""


def start(**given: Any) -> Results:
    """Create the content before the first task.

    Args:
        given: all keys of :class:`Results` without an initial value, except ``schema`` and ``skipped_images``.
    """
    content: Any = {"schema": SCHEMA, **given} | {metric.name: [] for metric in METRICS}
    content |= {name: key.empty() for name, key in keys().items() if key.empty is not None}
    skipped = sorted(set(given["skipped"]))
    return content | {"skipped": skipped, "skipped_images": len(skipped)}


def resumed(fresh: Results, saved: Results, path: Path) -> Results:
    """Return the results in the checkpoint at ``path``, with missing keys from ``fresh``, to continue a run.

    Raises:
        InputError: the data have changed since the start of the run.
    """
    rename_old_keys(saved)
    if saved.get("protocol", fresh["protocol"]) != fresh["protocol"]:
        changed = "images, identities or cameras differ"
    else:
        changed = _other_content(fresh, saved)
    if changed:
        raise InputError(
            f"{path}: {changed} from those with which the run started; restore these, or choose another --out"
        )
    missing: Any = {key: value for key, value in fresh.items() if key not in saved}
    for metric in METRICS:  # an earlier version had fewer metrics
        missing.pop(metric.name, None)
    return saved | missing


def _other_content(fresh: Results, saved: Results) -> str:
    """Name the first task or gallery whose images were replaced; finished tasks are not checked."""
    saved_prints, fresh_prints, done = saved.get("content", fresh["content"]), fresh["content"], len(saved["mAP"])
    for kind, names, first in (
        ("tasks", fresh["tasks"], done),
        ("galleries", [gallery["name"] for gallery in fresh["galleries"]], 0),
    ):
        for name, one, other in list(zip(names, saved_prints[kind], fresh_prints[kind], strict=False))[first:]:
            if one != other:
                return f"contents of the images of {name} differ"
    return ""


def add_task(results: Results, figures: Sequence[Figures], unfused: Sequence[Figures] = ()) -> None:
    """Record the metrics of all galleries after a task, and update the summary.

    Args:
        results: content of ``results.json``, in which every matrix gets another row.
        figures: metrics of each gallery.
        unfused: metrics of each gallery before averaging with an older network; empty if they were not measured.
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
        people = {"ids": list(figure.identity_ap), "queries": list(figure.identity_queries.values()), "ap": []}
        history = results["identity_ap"].setdefault(gallery["name"], people)
        history["ap"].append([round(value, 4) for value in figure.identity_ap.values()])
    seconds = results["seconds"]["train"]
    results["images_per_second"] = round(results["images_trained"] / seconds, 1) if seconds else 0.0
    results["skipped_images"] = len(results["skipped"])
    results["summary"] = summary(results)


def add_initial(results: Results, figures: Sequence[Figures]) -> None:
    """Record the metrics of all galleries before the first task."""
    results["initial"] = {name: [round(figure.metrics[name], 4) for figure in figures] for name in names_of(results)}
    results["initial_ap"] = {
        gallery["name"]: [round(value, 4) for value in figure.identity_ap.values()]
        for gallery, figure in zip(results["galleries"], figures, strict=True)
    }


def add_accuracies(results: Results, rows: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Record the classification accuracies after a task, and update their summary.

    Args:
        results: content of ``results.json``. Every matrix in the entry ``accuracy`` of the results gets another row,
            and the entry ``accuracy_summary`` is replaced (:func:`summarise_accuracies`). In both entries, the first
            key is the classifier, and the second key is ``class`` or ``task``.
        rows: rows from :meth:`lreid.classification.AccuracyEvaluator.evaluate`.
    """
    for name, kinds in rows.items():
        matrices = results["accuracy"].setdefault(name, {"class": [], "task": []})
        for kind, row in kinds.items():
            matrices[kind].append([round(value, 4) for value in row])
    results["accuracy_summary"] = {
        name: {kind: summarise_accuracies(rows) for kind, rows in matrices.items()}
        for name, matrices in results["accuracy"].items()
    }
