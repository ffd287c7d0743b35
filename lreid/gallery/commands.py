"""Build a gallery of images, change it, calibrate its threshold, and search it with images."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lreid.data.datasets import Sources
from lreid.errors import ArgumentError, InputError, counted
from lreid.gallery.change import Change
from lreid.gallery.faiss_store import FilePlace
from lreid.gallery.findings import findings, first_match, threshold_text, too_few
from lreid.gallery.gallery import FEWEST_SCORES, Gallery, GalleryPlace, groups_of, place_of
from lreid.gallery.images import Extraction, SearchImage, absolute, list_queries, read_images, require_some
from lreid.gallery.store import EVERYTHING, Filter
from lreid.utils.files import require_writable
from lreid.utils.identities import UNKNOWN, label_text

if TYPE_CHECKING:  # commands that need no network start without torch
    from lreid.models.embedder import Embedder

logger = logging.getLogger("lreid")
RATES = (0.1, 0.05, 0.01, 0.001)  # false accept rates of the table that calibrate prints
BOOTSTRAP = 1000  # draws for the interval of a threshold
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
) -> Gallery:
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

    network = load_model(checkpoint, device)
    extraction = Extraction.of(network.source)
    images, pixels = read_images(images, network, {}, skip_bad=skip_bad)
    require_some(pixels)
    features = extraction(network, pixels)
    if adapt_norm:
        from lreid.retrieval.camera_norm import CameraNorm

        norm = CameraNorm.estimate(features, pixels.camids)
        features, extraction = norm(features, pixels.camids), replace(extraction, norm=norm)
    return save_new(where, network, images, features, extraction, kind=kind, shards=shards)


def save_new(
    where: Where | GalleryPlace,
    network: Embedder,
    images: Sequence[SearchImage],
    features: np.ndarray,
    extraction: Extraction,
    **about: Any,
) -> Gallery:
    """Create and save a gallery of images, whose features ``(n, D)`` a network has computed by an extraction."""
    labels, extras = zip(*images, strict=True), extraction.to_arrays()
    gallery = Gallery.build(features, *labels, model=network, at=where, extras=extras, **about)
    gallery.save()
    return gallery


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
    gallery = Gallery.load(where)
    images = missing_in(gallery, images)
    if not images:
        return 0
    added = add_images(gallery, gallery.load_network(checkpoint, device), images, skip_bad=skip_bad)
    _warn_of_old_threshold(gallery)
    return len(added)


def _warn_of_old_threshold(gallery: Gallery) -> None:
    """Warn after a change that the threshold was set for the images before the change."""
    if gallery.about.threshold is not None:
        logger.warning("%s: the threshold was set for other images; run lreid search calibrate again", gallery.where)


def missing_in(gallery: Gallery, images: Sequence[SearchImage]) -> list[SearchImage]:
    """Return the images that are not in a gallery."""
    held = gallery.holds([image.path for image in images])
    return [image for image, present in zip(images, held, strict=True) if not present]


def add_images(
    gallery: Gallery, network: Embedder, images: Sequence[SearchImage], *, skip_bad: bool
) -> list[SearchImage]:
    """Add images with their names, save the gallery, and return the images that could be read."""
    images, pixels = read_images(images, network, gallery.about.names, skip_bad=skip_bad)
    if images:
        gallery.add(gallery.extraction(network, pixels), *zip(*images, strict=True), model=network)
        gallery.save(undoable=True)
    return images


def remove(where: Where, paths: Sequence[str] = (), identity: str | None = None, *, everywhere: bool = False) -> int:
    """Delete images and their features from a gallery: images of given paths, or all images of an identity.

    If the last image of an identity is deleted, the name of the identity is deleted too. Files of images are deleted
    only if they were uploaded to ``lreid serve``. Until the next change, the gallery file stores the deleted data for
    :func:`undo`.

    Args:
        identity: name of the identity whose images are deleted.
        everywhere: whether to delete the images also from other versions of the gallery, which ``reindex`` and
            ``rollback`` keep, and what :func:`undo` needs. Other versions need not contain all of the images. With
            False, a warning names them.

    Returns:
        Number of removed images.

    Raises:
        InputError: an image is not in the gallery, or neither paths nor an identity are given; the gallery does not
            change.
    """
    if not paths and identity is None:
        raise InputError(f"{where}: nothing to remove; name images, or identity=NAME")
    place = place_of(where)
    versions = [Gallery.load(place)]
    if everywhere:
        versions += [Gallery.load(each, unfinished=True) for each in place.others()]
    doomed = [_doomed(gallery, paths, identity, everywhere) for gallery in versions]
    if not (removed := set().union(*doomed)):
        raise InputError(f"{where}: contains none of these images, and neither do its other versions")
    for gallery, each in zip(versions, doomed, strict=True):
        if each or gallery.change:
            listed = sorted(each)
            gallery.remove([*compress(listed, gallery.holds(listed))] if everywhere else listed)
            gallery.save(undoable=not everywhere)
            _warn_of_old_threshold(gallery)
    if isinstance(place, FilePlace):
        place.delete_uploads(removed)
    if versions[0].change and not everywhere:
        logger.info("%s: stores the removed data for undo until the next change; --everywhere deletes it", where)
    if not everywhere and (others := place.others()):
        logger.warning("%s may still have them; --everywhere removes them there, too", " and ".join(map(str, others)))
    return len(removed)


def _doomed(gallery: Gallery, paths: Sequence[str], identity: str | None, everywhere: bool) -> set[str]:
    """Return the images to remove from one version; with ``everywhere``, only those that it or its last change has."""
    doomed, name = {absolute(path) for path in paths}, _label_in(gallery, "identity", label_text(identity))
    if not everywhere:
        return doomed if name is None else doomed | {*gallery.rows_of(name).paths.tolist()}
    labels, change = gallery.labels(), gallery.change
    held = [*zip(labels.paths, labels.ids, strict=True)]
    if change and change.action == "remove":
        held += zip(*change.labels[:2], strict=True)
    return {path for path, who in held if path in doomed or (name is not None and who == name)}


def rename(where: Where, old: str, new: str, *, merge: bool = False) -> int:
    """Give an identity another name, see :meth:`lreid.gallery.Gallery.rename`, and save the gallery."""
    gallery = Gallery.load(where)
    count = gallery.rename(_label_in(gallery, "identity", label_text(old)), new, merge=merge)
    gallery.save(undoable=True)
    if merge:
        _warn_of_old_threshold(gallery)
    return count


def undo(where: Where) -> Change:
    """Revert the last :func:`add`, :func:`remove` or :func:`rename` of a gallery file.

    Raises:
        InputError: see :meth:`lreid.gallery.Gallery.undo`.
    """
    gallery, place = Gallery.load(where), place_of(where)
    change = gallery.undo()
    gallery.save()
    if isinstance(place, FilePlace):
        place.delete_uploads()
    return change


def _label_in(gallery: Gallery, what: str, label: Any) -> Any:
    """Return a label; 0003 means 3 if there is no 0003, because lreid reads 3 from ``0003_c1.jpg``."""
    names = gallery.about.names.get(what, {}).values()
    if isinstance(label, str) and label not in names and re.fullmatch("0+[1-9][0-9]*", label):
        return label.lstrip("0")
    return label


def _number_of(gallery: Gallery, what: str, label: int | str) -> int:
    return gallery.number_of(what, _label_in(gallery, what, label))


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
        with a name, apart from the image itself, shows its identity and reaches the threshold. The entry ``interval``
        has the limits of the threshold's 95 % interval (bootstrap over people), and ``impostors`` is the number of
        impostor scores. The entry ``table`` lists for other ``RATES`` the ``threshold``, the ``true_positive_rate``,
        and the number of ``false_accepts`` among the impostor scores.

    Raises:
        InputError: no image has an identity, or an argument is invalid; the gallery does not change.
    """
    gallery = _load_filled(where)
    labelled = [image for image in images if image.identity is not None]
    if not labelled:
        raise InputError(
            f"{where}: a threshold needs images with identities; name folders after people, name files like "
            "0002_c1.jpg, or write a CSV file"
        )
    network = gallery.load_network(checkpoint, device)
    labelled, pixels = read_images(labelled, network, gallery.about.names, skip_bad=skip_bad)
    require_some(pixels)
    features, of_model = gallery.extraction(network, pixels), gallery.about.model
    paths, people, *_ = zip(*labelled, strict=True)
    scores = gallery.impostor_scores(features, people, model=of_model)
    threshold = gallery.set_threshold(scores, false_accept_rate)
    # Two matches, because the best match of an enrolled image is the image itself.
    matches = gallery.search(features, 2, model=of_model, where=Filter(not_identities=(UNKNOWN,)))
    genuine = _genuine_scores(gallery, findings(matches, paths, people, calibrated=True))
    gallery.save(undoable=True)
    from lreid.retrieval.protocols import threshold_for  # loads torch

    valid = np.isfinite(scores)
    impostors, names = scores[valid], np.array(people)[valid]
    groups = [impostors[names == one] for one in np.unique(names)]
    draws = np.random.default_rng(0).integers(len(groups), size=(BOOTSTRAP, len(groups)))
    drawn = [np.concatenate([groups[one] for one in draw]) for draw in draws]
    interval = np.quantile([threshold_for(each, false_accept_rate) for each in drawn], (0.025, 0.975))

    def rates(limit: float) -> dict[str, Any]:
        recognised = float(np.mean(genuine >= np.float32(limit))) if len(genuine) else None
        return {"threshold": limit, "true_positive_rate": recognised, "false_accepts": int((impostors >= limit).sum())}

    rests_on = int(false_accept_rate * len(impostors) + 1e-9)
    if caveat := too_few(gallery.about.calibrated_on, false_accept_rate):
        logger.warning(caveat)
    elif false_accept_rate and rests_on < FEWEST_SCORES:
        logger.warning("the threshold rests on %s of impostors; use more images", counted(rests_on, "score"))
    return rates(threshold) | {
        "false_accept_rate": false_accept_rate,
        "images": len(labelled),
        "known": len(genuine),
        "impostors": len(impostors),
        "interval": interval.tolist(),
        "table": [rates(threshold_for(impostors, rate)) for rate in RATES],
    }


