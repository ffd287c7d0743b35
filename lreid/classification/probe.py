"""Classify frozen features by nearest neighbours, nearest class means or a linear classifier.

Each function returns scores of all classes, so that :func:`lreid.classification.accuracy.task_accuracies` can choose
among all classes or among those of one task.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lreid.errors import InputError
from lreid.retrieval.arrays import as_comparable, squared_norms, unit_rows
from lreid.retrieval.scores import blocks
from lreid.utils.devices import full_precision
from lreid.utils.identities import as_labels

Array = np.ndarray | Tensor
Augmented = Callable[[np.ndarray, int], Array]  # rows (B,) and a seed to features (B, D) of augmented images
MOMENTUM, DECAY = 0.9, 0.2
DECAY_AT = (0.6, 0.75, 0.9)  # fractions of the epochs


def knn_scores(
    train_features: Array, train_labels: Array, test_features: Array, *, k: int = 200, temperature: float = 0.07
) -> np.ndarray:
    """Compute the votes of the k nearest training images by cosine similarity.

    Source: "Enabling Efficient On-Device Self-Supervised Contrastive Learning by Data Selection" (Contrast Scoring),
    Section 4.1, which uses 200 neighbours and the features before the projection head. Contrast Scoring's paper does
    not say how neighbours vote, but cites Wu et al., "Unsupervised Feature Learning via Non-Parametric Instance
    Discrimination", CVPR 2018. Wu et al. weight each vote by ``exp(similarity / 0.07)``.

    Args:
        train_features: (N, D) float features of training images; they need not be unit vectors.
        train_labels: (N,) integers in [0, C).
        test_features: (n, D) float.
        k: number of neighbours, or all N training images if there are fewer.
        temperature: temperature of the weights of votes, above 0; ``math.inf`` gives each neighbour one vote.

    Returns:
        Sums of weights (n, C) float64, where C is the highest label + 1. Weights are relative to the nearest neighbour,
        whose weight is 1.

    Raises:
        InputError: the shapes do not match, a label is below 0, or a value is not finite.
    """
    train, test, labels = _checked(train_features, train_labels, test_features)
    train, test = unit_rows(train, "training features"), unit_rows(test, "test features")
    targets, classes = torch.from_numpy(labels).to(train.device), int(labels.max()) + 1
    scores = np.empty((len(test), classes))
    for chunk in blocks(len(test), max(len(train), classes)):
        with full_precision():
            similarity = test[chunk] @ train.T  # (B, N)
        nearest, rows = similarity.topk(min(k, len(train)))  # (B, k), the nearest first
        weights = ((nearest - nearest[:, :1]).double() / temperature).exp()
        votes = weights.new_zeros(len(weights), classes).scatter_add_(1, targets[rows], weights)
        scores[chunk] = votes.cpu().numpy()
    return scores


def nearest_mean_scores(train_features: Array, train_labels: Array, test_features: Array) -> np.ndarray:
    """Compute cosine similarities to the mean of each class's unit-length features.

    Source: Rebuffi et al., "iCaRL", CVPR 2017, Algorithm 1.

    Args:
        train_features, train_labels, test_features: see :func:`knn_scores`.

    Returns:
        Similarities (n, C) float64 in [-1, 1]; minus infinity for labels below C without training images.

    Raises:
        InputError: see :func:`knn_scores`.
    """
    train, test, labels = _checked(train_features, train_labels, test_features)
    train, test = unit_rows(train.double(), "training features"), unit_rows(test.double(), "test features")
    classes, targets = np.unique(labels, return_inverse=True)
    sums = train.new_zeros(len(classes), train.shape[1])
    sums.index_add_(0, torch.from_numpy(targets).to(train.device), train)
    return _by_label(test @ unit_rows(sums, "class means").T, classes)


def linear_probe_scores(
    train_features: Array,
    train_labels: Array,
    test_features: Array,
    *,
    epochs: int = 100,
    lr: float = 1.0,
    optimizer: str = "sgd",
    batch_size: int = 256,
    seed: int = 0,
    augmented: Augmented | None = None,
) -> np.ndarray:
    """Compute logits of a linear classifier, which is trained by cross-entropy with class-balanced draws.

    Source: Cha et al., "Co²L", ICCV 2021, Section 5.1 and Appendix A.4, and CCLIS (AAAI 2024, Appendix B). The
    classifier is trained for 100 epochs by SGD with momentum 0.9 and no weight decay. The learning rate is multiplied
    by 0.2 after 60, 75 and 90 epochs. For each image of a batch, first a class is drawn, and then an image of this
    class. An epoch draws N images, in batches of 256 as in Co²L's code.

    The papers choose the learning rate per data set (1.0, 0.5 or 0.1) and train on raw features of images that are
    augmented again in every epoch; ``augmented`` does the same. By default, lreid trains on fixed features, which it
    centres and divides by their root mean square distance from the centre. Centring and scaling do not change which
    linear classifiers are possible, and make one learning rate suit all networks. In both cases, the initial weights
    of the classifier are 0; in the official code they are random. Contrast Scoring (Appendix A.1) uses Adam with a
    constant learning rate of 0.0003 over 500 epochs; the defaults of lreid are those of Co²L.

    Args:
        train_features, train_labels, test_features: see :func:`knn_scores`.
        epochs: number of epochs, 1 or more.
        lr: initial learning rate, above 0.
        optimizer: ``sgd`` with Co²L's schedule of the learning rate, or ``adam`` with a constant learning rate.
        batch_size: number of images per step, 1 or more.
        seed: seed of the draws; the global random state stays unchanged.
        augmented: function that augments the training images in the given rows (B,) by a seed, and returns their
            features (B, D). The probe then trains on these features, and neither centres nor scales features.

    Returns:
        Logits (n, C) float64; minus infinity for labels below C without training images.

    Raises:
        InputError: see :func:`knn_scores`.
    """
    train, test, labels = _checked(train_features, train_labels, test_features)
    for features, name in ((train, "training features"), (test, "test features")):
        squared_norms(features, name)  # raises if a value is not finite
    if augmented is None:
        centre = train.mean(0)  # (D,)
        scale = (train - centre).square().sum(1).mean().sqrt().clamp(min=1e-12)
        train, test = (train - centre) / scale, (test - centre) / scale
    classes, targets = np.unique(labels, return_inverse=True)
    weight = train.new_zeros(len(classes), train.shape[1], requires_grad=True)
    bias = train.new_zeros(len(classes), requires_grad=True)
    adam, weights = optimizer == "adam", [weight, bias]
    stepper = torch.optim.Adam(weights, lr) if adam else torch.optim.SGD(weights, lr, momentum=MOMENTUM)
    decay_at = [] if adam else [round(share * epochs) for share in DECAY_AT]
    schedule = torch.optim.lr_scheduler.MultiStepLR(stepper, decay_at, DECAY)
    rng = np.random.default_rng(seed)
    places = torch.from_numpy(targets).to(train.device)  # (N,)
    for _ in range(epochs):
        drawn = balanced_rows(targets, len(targets), rng)  # (N,)
        for rows in np.split(drawn, range(batch_size, len(drawn), batch_size)):
            features = train[rows]  # (B, D)
            if augmented is not None:
                features = torch.as_tensor(augmented(rows, int(rng.integers(2**31)))).to(train)
            stepper.zero_grad()
            with torch.enable_grad():
                F.cross_entropy(F.linear(features, weight, bias), places[rows]).backward()
            stepper.step()
        schedule.step()
    return _by_label(F.linear(test, weight, bias), classes)


def balanced_rows(labels: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rows with replacement, balanced by class (Co²L, Section 5.1): first a class, then one of its images.

    ``labels`` (N,) are integers, and the result is (count,) int64 row numbers.
    """
    order = labels.argsort(kind="stable")  # class by class
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    drawn = rng.integers(len(starts), size=count)
    return order[starts[drawn] + rng.integers(sizes[drawn])]


def _checked(train_features: Array, train_labels: Array, test_features: Array) -> tuple[Tensor, Tensor, np.ndarray]:
    """Check the arguments; return training features (N, D), test features (n, D) and labels (N,) int64 in [0, C)."""
    test, train = as_comparable(test_features, train_features)
    labels = as_labels(train_labels, "training labels", len(train))
    if labels.min() < 0:
        raise InputError(f"training labels: {labels.min()}; classes are counted from 0, leave junk out")
    return train, test, labels


def _by_label(scores: Tensor, classes: np.ndarray) -> np.ndarray:
    """Spread scores (n, classes) to a column per label, (n, C) float64; missing labels get minus infinity."""
    columns = np.full((len(scores), classes[-1] + 1), -np.inf)
    columns[:, classes] = scores.detach().cpu().numpy()
    return columns
