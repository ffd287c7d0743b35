"""The figures of ``test.json`` as text: one row for each checkpoint, test set and way of comparing."""

from __future__ import annotations

from typing import Any

from lreid.report.results import number
from lreid.report.tables import align


def score_table(results: dict[str, Any]) -> str:
    """The figures of models on test sets, in per cent, and below them what is to be known about them.

    Args:
        results: the content of ``test.json``, see :func:`lreid.apps.scoring.score_checkpoints`.
    """
    rates = sorted({rate["false_accept_rate"] for row in results["rows"] for rate in row["open_set"]}, reverse=True)
    heads = ["mAP", "mINP", "R1", "R5", "R10", *(f"TPR@{rate:g}%" for rate in rates), "no match"]
    lines = [["checkpoint", "test set", "features", *heads]]
    for row in results["rows"]:
        found = {rate["false_accept_rate"]: rate["true_positive_rate"] for rate in row["open_set"]}
        lines.append(
            [
                row["checkpoint"],
                row["test"],
                row["variant"] + (" (transductive)" if row["transductive"] else ""),
                *(number(row[key]) for key in ("mAP", "mINP", "rank1", "rank5", "rank10")),
                *(number(found.get(rate)) for rate in rates),
                str(row["num_absent"] + row["num_filtered"]),
            ]
        )
    head = f"per cent; {results['ap']} AP, {results['metric']} metric" + ("" if not rates else "; open set by cosine")
    return "\n".join([head, "", align(lines, left=3), *results["notes"]])


def cross_model_table(results: dict[str, Any]) -> str:
    """For every test set the mAP of each model's queries (rows) in each model's gallery (columns).

    Args:
        results: the content of ``test.json``.
    """
    tables = []
    for matrix in results["cross_model"]:
        names = matrix["checkpoints"]
        rows = [[name, *map(number, line)] for name, line in zip(names, matrix["mAP"], strict=True)]
        tables.append(
            f"mAP on {matrix['test']}, queries of the row's model in the gallery of the column's model\n\n"
            + align([["query model", *names], *rows])
        )
    return "\n\n".join(tables)
