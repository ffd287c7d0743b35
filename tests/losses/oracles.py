"""Losses by nested loops over plain numbers in float64, the batches that tests share, and the golden cases."""

import json
import math
from pathlib import Path

import numpy as np
import torch

GOLDEN = Path(__file__).parents[1] / "golden"
UNEQUAL = [2, 0, 1, 2, 0, 2, 1, 0, 0, 2, 2, 3]  # class 1 has no query at 2 supports, class 3 one image only


def load_golden(name: str) -> tuple[dict, dict[str, torch.Tensor]]:
    """Hyper-parameters and arrays of one golden case."""
    hyper = json.loads((GOLDEN / f"{name}.json").read_text())["hyper"]
    with np.load(GOLDEN / f"{name}.npz") as arrays:
        return hyper, {key: torch.from_numpy(arrays[key]) for key in arrays.files}


def golden_names(prefix: str = "*") -> list[str]:
    return sorted(path.stem for path in GOLDEN.glob(f"{prefix}_*.npz"))


def draw(*shape, seed=0, scale=1.0):
    """Normal numbers in float64."""
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)


def split(labels, num_support):
    """``{label: (support rows, query rows)}`` in batch order."""
    rows = {label: [row for row, other in enumerate(labels) if other == label] for label in sorted(set(labels))}
    return {label: (members[:num_support], members[num_support:]) for label, members in rows.items()}


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def distance(a, b, metric):
    if metric == "cosine":
        return -dot(a, b)
    squared = sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
    return squared if metric == "sqeuclidean" else math.sqrt(squared)


def mean(vectors):
    return [sum(column) / len(vectors) for column in zip(*vectors, strict=True)]


def unit(vector):
    norm = math.sqrt(dot(vector, vector))
    return [x / norm for x in vector]


def dmml(
    features, labels, num_support, margin=0.4, metric="sqeuclidean", clamp=True, feature_penalty=5e-4, mining="hard"
):
    episode = split(labels, num_support)
    terms = []
    for own, (_, queries) in episode.items():
        for query in queries:
            scores = {}
            for label, (support, _) in episode.items():
                to_each = [distance(features[query], features[row], metric) for row in support]
                if mining == "center":
                    scores[label] = distance(features[query], mean([features[row] for row in support]), metric)
                elif label == own:
                    scores[label] = max(to_each)
                elif metric == "cosine":
                    scores[label] = min(to_each)
                else:
                    scores[label] = max(min(to_each) - margin, 0) if clamp else min(to_each) - margin
            others = sum(math.exp(scores[own] - score) for label, score in scores.items() if label != own)
            terms.append(math.log(1 + others))
    penalty = sum(x * x for feature in features for x in feature) / len(features)
    return sum(terms) / len(terms) + feature_penalty * penalty


def similarities(features, labels, num_support, metric):
    """For each query, its own label and ``{label: similarity to its prototype}``."""
    episode = split(labels, num_support)
    centers = {label: mean([features[row] for row in support]) for label, (support, _) in episode.items()}
    if metric == "cosine":
        for label, (support, _) in episode.items():
            columns = zip(*[features[row] for row in support], strict=True)
            centers[label] = unit([sum(column) / math.hypot(*column) for column in columns])
        features = [unit(feature) for feature in features]
    return [
        (own, {label: -distance(features[query], center, metric) for label, center in centers.items()})
        for own, (_, queries) in episode.items()
        for query in queries
    ]


def softmax(scores, temperature):
    """Of a list, or of ``{label: score}``."""
    if isinstance(scores, list):
        return list(softmax(dict(enumerate(scores)), temperature).values())
    top = max(scores.values())
    weights = {label: math.exp((score - top) / temperature) for label, score in scores.items()}
    return {label: weight / sum(weights.values()) for label, weight in weights.items()}


def distillation(student, teacher, labels, num_support, temperature, prob_floor, metric, positives):
    total = 0.0
    new_rows = similarities(student, labels, num_support, metric)
    old_rows = similarities(teacher, labels, num_support, metric)
    for (own, new), (_, old) in zip(new_rows, old_rows, strict=True):
        kept = [label for label in new if positives or label != own]
        if not kept:
            continue
        p_new = softmax({label: new[label] for label in kept}, temperature)
        p_old = softmax({label: old[label] for label in kept}, temperature)
        if temperature != 1 and prob_floor:  # as the official code does
            p_new, p_old = (
                {label: (p + 1e-5 / len(kept)) / (1 + 1e-5) for label, p in each.items()} for each in (p_new, p_old)
            )
        total += floored_kl(p_old, p_new, prob_floor)
    return total / len(new_rows)


def affinities(features, temperature):
    """Rows of ``{column: probability}``."""
    directions = [unit(feature) for feature in features]
    return [softmax({j: dot(a, b) for j, b in enumerate(directions)}, temperature) for a in directions]


def divergence(p_rows, q_rows, weights=None):
    """KL(p || q), mean over the rows."""
    pairs = enumerate(zip(p_rows, q_rows, strict=True))
    terms = ((weights[i][j] if weights else 1) * p[j] * math.log(p[j] / q[j]) for i, (p, q) in pairs for j in p)
    return sum(terms) / max(len(p_rows), 1)


def floored_kl(p, q, prob_floor=0.0):
    """KL(p || q) of two lists of probabilities or two dictionaries, floored and not normalised again."""
    p, q = (list(each.values()) if isinstance(each, dict) else each for each in (p, q))
    pairs = [(max(a, prob_floor), max(b, prob_floor)) for a, b in zip(p, q, strict=True)]
    return sum(a * math.log(a / b) for a, b in pairs if a > 0)


def cross_entropy(targets, logits, temperature=1.0, target_temperature=None):
    """From the softmax of the targets to that of the logits, which may have further columns; mean over rows."""
    total = 0.0
    for target, row in zip(targets, logits, strict=True):
        p, q = softmax(target, target_temperature or temperature), softmax(row, temperature)
        total -= sum(a * math.log(b) for a, b in zip(p, q[: len(p)], strict=True))
    return total / max(len(logits), 1)


def hardest_gaps(anchors, labels, points=None, point_labels=None, change=lambda d: d):
    """For each anchor, the distance to the farthest point of its label minus that to the nearest other, if any."""
    points, point_labels = (anchors, labels) if points is None else (points, point_labels)
    gaps = []
    for anchor, own in zip(anchors, labels, strict=True):
        to = [(change(max(distance(anchor, point, "euclidean"), 1e-6)), label)
              for point, label in zip(points, point_labels, strict=True)]  # fmt: skip
        others = [d for d, label in to if label != own]
        gaps.append(max(d for d, label in to if label == own) - min(others) if others else None)
    return gaps
