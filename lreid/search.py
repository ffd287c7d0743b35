"""The door of searching: images of one's own become a gallery file, and a picture finds who is in it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lreid.data.images import REMEDY, Images, read_image
from lreid.data.listing import Listed, image_files, list_csv, list_folder, numbered
from lreid.data.records import Record
from lreid.data.synthetic import is_synthetic
from lreid.errors import InputError
from lreid.files import write_text
from lreid.models import Embedder
from lreid.models.adapt import AdaptedNorm
from lreid.models.fingerprint import fingerprint
from lreid.report import ranked
from lreid.retrieval import Gallery, Matches
from lreid.training.run import load_model, pick_device

logger = logging.getLogger("lreid")

NOBODY = -1  # an identity or a camera that is not known


@dataclass
class NamedGallery:
    """A gallery whose identities and cameras have names, and that knows its model.

    Attributes:
        gallery: the images as features; ids and cameras are places in the lists below.
        identities, cameras: names, in the order in which they came.
        checkpoint: of the model that the gallery was built with.
        norm: BatchNorm statistics that its images were extracted with, and queries must be too; or None.
    """

    gallery: Gallery
    identities: list[str]
    cameras: list[str]
    checkpoint: Path
    norm: AdaptedNorm | None

    @classmethod
    def load(cls, file: Path) -> NamedGallery:
        """Reads the file that :meth:`save` wrote.

        Raises:
            InputError: it is missing, cut short, of another version, or not made by :func:`build`.
        """
        gallery = Gallery.load(file)
        extras = gallery.extras
        if "checkpoint" not in extras:
            raise InputError(
                f"{file}: a gallery without the names of its identities; build it with tools/search.py"
            )
        names = (extras[key].tolist() for key in ("identities", "cameras"))
        return cls(gallery, *names, Path(str(extras["checkpoint"][0])), AdaptedNorm.from_arrays(extras))

    def save(self, file: Path) -> None:
        """Writes the gallery to one file; what was there is replaced when the new file is complete."""
        self.gallery.extras = {
            "identities": np.array(self.identities, dtype=str),
            "cameras": np.array(self.cameras, dtype=str),
            "checkpoint": np.array([str(self.checkpoint)]),
            **(self.norm.to_arrays() if self.norm else {}),
        }
        self.gallery.save(file)

    def model(self, checkpoint: Path | None, device: str, *, any_model: bool = False) -> Embedder:
        """The gallery's model, from where it was when the gallery was built, or from another file.

        Raises:
            InputError: no such file, or another model, unless ``any_model``.
        """
        model = load_model(checkpoint or self.checkpoint)
        if not any_model and fingerprint(model) != self.gallery.model:
            raise InputError(
                f"{checkpoint or self.checkpoint}: is not the model whose features are in the gallery "
                f"({fingerprint(model)}, not {self.gallery.model}); give that one by --checkpoint, build the gallery "
                "again, or query with --cross-model if the two were trained to be comparable"
            )
        return model.to(pick_device(device))

    def extract(self, model: Embedder, images: Images) -> np.ndarray:
        """Features (n, D) in the way of the gallery."""
        return self.norm.extract(model, images, images.camids) if self.norm else model.extract(images)


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
    features = norm.extract(model, pictures, pictures.camids) if norm else model.extract(pictures)
    gallery = Gallery.build(
        features, _paths(pictures), pictures.pids, pictures.camids, model=fingerprint(model), kind=kind
    )
    named = NamedGallery(gallery, identities, cameras, Path(os.path.abspath(checkpoint)), norm)
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
    named = NamedGallery.load(file)
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
        camera: that took the pictures; its statistics are used where the gallery has some for each camera.
        other_cameras: leave out images of that camera.
        checkpoint: the gallery's model, if it is not where it was.
        cross_model: take another model, trained to be comparable; the gallery's adapted normalisation, which is that
            of its own model, is not applied to it.
        blur: smear the pictures of the page.
        device: of :func:`build`.

    Returns:
        The content of ``matches.json``: ``gallery``, ``threshold`` and ``false_accept_rate`` (None before
        :func:`calibrate`), and ``queries``: ``image``, ``unknown`` (None without a threshold), ``identity`` of the best
        match (None if unknown) and ``matches`` with ``rank``, ``path``, ``identity``, ``camera``, ``score``, ``known``.

    Raises:
        InputError: an image cannot be read, or anything else does not fit; then nothing is written.
    """
    named = NamedGallery.load(file)
    gallery = named.gallery
    if camera is None and other_cameras:
        raise InputError("--other-cameras needs --camera, the one that took the pictures")
    place = NOBODY if camera is None else _place(camera, named.cameras, "camera", file)
    model = named.model(checkpoint, device, any_model=cross_model)
    own_model = fingerprint(model) == gallery.model
    if camera is None and own_model and named.norm and named.norm.cameras:
        logger.warning("the gallery is normalised by camera; --camera NAME says which one took the pictures")
    files = [str(each) for path in images for each in (image_files(path) if path.is_dir() else [path])]
    pictures = _decode([Record(path, NOBODY, place) for path in files], model, skip_bad=False)
    matches = gallery.search(
        named.extract(model, pictures) if own_model else model.extract(pictures), top,
        query_cams=pictures.camids, model=fingerprint(model), exclude_same_camera=other_cameras,
        cross_model=cross_model,
    )  # fmt: skip
    results = {
        "gallery": str(file),
        "threshold": gallery.threshold,
        "false_accept_rate": gallery.false_accept_rate,
        "queries": [_answer(named, matches, row, path) for row, path in enumerate(files)],
    }
    title = f"Found in {file.name}"
    intro = [
        f"{len(gallery)} images in the gallery. Under each match: its rank, cosine similarity, identity, camera."
    ]
    section = _page_section(results, blur)
    write_text(out / "matches.json", json.dumps(results, indent=1) + "\n")
    ranked.write_ranked(out / "matches.html", title, intro, [section])
    return results


