"""Measure what a new model would change for the people in a gallery, without changing the gallery."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from lreid.errors import InputError, OutOfMemory
from lreid.gallery.faiss_store import FilePlace
from lreid.gallery.gallery import Gallery, place_of
from lreid.gallery.images import Extraction, SearchImage, read_images, readable
from lreid.gallery.scoring import GallerySearch
from lreid.gallery.store import GalleryRows
from lreid.gallery.versions import extract_beside
from lreid.loading import load_model
from lreid.models.embedder import Embedder
from lreid.models.fingerprint import fingerprint
from lreid.retrieval.arrays import as_features, unit_rows
from lreid.retrieval.protocols import best_scores, threshold_for
from lreid.retrieval.ranking import evaluate_scores
from lreid.retrieval.scores import BlockScores, IndexScores, cosines_of
from lreid.utils.files import unfinished_folder
from lreid.utils.identities import Labels, comparable

DEPTH = 1000  # images per query in a gallery that stores codes instead of features
MOMENTS = 4  # number of groups into which people are divided by time of enrolment
AS_IS, MAPPED, EXTRACTED = "as it is", "mapped", "re-extracted"  # options, the least expensive first


@dataclass(frozen=True)
class Ranked:
    """Rankings of a gallery of G images for Q queries.

    Attributes:
        score: function that returns the scores of a slice of the queries.
        query, gallery: labels of queries and gallery, from :func:`lreid.utils.identities.comparable`.
        rows: labels of the gallery images, as names instead of numbers.
        own, others: best scores ``(Q,)`` for the query's own and for other identities, see
            :func:`lreid.retrieval.protocols.best_scores`.
        ap: average precision ``(Q,)``; NaN if a query has no match.
        threshold: lowest cosine similarity at which a query is accepted.
    """

    score: BlockScores
    query: Labels
    gallery: Labels
    rows: GalleryRows
    own: np.ndarray
    others: np.ndarray
    ap: np.ndarray
    threshold: float

    @property
    def first(self) -> np.ndarray:
        """``(Q,)`` bool: whether the best image shows the query's identity (Rank-1)."""
        return self.own > self.others

    @property
    def recognised(self) -> np.ndarray:
        """``(Q,)`` bool: whether the best image shows the query's identity and reaches the threshold."""
        return self.first & (self.own >= self.threshold)


@dataclass(frozen=True)
class Queries:
    """Labelled query images.

    Attributes:
        names: ``(Q,)`` text, names of the people in the images.
        enrolled: ``(Q,)`` bool, whether the gallery has a match for each query.
        unknown: ``(Q,)`` bool, whether the person in each query is not in the gallery.
    """

    names: np.ndarray
    enrolled: np.ndarray
    unknown: np.ndarray

    def figures(self, ranked: Ranked, group: np.ndarray | bool = True) -> dict[str, Any]:
        """Compute the metrics of a group ``(Q,)`` of the queries in per cent; a metric without queries is None."""

        def share(values: np.ndarray) -> float | None:
            return 100 * float(values.mean()) if len(values) else None

        enrolled = self.enrolled & group
        return {
            "threshold": ranked.threshold,
            "mAP": share(np.nan_to_num(ranked.ap)[enrolled]),
            "rank1": share(ranked.first[enrolled]),
            "true_positive_rate": share(ranked.recognised[enrolled]),
            "fpir": share(ranked.others[self.unknown & group] >= ranked.threshold),
        }

    def by_group(self, today: Ranked, new: Ranked, groups: dict[str, np.ndarray]) -> dict[str, Any]:
        """Compute the metrics of groups of queries with both models; empty if there is only one group."""
        if len(groups) < 2:
            return {}
        sizes = {name: int((self.enrolled & group).sum()) for name, group in groups.items()}
        return {
            name: {"queries": sizes[name], "today": self.figures(today, group), "new": self.figures(new, group)}
            for name, group in groups.items()
        }

    def by_person(self, ranked: Ranked) -> dict[str, tuple[int, int, int]]:
        """For each enrolled person, count queries, recognised queries, and queries with the person at rank 1."""
        people, which, counts = np.unique(self.names[self.enrolled], return_inverse=True, return_counts=True)
        hits = (np.bincount(which, each[self.enrolled]).astype(int) for each in (ranked.recognised, ranked.first))
        rows = np.stack([counts, *hits], axis=1).tolist()
        return dict(zip(people.tolist(), map(tuple, rows), strict=True))


