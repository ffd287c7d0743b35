"""Plot the features of new digits before a network is trained on them (ER-ACE, Figure 9), with scikit-learn's t-SNE.

python docs/results/placement.py runs/digits/er-0 datasets/mnist docs/results/placement.svg
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.manifold import TSNE

import lreid

if __name__ == "__main__":
    run, images, out = map(Path, sys.argv[1:])
    digits = (0, 1, 2, 3)  # those of the first task, then those of the second
    files = {digit: sorted((images / "images" / "test" / str(digit)).iterdir()) for digit in digits}
    model = lreid.load_model(run / "checkpoints" / "task-01.pt")
    features = model.extract([file for digit in digits for file in files[digit]])
    places = TSNE(metric="cosine", init="pca", random_state=0).fit_transform(np.asarray(features))
    labels = np.repeat(digits, [len(files[digit]) for digit in digits])
    plt.rcParams["svg.hashsalt"] = "lreid"  # the same file every time
    figure, axes = plt.subplots(figsize=(4.5, 3.2), layout="constrained")
    for digit in digits:
        here = labels == digit
        name = f"{digit}, {'trained' if digit < 2 else 'new'}"
        axes.scatter(*places[here].T, s=14, marker="o" if digit < 2 else "^", label=name)
    axes.legend()
    axes.set(xticks=[], yticks=[])
    figure.savefig(out, metadata={"Date": None})
