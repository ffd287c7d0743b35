"""Plot the seen mAP against the length of the training, from lists of runs in this folder.

    python docs/results/steps.py docs/results

Writes steps.svg (omniglot, each method with its best learning rate) and market_steps.svg (market1501-dev-10, each
method with its chosen settings).
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, pstdev

import matplotlib.pyplot as plt
from market import STEPS

STYLES = {"bot_ft": "C0--", "lwf": "C0-", "dmml_ft": "C1--", "dwpp": "C1:", "dwopp": "C1-"}
Points = dict[str, dict[int, list[float]]]  # method -> length of a task -> seen mAP of the seeds


def read(*names: str) -> list[dict[str, str]]:
    """Read the plotted methods' rows of lists of runs."""
    rows = []
    for name in names:
        with open(Path(__file__).with_name(name), encoding="utf-8", newline="") as file:
            rows += csv.DictReader(file)
    return [row for row in rows if row["method"] in STYLES]


def omniglot() -> Points:
    """Epochs per task; of each method and length, the learning rate with the best mean."""
    by_rate: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read("omniglot-steps.csv"):
        if row["benchmark"] == "omniglot":
            by_rate[row["method"], int(row["epochs"])][row["rate"]].append(float(row["seen_mAP"]))
    points: Points = defaultdict(dict)
    for (method, epochs), rates in by_rate.items():
        points[method][epochs] = max(rates.values(), key=mean)
    return points


def market() -> Points:
    """Steps per task; three seeds at the length of the table, one seed of the longer runs."""
    points: Points = defaultdict(lambda: defaultdict(list))
    for row in read("market1501-dev.csv", "market1501-dev-epochs.csv"):
        points[row["method"]][STEPS * int(row["scale"])].append(float(row["seen_mAP"]))
    return points


def plot(points: Points, unit: str, file: Path) -> None:
    """Plot one line per method: means, with the standard deviation over seeds as error bars."""
    figure, axes = plt.subplots(figsize=(5, 3.4), layout="constrained")
    for method, style in STYLES.items():
        if method in points:
            lengths = sorted(points[method])
            runs = [points[method][length] for length in lengths]
            heights, spread = [mean(each) for each in runs], [pstdev(each) for each in runs]
            axes.errorbar(lengths, heights, spread, fmt=style, marker="o", markersize=4, capsize=3, label=method)
    axes.set(xscale="log", xlabel=f"{unit} per task", ylabel="seen mAP in %")
    ticks = sorted({length for lengths in points.values() for length in lengths})
    axes.set_xticks(ticks, [str(each) for each in ticks], minor=False)
    axes.minorticks_off()
    axes.legend()
    figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "lreid"  # the same files every time
    plot(omniglot(), "epochs", Path(sys.argv[1]) / "steps.svg")
    plot(market(), "steps", Path(sys.argv[1]) / "market_steps.svg")