def _genuine_scores(gallery: Gallery, queries: Sequence[dict[str, Any]]) -> np.ndarray:
    """For each query whose person has another image in the gallery, return the score of the best match.

    If the best match does not show that person, the score is -inf.
    """
    labels, scores = gallery.labels(), []
    images_of, identity_of = Counter(labels.ids.tolist()), dict(zip(labels.paths, labels.ids, strict=True))
    for each in queries:
        person, best = each["expected"], first_match(each)
        if images_of[person] > (identity_of.get(each["image"]) == person):
            scores.append(best["score"] if best is not None and best["identity"] == person else -np.inf)
    return np.array(scores, dtype=np.float32)


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
    group: Literal["folder"] | None = None,
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
        group: whether the images of a folder show one person or are one track; their scores are averaged.
        sources: pattern for paths in folders, and root folder of the image paths in CSV files.
        device: see :func:`lreid.load_model`.

    Returns:
        The content of ``matches.json``: ``gallery``; the number of ``images`` in the gallery; ``threshold``,
        ``false_accept_rate`` and ``calibrated_on``; and ``queries``, see :func:`lreid.gallery.findings.findings`. The
        entry ``calibrated_on`` is the number of images from which :func:`calibrate` computed the threshold. Before
        calibration, ``threshold``, ``false_accept_rate`` and ``calibrated_on`` are None. With ``group``, ``image`` is
        the first image of a folder, and a further entry ``images`` lists all of them.

    Raises:
        InputError: an image cannot be read, or an argument is invalid.
    """
    if top < 1:
        raise ArgumentError("top", f"is {top}; request at least one match")
    gallery = _load_filled(where)
    about, queries, camera = gallery.about, list_queries(images, sources), label_text(camera)
    if camera is not None:
        _number_of(gallery, "camera", camera)
        queries = [each._replace(camera=camera) for each in queries]
    elif other_cameras:
        _require_cameras(queries)
    # An unknown name raises an error here, before anything is computed.
    only = only.numbered(partial(_number_of, gallery))
    from lreid.models.fingerprint import fingerprint

    network = gallery.load_network(checkpoint, device, any_model=cross_model)
    mark, extraction = fingerprint(network), gallery.extraction
    if mark != about.model:
        extraction = replace(extraction, flip=Extraction.of(network.source).flip)
    queries, pixels = read_images(queries, network, about.names)
    if extraction.norm and extraction.norm.cameras and (pixels.camids == UNKNOWN).any():
        logger.warning("the gallery is normalised per camera; pass --camera NAME with the camera of the images")
    folders = [os.path.dirname(absolute(each.path)) for each in queries] if group else None
    matches = gallery.search(
        extraction(network, pixels),
        min(top, len(gallery)),
        query_cams=[each.camera for each in queries],
        group=folders,
        model=mark,
        where=only,
        exclude_same_camera=other_cameras,
        cross_model=cross_model,
    )
    people = set(about.names.get("identity", {}).values())
    groups = [[queries[row] for row in rows] for rows in groups_of(folders, len(queries))]
    names = [{each.identity for each in images} for images in groups]
    expected = [each.pop() if len(each) == 1 and each <= people else None for each in names]
    firsts = [images[0].path for images in groups]
    answers = findings(matches, firsts, expected, calibrated=about.threshold is not None)
    for answer, images in zip(answers, groups if group else [], strict=False):
        answer["images"] = [each.path for each in images]
    return {
        "generator": "lreid",
        "gallery": str(where),
        "images": len(gallery),
        **{name: getattr(about, name) for name in ("threshold", "false_accept_rate", "calibrated_on")},
        "queries": answers,
    }


def _require_cameras(queries: Sequence[SearchImage]) -> None:
    if unknown := next((each.path for each in queries if each.camera is None), None):
        raise InputError(f"{unknown}: other_cameras=True needs its camera; pass camera=NAME, or call it cam2_07.jpg")


def info(where: Where) -> dict[str, Any]:
    """Return a dictionary with the properties of a gallery, for printing."""
    gallery, place = Gallery.load(where), place_of(where)
    about, extraction = gallery.about, gallery.extraction
    caveat = too_few(about.calibrated_on, about.false_accept_rate)
    return (
        gallery.counts()
        | {
            "kind": about.kind,
            "recall": ", ".join(f"{value:.3f} @{k}" for k, value in about.recall.items()) or "not measured",
            "dimensions": gallery.width,
            "model": about.model,
            "checkpoint": extraction.checkpoint,
            "mapped features": _lineage(gallery),
            "flipped images": "added" if extraction.flip else "no",
            "adapted normalisation": "features, per camera" if extraction.norm else "none",
            "threshold": "none; set one with lreid search calibrate"
            if about.threshold is None or about.false_accept_rate is None
            else f"{threshold_text(about.threshold, about.false_accept_rate)}; {caveat}".rstrip("; "),
            "related files": ", ".join(place.beside()) or "none",
        }
        | ({"bytes": place.path.stat().st_size} if isinstance(place, FilePlace) else {})
    )


def _lineage(gallery: Gallery) -> str:
    """Describe the maps of a gallery, the last one first."""
    steps = [f"from {each.model} with {counted(each.images, 'image')}" for each in reversed(gallery.maps)]
    return f"{counted(len(steps), 'map')} deep, {'; before that '.join(steps)}" if steps else "none"


def _load_filled(where: Where) -> Gallery:
    gallery = Gallery.load(where)
    if not len(gallery):
        raise InputError(f"{where}: contains no images; add some")
    return gallery
