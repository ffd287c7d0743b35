"""Plot the seen mAP on omniglot against the number of epochs per task, from omniglot-steps.csv.

python docs/results/steps.py docs/results/steps.svg
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, pstdev

import matplotlib.pyplot as plt

METHODS = {"bot_ft": "C0--", "lwf": "C0-", "dmml_ft": "C1--", "dwopp": "C1-"}

if __name__ == "__main__":
    with open(Path(__file__).with_name("omniglot-steps.csv"), encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    plt.rcParams["svg.hashsalt"] = "lreid"  # the same file every time
    figure, axes = plt.subplots(figsize=(5, 3.4), layout="constrained")
    for method, style in METHODS.items():
        runs: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in rows:
            if row["benchmark"] == "omniglot" and row["method"] == method:
                runs[int(row["epochs"])][row["rate"]].append(float(row["seen_mAP"]))
        best = {epochs: max(by_rate.values(), key=mean) for epochs, by_rate in sorted(runs.items())}
        heights, spread = [mean(each) for each in best.values()], [pstdev(each) for each in best.values()]
        axes.errorbar(list(best), heights, spread, fmt=style, marker="o", markersize=4, capsize=3, label=method)
    axes.set(xscale="log", xlabel="epochs per task", ylabel="seen mAP in %")
    ticks = sorted({int(row["epochs"]) for row in rows if row["benchmark"] == "omniglot"})
    axes.set_xticks(ticks, [str(each) for each in ticks], minor=False)
    axes.minorticks_off()
    axes.legend()
    figure.savefig(sys.argv[1], metadata={"Date": None})
