"""Make a gallery of images, add and remove some, set its threshold, and find who is on another image."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lreid.data.listing import numbered
from lreid.devices import pick_device
from lreid.errors import InputError, counted
from lreid.files import require_writable, write_text
from lreid.gallery import Filter, Gallery
from lreid.gallery.faiss.faiss_store import FilePlace
from lreid.gallery.filters import EVERYTHING
from lreid.gallery.places import place_of
from lreid.identities import UNKNOWN
from lreid.loading import load_model
from lreid.models.adapt import AdaptedNorm
from lreid.models.fingerprint import fingerprint
from lreid.report import ranked
from lreid.retrieval import CameraNorm
from lreid.search.findings import findings, page_section, threshold_text, too_few
from lreid.search.named_gallery import NamedGallery, extract, flips
from lreid.search.own_images import (
    OwnImage,
    absolute,
    list_queries,
    number_names,
    paths_of,
    read_images,
    require_some,
    tell_skipped,
    times_of,
)

logger = logging.getLogger("lreid")
Where = str | Path  # see lreid.gallery.places


def build(
    where: Where,
    checkpoint: Path,
    images: Sequence[OwnImage],
    *,
    kind: str = "flat",
    shards: int = 1,
    adapt_norm: Literal["gallery", "camera", "features"] | None = None,
    skip_bad: bool = False,
    device: str = "auto",
) -> NamedGallery:
    """Makes a gallery.

    Args:
        where: it shall be, see :func:`lreid.gallery.places.place_of`.
        checkpoint: of the model to search with.
        images: of :func:`list_images`.
        kind: ``flat``, ``hnsw`` or ``ivfpq``, see :mod:`lreid.gallery.faiss.index`.
        shards: parts of a file that are searched side by side.
        adapt_norm: normalise with BatchNorm statistics of these images, as a whole or by camera, or standardise their
            features by camera. The statistics are kept.
        skip_bad: leave out images that cannot be read.
        device: of :func:`lreid.devices.pick_device`.

    Raises:
        InputError: there is a gallery already, or anything given does not fit; then nothing is written.
    """
    place = place_of(where)
    if place.exists():
        raise InputError(f"{where}: is there already; add images to it, or choose another name")
    if isinstance(place, FilePlace):
        require_writable(place.path)
    if adapt_norm in ("camera", "features") and all(image.camera is None for image in images):
        raise InputError(f"--adapt-norm {adapt_norm}: the cameras are not known; use --adapt-norm gallery")
    model = load_model(checkpoint).to(pick_device(device))
    identities = number_names(numbered(image.identity for image in images), {})
    cameras = number_names(numbered(image.camera for image in images), {})
    loaded = require_some(read_images(images, identities, cameras, model, skip_bad=skip_bad))
    flip, norm = flips(checkpoint), None
    if adapt_norm in ("gallery", "camera"):
        norm = AdaptedNorm.estimate(model, loaded, loaded.camids if adapt_norm == "camera" else None)
    features = extract(model, loaded, flip, norm)
    if adapt_norm == "features":
        norm = CameraNorm.estimate(features, loaded.camids)
        features = norm(features, loaded.camids)
    gallery = Gallery.build(
        features,
        paths_of(loaded),
        loaded.pids,
        loaded.camids,
        times_of(loaded, images),
        model=fingerprint(model),
        kind=kind,
        shards=shards,
        at=place,
        names={"identity": _borne(identities, loaded.pids), "camera": _borne(cameras, loaded.camids)},
        extras=NamedGallery.extras(checkpoint, flip, norm),
    )
    gallery.save()
    tell_skipped(loaded)
    return NamedGallery(gallery, str(where), checkpoint, flip, norm)


def add(
    where: Where,
    images: Sequence[OwnImage],
    *,
    checkpoint: Path | None = None,
    skip_bad: bool = False,
    device: str = "auto",
) -> int:
    """Adds the images that are not in a gallery yet, normalised as those that are.

    Args:
        where: of the gallery.
        images: of :func:`list_images`.
        checkpoint: the gallery's model, if it is not where it was.
        skip_bad, device: of :func:`build`.

    Returns:
        How many were added.

    Raises:
        InputError: anything given does not fit; then the gallery stays as it was.
    """
    named = NamedGallery.load(where)
    there = named.gallery.holds([image.path for image in images])
    images = [image for image, known in zip(images, there, strict=True) if not known]
    if not images:
        return 0
    model = named.model(checkpoint, device)
    identities = number_names(numbered(image.identity for image in images), named.identities)
    cameras = number_names(numbered(image.camera for image in images), named.cameras)
    loaded = read_images(images, identities, cameras, model, skip_bad=skip_bad)
    tell_skipped(loaded)
    if not len(loaded):
        return 0
    named.identities.update(_borne(identities, loaded.pids))
    named.cameras.update(_borne(cameras, loaded.camids))
    named.gallery.add(
        named.extract(model, loaded),
        paths_of(loaded),
        loaded.pids,
        loaded.camids,
        times_of(loaded, images),
        model=fingerprint(model),
    )
    named.gallery.save()
    return len(loaded)


def remove(where: Where, paths: Sequence[str] = (), identity: str | None = None, *, everywhere: bool = False) -> int:
    """Deletes images and their features from a gallery: by path, or all of one identity.

    The name of an identity goes with its last image.

    Args:
        where: of the gallery.
        paths: of images.
        identity: the name of one.
        everywhere: also from the versions beside it that ``reindex`` and ``rollback`` leave; no version needs to hold
            all of them.

    Returns:
        How many were removed.

    Raises:
        InputError: one is not there, or none is named; then the gallery stays as it was.
    """
    if not paths and identity is None:
        raise InputError(f"{where}: nothing to remove; name images, or an identity by --identity")
    place = place_of(where)
    versions = [NamedGallery.load(place)]
    if everywhere:
        versions += [NamedGallery.load(each, unfinished=True) for each in place.others()]
    removed: set[str] = set()
    for named in versions:
        labels = named.gallery.store.labels()
        named.keep_identities(labels.ids)  # an addition that was killed may have left names without images
        doomed = {absolute(path) for path in paths}
        if identity is not None and not (everywhere and identity not in named.identities.values()):
            number = named.number_of("identity", identity)
            doomed |= set(labels.paths[labels.ids == number].tolist())
        if everywhere:
            doomed &= set(labels.paths.tolist())
        if doomed:
            named.gallery.remove(sorted(doomed))
            named.gallery.save()
        removed |= doomed
    if not removed:
        raise InputError(f"{where}: holds nothing of what is to be removed, nor does a version beside it")
    return len(removed)


def calibrate(
    where: Where,
    images: Sequence[OwnImage],
    *,
    false_accept_rate: float = 0.01,
    checkpoint: Path | None = None,
    skip_bad: bool = False,
    device: str = "auto",
) -> dict[str, Any]:
    """Sets a gallery's threshold on labelled images, see :meth:`lreid.gallery.Gallery.calibrate`.

    Args:
        where: of the gallery, which has identities.
        images: of :func:`list_images`; those without identity are left out. Unenrolled people are welcome.
        false_accept_rate: in [0, 1).
        checkpoint, skip_bad, device: of :func:`add`.

    Returns:
        ``threshold``, ``false_accept_rate``, the number of ``images`` and of those whose identity has another image
        than this one in the gallery (``known``), and the share of these whose best match with a name, other than
        itself, is right and reaches the threshold (``true_positive_rate``, None without any).

    Raises:
        InputError: no image has an identity, or anything else does not fit; then the gallery stays as it was.
    """
    named = _load_filled(where)
    labelled = [image for image in images if image.identity is not None]
    if not labelled:
        raise InputError(
            f"{where}: a threshold needs images whose identities are known, by folders named after them, names like "
            "0002_c1.jpg, or a CSV file"
        )
    model = named.model(checkpoint, device)
    identities = number_names((image.identity for image in labelled), named.identities)
    loaded = require_some(read_images(labelled, identities, _inverted(named.cameras), model, skip_bad=skip_bad))
    features = named.extract(model, loaded)
    gallery = named.gallery
    names = _inverted(identities)
    who = [names[pid] for pid in loaded.pids.tolist()]
    threshold = gallery.calibrate(features, who, model=gallery.about.model, false_accept_rate=false_accept_rate)
    best = gallery.search(features, 2, model=gallery.about.model, where=Filter(not_identities=(UNKNOWN,)))
    own = best.paths[:, 0] == np.array(paths_of(loaded), dtype=object)  # the image itself comes first
    rows, places = np.arange(len(own)), own.astype(int)
    labels = gallery.store.labels()
    images_of, identity_of = Counter(labels.ids.tolist()), dict(zip(labels.paths, labels.ids, strict=True))
    present = np.array(
        [
            images_of[pid] > (identity_of.get(path) == pid)
            for pid, path in zip(loaded.pids.tolist(), paths_of(loaded), strict=True)
        ]
    )
    found = best.known[rows, places] & (best.ids[rows, places] == who)
    gallery.save()
    tell_skipped(loaded)
    if caveat := too_few(gallery.about.calibrated_on, false_accept_rate):
        logger.warning(caveat)
    return {
        "threshold": threshold,
        "false_accept_rate": false_accept_rate,
        "images": len(loaded),
        "known": int(present.sum()),
        "true_positive_rate": float(found[present].mean()) if present.any() else None,
    }


def query(
    where: Where,
    images: Sequence[Path],
    out: Path,
    *,
    top: int = 10,
    camera: str | None = None,
    other_cameras: bool = False,
    only: Filter = EVERYTHING,
    checkpoint: Path | None = None,
    cross_model: bool = False,
    blur: bool = False,
    device: str = "auto",
) -> dict[str, Any]:
    """Looks images up in a gallery and writes ``matches.json`` and ``matches.html``.

    Args:
        where: of the gallery.
        images: files, folders of them, or CSV files.
        out: folder to write to.
        top: matches wanted for each.
        camera: that took the images; None takes it from paths like ``cam1/07.jpg`` or ``0002_c1s1_000451_03.jpg``. Its
            statistics are used where the gallery has some for each camera.
        other_cameras: leave out images of the camera that took the query.
        only: what may be found.
        checkpoint: the gallery's model, if it is not where it was.
        cross_model: take another model, trained to be comparable; the gallery's adapted normalisation, which is that
            of its own model, is not applied to it.
        blur: blur the images of the page.
        device: of :func:`build`.

    Returns:
        The content of ``matches.json``: ``gallery``, ``threshold``, ``false_accept_rate`` and ``calibrated_on``, how
        many images set it (None before :func:`calibrate`), and ``queries``, see
        :func:`lreid.search.findings.findings`.

    Raises:
        InputError: an image cannot be read, or anything else does not fit; then nothing is written.
    """
    if top < 1:
        raise InputError(f"--top {top}: ask for at least one match")
    require_writable(out / "matches.json")
    named = _load_filled(where)
    gallery = named.gallery
    listed = list_queries(images)
    if camera is not None:
        named.number_of("camera", camera)
        listed = [each._replace(camera=camera) for each in listed]
    nameless = next((each.path for each in listed if each.camera is None), None)
    if other_cameras and nameless is not None:
        raise InputError(
            f"{nameless}: --other-cameras needs the camera that took it; give --camera, or a name like cam2_07.jpg"
        )
    wanted = only.numbered(named.number_of)  # tells a name that is not there before anything is computed
    model = named.model(checkpoint, device, any_model=cross_model)
    own_model = fingerprint(model) == gallery.about.model
    if nameless is not None and own_model and named.norm and named.norm.cameras:
        logger.warning("the gallery is normalised by camera; --camera NAME says which one took the images")
    loaded = read_images(listed, {}, _inverted(named.cameras), model, skip_bad=False)
    if own_model:
        features = named.extract(model, loaded)
    else:  # how the gallery's features are made is up to its own model
        same = named.norm if isinstance(named.norm, CameraNorm) else None  # a matter of the features that are there
        features = extract(model, loaded, flips(checkpoint or named.checkpoint), same)
    matches = gallery.search(
        features,
        top,
        query_cams=loaded.camids,
        model=fingerprint(model),
        where=wanted,
        exclude_same_camera=other_cameras,
        cross_model=cross_model,
    )
    results = {
        "gallery": str(where),
        "threshold": gallery.about.threshold,
        "false_accept_rate": gallery.about.false_accept_rate,
        "calibrated_on": gallery.about.calibrated_on,
        "queries": findings(named, matches, paths_of(loaded)),
    }
    title = f"Found in {Path(str(where)).name}"
    intro = [
        f"{counted(len(gallery), 'image')} in the gallery. Under each match: its rank, cosine similarity, identity, "
        "camera."
    ]
    section = page_section(results, blur)
    write_text(out / "matches.json", json.dumps(results, indent=1) + "\n")
    ranked.write_ranked(out / "matches.html", title, intro, [section])
    return results


def describe(where: Where) -> dict[str, Any]:
    """What a gallery holds, by name of the property, in words for people."""
    named = NamedGallery.load(where)
    about, labels = named.gallery.about, named.gallery.store.labels()
    norm = named.norm and ("by camera" if named.norm.cameras else "of the gallery")
    if isinstance(named.norm, CameraNorm):
        norm = "of features, by camera"
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
        "adapted normalisation": norm or "none",
        "threshold": "none; see calibrate"
        if about.threshold is None or about.false_accept_rate is None
        else f"{threshold_text(about.threshold, about.false_accept_rate)}; {caveat}".rstrip("; "),
        "beside it": ", ".join(place.beside()) or "nothing",
    } | ({} if size is None else {"bytes": size})


def _load_filled(where: Where) -> NamedGallery:
    named = NamedGallery.load(where)
    if not len(named.gallery):
        raise InputError(f"{where}: holds no images; add some")
    return named


def _borne(numbers: Mapping[str, int], column: np.ndarray) -> dict[int, str]:
    """Names by number, of those that an image bears: what was skipped leaves no name behind."""
    there = set(column.tolist())
    return {number: name for name, number in numbers.items() if number in there}


def _inverted(names: Mapping[Any, Any]) -> dict[Any, Any]:
    """Names by number from numbers by name, and the other way round."""
    return {value: key for key, value in names.items()}
