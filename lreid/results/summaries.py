"""Record the metrics of a run, and summarise them: averages, curves, forgetting, plasticity and transfer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lreid.errors import InputError
from lreid.results.content import CROSSED, MEAN_KINDS, CrossedKey, Kind, Results, columns_of, matrix, metric_names

DRAWS = 2000  # of the bootstrap of gain_interval
ENDS = (0.025, 0.975)  # quantiles at the ends of a 95 % interval


@dataclass(frozen=True)
class TestFigures:
    """Metrics of a model on one test set in per cent, as means over the splits of the test set.

    Attributes:
        metrics: values of all metrics in :data:`lreid.results.METRICS`, by name.
        identity_ap: for each identity (in ascending order), the mean average precision of its queries.
        identity_queries: for each identity, the number of its queries that have a match.
        num_valid: number of queries that have a match in the gallery of at least one split.
        cross_model: for each task so far, ``metrics`` of a search with the current model's query features among the
            gallery features of that task's model; empty if not requested.
        parts: values of all metrics in :data:`lreid.results.PARTS`, by name and part.
        cross_model_mapped: the same, among these features mapped to the current model.
    """

    __test__ = False  # pytest: not a test

    metrics: dict[str, float]
    identity_ap: dict[int, float]
    identity_queries: dict[int, int]
    num_valid: int
    cross_model: tuple[dict[str, float], ...] = ()
    cross_model_mapped: tuple[dict[str, float], ...] = ()
    parts: dict[str, dict[str, float]] = field(default_factory=dict)


def add_task(results: Results, figures: Sequence[TestFigures], unfused: Sequence[TestFigures] = ()) -> None:
    """Record the metrics of all galleries after a task, and update the summary.

    Args:
        results: content of ``results.json``, in which every matrix gets another row.
        figures: metrics of each gallery.
        unfused: metrics of each gallery before averaging with an older network; empty if they were not measured.
    """
    for name in metric_names(results):
        matrix(results, name).append([round(figure.metrics[name], 4) for figure in figures])
        if unfused:
            results["unfused"].setdefault(name, []).append([round(figure.metrics[name], 4) for figure in unfused])
    for gallery, figure in zip(results["galleries"], figures, strict=True):
        gallery["valid_queries"] = figure.num_valid
        for name, values in figure.parts.items():
            results["parts"].setdefault(name, {})[gallery["name"]] = values
        for key in CROSSED:
            if row := getattr(figure, key):
                crossed = results[key].setdefault(gallery["name"], {name: [] for name in metric_names(results)})
                for name, rows in crossed.items():
                    rows.append([round(metrics[name], 4) for metrics in row])
        people = {"ids": list(figure.identity_ap), "queries": list(figure.identity_queries.values()), "ap": []}
        history = results["identity_ap"].setdefault(gallery["name"], people)
        history["ap"].append([round(value, 4) for value in figure.identity_ap.values()])
    results["skipped_images"] = len(results["skipped"])
    results["summary"] = summarise_run(results)


def add_initial(results: Results, figures: Sequence[TestFigures]) -> None:
    """Record the metrics of all galleries before the first task."""
    results["initial"] = {name: [round(each.metrics[name], 4) for each in figures] for name in metric_names(results)}
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
        rows: rows from :meth:`lreid.classification.evaluator.AccuracyEvaluator.evaluate`.
    """
    for name, kinds in rows.items():
        matrices = results["accuracy"].setdefault(name, {"class": [], "task": []})
        for kind, row in kinds.items():
            matrices[kind].append([round(value, 4) for value in row])
    results["accuracy_summary"] = {
        name: {kind: summarise_accuracies(rows) for kind, rows in matrices.items()}
        for name, matrices in results["accuracy"].items()
    }


def last_figures(results: Results) -> dict[str, float]:
    """Return every metric on every test set after the last task, by ``test/TEST SET/METRIC``."""
    return {
        f"test/{gallery['name']}/{name}": value
        for name in metric_names(results)
        for row in matrix(results, name)[-1:]
        for gallery, value in zip(results["galleries"], row, strict=True)
    }


def average(results: Results, metric: str, row: int, kind: Kind) -> float | None:
    """Compute the mean of a metric after task ``row`` over galleries of a kind; None if there are none."""
    values = [matrix(results, metric)[row][column] for column in columns_of(results, row, kind)]
    return float(np.mean(values)) if values else None


def curve(results: Results, metric: str, kind: Kind) -> list[float | None]:
    """Compute the mean of a metric over galleries of a kind after every finished task; see :func:`average`."""
    return [average(results, metric, row, kind) for row in range(len(matrix(results, metric)))]


