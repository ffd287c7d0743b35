"""Build a gallery of images, change it, calibrate its threshold, and search it with images."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lreid.data.datasets import Sources
from lreid.errors import ArgumentError, InputError
from lreid.gallery.faiss_store import FilePlace
from lreid.gallery.filters import EVERYTHING, Filter
from lreid.gallery.findings import findings, first_match, threshold_text, too_few
from lreid.gallery.gallery import Gallery, place_of
from lreid.gallery.images import SearchImage, absolute, list_queries, read_images, require_some
from lreid.gallery.named_gallery import NamedGallery, extract_features, flips
from lreid.utils.files import require_writable
from lreid.utils.identities import UNKNOWN

logger = logging.getLogger("lreid")
Where = str | Path  # address of a gallery, see lreid.gallery.gallery.place_of


def build(
    where: Where,
    checkpoint: Path,
    images: Sequence[SearchImage],
    *,
    kind: str = "flat",
    shards: int = 1,
    adapt_norm: bool = False,
    skip_bad: bool = False,
    device: str = "auto",
) -> NamedGallery:
    """Build a gallery of images and save it.

    Args:
        where: place of the new gallery, see :func:`lreid.gallery.gallery.place_of`.
        checkpoint: checkpoint of the model that extracts features.
        images: images from :func:`list_images`.
        kind: ``flat``, ``hnsw`` or ``ivfpq``, see :mod:`lreid.gallery.shards`.
        shards: number of parts of the index in a file, which are searched in parallel.
        adapt_norm: whether to standardise features per camera, by statistics of these images, which the gallery stores.
        skip_bad: whether to leave out images that cannot be read.
        device: see :func:`lreid.load_model`.

    Raises:
        InputError: the gallery already exists, or an argument is invalid; nothing is written.
    """
    place = place_of(where)
    if isinstance(place, FilePlace) and place.path.is_dir():
        raise InputError(f"{where}: is a folder; pass the name of the new gallery first, and then the images")
    if place.exists():
        raise InputError(f"{where}: already exists; add images to it, or choose a different name")
    if isinstance(place, FilePlace):
        require_writable(place.path)
    if adapt_norm and all(image.camera is None for image in images):
        raise ArgumentError("adapt_norm", "is given, but the cameras are unknown; remove adapt_norm")
    from lreid.loading import load_model

    model, flip, norm = load_model(checkpoint, device), flips(checkpoint), None
    images, pixels = read_images(images, model, {}, skip_bad=skip_bad)
    require_some(pixels)
    features = extract_features(model, pixels, flip)
    if adapt_norm:
        from lreid.retrieval.camera_norm import CameraNorm

        norm = CameraNorm.estimate(features, pixels.camids)
        features = norm(features, pixels.camids)
    return NamedGallery.build(where, model, images, features, flip=flip, norm=norm, kind=kind, shards=shards)


def add(
    where: Where,
    images: Sequence[SearchImage],
    *,
    checkpoint: Path | None = None,
    skip_bad: bool = False,
    device: str = "auto",
) -> int:
    """Add only images that a gallery lacks; their features are normalised like the gallery's features.

    Args:
        images: images from :func:`list_images`.
        checkpoint: the file of the gallery's model, if the file was moved.
        skip_bad, device: see :func:`build`.

    Returns:
        Number of added images.

    Raises:
        InputError: an argument is invalid; the gallery does not change.
    """
    named = NamedGallery.load(where)
    images = named.lacking(images)
    return len(named.add(named.model(checkpoint, device), images, skip_bad=skip_bad)) if images else 0


def remove(where: Where, paths: Sequence[str] = (), identity: str | None = None, *, everywhere: bool = False) -> int:
    """Delete images and their features from a gallery: images of given paths, or all images of an identity.

    If the last image of an identity is deleted, the name of the identity is deleted too.

    Args:
        identity: name of the identity whose images are deleted.
        everywhere: whether to delete the images also from other versions of the gallery, which ``reindex`` and
            ``rollback`` keep. Other versions need not contain all of the images.

    Returns:
        Number of removed images.

    Raises:
        InputError: an image is not in the gallery, or neither paths nor an identity are given; the gallery does not
            change.
    """
    if not paths and identity is None:
        raise InputError(f"{where}: nothing to remove; name images, or identity=NAME")
    place = place_of(where)
    versions = [NamedGallery.load(place)]
    if everywhere:
        versions += [NamedGallery.load(each, unfinished=True) for each in place.others()]
    removed: set[str] = set()
    for named in versions:
        labels = named.gallery.store.labels()
        doomed = {absolute(path) for path in paths}
        if identity is not None and not (everywhere and identity not in named.identities.values()):
            doomed |= set(labels.paths[labels.ids == named.number_of("identity", identity)].tolist())
        if everywhere:
            doomed &= set(labels.paths.tolist())
        if doomed:
            named.gallery.remove(sorted(doomed))
            named.gallery.save()
        removed |= doomed
    if not removed:
        raise InputError(f"{where}: contains none of these images, and neither do its other versions")
    return len(removed)


def calibrate(
    where: Where,
    images: Sequence[SearchImage],
    *,
    false_accept_rate: float = 0.01,
    checkpoint: Path | None = None,
    skip_bad: bool = False,
    device: str = "auto",
) -> dict[str, Any]:
    """Set the threshold of a gallery from labelled images, see :meth:`lreid.gallery.Gallery.calibrate`.

    Args:
        where: place of a gallery whose images have identities.
        images: images from :func:`list_images`, which may show people who are not enrolled. Images without an identity
            are skipped.
        false_accept_rate: share of impostors that may reach the threshold, in [0, 1).
        checkpoint, skip_bad, device: see :func:`add`.

    Returns:
        A dictionary with ``threshold``, ``false_accept_rate`` and the number of ``images``. The entry ``known`` is the
        number of images whose identity has another image in the gallery. The entry ``true_positive_rate`` is the share
        of the ``known`` images that are recognised (None if there are none). An image is recognised if its best match
        with a name, apart from the image itself, shows its identity and reaches the threshold.

    Raises:
        InputError: no image has an identity, or an argument is invalid; the gallery does not change.
    """
    named = _load_filled(where)
    labelled = [image for image in images if image.identity is not None]
    if not labelled:
        raise InputError(
            f"{where}: a threshold needs images with identities; name folders after people, name files like "
            "0002_c1.jpg, or write a CSV file"
        )
    model, gallery = named.model(checkpoint, device), named.gallery
    labelled, pixels = read_images(labelled, model, gallery.about.names, skip_bad=skip_bad)
    require_some(pixels)
    features, of_model = named.extract(model, pixels), gallery.about.model
    paths, people, *_ = zip(*labelled, strict=True)
    threshold = gallery.calibrate(features, people, model=of_model, false_accept_rate=false_accept_rate)
    # Two matches, because the best match of an enrolled image is the image itself.
    matches = gallery.search(features, 2, model=of_model, where=Filter(not_identities=(UNKNOWN,)))
    recognised = _recognised(gallery, findings(matches, paths, people, calibrated=True))
    gallery.save()
    if caveat := too_few(gallery.about.calibrated_on, false_accept_rate):
        logger.warning(caveat)
    return {
        "threshold": threshold,
        "false_accept_rate": false_accept_rate,
        "images": len(labelled),
        "known": len(recognised),
        "true_positive_rate": float(np.mean(recognised)) if recognised else None,
    }


def _recognised(gallery: Gallery, queries: Sequence[dict[str, Any]]) -> list[bool]:
    """Check for each query whose person has another image in the gallery whether the best match is that person."""
    labels, recognised = gallery.labels(), []
    images_of, identity_of = Counter(labels.ids.tolist()), dict(zip(labels.paths, labels.ids, strict=True))
    for each in queries:
        person, best = each["expected"], first_match(each)
        if images_of[person] > (identity_of.get(each["image"]) == person):
            recognised.append(best is not None and best["known"] and best["identity"] == person)
    return recognised


def query(
    where: Where,
    images: Sequence[Path],
    *,
    top: int = 10,
    other_cameras: bool = False,
    only: Filter = EVERYTHING,
    camera: str | None = None,
    checkpoint: Path | None = None,
    cross_model: bool = False,
    sources: Sources = Sources(),  # noqa: B008 (frozen)
    device: str = "auto",
) -> dict[str, Any]:
    """Search a gallery with images.

    Args:
        images: image files, folders or CSV files that contain the queries.
        top: number of matches per image, 1 or more.
        other_cameras: whether to exclude images from the query's camera.
        only: filter that limits the matches.
        camera: camera of the queries; with None, lreid reads it from paths like ``cam1/07.jpg`` or
            ``0002_c1s1_000451_03.jpg``. If the gallery has statistics per camera, the statistics of this camera
            normalise the queries.
        checkpoint: the file of the gallery's model, if the file was moved.
        cross_model: whether to use another model with compatible features.
        sources: pattern for paths in folders, and root folder of the image paths in CSV files.
        device: see :func:`lreid.load_model`.

    Returns:
        The content of ``matches.json``: ``gallery``; the number of ``images`` in the gallery; ``threshold``,
        ``false_accept_rate`` and ``calibrated_on``; and ``queries``, see :func:`lreid.gallery.findings.findings`. The
        entry ``calibrated_on`` is the number of images from which :func:`calibrate` computed the threshold. Before
        calibration, ``threshold``, ``false_accept_rate`` and ``calibrated_on`` are None.

    Raises:
        InputError: an image cannot be read, or an argument is invalid.
    """
    if top < 1:
        raise ArgumentError("top", f"is {top}; request at least one match")
    named = _load_filled(where)
    about, queries = named.gallery.about, list_queries(images, sources)
    if camera is not None:
        named.number_of("camera", camera)
        queries = [each._replace(camera=camera) for each in queries]
    elif other_cameras:
        _require_cameras(queries)
    only = only.numbered(named.number_of)  # an unknown name raises an error here, before anything is computed
    from lreid.models.fingerprint import fingerprint

    model = named.model(checkpoint, device, any_model=cross_model)
    mark = fingerprint(model)
    flip = named.flip if mark == about.model else flips(checkpoint or named.checkpoint)
    queries, pixels = read_images(queries, model, about.names)
    if named.norm and named.norm.cameras and (pixels.camids == UNKNOWN).any():
        logger.warning("the gallery is normalised per camera; pass --camera NAME with the camera of the images")
    matches = named.gallery.search(
        extract_features(model, pixels, flip, named.norm),
        min(top, len(named.gallery)),
        query_cams=[each.camera for each in queries],
        model=mark,
        where=only,
        exclude_same_camera=other_cameras,
        cross_model=cross_model,
    )
    people = set(named.identities.values())
    expected = [each.identity if each.identity in people else None for each in queries]
    return {
        "gallery": str(where),
        "images": len(named.gallery),
        **{name: getattr(about, name) for name in ("threshold", "false_accept_rate", "calibrated_on")},
        "queries": findings(matches, [each.path for each in queries], expected, calibrated=about.threshold is not None),
    }


def _require_cameras(queries: Sequence[SearchImage]) -> None:
    if unknown := next((each.path for each in queries if each.camera is None), None):
        raise InputError(
            f"{unknown}: other_cameras=True needs the camera of the image; pass camera=NAME, or use a name like "
            "cam2_07.jpg"
        )


def info(where: Where) -> dict[str, Any]:
    """Return a dictionary with the properties of a gallery, for printing."""
    named = NamedGallery.load(where)
    about, place = named.gallery.about, place_of(where)
    size, caveat = place.bytes(), too_few(about.calibrated_on, about.false_accept_rate)
    return (
        named.counts()
        | {
            "kind": about.kind,
            "recall": ", ".join(f"{value:.3f} @{k}" for k, value in about.recall.items()) or "not measured",
            "dimensions": named.gallery.width,
            "model": about.model,
            "checkpoint": str(named.checkpoint),
            "flipped images": "added" if named.flip else "no",
            "adapted normalisation": "features, per camera" if named.norm else "none",
            "threshold": "none; set one with lreid search calibrate"
            if about.threshold is None or about.false_accept_rate is None
            else f"{threshold_text(about.threshold, about.false_accept_rate)}; {caveat}".rstrip("; "),
            "related files": ", ".join(place.beside()) or "none",
        }
        | ({} if size is None else {"bytes": size})
    )


def _load_filled(where: Where) -> NamedGallery:
    named = NamedGallery.load(where)
    if not len(named.gallery):
        raise InputError(f"{where}: contains no images; add some")
    return named
