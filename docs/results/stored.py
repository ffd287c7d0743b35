"""Plot the features of stored and of all training images (Co²L, Figure 5), with scikit-learn's t-SNE.

cd runs/anchors
python ../../docs/results/stored.py co2l-ASYMMETRIC=False-seed0 co2l-ASYMMETRIC=True-seed0 \\
    ../../datasets/digits/mnist stored.svg
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.manifold import TSNE

import lreid
from lreid.checkpoint import load_checkpoint

TITLES = {  # of the runs in the figure on our page; other runs have the names of their folders
    "co2l-ASYMMETRIC=False-seed0": "exemplars are anchors",
    "co2l-ASYMMETRIC=True-seed0": "exemplars are not anchors",
}


def similarity(features: np.ndarray, labels: np.ndarray, digits: range) -> float:
    """Mean cosine similarity of two different images of the same digit, averaged over digits."""
    means = []
    for digit in digits:
        cosines = features[labels == digit] @ features[labels == digit].T
        means.append((cosines.sum() - np.trace(cosines)) / (cosines.size - len(cosines)))
    return float(np.mean(means))


if __name__ == "__main__":
    *runs, images, out = map(Path, sys.argv[1:])
    files = sorted((images / "images" / "train").glob("*/*.png"))
    labels = np.array([int(file.parent.name) for file in files])
    pixels = [np.asarray(Image.open(file).convert("RGB")).tobytes() for file in files]
    plt.rcParams["svg.hashsalt"] = "lreid"  # the same file every time
    figure, axes = plt.subplots(1, len(runs), figsize=(7, 3.4), layout="constrained")
    for run, axis in zip(runs, axes, strict=True):
        last = run / "checkpoints" / "task-05.pt"
        exemplars = {image.numpy().tobytes() for image in load_checkpoint(last)["method"]["memory"]["images"]}
        stored = np.array([image in exemplars for image in pixels])
        features = np.asarray(lreid.load_model(last).extract(files, normalize=True))
        inside, outside = (similarity(features[part], labels[part], range(8)) for part in (stored, ~stored))
        print(f"{run}: cosine within a past digit: stored {inside:.3f}, not stored {outside:.3f}")
        places = TSNE(metric="cosine", init="pca", random_state=0).fit_transform(features)
        axis.scatter(*places[~stored].T, s=3, color="0.8", rasterized=True)
        axis.scatter(*places[stored].T, s=14, c=labels[stored], cmap="tab10", rasterized=True)
        axis.set(xticks=[], yticks=[], title=TITLES.get(run.name, run.name))
    figure.savefig(out, dpi=150, metadata={"Date": None})