def identity_changes(results: Results, name: str, row: int) -> np.ndarray:
    """Return the change of AP in points for each identity of a gallery in task ``row``, (identities,); may be empty."""
    history = results.get("identity_ap", {}).get(name, {"ap": []})["ap"]
    return np.subtract(history[row], history[row - 1]) if 0 < row < len(history) else np.empty(0)


def falls_and_rises(changes: np.ndarray) -> tuple[float, float] | None:
    """Return the mean of falls (0 or less) and of rises (0 or more) over all changes; None without changes."""
    if not len(changes):
        return None
    return float(np.minimum(changes, 0).mean()), float(np.maximum(changes, 0).mean())


def task_changes(results: Results) -> list[tuple[float, float] | None]:
    """Compute forgetting (0 or less) and plasticity (0 or more) in every task after the first, in points of AP.

    From one task to the next, the AP of a test identity falls or rises. Forgetting is the mean fall and plasticity the
    mean rise, over all identities of seen galleries that were trained so far (DwoPP, BMVC 2022, supplementary Table 4).

    Returns:
        A pair (forgetting, plasticity) for each finished task from the second on; None for a task without identities.
    """
    galleries = results["galleries"]
    return [
        falls_and_rises(
            np.concatenate(
                [identity_changes(results, galleries[place]["name"], row) for place in columns_of(results, row, "seen")]
                or [np.empty(0)]
            )
        )
        for row in range(1, len(results["mAP"]))
    ]


def summarise_run(results: Results) -> dict[str, float | None]:
    """Summarise a run with at least one finished task by averages, forgetting and plasticity.

    Returns:
        * ``seen_mAP``, ``seen_rank1`` …: means over the galleries on whose domain a task has trained, after the last
          task;
        * ``unseen_mAP``, ``unseen_rank1`` …: means over the unseen galleries after the last task; None if there are
          none;
        * ``merged_mAP``, ``merged_rank1`` …: metrics of the merged unseen gallery after the last task (Table 2 of
          DwoPP, BMVC 2022, and AKA, CVPR 2021); only with a merged gallery;
        * ``reindex_free_mAP``, ``reindex_free_rank1`` …: metrics of the last model's queries in old gallery features,
          which the model computed right after it was first trained on the gallery's domain. Reindex-free metrics are
          means over the seen galleries (RFL-ReID in Bi-C2R, TPAMI 2026, but without a mapping between old and new
          features); only if past galleries were searched;
        * ``mapped_mAP``, ``mapped_rank1`` …: the same, but with old gallery features mapped to the last model by one
          map per task (:class:`lreid.retrieval.feature_map.FeatureMap`);
        * ``unfused_seen_mAP``, ``unfused_unseen_mAP`` …: means over seen and over unseen galleries for the last network
          before its weights were averaged; only if it was evaluated;
        * ``mean_over_tasks_mAP``, ``mean_over_tasks_rank1`` …: average incremental metrics, which are the means over
          the seen galleries, averaged over all tasks;
        * ``forgetting`` (0 or less, where a drop is negative) and ``plasticity`` (0 or more): means of
          :func:`task_changes`; None after one task;
        * ``backward_transfer``: final mAP minus the mAP right after the first training on the gallery's domain,
          averaged over seen galleries that were not trained last; None if there are none;
        * ``forward_transfer``: mAP right before the first training on the gallery's domain, averaged over the seen
          galleries that were not trained first. Forward transfer measures how much earlier tasks help on later domains.
          GEM (NeurIPS 2017) subtracts the mAP of the untrained network from the forward transfer; lreid does not
          measure this mAP. Forward transfer is None if all seen galleries were trained first.
    """
    last = len(results["mAP"]) - 1
    summary: dict[str, float | None] = {}
    for metric in metric_names(results):
        for kind in MEAN_KINDS:
            summary[f"{kind}_{metric}"] = average(results, metric, last, kind)
            if results.get("unfused"):
                trained: Any = results | results["unfused"]
                summary[f"unfused_{kind}_{metric}"] = average(trained, metric, last, kind)
        if columns_of(results, last, "merged"):
            summary[f"merged_{metric}"] = average(results, metric, last, "merged")
        for key, prefix in CROSSED.items():
            if crossed := results.get(key):
                summary[f"{prefix}_{metric}"] = _reindex_free(results, crossed, metric)
        over_tasks = [each for each in curve(results, metric, "seen") if each is not None]
        summary[f"mean_over_tasks_{metric}"] = float(np.mean(over_tasks)) if over_tasks else None
    changes = [each for each in task_changes(results) if each is not None]
    falls, rises = zip(*changes, strict=True) if changes else ((), ())
    summary["forgetting"], summary["plasticity"] = (float(np.mean(each)) if each else None for each in (falls, rises))
    first = {column: results["galleries"][column]["first_task"] or 0 for column in columns_of(results, last, "seen")}
    final, rows = results["mAP"][last], results["mAP"]
    transfers = [final[column] - rows[task][column] for column, task in first.items() if task < last]
    before = [rows[task - 1][column] for column, task in first.items() if task > 0]
    summary["backward_transfer"] = float(np.mean(transfers)) if transfers else None
    summary["forward_transfer"] = float(np.mean(before)) if before else None
    return summary


