"""Plots of results as matplotlib figures; the caller saves them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lreid.report.groups import DATA_KEYS, group_names
from lreid.results import Kind, Results, curve

LINES: dict[Kind, str] = {"seen": "-", "unseen": "--"}
MARKERS = ".x^s"  # the next one where the ten colours begin anew
MOST_IN_AXES = 4  # groups whose names have room within the axes


def learning_curve(runs: Results | Sequence[Results]) -> Figure:
    """Plot mAP and Rank-1 after every task, averaged over seen and over unseen galleries.

    Runs of one method with one config on one benchmark are one line, named by
    :func:`lreid.report.groups.group_names`: their mean, with a band of one standard deviation (n - 1). It ends where
    the shortest of them ends.

    Args:
        runs: the content of one ``results.json``, or of several.

    Returns:
        A figure with two axes. It needs no display and leaves pyplot alone.
    """
    runs = [runs] if isinstance(runs, dict) else list(runs)
    groups: dict[tuple[str, str], list[Results]] = {}
    for run, names in zip(runs, group_names(runs), strict=True):
        groups.setdefault(names, []).append(run)
    several = len({benchmark for benchmark, _ in groups}) > 1

    crowded = len(groups) > MOST_IN_AXES
    figure = _figure(12 if crowded else 10, 4)
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
                std = values.std(0, ddof=1) if len(members) > 1 else None
                _line(axes, place, tasks, mean, std, style, f"{name}, {kind}")
        axes.set(title=f"{title} (%)", xlabel="tasks learned", ylim=(0, None))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        if axes.lines and not crowded:
            axes.legend()
    if crowded:
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    conventions = ", ".join(sorted({run["ap"] for run in runs}))
    figure.suptitle(f"{', '.join(dict.fromkeys(benchmark for benchmark, _ in groups))} ({conventions} AP)")
    return figure


def sensitivity_curve(runs: Sequence[Results], key: str) -> Figure:
    """Seen mAP after the last task against the values of one key, as Figure 4 of DwoPP (BMVC 2022) shows it.

    Runs that differ in this key and their seed alone are one line: the mean over the seeds, with a band of one
    standard deviation (n - 1) where a value has several. The axis is logarithmic where the values span more than
    a factor of 10.

    Args:
        runs: contents of ``results.json`` with one finished task or more.
        key: of the config, such as ``METHOD.TEMPERATURE``; its values are numbers.
    """
    # Named as if the key were not there, and if it changes the data, as if all were one protocol.
    others = [run | {"config": {name: run["config"][name] for name in run["config"] if name != key}} for run in runs]
    if key.startswith(DATA_KEYS):
        others = [run | {"protocol": None} for run in others]
    lines: dict[tuple[str, str], dict[float, list[float]]] = {}
    for run, names in zip(runs, group_names(others), strict=True):
        if run["summary"]["seen_mAP"] is not None:
            lines.setdefault(names, {}).setdefault(run["config"][key], []).append(run["summary"]["seen_mAP"])
    several = len({benchmark for benchmark, _ in lines}) > 1

    figure = _figure(6, 4)
    axes = figure.subplots()
    for place, ((benchmark, method), points) in enumerate(lines.items()):
        values = sorted(points)
        mean = np.array([np.mean(points[value]) for value in values])
        std = np.array([np.std(points[value], ddof=1) if len(points[value]) > 1 else 0 for value in values])
        _line(axes, place, values, mean, std, "-", f"{method}, {benchmark}" if several else method)
    values = [value for points in lines.values() for value in points]
    if min(values) > 0 and max(values) > 10 * min(values):
        axes.set_xscale("log")
    axes.set(xlabel=key, ylabel="seen mAP (%)", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.suptitle(", ".join(dict.fromkeys(benchmark for benchmark, _ in lines)))
    return figure


def _line(
    axes: Axes,
    place: int,
    x: Sequence[float] | np.ndarray,
    mean: np.ndarray,
    std: np.ndarray | None,
    style: str,
    label: str,
) -> None:
    """The ``place``-th line, with a band of one standard deviation around it if ``std`` is given."""
    color, marker = f"C{place % 10}", MARKERS[place // 10 % len(MARKERS)]
    axes.plot(x, mean, style, marker=marker, color=color, label=label)
    if std is not None:
        axes.fill_between(x, mean - std, mean + std, color=color, alpha=0.15, linewidth=0)


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
