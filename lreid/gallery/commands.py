"""Build a gallery of images, change it, calibrate its threshold, and search it with images."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lreid.data.schemes import Sources
from lreid.errors import ArgumentError, InputError
from lreid.gallery.faiss_store import FilePlace
from lreid.gallery.filters import EVERYTHING, Filter
from lreid.gallery.findings import findings, threshold_text, too_few
from lreid.gallery.gallery import Gallery, Matches
from lreid.gallery.image_list import SearchImage, columns, list_images, list_queries, read_images, require_some
from lreid.gallery.images import absolute
from lreid.gallery.named_gallery import NamedGallery, estimate_norm, extract, flips
from lreid.gallery.store import place_of
from lreid.utils.files import require_writable
from lreid.utils.identities import UNKNOWN

if TYPE_CHECKING:  # commands that need no network start without torch
    from lreid.models.embedder import Embedder

logger = logging.getLogger("lreid")
Where = str | Path  # address of a gallery, see lreid.gallery.store.place_of


class Layout(NamedTuple):
    """Storage options of a gallery.

    Attributes:
        kind: ``flat``, ``hnsw`` or ``ivfpq``, see :mod:`lreid.gallery.shards`.
        shards: number of parts of the index in a file, which are searched in parallel.
    """

    kind: str = "flat"
    shards: int = 1


def build(
    where: Where,
    checkpoint: Path,
    images: Sequence[SearchImage],
    layout: Layout = Layout(),  # noqa: B008 (a tuple)
    *,
    adapt_norm: bool = False,
    skip_bad: bool = False,
    device: str = "auto",
) -> NamedGallery:
    """Build a gallery of images and save it.

    Args:
        where: place of the new gallery, see :func:`lreid.gallery.store.place_of`.
        checkpoint: checkpoint of the model that extracts features.
        images: images from :func:`list_images`.
        layout: storage options of the gallery.
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
    from lreid.models.fingerprint import fingerprint

    model = load_model(checkpoint, device)
    images, pixels = read_images(images, model, {}, skip_bad=skip_bad)
    require_some(pixels)
    flip = flips(checkpoint)
    norm, features = estimate_norm(model, pixels, flip) if adapt_norm else (None, extract(model, pixels, flip))
    gallery = Gallery.build(
        features,
        *columns(images),
        model=fingerprint(model),
        at=place,
        **layout._asdict(),
        extras=NamedGallery.extras(checkpoint, flip, norm),
    )
    gallery.save()
    return NamedGallery(gallery, str(where), checkpoint, flip, norm)


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
    enrolled = named.gallery.holds([image.path for image in images])
    images = [image for image, present in zip(images, enrolled, strict=True) if not present]
    if not images:
        return 0
    model = named.model(checkpoint, device)
    images, pixels = read_images(images, model, named.gallery.about.names, skip_bad=skip_bad)
    if images:
        named.add(model, images, pixels)
    return len(images)


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
    features, (paths, who, *_) = named.extract(model, pixels), columns(labelled)
    threshold = gallery.calibrate(features, who, model=gallery.about.model, false_accept_rate=false_accept_rate)
    present, right = _recognised(gallery, features, paths, who)
    gallery.save()
    if caveat := too_few(gallery.about.calibrated_on, false_accept_rate):
        logger.warning(caveat)
    return {
        "threshold": threshold,
        "false_accept_rate": false_accept_rate,
        "images": len(labelled),
        "known": int(present.sum()),
        "true_positive_rate": float(right[present].mean()) if present.any() else None,
    }


def _recognised(
    gallery: Gallery, features: np.ndarray, paths: Sequence[str], who: Sequence[str | None]
) -> tuple[np.ndarray, np.ndarray]:
    """Check for each image whether another image of its person is in the gallery, and whether a search recognises it.

    An image is recognised if its best match with a name, apart from the image itself, shows its person and reaches the
    threshold. Both returned masks are ``(n,)`` bool.
    """
    labels = gallery.labels()
    images_of, identity_of = Counter(labels.ids.tolist()), dict(zip(labels.paths, labels.ids, strict=True))
    rows = list(zip(paths, who, strict=True))
    present = np.array([images_of[name] > (identity_of.get(path) == name) for path, name in rows])
    best = gallery.search(features, 2, model=gallery.about.model, where=Filter(not_identities=(UNKNOWN,)))
    own = best.paths[:, 0] == np.array(paths, dtype=object)  # whether the best match is the image itself
    rank = own.astype(int)[:, None]
    recognised, ids = (np.take_along_axis(each, rank, 1)[:, 0] for each in (best.known, best.ids))
    return present, recognised & (ids == np.array(who, dtype=object))