@dataclass(frozen=True)
class ModelComparison:
    """The result of :func:`check`.

    Attributes:
        results: measurements as values for JSON, see :func:`check`.
        queries: the query images; each has an identity.
        today, new: rankings with the gallery's model, and rankings with the new model under the chosen option.
    """

    results: dict[str, Any]
    queries: list[SearchImage]
    today: Ranked
    new: Ranked


def check(
    where: str | Path,
    new_model: Path,
    images: Sequence[SearchImage],
    *,
    out: Path,
    max_lost: float | None = None,
    max_fpir: float | None = None,
    map_images: Sequence[SearchImage] = (),
    checkpoint: Path | None = None,
    skip_bad: bool = False,
    device: str = "auto",
) -> ModelComparison:
    """Compare a gallery's model with a new model under three options: keep, map or re-extract the gallery.

    A query is recognised if its best match with a name shows its identity and reaches the threshold. A person is
    recognised if at least half of the person's queries are recognised. Each option has a threshold of its own, set for
    the gallery's false accept rate. To set the threshold, queries of enrolled people serve as impostors: they are
    searched without images of their person. Queries of unknown people do not change the threshold but measure the FPIR
    (Grother et al., NIST IR 8271, 2019). If all cameras are known, rankings leave out images of the query's identity
    and camera, as in ``lreid test``. If a camera is unknown, rankings leave out only the query image itself.

    The function chooses among the options that are within the limits, or among all options if none is within the
    limits. The function prefers the option that loses the fewest people, then the one that recognises the most queries,
    then the least expensive one.

    Args:
        where: place of a calibrated gallery.
        new_model: checkpoint of the new model.
        images: queries from :func:`lreid.gallery.list_images`; images without an identity are skipped.
        out: folder for temporary galleries if the folder of the gallery is read-only or the gallery is in Milvus.
        max_lost: maximum share of the enrolled people whom the new model no longer recognises, in per cent; None means
            no limit.
        max_fpir: maximum share of the queries of unknown people that reach the threshold, in per cent.
        map_images: images on which to fit the map, see :meth:`lreid.gallery.Gallery.mapped`; without images, the
            gallery is not mapped.
        checkpoint: file of the gallery's model, if the file was moved.
        skip_bad: whether to skip query and gallery images that cannot be read.
        device: see :func:`lreid.load_model`.

    Returns:
        The comparison, with metrics in per cent. In ``results``, the entry ``today`` describes the gallery's model, and
        ``ways`` the three options. The entry ``today`` and each option have ``threshold``, ``mAP``, ``rank1``,
        ``true_positive_rate`` and ``fpir`` (None without unknown people). An option also lists the people whom the new
        model no longer recognises (``lost``), and those whom only the new model recognises (``gained``). The lists
        ``lost_rank1`` and ``gained_rank1`` ignore the threshold. An option also has ``lost_share``, and its cost in
        ``seconds`` and ``bytes``. An option that is impossible has a ``reason`` instead. The entry ``people`` has the
        number of recognised queries of each person. The entries ``by_camera`` and ``by_enrolment`` have the metrics of
        groups of queries.

    Raises:
        InputError: the gallery is not calibrated, no query has a match, there is a limit on FPIR but no image of
            unknown people, the new model is the gallery's model, all options are impossible, or an argument is invalid.
    """
    gallery = Gallery.load(where)
    if (rate := gallery.about.false_accept_rate) is None:
        raise InputError(f"{gallery.where}: has no threshold; run lreid search calibrate first")
    listed = labelled_images(gallery, images)
    new, old = load_model(new_model, device), gallery.load_network(checkpoint, device)
    if fingerprint(new) == gallery.about.model:
        raise InputError(f"{new_model}: is already the gallery's model; pass a different one")
    listed, pixels = read_images(listed, old, gallery.about.names, skip_bad=skip_bad)
    names = np.array([image.identity for image in listed])
    unknown = ~np.isin(names, gallery.identities)
    if max_fpir is not None and not unknown.any():
        raise InputError("--max-fpir: every image shows an enrolled person; add images of other people")
    today = rank_gallery(gallery, gallery.extraction(old, pixels), listed, rate)
    queries = Queries(names, np.isfinite(today.own), unknown)
    mapping = partial(gallery.mapped, old, new, readable(map_images, skip_bad)) if map_images else None
    options = _options(gallery, new, listed, rate, out, mapping, skip_bad=skip_bad)
    people = queries.by_person(today)
    for figures, ranked in options:
        if ranked is not None:
            figures |= queries.figures(ranked) | _changes(people, queries.by_person(ranked))
    chosen, ranked, passed = _chosen(options, max_lost, max_fpir)
    results = {
        "generator": "lreid",
        "schema": 1,
        "gallery": str(where),
        "images": len(gallery),
        "old_model": str(checkpoint or gallery.extraction.checkpoint),
        "new_model": str(new_model),
        "queries": int(queries.enrolled.sum()),
        "unknown_queries": int(unknown.sum()),
        "skipped": len(images) - int((queries.enrolled | unknown).sum()),
        "camera_filter": _has_cameras(listed, today.rows),
        "false_accept_rate": 100 * rate,
        "stored_threshold": gallery.about.threshold,
        "limits": {"lost": max_lost, "fpir": max_fpir},
        "today": queries.figures(today),
        "ways": [figures for figures, _ in options],
        "chosen": chosen["way"],
        "passed": passed,
        "people": _people(people, queries.by_person(ranked)),
        "by_camera": queries.by_group(today, ranked, _cameras(listed)),
        "by_enrolment": queries.by_group(today, ranked, _enrolment(today.rows, names)),
    }
    gallery.close()
    return ModelComparison(results, listed, today, ranked)


