"""Summaries of a run's matrices: averages, curves, forgetting and plasticity, transfer."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lreid.errors import InputError
from lreid.results.content import KINDS, Kind, Results, columns, matrix, names_of


def average(results: Results, metric: str, row: int, kind: Kind) -> float | None:
    """Mean of a metric after task ``row`` over the galleries of a kind; None if there are no such galleries."""
    values = [matrix(results, metric)[row][column] for column in columns(results, row, kind)]
    return float(np.mean(values)) if values else None


def curve(results: Results, metric: str, kind: Kind) -> list[float | None]:
    """Mean of a metric over the galleries of a kind, after every finished task; see :func:`average`."""
    return [average(results, metric, row, kind) for row in range(len(matrix(results, metric)))]


def identity_changes(results: Results, name: str, row: int) -> np.ndarray:
    """Change of the AP of each identity of a gallery in task ``row``, (identities,) in points; empty if unknown."""
    history = results.get("identity_ap", {}).get(name, {"ap": []})["ap"]
    return np.subtract(history[row], history[row - 1]) if 0 < row < len(history) else np.empty(0)


def falls_and_rises(changes: np.ndarray) -> tuple[float, float] | None:
    """Mean fall (0 or less) and mean rise (0 or more), each averaged over all changes; None if there are no changes."""
    if not len(changes):
        return None
    return float(np.minimum(changes, 0).mean()), float(np.maximum(changes, 0).mean())


def task_changes(results: Results) -> list[tuple[float, float] | None]:
    """Forgetting (0 or less) and plasticity (0 or more) in every task but the first, in points of AP.

    From one task to the next, the AP of a test identity falls or rises. Forgetting is the mean fall, and plasticity is
    the mean rise, over all identities of the seen galleries trained so far (DwoPP, BMVC 2022, supplementary Table 4).

    Returns:
        One pair (forgetting, plasticity) per finished task from the second on; None for a task without identities.
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
    """Averages, forgetting and plasticity of a run with at least one finished task.

    Returns:
        * ``seen_mAP``, ``seen_rank1`` …: mean over the galleries whose domain has been trained, after the last task;
        * ``unseen_mAP``, ``unseen_rank1`` …: mean over the unseen galleries, after the last task; None without unseen
          galleries;
        * ``merged_mAP``, ``merged_rank1`` …: metrics of the merged unseen gallery, after the last task (Table 2 of
          DwoPP, BMVC 2022, and AKA, CVPR 2021); these keys exist only with a merged gallery;
        * ``reindex_free_mAP``, ``reindex_free_rank1`` …: queries of the last model, searched in gallery features of the
          model right after the gallery's domain was first trained. The metric is the mean over the seen galleries
          (RFL-ReID in Bi-C2R, TPAMI 2026, but without a mapping between old and new features); these keys exist only if
          past galleries were searched;
        * ``unfused_seen_mAP``, ``unfused_unseen_mAP`` …: seen and unseen means of the last network before it was
          averaged; these keys exist only if that network was evaluated;
        * ``mean_over_tasks_mAP``, ``mean_over_tasks_rank1`` …: average incremental metric: the mean over the seen
          galleries, averaged over all tasks;
        * ``forgetting`` (0 or less: a drop is negative), ``plasticity`` (0 or more): means of :func:`task_changes`;
          None after one task;
        * ``backward_transfer``: final mAP minus the mAP right after a gallery's domain was first trained, averaged over
          seen galleries that were not trained last; None if all were trained last;
        * ``forward_transfer``: mAP right before a gallery's domain was first trained, averaged over the seen galleries
          that were not trained first. Forward transfer measures how much training on earlier tasks helps on later
          domains. GEM (NeurIPS 2017) subtracts the mAP of the untrained network, which lreid does not measure. Forward
          transfer is None if all seen galleries were trained first.
    """
    last = len(results["mAP"]) - 1
    summary: dict[str, float | None] = {}
    for metric in names_of(results):
        for kind in KINDS:
            summary[f"{kind}_{metric}"] = average(results, metric, last, kind)
            if results.get("unfused"):
                trained: Any = results | results["unfused"]
                summary[f"unfused_{kind}_{metric}"] = average(trained, metric, last, kind)
        if columns(results, last, "merged"):
            summary[f"merged_{metric}"] = average(results, metric, last, "merged")
        if crossed := results.get("cross_model"):
            summary[f"reindex_free_{metric}"] = _reindex_free(results, crossed, metric)
        over_tasks = [each for each in curve(results, metric, "seen") if each is not None]
        summary[f"mean_over_tasks_{metric}"] = float(np.mean(over_tasks)) if over_tasks else None
    changes = [each for each in task_changes(results) if each is not None]
    falls, rises = zip(*changes, strict=True) if changes else ((), ())
    summary["forgetting"], summary["plasticity"] = (float(np.mean(each)) if each else None for each in (falls, rises))
    first = {column: results["galleries"][column]["first_task"] or 0 for column in columns(results, last, "seen")}
    final, rows = results["mAP"][last], results["mAP"]
    transfers = [final[column] - rows[task][column] for column, task in first.items() if task < last]
    before = [rows[task - 1][column] for column, task in first.items() if task > 0]
    summary["backward_transfer"] = float(np.mean(transfers)) if transfers else None
    summary["forward_transfer"] = float(np.mean(before)) if before else None
    return summary


def cross_average(results: Results, metric: str, row: int, past: int) -> float | None:
    """Metric with query features of the model after task ``row`` and gallery features of the model after task ``past``.

    The result is the mean over the seen galleries whose domain was trained by task ``past``; None without such
    galleries.
    """
    names = [results["galleries"][column]["name"] for column in columns(results, past, "seen")]
    values = [results["cross_model"][name][metric][row][past] for name in names]
    return float(np.mean(values)) if values else None


def _reindex_free(results: Results, crossed: Mapping[str, Any], metric: str) -> float | None:
    """Mean over the seen galleries of a metric with the last model's queries and never updated gallery features."""
    last = len(results["mAP"]) - 1
    seen = [results["galleries"][column] for column in columns(results, last, "seen")]
    values = [crossed[gallery["name"]][metric][last][gallery["first_task"] or 0] for gallery in seen]
    return float(np.mean(values)) if values else None


def summarise_accuracies(matrix: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Summarise an accuracy matrix.

    Args:
        matrix: one row of :func:`task_accuracies` per task: ``matrix[t][i]`` is the accuracy after task t on test
            images of task i, for i up to t.

    Returns:
        Values by name, in the unit of the matrix:

        * ``accuracy``: mean over the tasks, after the last task (Table 1 of ER-ACE, Co²L and CCLIS);
        * ``anytime_accuracy``: list with the mean over the tasks so far, after each task (ER-ACE, Fig. 3);
        * ``average_incremental_accuracy``: mean of ``anytime_accuracy`` (iCaRL, CVPR 2017, Section 4);
        * ``accuracy_forgetting``: for each task but the last, the task's best earlier accuracy minus its accuracy after
          the last task, as a mean over these tasks (Chaudhry et al., ECCV 2018; Table 2 of CCLIS). A drop of accuracy
          is positive and a gain negative, unlike in ``forgetting`` of :func:`summary`. ``accuracy_forgetting`` is None
          after one task. The official code of ER-ACE also includes the last accuracy in the best accuracy, so that a
          gain counts as 0.

    Raises:
        InputError: there is no row, or row t does not have t + 1 numbers.
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