@dataclass(frozen=True)
class Wanted:
    """Options of a query: which matches to return.

    Attributes:
        top: number of matches per image, 1 or more.
        other_cameras: whether to exclude images from the query's camera.
        only: filter that limits the matches.
        camera: camera of the queries; with None, lreid reads it from paths like ``cam1/07.jpg`` or
            ``0002_c1s1_000451_03.jpg``. If the gallery has statistics per camera, the statistics of this camera
            normalise the queries.
    """

    top: int = 10
    other_cameras: bool = False
    only: Filter = EVERYTHING
    camera: str | None = None


def query(
    where: Where,
    images: Sequence[Path],
    wanted: Wanted = Wanted(),
    *,
    checkpoint: Path | None = None,
    cross_model: bool = False,
    sources: Sources = Sources(),  # noqa: B008 (frozen)
    device: str = "auto",
) -> dict[str, Any]:
    """Search a gallery with images.

    Args:
        images: image files, folders or CSV files that contain the queries.
        wanted: options of the query.
        checkpoint: the file of the gallery's model, if the file was moved.
        cross_model: whether to use another model with compatible features. Features of another model are not normalised
            per camera, because the gallery's statistics belong to the gallery's model.
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
    if wanted.top < 1:
        raise ArgumentError("top", f"is {wanted.top}; request at least one match")
    named = _load_filled(where)
    about, listed = named.gallery.about, _queries(named, images, wanted, sources)
    # An unknown name in the filter raises an error here, before anything is computed.
    wanted = replace(wanted, only=wanted.only.numbered(named.number_of))
    model = named.model(checkpoint, device, any_model=cross_model)
    paths, matches = _matches(named, listed, wanted, model, checkpoint, cross_model=cross_model)
    expected = _expected(named, images, paths, sources)
    return {
        "gallery": str(where),
        "images": len(named.gallery),
        **{name: getattr(about, name) for name in ("threshold", "false_accept_rate", "calibrated_on")},
        "queries": findings(matches, paths, expected, calibrated=about.threshold is not None),
    }


def _expected(named: NamedGallery, images: Sequence[Path], paths: Sequence[str], where: Sources) -> list[str | None]:
    """Return the person in each query, if its folder, file name or CSV file names a person of the gallery."""
    try:
        identities = {image.path: image.identity for image in list_images(images, "query", where)}
    except InputError:  # two sources give an image different labels
        return [None] * len(paths)
    people = set(named.identities.values())
    names = (identities.get(absolute(path)) for path in paths)
    return [name if name in people else None for name in names]


def _queries(named: NamedGallery, sources: Sequence[Path], wanted: Wanted, where: Sources) -> list[SearchImage]:
    images = list_queries(sources, where)
    if wanted.camera is not None:
        named.number_of("camera", wanted.camera)
        return [image._replace(camera=wanted.camera) for image in images]
    nameless = next((image.path for image in images if image.camera is None), None)
    if wanted.other_cameras and nameless is not None:
        raise InputError(
            f"{nameless}: other_cameras=True needs the camera of the image; pass camera=NAME, or use a name like "
            "cam2_07.jpg"
        )
    return images


def _matches(
    named: NamedGallery,
    images: Sequence[SearchImage],
    wanted: Wanted,
    model: Embedder,
    checkpoint: Path | None,
    *,
    cross_model: bool,
) -> tuple[list[str], Matches]:
    """Return the paths of the queries that can be read, with their matches."""
    from lreid.models.fingerprint import fingerprint

    images, pixels = read_images(images, model, named.gallery.about.names)
    if (mark := fingerprint(model)) == named.gallery.about.model:
        if named.norm and named.norm.cameras and (pixels.camids == UNKNOWN).any():
            logger.warning("the gallery is normalised per camera; pass --camera NAME with the camera of the images")
        features = named.extract(model, pixels)
    else:
        features = extract(model, pixels, flips(checkpoint or named.checkpoint), named.norm)
    paths, _, cameras, _ = columns(images)
    matches = named.gallery.search(
        features,
        min(wanted.top, len(named.gallery) or 1),
        query_cams=cameras,
        model=mark,
        where=wanted.only,
        exclude_same_camera=wanted.other_cameras,
        cross_model=cross_model,
    )
    return paths, matches


def describe(where: Where) -> dict[str, Any]:
    """Return a dictionary with the properties of a gallery, for printing."""
    named = NamedGallery.load(where)
    about, labels = named.gallery.about, named.gallery.store.labels()
    place = place_of(where)
    size = place.bytes()
    caveat = too_few(about.calibrated_on, about.false_accept_rate)
    return {
        "images": len(labels),
        "identities": len(set(labels.ids.tolist()) - {UNKNOWN}),
        "cameras": len(set(labels.cams.tolist()) - {UNKNOWN}),
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
    } | ({} if size is None else {"bytes": size})


def _load_filled(where: Where) -> NamedGallery:
    named = NamedGallery.load(where)
    if not len(named.gallery):
        raise InputError(f"{where}: contains no images; add some")
    return named
