"""Summaries of a run's matrices: averages, curves, forgetting and plasticity, transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lreid.errors import InputError
from lreid.results.content import KINDS, Kind, Results, columns, matrix, names_of


def average(results: Results, metric: str, row: int, kind: Kind) -> float | None:
    """Mean of a metric after task ``row`` over the :func:`columns` of a kind; None where there are none."""
    values = [matrix(results, metric)[row][column] for column in columns(results, row, kind)]
    return float(np.mean(values)) if values else None


def curve(results: Results, metric: str, kind: Kind) -> list[float | None]:
    """The :func:`average` after every finished task."""
    return [average(results, metric, row, kind) for row in range(len(matrix(results, metric)))]


def identity_changes(results: Results, name: str, row: int) -> np.ndarray:
    """Change of the AP of each identity of a gallery by task ``row``: (identities,), points; empty if not known."""
    history = results.get("identity_ap", {}).get(name, {"ap": []})["ap"]
    return np.subtract(history[row], history[row - 1]) if 0 < row < len(history) else np.empty(0)


def falls_and_rises(changes: np.ndarray) -> tuple[float, float] | None:
    """Mean fall (0 or less) and mean rise (0 or more), both over all changes; None if there are no changes."""
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
        * ``merged_mAP``, ``merged_rank1`` …: of the merged unseen gallery, after the last task (Table 2 of
          DwoPP, BMVC 2022, and AKA, CVPR 2021); there is no such key without one;
        * ``reindex_free_mAP``, ``reindex_free_rank1`` …: of the last model's queries in each seen gallery as the model
          right after its domain was first trained had extracted it, mean over these galleries (RFL-ReID of Bi-C2R,
          TPAMI 2026, with the identity for a map between the two); there is no such key where past galleries were not
          searched;
        * ``unfused_seen_mAP``, ``unfused_unseen_mAP`` …: the same means of the last network before it was averaged;
          there are no such keys where it was not evaluated;
        * ``mean_over_tasks_mAP``, ``mean_over_tasks_rank1`` …: the seen mean, averaged over all tasks;
        * ``forgetting`` (0 or less: a drop is negative), ``plasticity`` (0 or more): means of :func:`task_changes`;
          None after one task;
        * ``backward_transfer``: final mAP minus that right after a gallery's domain was first trained, averaged
          over seen galleries that were not trained last; None if there is no such gallery;
        * ``forward_transfer``: mAP right before a gallery's domain was first trained, averaged over the seen galleries
          that were not trained first: what earlier tasks teach about a domain to come. GEM (NeurIPS 2017) subtracts
          that of the untrained network, which is not measured here. None where there is no such gallery.
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
    """The summary of an accuracy matrix.

    Args:
        matrix: a row after each task, of :func:`task_accuracies`: ``matrix[t][i]`` after task t on test images of
            task i, for i up to t.

    Returns:
        In the unit of the matrix:

        * ``accuracy``: mean over the tasks, after the last one (Table 1 of ER-ACE, Co²L and CCLIS);
        * ``anytime_accuracy``: the mean over the tasks so far, after each task; a list (ER-ACE, Fig. 3);
        * ``average_incremental_accuracy``: the mean of these (iCaRL, CVPR 2017, Section 4);
        * ``accuracy_forgetting``: for each task but the last, its best accuracy at an earlier time minus that after the
          last task, mean over these tasks (Chaudhry et al., ECCV 2018; Table 2 of CCLIS). A drop is positive, unlike in
          the ``forgetting`` of :func:`summary`; below 0 where old tasks gain; None after one task.
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
        "accuracy_forgetting": float(np.mean(falls)) if falls else None,
    }