def cross_average(results: Results, metric: str, row: int, past: int, key: CrossedKey = "cross_model") -> float | None:
    """Compute a metric with queries by the model after task ``row`` and galleries by the model after task ``past``.

    With the key ``cross_model_mapped``, the galleries are mapped to the model after task ``row``. The
    result is the mean over the seen galleries that were trained by task ``past``; None if there are none.
    """
    names = [results["galleries"][column]["name"] for column in columns_of(results, past, "seen")]
    values = [results[key][name][metric][row][past] for name in names]
    return float(np.mean(values)) if values else None


def _reindex_free(results: Results, crossed: Mapping[str, Any], metric: str) -> float | None:
    """Average a metric over seen galleries: the last model's queries search features that were never updated."""
    last = len(results["mAP"]) - 1
    seen = [results["galleries"][column] for column in columns_of(results, last, "seen")]
    values = [crossed[gallery["name"]][metric][last][gallery["first_task"] or 0] for gallery in seen]
    return float(np.mean(values)) if values else None


def summarise_accuracies(matrix: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Summarise an accuracy matrix.

    Args:
        matrix: one row of :func:`task_accuracies` per task: ``matrix[t][i]`` is the accuracy after task t on test
            images of task i, with i up to t.

    Returns:
        Values by name, in the unit of the matrix:

        * ``accuracy``: mean over the tasks, after the last task (Table 1 of ER-ACE, Co²L and CCLIS);
        * ``anytime_accuracy``: list with the mean over the tasks so far, after each task (ER-ACE, Fig. 3);
        * ``average_incremental_accuracy``: mean of ``anytime_accuracy`` (iCaRL, CVPR 2017, Section 4);
        * ``accuracy_forgetting``: for each task but the last, its best earlier accuracy minus its accuracy after the
          last task, as the mean over these tasks (Chaudhry et al., ECCV 2018; Table 2 of CCLIS). In
          ``accuracy_forgetting``, a drop of accuracy is positive and a gain negative, unlike in ``forgetting`` of
          :func:`summarise_run`. After one task, ``accuracy_forgetting`` is None. In the official code of ER-ACE, the
          last accuracy is also a candidate for the best accuracy, so that a gain counts as 0.
    """
    if not matrix or any(len(row) != task + 1 for task, row in enumerate(matrix)):
        raise InputError("accuracy matrix: row t, from 0, must contain the accuracies on tasks 0 to t")
    *earlier, last = matrix
    anytime = [float(np.mean(row)) for row in matrix]
    falls = [max(row[task] for row in earlier[task:]) - last[task] for task in range(len(earlier))]
    return {
        "accuracy": anytime[-1],
        "anytime_accuracy": anytime,
        "average_incremental_accuracy": float(np.mean(anytime)),
        "accuracy_forgetting": float(np.mean(falls)) if falls else None,
    }


def gain_interval(before: Sequence[float], after: Sequence[float], queries: Sequence[int]) -> tuple[float, float]:
    """Compute a bootstrap interval for the difference between two mAPs, by resampling identities.

    All queries of an identity are drawn together, because their average precisions depend on each other. Both models
    are scored on the same random draws of identities, and every call makes the same draws.

    Args:
        before, after: average precision of each of n identities, under each of the two models.
        queries: number of queries of each identity, 1 or more.

    Returns:
        Lower and upper end of ``mAP(after) - mAP(before)``, in the unit of the average precisions.
    """
    low, high = np.quantile(gain_draws(before, after, queries), ENDS)
    return float(low), float(high)


def gain_draws(before: Sequence[float], after: Sequence[float], queries: Sequence[int], *, seed: int = 0) -> np.ndarray:
    """Draw the gains ``(DRAWS,)`` of :func:`gain_interval`; draws with different seeds are independent."""
    gains, weights = np.subtract(after, before), np.asarray(queries, np.float64)  # (n,)
    if not len(gains):
        raise ValueError("no identities to resample")
    counts = np.random.default_rng(seed).multinomial(len(gains), np.full(len(gains), 1 / len(gains)), size=DRAWS)
    return counts @ (weights * gains) / (counts @ weights)
