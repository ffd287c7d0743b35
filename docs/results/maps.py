"""Measure galleries that outlive their images, over one to nine model updates, and plot them.

    python docs/results/maps.py runs/market/table/bot_ft-*     # measures runs of market1501-dev-10, adds their lines
    python docs/results/maps.py                                # only plots

The model after the last task searches galleries of the models after earlier tasks, whose images are assumed deleted.
Every line of maps.csv has a method, a seed, a number of updates between both models, and the mAP of each treatment.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import scipy.linalg
import torch

import lreid
from lreid.build import benchmark_of, load_run_config
from lreid.results import read
from lreid.retrieval.feature_map import FeatureMap

FILE = Path(__file__).with_name("maps.csv")
TREATMENTS = {
    "as_it_is": "as it is",
    "both_models": "both models kept",
    "procrustes": "orthogonal map (Procrustes)",
    "affine": "affine map without shrinkage",
    "network": "map by a network of two layers",
    "mapped": "ridge map, images of the newest task",
    "chained": "ridge maps in a chain",
    "again": "extracted again",
}
SHOWN = {"as_it_is": "C7:", "both_models": "C1--", "mapped": "C0-", "chained": "C2-", "again": "k-"}


def unit(features: Any) -> np.ndarray:
    """Scale rows to length 1, in float64."""
    rows = np.asarray(features, np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def procrustes(old: np.ndarray, new: np.ndarray, gallery: np.ndarray) -> np.ndarray:
    """Map the gallery by the orthogonal matrix that brings the unit features of the same images closest together."""
    # numpy's faster algorithm does not always converge on products of fewer rows than columns.
    left, _, right = scipy.linalg.svd(unit(old).T @ unit(new), lapack_driver="gesvd")
    return unit(gallery) @ left @ right


def affine(old: np.ndarray, new: np.ndarray, gallery: np.ndarray) -> np.ndarray:
    """Map the gallery by least squares with an intercept; of all solutions, the one with the smallest weights."""
    rows, units, means = unit(old), unit(new), unit(old).mean(0)
    weights = np.linalg.lstsq(rows - means, units - units.mean(0), rcond=None)[0]
    return (unit(gallery) - means) @ weights + units.mean(0)


def network(old: np.ndarray, new: np.ndarray, gallery: np.ndarray) -> np.ndarray:
    """Map the gallery by a network of two layers, trained for the cosine similarity with weight decay."""
    torch.manual_seed(0)
    rows, units, stored = (torch.from_numpy(unit(each)).float() for each in (old, new, gallery))
    layers = torch.nn.Sequential(
        torch.nn.Linear(rows.shape[1], 512), torch.nn.ReLU(), torch.nn.Linear(512, units.shape[1])
    )
    optimizer = torch.optim.AdamW(layers.parameters(), 1e-3, weight_decay=0.1)
    for _ in range(30):
        for batch in torch.randperm(len(rows)).split(64):
            loss = 1 - torch.cosine_similarity(layers(rows[batch]), units[batch]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return np.asarray(layers(stored))


def measured(run: Path) -> list[dict[str, Any]]:
    """Lines of a run: one per number of updates before the last model."""
    content, cfg = read(run), load_run_config([run / "config.yaml"], report=False)
    benchmark = benchmark_of(cfg)
    test, tasks = benchmark.tests[0], benchmark.tasks
    queries, gallery = test.query, test.gallery
    images = [[record.path for record in task.records] for task in tasks]
    models = [lreid.load_model(run / "checkpoints" / f"task-{number:02d}.pt") for number in range(1, len(tasks) + 1)]

    def mAP(query: np.ndarray, stored: np.ndarray) -> float:
        labels = [[getattr(each, key) for each in part] for key in ("pid", "camid") for part in (queries, gallery)]
        return 100 * lreid.evaluate(query, stored, *labels, metric=cfg.EVAL.METRIC).mAP

    asked = [model.extract([each.path for each in queries]) for model in models]
    built = [model.extract([each.path for each in gallery]) for model in models]
    newest = [model.extract(images[-1]) for model in models]
    steps = [
        FeatureMap.fit(models[task - 1].extract(images[task]), models[task].extract(images[task]))
        for task in range(1, len(tasks))
    ]
    lines = []
    for updates in range(1, len(tasks)):
        before = len(tasks) - 1 - updates
        old, chained = built[before], built[before]
        for step in steps[before:]:
            chained = step(chained)
        pair = newest[before], newest[-1]
        figures = {
            "as_it_is": mAP(asked[-1], old),
            "both_models": mAP(asked[before], old),
            **{each.__name__: mAP(asked[-1], each(*pair, old)) for each in (procrustes, affine, network)},
            "mapped": mAP(asked[-1], FeatureMap.fit(*pair)(old)),
            "chained": mAP(asked[-1], chained),
            "again": mAP(asked[-1], built[-1]),
        }
        own = {"benchmark": content["benchmark"], "method": cfg.METHOD.ALIAS or cfg.METHOD.NAME, "seed": cfg.SEED}
        versions = {key: content["versions"].get(key, "") for key in ("commit", "lreid", "torch", "processor")}
        rounded = {key: f"{value:.2f}" for key, value in figures.items()}
        lines.append(own | {"updates": updates, "images": len(images[-1])} | rounded | versions)
    return lines


def plot(lines: list[dict[str, Any]]) -> None:
    """Plot the mAP against the number of updates, one part per method, averaged over the seeds."""
    methods = sorted({line["method"] for line in lines})
    plt.rcParams["svg.hashsalt"] = "lreid"  # the same file every time
    figure, axes = plt.subplots(
        1, len(methods), figsize=(2.2 * len(methods) + 1, 3), sharey=True, squeeze=False, layout="constrained"
    )
    for place, method in zip(axes[0], methods, strict=True):
        for treatment, style in SHOWN.items():
            heights: dict[int, list[float]] = defaultdict(list)
            for line in lines:
                if line["method"] == method:
                    heights[int(line["updates"])].append(float(line[treatment]))
            means = {updates: mean(values) for updates, values in sorted(heights.items())}
            place.plot(list(means), list(means.values()), style, label=TREATMENTS[treatment])
        place.set(title=method, xlabel="updates")
    axes[0][0].set(ylabel="mAP in %")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(FILE.with_suffix(".svg"), metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="run folders with all checkpoints")
    args = parser.parse_args()
    lines: dict[tuple[str, ...], dict[str, Any]] = {}
    if FILE.exists():
        with open(FILE, encoding="utf-8", newline="") as stream:
            lines = {(line["method"], line["seed"], line["updates"]): line for line in csv.DictReader(stream)}
    for run in args.runs:
        lines |= {tuple(str(line[key]) for key in ("method", "seed", "updates")): line for line in measured(run)}
    rows = [lines[key] for key in sorted(lines, key=lambda key: (key[0], key[1], int(key[2])))]
    with open(FILE, "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    plot(rows)


if __name__ == "__main__":
    main()
