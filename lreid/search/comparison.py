"""Say of two images whether they are of the same identity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from lreid import zoo
from lreid.errors import InputError
from lreid.identities import UNKNOWN
from lreid.loading import Engine, load_model
from lreid.search.findings import too_few
from lreid.search.image_list import SearchImage, read_images
from lreid.search.named_gallery import NamedGallery, extract, flips

MOST_IMAGES = 1000  # of a gallery, to estimate a false accept rate from its pairs


def compare(
    images: Sequence[Path],
    *,
    checkpoint: Path | None = None,
    where: str | None = None,
    device: str = "auto",
    engine: Engine = "torch",
) -> dict[str, Any]:
    """Compares every pair of images by cosine similarity with a threshold that was measured before.

    That of a model of the zoo is what 1 % of pairs of two identities reach on its own test sets. That of a calibrated
    gallery is what the best of a whole gallery reaches for a share of impostors, so it is strict for a single pair.

    Args:
        images: two files or more.
        checkpoint: the model; None takes the gallery's, or zoo:people.
        where: place of a gallery, whose model and threshold are used.
        device, engine: as in :func:`lreid.load_model`.

    Returns:
        ``pairs`` with their two ``images``, their ``score``, whether they are the ``same`` (None without a threshold)
        and ``false_accept_rate``, the share of the gallery's pairs of two identities that score as high (None without
        a gallery of several identities); ``threshold``, ``false_accept_rate`` and ``true_positive_rate`` (None where
        they are not known); and
        ``notes``, sentences about the threshold.

    Raises:
        InputError: fewer than two images, one that cannot be read, or a model or gallery that does not fit.
    """
    if len(images) < 2:
        raise InputError(f"{images[0]}: name another image to compare it with")
    listed = [SearchImage(str(each), None, None) for each in images]
    if where is not None:
        named = NamedGallery.load(where)
        model = named.model(checkpoint, device, engine)
        features = named.extract(model, read_images(listed, model, named.gallery.about.names)[1])
        threshold, impostors = _of_gallery(named), _impostor_scores(named)
    else:
        source = str(checkpoint or zoo.PEOPLE)
        model = load_model(source, device, engine=engine)
        features = extract(model, read_images(listed, model, {})[1], flips(Path(source)))
        threshold, impostors = _of_model(source), None
    return {"pairs": list(_pairs(images, features, threshold["threshold"], impostors)), **threshold}


def _pairs(
    images: Sequence[Path], features: np.ndarray, limit: float | None, impostors: np.ndarray | None
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


def _impostor_scores(named: NamedGallery) -> np.ndarray | None:
    """Cosine similarities of pairs of two identities, among at most ``MOST_IMAGES`` images of a gallery.

    None where the gallery keeps no features or knows of no two identities.
    """
    labels = named.gallery.store.labels()
    rows = np.flatnonzero(labels.ids != UNKNOWN)
    if named.gallery.about.kind == "ivfpq" or len(rows) < 2:
        return None
    rows = np.sort(np.random.default_rng(0).permutation(rows)[:MOST_IMAGES])
    features, ids = named.gallery.features(labels.keys[rows]), labels.ids[rows]
    scores = features @ features.T  # rows of length 1
    other = np.triu(ids[:, None] != ids[None])
    return scores[other] if other.any() else None


def _of_gallery(named: NamedGallery) -> dict[str, Any]:
    """The threshold of a gallery, and what to know of it."""
    about = named.gallery.about
    notes = [f"threshold of {named.where}, for the best of a whole gallery: strict for two images"]
    notes += list(filter(None, [too_few(about.calibrated_on, about.false_accept_rate)]))
    if about.threshold is None:
        notes = [f"{named.where} has no threshold; calibrate it: lreid search calibrate"]
    rates = {"false_accept_rate": about.false_accept_rate, "true_positive_rate": None}
    return {"threshold": about.threshold, **rates, "notes": notes}


def _of_model(source: str) -> dict[str, Any]:
    """The threshold on the card of a model, and what to know of it."""
    entry = None
    if source.startswith(zoo.PREFIX):
        entry = zoo.find(source.removeprefix(zoo.PREFIX))
    elif source.endswith(".safetensors"):
        entry = zoo.card_beside(Path(source))
    card = entry.verification if isinstance(entry, zoo.Card) else {}
    note = f"{source} has no threshold; one comes with models of the zoo and with calibrated galleries"
    if card:
        note = (
            f"threshold of {source}, measured on {', '.join(card['galleries'])}; other cameras need another one: "
            "calibrate your gallery for a reliable answer"
        )
    return {key: card.get(key) for key in ("threshold", "false_accept_rate", "true_positive_rate")} | {"notes": [note]}


def said(pair: dict[str, Any], comparison: dict[str, Any]) -> str:
    """A pair of :func:`compare` in words."""
    if pair["same"] is None:
        return f"similarity {pair['score']:.3f}"
    reason = (
        f"threshold {comparison['threshold']:.3f} at a false accept rate of {100 * comparison['false_accept_rate']:g} %"
    )
    if comparison["true_positive_rate"] is not None:
        reason += f", which {100 * comparison['true_positive_rate']:.0f} % of pairs of one identity reach"
    if (rate := pair["false_accept_rate"]) is not None:
        reason += f"; {100 * rate:.1f} % of pairs of two identities in the gallery score as high"
    return f"{'likely the same' if pair['same'] else 'likely not the same'}, {pair['score']:.3f} ({reason})"
