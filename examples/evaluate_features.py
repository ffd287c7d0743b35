"""Evaluate features from any source: mAP, Rank-k, two conventions of AP, re-ranking.

    python examples/evaluate_features.py

It needs no model and no images, only numpy or torch arrays of features, identities and cameras.
"""

import numpy as np

import lreid
from lreid.retrieval import KReciprocal

# Thirty people with eight images each from four cameras: one direction per person, one per camera, and noise.
dice = np.random.default_rng(0)
people, cameras = np.repeat(np.arange(30), 8), np.tile(np.arange(4), 60)
features = 1.6 * dice.normal(size=(240, 64))  # (240, 64) float64
features += dice.normal(size=(30, 64))[people] + 0.5 * dice.normal(size=(4, 64))[cameras]
query = np.arange(240) % 8 < 2  # the first two images of each person; (240,) bool
search = (features[query], features[~query], people[query], people[~query], cameras[query], cameras[~query])

result = lreid.evaluate(*search)
print(f"mAP {100 * result.mAP:.1f}, Rank-1 {100 * result.cmc[0]:.1f}, Rank-5 {100 * result.cmc[4]:.1f}")
print(f"hardest query: number {np.nanargmin(result.ap)}, AP {100 * np.nanmin(result.ap):.1f}")

# By default, gallery images of the query's person from the query's camera are left out. Without this filter:
easy = lreid.evaluate(*search, camera_filter=False)
print(f"mAP {100 * easy.mAP:.1f} with images of the same camera")

# Papers compute AP in two ways; state which one a figure uses.
old = lreid.evaluate(*search, ap="trapezoidal")
print(f"mAP {100 * old.mAP:.1f} with the trapezoidal AP of the first Market-1501 code")

better = lreid.evaluate(*search, rerank=KReciprocal(k1=10, k2=3))
print(f"mAP {100 * better.mAP:.1f} after k-reciprocal re-ranking")
