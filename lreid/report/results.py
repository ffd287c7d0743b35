"""Reading ``results.json``, and the averages that tables, plots and page show alike."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal

from lreid.errors import InputError

Results = dict[str, Any]
Kind = Literal["seen", "unseen"]

NEEDED = ("method", "benchmark", "seed", "ap", "tasks", "galleries", "mAP", "rank1", "summary")


def read_results(run: str | Path) -> Results:
    """Reads the results of a run.

    Args:
        run: a run folder, or the ``results.json`` in one.

    Raises:
        InputError: there is no such file, or it is not a results file of schema 1.
    """
    path = Path(run) / "results.json" if Path(run).is_dir() else Path(run)
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; name the folder of a run that finished a task") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    except ValueError as error:
        raise InputError(f"{path}: not valid JSON ({error}); go on with --resume to write it anew") from None
    if not isinstance(results, dict) or results.get("schema") != 1:
        raise InputError(f"{path}: not a results file of schema 1")
    missing = [key for key in NEEDED if key not in results]
    if missing:
        raise InputError(f"{path}: has no {', '.join(missing)}; not a results file that is whole")
    return results


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


def number(value: float | None, digits: int = 1, signed: bool = False) -> str:
    """A figure for reading; a dash where there is none."""
    if value is None or math.isnan(value):
        return "–"
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    return text if float(text) else text.lstrip("+-")  # no -0.0


def counted(count: int, noun: str) -> str:
    """``1 test set``, ``2 test sets``."""
    return f"{count} {noun}" + "s" * (count != 1)