def labelled_images(gallery: Gallery, images: Sequence[SearchImage]) -> list[SearchImage]:
    """Return the images that have an identity; at least one must show a person in the gallery."""
    people = set(gallery.identities)
    if not any(image.identity in people for image in images):
        raise InputError(
            f"{gallery.where}: none of the {len(images)} images names a person in the gallery; put the images into "
            "folders named after people, or list them in a CSV file"
        )
    return [image for image in images if image.identity is not None]


def _options(
    gallery: Gallery,
    model: Embedder,
    images: list[SearchImage],
    rate: float,
    out: Path,
    mapping: Any,
    *,
    skip_bad: bool,
) -> list[tuple[dict[str, Any], Ranked | None]]:
    """For each option, measure the cost, and rank the gallery for the images; None if the option is impossible."""
    pixels = read_images(images, model, gallery.about.names, skip_bad=skip_bad)[1]
    features = Extraction.of(model.source)(model, pixels)

    def searched(of: Gallery) -> Ranked:
        if model.dim != of.width:
            raise InputError(f"{model.source}: has {model.dim} numbers per feature, but the gallery {of.width}")
        norm = of.extraction.norm
        return rank_gallery(of, norm(features, pixels.camids) if norm else features, images, rate)

    def mapped(to: Path) -> Gallery:
        if mapping is None:
            raise InputError("no images to fit the map are given; pass --map IMAGES")
        copy: Gallery = mapping()
        copy.save(to)
        return copy

    def extracted(to: Path) -> Gallery:
        return extract_beside(gallery, model, place_of(to), skip_bad=skip_bad)

    options: list[tuple[dict[str, Any], Ranked | None]] = []
    place = place_of(gallery.where)
    beside = out / "check.gallery"
    if isinstance(place, FilePlace) and os.access(place.path.parent, os.W_OK):
        beside = place.path  # where lreid search info lists what a killed check leaves, and remove deletes it
    shutil.rmtree(out / ".galleries.lreid", ignore_errors=True)  # of a killed check of an earlier version
    with unfinished_folder(beside) as folder:
        for way, make in ((AS_IS, None), (MAPPED, mapped), (EXTRACTED, extracted)):
            file, start, cost = folder / "copy.gallery", perf_counter(), {"seconds": 0.0, "bytes": 0}
            file.unlink(missing_ok=True)
            try:
                of = make(file) if make else gallery
                if make:
                    cost = {"seconds": perf_counter() - start, "bytes": file.stat().st_size}
                options.append(({"way": way, "reason": None} | cost, searched(of)))
            except OutOfMemory:
                raise
            except InputError as error:
                options.append(({"way": way, "reason": str(error)}, None))
    return options