def describe(file: Path) -> dict[str, Any]:
    """What a gallery holds, by name of the property, for people and JSON."""
    named = NamedGallery.load(file)
    gallery = named.gallery
    norm = named.norm and ("by camera" if named.norm.cameras else "of the gallery")
    return {
        "images": len(gallery),
        "identities": len(set(gallery.ids.tolist()) - {NOBODY}),
        "cameras": len(set(gallery.cams.tolist()) - {NOBODY}),
        "kind": gallery.kind,
        "recall": {f"@{k}": value for k, value in gallery.recall.items()},
        "dimensions": gallery.index.d,
        "model": gallery.model,
        "checkpoint": str(named.checkpoint),
        "adapted normalisation": norm or "none",
        "threshold": gallery.threshold,
        "false accept rate": gallery.false_accept_rate,
        "bytes": file.stat().st_size,
    }


def verdict(answer: dict[str, Any], threshold: float | None, false_accept_rate: float | None) -> str:
    """One line about a query of :func:`query`."""
    if not answer["matches"]:
        return "nothing to compare with"
    best = answer["matches"][0]
    who = best["identity"] or "somebody without a name"
    if threshold is None:
        return f"nearest: {who}, {best['score']:.3f}; calibrate the gallery to tell strangers"
    rule = f"threshold {threshold:.3f} for {100 * false_accept_rate:g} % false accepts"
    if answer["unknown"]:
        return f"unknown: the nearest has {best['score']:.3f}, {rule}"
    return f"known: {who}, {best['score']:.3f}, {rule}"


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
    return _decode(records, model, skip_bad)


def _decode(records: Sequence[Record], model: Embedder, skip_bad: bool) -> Images:
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


def _answer(named: NamedGallery, matches: Matches, row: int, path: str) -> dict[str, Any]:
    def name(names: Sequence[str], place: int) -> str | None:
        return names[place] if place >= 0 else None

    found = [
        {
            "rank": column + 1,
            "path": matches.paths[row, column],
            "identity": name(named.identities, matches.ids[row, column]),
            "camera": name(named.cameras, matches.cams[row, column]),
            "score": float(matches.scores[row, column]),
            "known": None if named.gallery.threshold is None else bool(matches.known[row, column]),
        }
        for column in range(matches.scores.shape[1])
        if matches.indices[row, column] >= 0
    ]
    unknown = None if named.gallery.threshold is None else bool(matches.unknown[row])
    best = found[0]["identity"] if found and not unknown else None
    return {"image": path, "unknown": unknown, "identity": best, "matches": found}


def _page_section(results: dict[str, Any], blur: bool) -> ranked.Section:
    wide = []

    def picture(path: str, labels: tuple[str, ...]) -> ranked.Picture:
        try:
            image = read_image(path)
        except InputError:  # the gallery outlives its pictures
            return ranked.Picture(None, path, labels)
        wide.append(image.shape[1] > image.shape[0])
        return ranked.Picture(ranked.thumbnail(image, blur=blur), path, labels)

    def labels(match: dict[str, Any]) -> tuple[str, ...]:
        camera = () if match["camera"] is None else (f"cam {match['camera']}",)
        return (match["identity"] or "no name", *camera)

    verdicts: dict[bool | None, ranked.Verdict] = {None: "", True: "known", False: "below"}
    rankings = [
        ranked.Ranking(
            picture(answer["image"], (Path(answer["image"]).name,)),
            verdict(answer, results["threshold"], results["false_accept_rate"]),
            [
                ranked.Match(
                    match["rank"], f"{match['score']:.3f}", verdicts[match["known"]],
                    picture(match["path"], labels(match)),
                )
                for match in answer["matches"]
            ],
        )
        for answer in results["queries"]
    ]  # fmt: skip
    threshold = results["threshold"]
    note = (
        "Not calibrated: whoever is nearest is shown, stranger or not."
        if threshold is None
        else f"Who scores below {threshold:.3f} counts as unknown; so {100 * results['false_accept_rate']:g} % of "
        "strangers are taken for somebody known."
    )
    return ranked.Section("Matches", note, rankings, wide=sum(wide) > len(wide) / 2)
