"""Pictures of results as matplotlib figures; the caller saves them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lreid.report.results import Results, curve, is_trained, number

LINES = {"seen": "-", "unseen": "--"}


def learning_curve(runs: Results | Sequence[Results]) -> Figure:
    """mAP and Rank-1 after every task, averaged over seen and over unseen galleries.

    Runs of one method on one benchmark are one line: their mean, with a band of one standard deviation (n -
    1). It ends where the shortest of them ends.

    Args:
        runs: the content of one ``results.json``, or of several.

    Returns:
        A figure with two axes. It is drawn without a display and leaves pyplot alone.
    """
    runs = [runs] if isinstance(runs, dict) else list(runs)
    groups: dict[tuple[str, str], list[Results]] = {}
    for run in runs:
        groups.setdefault((run["benchmark"], run["method"]), []).append(run)
    several = len({benchmark for benchmark, _ in groups}) > 1

    figure = _figure(10, 4)
    for axes, metric, title in zip(figure.subplots(1, 2), ("mAP", "rank1"), ("mAP", "Rank-1"), strict=True):
        for place, ((benchmark, method), members) in enumerate(groups.items()):
            name = f"{method}, {benchmark}" if several else method
            for kind, style in LINES.items():
                curves = [curve(run, metric, kind) for run in members]
                length = min(map(len, curves))
                values = np.array([line[:length] for line in curves], dtype=float)  # (runs, tasks)
                if not length or np.isnan(values).all():
                    continue
                tasks = np.arange(1, length + 1)
                mean = values.mean(0)
                axes.plot(tasks, mean, style, marker=".", color=f"C{place}", label=f"{name}, {kind}")
                if len(members) > 1:
                    std = values.std(0, ddof=1)
                    axes.fill_between(
                        tasks, mean - std, mean + std, color=f"C{place}", alpha=0.15, linewidth=0
                    )
        axes.set(title=f"{title} (%)", xlabel="tasks learned", ylim=(0, None))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend()
    conventions = ", ".join(sorted({run["ap"] for run in runs}))
    figure.suptitle(f"{', '.join(dict.fromkeys(benchmark for benchmark, _ in groups))} ({conventions} AP)")
    return figure


def results_heat_map(results: Results, metric: str = "mAP") -> Figure:
    """The results matrix, tasks by galleries; in brackets what came before a domain was trained.

    Args:
        results: the content of ``results.json`` with one finished task or more.
        metric: ``mAP``, ``rank1``, ``rank5`` or ``rank10``.

    Raises:
        ValueError: no task is finished.
    """
    matrix = np.array(results[metric], dtype=float)  # (tasks, galleries)
    if not matrix.size:
        raise ValueError("no task is finished: there is no matrix to draw")
    figure = _figure(2 + 0.8 * matrix.shape[1], 1.5 + 0.4 * matrix.shape[0])
    axes = figure.subplots()
    image = axes.imshow(matrix, cmap="Blues", vmin=0, vmax=max(matrix.max(), 1), aspect="auto")
    for row, column in np.ndindex(*matrix.shape):
        gallery = results["galleries"][column]
        known = gallery["kind"] != "seen" or is_trained(gallery, row)
        text = number(matrix[row, column])
        axes.text(
            column, row, text if known else f"({text})",
            ha="center", va="center", fontsize=8,
            color="white" if matrix[row, column] > 0.6 * matrix.max() else "black",
        )  # fmt: skip
    names = [gallery["name"] for gallery in results["galleries"]]
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
    axes.set_yticks(range(len(matrix)), results["tasks"][: len(matrix)])
    title = f"{metric} (%)" + (f", {results['ap']} AP" if metric == "mAP" else "")
    axes.set_title(f"{results['method']} on {results['benchmark']}: {title}")
    figure.colorbar(image)
    return figure


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
