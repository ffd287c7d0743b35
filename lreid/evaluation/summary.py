"""What the results matrix says in a few numbers."""

from __future__ import annotations

from typing import Any

import numpy as np


def summarise(results: dict[str, Any]) -> dict[str, float | None]:
    """Averages, forgetting and plasticity of a run with one finished task or more.

    Args:
        results: the content of ``results.json``: matrices of one row per finished task and one column per
            gallery, and the average precision of every identity; per cent.

    Returns:
        * ``seen_mAP``, ``seen_rank1``: mean over the galleries whose domain has been trained, after the last task;
        * ``unseen_mAP``, ``unseen_rank1``: mean over the unseen galleries, after the last task; None without any;
        * ``mean_over_tasks_mAP``, ``mean_over_tasks_rank1``: the seen mean, averaged over all tasks;
        * ``forgetting`` (0 or less), ``plasticity`` (0 or more): from one task to the next the AP of each test
          identity of the seen galleries falls or rises; falls count as forgetting, rises as plasticity, averaged
          over identities and then over tasks (DwoPP, BMVC 2022, supplementary Table 4); None after one task;
        * ``backward_transfer``: final mAP minus that right after a gallery's domain was first trained, averaged
          over seen galleries that were not trained last; None where there is none;
        * ``forward_transfer``: mAP right before a gallery's domain was first trained, averaged over the seen galleries
          that were not trained first: what earlier tasks teach about a domain to come. GEM (NeurIPS 2017) subtracts
          that of the untrained network, which is not measured here. None where there is no such gallery.
    """
    galleries = results["galleries"]
    unseen = [column for column, gallery in enumerate(galleries) if gallery["kind"] == "unseen"]
    last = len(results["mAP"]) - 1

    def seen(row: int) -> list[int]:
        return [
            column
            for column, gallery in enumerate(galleries)
            if gallery["kind"] == "seen" and gallery["first_task"] <= row
        ]

    def mean(metric: str, row: int, columns: list[int]) -> float | None:
        return float(np.mean([results[metric][row][column] for column in columns])) if columns else None

    summary: dict[str, float | None] = {}
    for metric in ("mAP", "rank1"):
        summary[f"seen_{metric}"] = mean(metric, last, seen(last))
        summary[f"unseen_{metric}"] = mean(metric, last, unseen)
        over_tasks = [mean(metric, row, seen(row)) for row in range(last + 1)]
        summary[f"mean_over_tasks_{metric}"] = float(np.mean(np.array(over_tasks, float)))

    falls, rises = [], []
    for row in range(1, last + 1):
        changes = np.concatenate(
            [
                np.subtract(rows[row], rows[row - 1])
                for rows in (results["identity_ap"][galleries[column]["name"]]["ap"] for column in seen(row))
            ]
        )  # (identities of the seen galleries,)
        falls.append(np.minimum(changes, 0).mean())
        rises.append(np.maximum(changes, 0).mean())
    summary["forgetting"] = float(np.mean(falls)) if falls else None
    summary["plasticity"] = float(np.mean(rises)) if rises else None

    transfers = [
        results["mAP"][last][column] - results["mAP"][galleries[column]["first_task"]][column]
        for column in seen(last)
        if galleries[column]["first_task"] < last
    ]
    summary["backward_transfer"] = float(np.mean(transfers)) if transfers else None
    before = [
        results["mAP"][galleries[column]["first_task"] - 1][column]
        for column in seen(last)
        if galleries[column]["first_task"] > 0
    ]
    summary["forward_transfer"] = float(np.mean(before)) if before else None
    return summary
