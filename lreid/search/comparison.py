"""Say of two images whether they are of the same identity."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from lreid import zoo
from lreid.devices import pick_device
from lreid.errors import InputError
from lreid.loading import load_model
from lreid.search.findings import too_few
from lreid.search.named_gallery import NamedGallery, extract, flips
from lreid.search.own_images import OwnImage, read_images


def compare(
    images: Sequence[Path], *, checkpoint: Path | None = None, where: str | None = None, device: str = "auto"
) -> dict[str, Any]:
    """Compares every pair of images by cosine similarity with a threshold that was measured before.

    That of a model of the zoo is what 1 % of pairs of two identities reach on its own test sets. That of a calibrated
    gallery is what the best of a whole gallery reaches for a share of impostors, so it is strict for a single pair.

    Args:
        images: two files or more.
        checkpoint: of the model; None is the zoo's for people, or that of the gallery.
        where: of a gallery, whose model and threshold are taken.
        device: of :func:`lreid.devices.pick_device`.

    Returns:
        ``pairs`` with their two ``images``, their ``score`` and whether they are the ``same`` (None without a
        threshold), ``threshold``, ``false_accept_rate`` and ``true_positive_rate`` (None where they are not known), and
        ``notes``, sentences about the threshold.

    Raises:
        InputError: fewer than two images, one that cannot be read, or a model or gallery that does not fit.
    """
    if len(images) < 2:
        raise InputError(f"{images[0]}: name another image to compare it with")
    listed = [OwnImage(str(each), None, None) for each in images]
    if where is not None:
        named = NamedGallery.load(where)
        model = named.model(checkpoint, device)
        features = named.extract(model, read_images(listed, model, named.gallery.about.names)[1])
        threshold = _of_gallery(named)
    else:
        source = str(checkpoint or zoo.PEOPLE)
        model = load_model(source).to(pick_device(device))
        features = extract(model, read_images(listed, model, {})[1], flips(Path(source)))
        threshold = _of_model(source)
    vectors = features / np.linalg.norm(features, axis=1, keepdims=True).clip(1e-12)
    limit = threshold["threshold"]
    pairs = []
    for one, other in combinations(range(len(images)), 2):
        score = float(vectors[one] @ vectors[other])
        same = None if limit is None else score >= limit
        pairs.append({"images": [str(images[one]), str(images[other])], "score": score, "same": same})
    return {"pairs": pairs, **threshold}


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


def said(pair: dict[str, Any], told: dict[str, Any]) -> str:
    """A pair of :func:`compare` in words."""
    if pair["same"] is None:
        return f"similarity {pair['score']:.3f}"
    known = f"threshold {told['threshold']:.3f} at a false accept rate of {100 * told['false_accept_rate']:g} %"
    if told["true_positive_rate"] is not None:
        known += f", which {100 * told['true_positive_rate']:.0f} % of pairs of one identity reach"
    return f"{'the same' if pair['same'] else 'not the same, or unknown'}, {pair['score']:.3f} ({known})"