def _chosen(
    options: Sequence[tuple[dict[str, Any], Ranked | None]], max_lost: float | None, max_fpir: float | None
) -> tuple[dict[str, Any], Ranked, bool]:
    """Return the measurements and rankings of the chosen option, and whether it is within the limits."""
    possible = [(figures, ranked) for figures, ranked in options if ranked is not None]
    if not possible:
        raise InputError(f"{options[0][0]['reason']}; {options[-1][0]['reason']}")
    limits = [(key, limit) for key, limit in (("lost_share", max_lost), ("fpir", max_fpir)) if limit is not None]
    within = [option for option in possible if all(option[0][key] <= limit for key, limit in limits)]
    best = min(within or possible, key=lambda option: (option[0]["lost_share"], -option[0]["true_positive_rate"]))
    return *best, bool(within)


def _has_cameras(queries: Sequence[SearchImage], rows: GalleryRows) -> bool:
    """Whether the cameras of all images are known."""
    return rows.cams.dtype == object and None not in {*rows.cams, *(image.camera for image in queries)}


def rank_gallery(gallery: Gallery, features: np.ndarray, queries: Sequence[SearchImage], rate: float) -> Ranked:
    """Rank the gallery for queries with features (Q, D), and set the threshold for a false accept rate."""
    rows, search = gallery.labels(), GallerySearch(gallery, DEPTH)
    origins: tuple[Any, Any] = [image.path for image in queries], rows.paths
    if _has_cameras(queries, rows):
        origins = [image.camera for image in queries], rows.cams
    query, gallery = comparable(
        Labels([image.identity for image in queries], origins[0]),
        Labels(rows.ids, origins[1]),
        (len(queries), len(rows)),
    )
    vectors = search.features()
    if vectors is None:
        unit = unit_rows(as_features(features, "query features", "cpu"), "query features")
        score: BlockScores = IndexScores(search, unit, len(rows))
    else:
        score = cosines_of(features, vectors)
    own, others = best_scores(score, query, gallery)
    ap = evaluate_scores(score, query, gallery).ap
    threshold = threshold_for(others[np.isfinite(own) & np.isfinite(others)], rate)
    return Ranked(score, query, gallery, rows, own, others, ap, threshold)


def _changes(before: dict[str, tuple[int, int, int]], after: dict[str, tuple[int, int, int]]) -> dict[str, Any]:
    """Return the people of :meth:`Queries.by_person` who are no longer recognised, and who are newly recognised."""
    changes: dict[str, Any] = {}
    for end, column in (("", 1), ("_rank1", 2)):
        held, holds = ({name for name, row in each.items() if 2 * row[column] >= row[0]} for each in (before, after))
        changes |= {f"lost{end}": sorted(held - holds), f"gained{end}": sorted(holds - held)}
    return changes | {"lost_share": 100 * len(changes["lost"]) / len(before)}


def _people(before: dict[str, tuple[int, int, int]], after: dict[str, tuple[int, int, int]]) -> list[dict[str, Any]]:
    """For each person, list queries, recognised queries and Rank-1 hits, today and with the new model."""
    heads = ("queries", "found_today", "rank1_today", "found_new", "rank1_new")
    return [{"name": name} | dict(zip(heads, (*row, *after[name][1:]), strict=True)) for name, row in before.items()]


def _cameras(queries: Sequence[SearchImage]) -> dict[str, np.ndarray]:
    """For each known camera, return a mask ``(Q,)`` of its queries."""
    cameras = np.array([image.camera or "" for image in queries])
    return {name: cameras == name for name in sorted({*cameras.tolist()} - {""})}


def _enrolment(rows: GalleryRows, names: np.ndarray) -> dict[str, np.ndarray]:
    """Group queries by the time at which their person was enrolled: the earliest time of the person's gallery images.

    Each group has about the same number of people.
    """
    by_time = sorted(zip(rows.times.tolist(), rows.ids, strict=True), key=itemgetter(0), reverse=True)
    enrolled = {name: time for time, name in by_time if time >= 0}  # the earliest time comes last
    since = np.array([enrolled.get(name, -1) for name in names])
    moments = np.sort([enrolled[name] for name in {*names.tolist()} & enrolled.keys()])
    if not len(moments):
        return {}
    starts = np.unique(moments[np.arange(MOMENTS) * len(moments) // MOMENTS])
    groups = np.searchsorted(starts, since, side="right") - 1
    return {str(start): groups == number for number, start in enumerate(starts.tolist())}
