"""The door of searching: images of one's own become a gallery file, and a picture finds who is in it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lreid.data.images import REMEDY, Images
from lreid.data.listing import MARKET_NAME, Listed, image_files, list_csv, list_folder, numbered
from lreid.data.records import Record
from lreid.data.synthetic import is_synthetic
from lreid.errors import InputError
from lreid.files import write_text
from lreid.models import Embedder
from lreid.models.adapt import AdaptedNorm
from lreid.models.fingerprint import fingerprint
from lreid.report import ranked
from lreid.retrieval import Gallery
from lreid.search_gallery import NOBODY, NamedGallery, extract, flips
from lreid.search_results import answers, page_section, threshold_text
from lreid.loading import load_model
from lreid.training.run import pick_device

logger = logging.getLogger("lreid")


def list_images(sources: Iterable[Path], split: str, *, identities: bool = True) -> list[Listed]:
    """The images of folders and CSV files, under absolute paths, each once.

    Args:
        sources: folders (see :func:`lreid.data.listing.list_folder`), CSV files, or single images.
        split: which images of a CSV file; all its domains together.
        identities: False forgets who is on them, for folders that are named after something else.

    Raises:
        InputError: a source cannot be read or holds no image.
    """
    listed = []
    for source in sources:
        if source.suffix.lower() == ".csv":
            listed += [image for images in list_csv(source, split).values() for image in images]
        elif source.is_dir():
            listed += list_folder(source)
        else:
            listed.append(Listed(str(source), None, None))
    images = {
        (path := absolute(image.path)): image._replace(
            path=path, identity=image.identity if identities else None
        )
        for image in listed
    }
    return list(images.values())


def build(
    file: Path, checkpoint: Path, images: Sequence[Listed], *, kind: str = "flat",
    adapt_norm: Literal["gallery", "camera"] | None = None, skip_bad: bool = False, device: str = "auto",
) -> NamedGallery:  # fmt: skip
    """Makes a gallery file.

    Args:
        file: to be written.
        checkpoint: of the model to search with.
        images: of :func:`list_images`.
        kind: ``flat``, ``hnsw`` or ``ivfpq``, see :mod:`lreid.retrieval.index`.
        adapt_norm: normalise with BatchNorm statistics of these images, as a whole or by camera. They are kept.
        skip_bad: leave out images that cannot be read.
        device: of :func:`lreid.training.run.pick_device`.

    Raises:
        InputError: the file is there already, or anything given does not fit; then nothing is written.
    """
    if file.exists():
        raise InputError(f"{file}: is there already; add images to it, or choose another name")
    if adapt_norm == "camera" and all(image.camera is None for image in images):
        raise InputError("--adapt-norm camera: the cameras are not known; use --adapt-norm gallery")
    model = load_model(checkpoint).to(pick_device(device))
    identities = list(numbered(image.identity for image in images))
    cameras = list(numbered(image.camera for image in images))
    pictures = _read(images, identities, cameras, model, skip_bad)
    norm = None
    if adapt_norm:
        norm = AdaptedNorm.estimate(model, pictures, pictures.camids if adapt_norm == "camera" else None)
    flip = flips(checkpoint)
    gallery = Gallery.build(
        extract(model, pictures, flip, norm), _paths(pictures), pictures.pids, pictures.camids,
        model=fingerprint(model), kind=kind,
    )  # fmt: skip
    named = NamedGallery(gallery, identities, cameras, Path(os.path.abspath(checkpoint)), flip, norm)
    named.save(file)
    _tell_skipped(pictures)
    return named


def add(
    file: Path, images: Sequence[Listed], *, checkpoint: Path | None = None, skip_bad: bool = False,
    device: str = "auto",
) -> int:  # fmt: skip
    """Adds the images that are not in a gallery yet, normalised as those that are.

    Args:
        file: the gallery.
        images: of :func:`list_images`.
        checkpoint: the gallery's model, if it is not where it was.
        skip_bad, device: of :func:`build`.

    Returns:
        How many were added.

    Raises:
        InputError: anything given does not fit; then the gallery stays as it was.
    """
    named = NamedGallery.load(file)
    there = set(named.gallery.paths.tolist())
    images = [image for image in images if image.path not in there]
    if not images:
        return 0
    model = named.model(checkpoint, device)
    for names, new in (
        (named.identities, numbered(image.identity for image in images)),
        (named.cameras, numbered(image.camera for image in images)),
    ):
        known = set(names)
        names += [name for name in new if name not in known]
    pictures = _read(images, named.identities, named.cameras, model, skip_bad)
    named.gallery.add(
        named.extract(model, pictures), _paths(pictures), pictures.pids, pictures.camids,
        model=fingerprint(model),
    )  # fmt: skip
    named.save(file)
    _tell_skipped(pictures)
    return len(pictures)


def remove(file: Path, paths: Sequence[str] = (), identity: str | None = None) -> int:
    """Deletes images and their features from a gallery: by path, or all of one identity.

    Returns:
        How many were removed.

    Raises:
        InputError: one is not there; then the gallery stays as it was.
    """
    named = NamedGallery.load(file)
    doomed = {absolute(path) for path in paths}
    if identity is not None:
        place = _place(identity, named.identities, "identity", file)
        doomed |= set(named.gallery.paths[named.gallery.ids == place].tolist())
    named.gallery.remove(sorted(doomed))
    named.save(file)
    return len(doomed)


def calibrate(
    file: Path, images: Sequence[Listed], *, false_accept_rate: float = 0.01, checkpoint: Path | None = None,
    skip_bad: bool = False, device: str = "auto",
) -> dict[str, Any]:  # fmt: skip
    """Sets a gallery's threshold on labelled images, see :meth:`lreid.retrieval.Gallery.calibrate`.

    Args:
        file: the gallery, with identities.
        images: of :func:`list_images`; those without identity are left out. Strangers are welcome.
        false_accept_rate: in [0, 1).
        checkpoint, skip_bad, device: of :func:`add`.

    Returns:
        ``threshold``, ``false_accept_rate``, the number of ``images`` and of those, without their own picture in
        the gallery, whose identity is there (``known``), and the share of these whose best match is right and reaches
        the threshold (``true_positive_rate``, None without any).

    Raises:
        InputError: no image has an identity, or anything else does not fit; then the gallery stays as it was.
    """
    named = _load_filled(file)
    labelled = [image for image in images if image.identity is not None]
    if not labelled:
        raise InputError(
            f"{file}: a threshold needs images whose identities are known, by folders named after them, names like "
            "0002_c1.jpg, or a CSV file"
        )
    model = named.model(checkpoint, device)
    others = [name for name in numbered(image.identity for image in labelled) if name not in named.identities]
    pictures = _read(labelled, named.identities + others, named.cameras, model, skip_bad)
    features = named.extract(model, pictures)
    gallery = named.gallery
    threshold = gallery.calibrate(
        features, pictures.pids, model=gallery.model, false_accept_rate=false_accept_rate
    )
    best = gallery.search(features, 2, model=gallery.model)
    own = best.paths[:, 0] == np.array(_paths(pictures), dtype=object)  # the picture itself comes first
    rows, places = np.arange(len(own)), own.astype(int)
    present = np.isin(pictures.pids, gallery.ids) & (best.indices[rows, places] >= 0)
    found = best.known[rows, places] & (best.ids[rows, places] == pictures.pids)
    named.save(file)
    _tell_skipped(pictures)
    return {
        "threshold": threshold,
        "false_accept_rate": false_accept_rate,
        "images": len(pictures),
        "known": int(present.sum()),
        "true_positive_rate": float(found[present].mean()) if present.any() else None,
    }


def query(
    file: Path, images: Sequence[Path], out: Path, *, top: int = 10, camera: str | None = None,
    other_cameras: bool = False, checkpoint: Path | None = None, cross_model: bool = False, blur: bool = False,
    device: str = "auto",
) -> dict[str, Any]:  # fmt: skip
    """Looks images up in a gallery and writes ``matches.json`` and ``matches.html``.

    Args:
        file: the gallery.
        images: pictures, or folders of them.
        out: folder to write to.
        top: matches wanted for each.
        camera: that took the pictures; None takes it from names like ``0002_c1s1_000451_03.jpg``. Its statistics are
            used where the gallery has some for each camera.
        other_cameras: leave out images of the camera that took the query.
        checkpoint: the gallery's model, if it is not where it was.
        cross_model: take another model, trained to be comparable; the gallery's adapted normalisation, which is that
            of its own model, is not applied to it.
        blur: smear the pictures of the page.
        device: of :func:`build`.

    Returns:
        The content of ``matches.json``: ``gallery``, ``threshold`` and ``false_accept_rate`` (None before
        :func:`calibrate`), and ``queries``, see :func:`lreid.search_results.answers`.

    Raises:
        InputError: an image cannot be read, or anything else does not fit; then nothing is written.
    """
    if top < 1:
        raise InputError(f"--top {top}: ask for at least one match")
    named = _load_filled(file)
    gallery = named.gallery
    files = [each for path in images for each in (image_files(path) if path.is_dir() else [path])]
    if camera is not None:
        _place(camera, named.cameras, "camera", file)
    cameras = [camera or _camera_in(each.name) for each in files]
    nameless = next((str(each) for each, name in zip(files, cameras, strict=True) if name is None), None)
    if other_cameras and nameless is not None:
        raise InputError(
            f"{nameless}: --other-cameras needs the camera that took it; give --camera, or name files like 0002_c1.jpg"
        )
    model = named.model(checkpoint, device, any_model=cross_model)
    own_model = fingerprint(model) == gallery.model
    if nameless is not None and own_model and named.norm and named.norm.cameras:
        logger.warning("the gallery is normalised by camera; --camera NAME says which one took the pictures")
    listed = [Listed(str(each), None, name) for each, name in zip(files, cameras, strict=True)]
    pictures = _read(listed, [], named.cameras, model, skip_bad=False)
    if own_model:
        features = named.extract(model, pictures)
    else:  # how the gallery's features are made is up to its own model
        features = extract(model, pictures, flips(checkpoint or named.checkpoint))
    matches = gallery.search(
        features, top, query_cams=pictures.camids, model=fingerprint(model), exclude_same_camera=other_cameras,
        cross_model=cross_model,
    )  # fmt: skip
    results = {
        "gallery": str(file),
        "threshold": gallery.threshold,
        "false_accept_rate": gallery.false_accept_rate,
        "queries": answers(named, matches, _paths(pictures)),
    }
    title = f"Found in {file.name}"
    intro = [
        f"{len(gallery)} images in the gallery. Under each match: its rank, cosine similarity, identity, camera."
    ]
    section = page_section(results, blur)
    write_text(out / "matches.json", json.dumps(results, indent=1) + "\n")
    ranked.write_ranked(out / "matches.html", title, intro, [section])
    return results


def describe(file: Path) -> dict[str, Any]:
    """What a gallery holds, by name of the property, in words for people."""
    named = NamedGallery.load(file)
    gallery = named.gallery
    norm = named.norm and ("by camera" if named.norm.cameras else "of the gallery")
    return {
        "images": len(gallery),
        "identities": len(set(gallery.ids.tolist()) - {NOBODY}),
        "cameras": len(set(gallery.cams.tolist()) - {NOBODY}),
        "kind": gallery.kind,
        "recall": ", ".join(f"{value:.3f} @{k}" for k, value in gallery.recall.items()) or "not measured",
        "dimensions": gallery.index.d,
        "model": gallery.model,
        "checkpoint": str(named.checkpoint),
        "mirrored images": "added" if named.flip else "no",
        "adapted normalisation": norm or "none",
        "threshold": "none; see calibrate"
        if gallery.threshold is None
        else threshold_text(gallery.threshold, gallery.false_accept_rate),
        "bytes": file.stat().st_size,
    }


def _load_filled(file: Path) -> NamedGallery:
    named = NamedGallery.load(file)
    if not len(named.gallery):
        raise InputError(f"{file}: holds no images; add some")
    return named


def _camera_in(name: str) -> str | None:
    """The camera that a file name tells in the manner of Market-1501."""
    match = MARKET_NAME.match(name)
    return str(int(match["camera"])) if match else None


def absolute(path: str) -> str:
    """Under this name a gallery keeps an image."""
    return path if is_synthetic(path) else os.path.abspath(path)


def _read(
    images: Sequence[Listed],
    identities: Sequence[str],
    cameras: Sequence[str],
    model: Embedder,
    skip_bad: bool,
) -> Images:
    """The images as pixels, with the places of their identities and cameras in the lists of names."""
    people, places = ({name: place for place, name in enumerate(names)} for names in (identities, cameras))
    records = [
        Record(image.path, people.get(image.identity, NOBODY), places.get(image.camera, NOBODY))
        for image in images
    ]
    try:
        return Images(records, height=model.height, width=model.width, cache_gib=1.0, skip_bad=skip_bad)
    except InputError as error:  # there is no config here
        raise InputError(
            str(error).replace(REMEDY, "replace it (when indexing, --skip-bad leaves it out)")
        ) from None


def _paths(images: Images) -> list[str]:
    return [record.path for record in images.records]


def _tell_skipped(images: Images) -> None:
    if images.skipped:
        logger.warning(
            "skipped %d images that cannot be read, the first: %s", len(images.skipped), images.skipped[0]
        )


def _place(name: str, names: Sequence[str], what: str, file: Path) -> int:
    if name not in names:
        known = ", ".join(sorted(names)[:8]) + (" …" if len(names) > 8 else "") if names else "none"
        raise InputError(f"{file}: has no {what} {name!r} (it has {known})")
    return names.index(name)
