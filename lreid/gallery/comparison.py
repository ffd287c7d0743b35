"""Decide whether two images show the same identity."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from lreid import zoo
from lreid.data.images import UPRIGHT, typical_size
from lreid.data.records import Record
from lreid.errors import InputError, rounded_up
from lreid.gallery.findings import too_few
from lreid.gallery.gallery import Gallery
from lreid.gallery.images import Extraction, SearchImage, read_images
from lreid.loading import load_model
from lreid.utils.identities import UNKNOWN

MOST_IMAGES = 1000  # maximum number of gallery images whose pairs are used to estimate a false accept rate


def compare(
    *images: str | Path, model: str | Path | None = None, gallery: str | None = None, device: str = "auto"
) -> dict[str, Any]:
    """Compare the cosine similarity of every pair of images with the threshold of a model or a gallery.

    The threshold of a zoo model is reached by 1 % of the impostor pairs in its test sets. The threshold of a calibrated
    gallery applies to the best of many scores, so this threshold is strict for a single pair.

        lreid.compare("a.jpg", "b.jpg")["pairs"][0]["same"]

    Args:
        images: two or more image files.
        model: the model, see :func:`lreid.load_model`, or None for the gallery's model. Without a gallery, None means
            zoo:people for upright images and zoo:vehicles for others.
        gallery: place of the gallery whose model and threshold are used.
        device: see :func:`lreid.load_model`.

    Returns:
        A dictionary with ``pairs``; the ``threshold`` with its ``false_accept_rate`` and ``true_positive_rate`` (None
        if unknown); and ``notes``, sentences about the threshold. A pair has its two ``images`` and their ``score``;
        ``same`` is True if the score reaches the threshold (None without a threshold). The ``false_accept_rate`` of a
        pair is the share of the gallery's impostor pairs that have at least this score (None without a gallery of
        several identities).

    Raises:
        InputError: there are fewer than two images, an image cannot be read, or the model or gallery is invalid.
    """
    if len(images) < 2:
        raise InputError(f"{', '.join(map(str, images)) or 'images'}: pass a second image to compare with")
    listed = [SearchImage(str(each), None, None) for each in images]
    if gallery is not None:
        of = Gallery.load(gallery)
        network = of.load_network(None if model is None else Path(model), device)
        features = of.extraction(network, read_images(listed, network, of.about.names)[1])
        threshold, impostors = _of_gallery(of), _impostor_scores(of)
    else:
        source = str(model or model_for(images))
        network = load_model(source, device)
        features = Extraction.of(source)(network, read_images(listed, network, {})[1])
        threshold, impostors = threshold_of_model(source), None
    return {"pairs": list(_pairs(images, features, threshold["threshold"], impostors)), **threshold}


def model_for(images: Sequence[str | Path]) -> str:
    """Choose the zoo model for people (upright images) or for vehicles, as for training on custom images."""
    size = typical_size([Record(str(path), UNKNOWN, UNKNOWN) for path in images])
    return zoo.PEOPLE if size is None or size.ratio >= UPRIGHT else zoo.VEHICLES


def _pairs(
    images: Sequence[str | Path], features: np.ndarray, limit: float | None, impostors: np.ndarray | None
) -> Iterator[dict[str, Any]]:
    vectors = features / np.linalg.norm(features, axis=1, keepdims=True).clip(1e-12)
    for one, other in combinations(range(len(images)), 2):
        score = float(vectors[one] @ vectors[other])
        yield {
            "images": [str(images[one]), str(images[other])],
            "score": score,
            "same": None if limit is None else score >= limit,
            "false_accept_rate": None if impostors is None else float((impostors >= score).mean()),
        }


def _impostor_scores(gallery: Gallery) -> np.ndarray | None:
    """Compute the scores of impostor pairs of gallery images; None if there are no features or no such pairs."""
    labels = gallery.store.labels()
    rows = np.flatnonzero(labels.ids != UNKNOWN)
    if gallery.about.kind == "ivfpq" or len(rows) < 2:
        return None
    rows = np.sort(np.random.default_rng(0).permutation(rows)[:MOST_IMAGES])
    features, ids = gallery.features(labels.keys[rows]), labels.ids[rows]
    scores = features @ features.T  # cosine similarities, because the rows have length 1
    other = np.triu(ids[:, None] != ids[None])
    return scores[other] if other.any() else None


def _of_gallery(gallery: Gallery) -> dict[str, Any]:
    """Return the threshold of a gallery, and notes about it."""
    about = gallery.about
    notes = [
        f"the threshold of {gallery.where} was set on {about.calibrated_on or 'some'} images for the best match in the "
        "gallery, so it is strict for two images, and not valid for other cameras"
    ]
    notes += list(filter(None, [too_few(about.calibrated_on, about.false_accept_rate)]))
    if about.threshold is None:
        notes = [f"{gallery.where} has no threshold; calibrate it: lreid search calibrate"]
    rates = {"false_accept_rate": about.false_accept_rate, "true_positive_rate": None}
    return {"threshold": about.threshold, **rates, "notes": notes}


def threshold_of_model(source: str) -> dict[str, Any]:
    """Return the threshold on the card of a model, and notes about this threshold."""
    entry = None
    if source.startswith(zoo.PREFIX):
        entry = zoo.find(source.removeprefix(zoo.PREFIX))
    elif source.endswith(".safetensors"):
        entry = zoo.card_beside(Path(source))
    card = entry.verification if isinstance(entry, zoo.Card) else {}
    note = f"{source} has no threshold; use a model of the zoo or a calibrated gallery"
    if card:
        note = (
            f"the threshold of {source} was measured on {', '.join(card['galleries'])} ({card['impostor_pairs']:,} "
            "impostor pairs) and is valid for images like these; other cameras need another threshold, so calibrate "
            "your gallery for a reliable answer"
        )
    return {key: card.get(key) for key in ("threshold", "false_accept_rate", "true_positive_rate")} | {"notes": [note]}


def said(pair: dict[str, Any], comparison: dict[str, Any]) -> str:
    """Describe the result for one pair of :func:`compare` as text."""
    if pair["same"] is None:
        return f"similarity {pair['score']:.3f}"
    rate = f"{100 * comparison['false_accept_rate']:g} %"
    reason = f"threshold {rounded_up(comparison['threshold'])} at a false accept rate of {rate}"
    if comparison["true_positive_rate"] is not None:
        reason += f", which {100 * comparison['true_positive_rate']:.0f} % of genuine pairs reach"
    if pair["false_accept_rate"] is not None:
        reason += f"; {100 * pair['false_accept_rate']:.1f} % of impostor pairs in the gallery score at least as high"
    return f"{'likely the same' if pair['same'] else 'likely not the same'}, {pair['score']:.3f} ({reason})"
