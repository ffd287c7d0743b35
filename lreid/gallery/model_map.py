"""Move a gallery to a new model without its images: a map replaces the extraction."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lreid.errors import InputError, counted
from lreid.gallery.gallery import Gallery, place_of
from lreid.gallery.images import SearchImage, read_images, readable
from lreid.gallery.release_check import Queries, labelled_images, rank_gallery
from lreid.loading import load_model
from lreid.models.embedder import Embedder

logger = logging.getLogger("lreid")
FEWEST = 100  # with fewer images, the mapped gallery was worse than the unchanged one (large-galleries.md)


def reindex_by_map(
    where: str | Path,
    checkpoint: Path,
    images: Sequence[SearchImage],
    *,
    labelled: Sequence[SearchImage] = (),
    old: Path | None = None,
    force: bool = False,
    restart: bool = False,
    skip_bad: bool = False,
    device: str = "auto",
) -> dict[str, Any]:
    """Map the features of a gallery to a new model, as a new version that then replaces the gallery.

    The old version is kept, so that :func:`lreid.gallery.roll_back` can restore it.

    Args:
        where: place of the gallery, see :func:`lreid.gallery.gallery.place_of`.
        checkpoint: checkpoint of the new model.
        images: images from :func:`lreid.gallery.list_images`, see :meth:`lreid.gallery.Gallery.mapped`.
        labelled: labelled images of people in the gallery, and of others, on which the change is measured.
        old: file of the gallery's model, if the file was moved.
        force: whether to use a map from fewer than ``FEWEST`` images, or one that is worse than keeping the old model.
        restart: whether to discard a next version with extracted features, which ``reindex`` or ``rollback`` left.
        skip_bad: whether to leave out images that cannot be read.
        device: see :func:`lreid.load_model`.

    Returns:
        The attributes of the new :class:`lreid.gallery.store.MapRecord`, the number of ``maps`` of the gallery, and its
        ``threshold``. With ``labelled`` images, also the figures ``before`` (of the old model in the old gallery) and
        ``after``, see :meth:`lreid.gallery.release_check.Queries.figures`, with their ``old_mAP`` and ``mAP``.

    Raises:
        InputError: an argument is invalid, an image cannot be read, the map is refused, or another process has changed
            the gallery; the gallery is unchanged.
    """
    place = place_of(where)
    gallery = Gallery.load(place)
    following, listed = place.next(), gallery.images()
    try:
        before = gallery.load_network(old, device)
    except InputError as error:
        raise InputError(f"{error}; the map needs the gallery's model {gallery.about.model}, see old='FILE'") from None
    after = load_model(checkpoint, device)
    # A map can be computed again; extracted features may be the only ones, so they are not discarded silently.
    if following.exists() and not restart and not Gallery.load(following, unfinished=True).maps:
        raise InputError(f"{following}: holds extracted features; pass restart=True to discard them")
    mapped = gallery.mapped(before, after, readable(images, skip_bad))
    record = mapped.maps[-1]
    results = record._asdict() | {"maps": len(mapped.maps), "threshold": mapped.threshold}
    if labelled:
        old_figures, figures = _figures(gallery, before, labelled), _figures(mapped, after, labelled)
        results |= {"before": old_figures, "after": figures, "old_mAP": old_figures["mAP"], "mAP": figures["mAP"]}
    if not force:
        _require_useful(where, results)
    if record.images < gallery.width:
        lengths = f"{counted(record.images, 'image')}, fewer than the {gallery.width} numbers of a feature"
        logger.warning("%s: the map was fitted on %s; more images give a better map", where, lengths)
    if following.exists():
        following.delete()
    new = mapped.copied(following)
    if gallery.images() != listed:  # in Milvus; switch refuses a changed file
        raise InputError(f"{where}: another process has changed the gallery in the meantime; run this again")
    new.finish()
    place.switch(gallery.store)
    return results


def _figures(gallery: Gallery, model: Embedder, labelled: Sequence[SearchImage]) -> dict[str, Any]:
    """Measure labelled images in a gallery, at its threshold; without one, at the threshold that they would set."""
    queries, pixels = read_images(labelled_images(gallery, labelled), model, gallery.about.names)
    ranked = rank_gallery(gallery, gallery.extraction(model, pixels), queries, 0.01)
    if gallery.threshold is not None:
        ranked = replace(ranked, threshold=gallery.threshold)
    names = np.array([image.identity for image in queries])
    return Queries(names, np.isfinite(ranked.own), ~np.isin(names, gallery.identities)).figures(ranked)


def _require_useful(where: str | Path, results: dict[str, Any]) -> None:
    """Refuse a map from too few images, or one that is worse than what it replaces."""
    if results["images"] < FEWEST:
        fault = f"{counted(results['images'], 'image')} for the map are too few; give {FEWEST} or more"
    elif results["cosine"] <= results["baseline"]:
        fault = f"the map is no better than a constant (mean cosine {results['cosine']:.3f} on held-out images)"
    elif results.get("mAP", 0.0) < results.get("old_mAP", 0.0):
        fault = f"mAP would be {results['mAP']:.1f} % instead of {results['old_mAP']:.1f} %; keep the old model"
    else:
        return
    raise InputError(f"{where}: {fault}, or pass force=True; nothing was changed")
