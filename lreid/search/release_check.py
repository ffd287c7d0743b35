"""Measure what a new model would change for the people of a gallery, without changing the gallery."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from lreid.errors import InputError, OutOfMemory
from lreid.gallery.scoring import GallerySearch
from lreid.gallery.store import Rows, place_of
from lreid.identities import Labels, comparable
from lreid.loading import Engine, load_model
from lreid.models.fingerprint import fingerprint
from lreid.retrieval.arrays import as_features, unit_rows
from lreid.retrieval.index import IndexScores
from lreid.retrieval.open_set import best_scores, threshold_for
from lreid.retrieval.ranking import evaluate_scores
from lreid.retrieval.scores import BlockScores, cosines_of
from lreid.search.image_list import SearchImage, read_images
from lreid.search.named_gallery import NamedGallery, extract, flips
from lreid.search.versions import extract_beside, migrate

DEPTH = 1000  # images per query in a gallery that stores codes instead of features
GROUPS = 4  # number of groups of people, by time of enrolment
AS_IS, MIGRATED, EXTRACTED = "as it is", "migrated", "re-extracted"  # options, the least expensive first

Json = dict[str, Any]


class Limits(NamedTuple):
    """Limits for a new model, in per cent; None is no limit.

    Attributes:
        lost: share of the enrolled people who would no longer be recognised.
        fpir: share of the queries of unknown people that reach the threshold.
    """

    lost: float | None = None
    fpir: float | None = None

    def broken(self, figures: Json) -> bool:
        """Whether the figures of an option exceed a limit."""
        pairs = ((self.lost, figures["lost_share"]), (self.fpir, figures["fpir"]))
        return any(limit is not None and value > limit for limit, value in pairs)


@dataclass(frozen=True)
class Ranked:
    """The rankings of Q queries in a gallery of G images.

    Attributes:
        score: the scores.
        query, gallery: labels of queries and gallery, as returned by :func:`lreid.identities.comparable`.
        rows: labels of the gallery, with names.
        own, others: ``(Q,)``, see :func:`lreid.retrieval.open_set.best_scores`.
        ap: ``(Q,)`` average precision; NaN if a query has no match.
        threshold: cosine similarity from which a query is accepted.
    """

    score: BlockScores
    query: Labels
    gallery: Labels
    rows: Rows
    own: np.ndarray
    others: np.ndarray
    ap: np.ndarray
    threshold: float

    @property
    def first(self) -> np.ndarray:
        """``(Q,)`` bool: the best image shows the query's identity (Rank-1)."""
        return self.own > self.others

    @property
    def recognised(self) -> np.ndarray:
        """``(Q,)`` bool: the best image is right and reaches the threshold."""
        return self.first & (self.own >= self.threshold)

    @property
    def let_in(self) -> np.ndarray:
        """``(Q,)`` bool: an image of a different identity reaches the threshold."""
        return self.others >= self.threshold


@dataclass(frozen=True)
class Comparison:
    """The result of :func:`check`.

    Attributes:
        results: figures for JSON.
        queries: the queries, which all have an identity.
        today, new: rankings of the gallery as it is, and of the chosen option.
    """

    results: Json
    queries: list[SearchImage]
    today: Ranked
    new: Ranked


def check(
    where: str | Path,
    new: Path,
    images: Sequence[SearchImage],
    limits: Limits = Limits(),  # noqa: B008 (a tuple)
    *,
    out: Path,
    checkpoint: Path | None = None,
    skip_bad: bool = False,
    device: str = "auto",
    engine: Engine = "torch",
) -> Comparison:
    """Compares a gallery with three options for a new model: search it as it is, migrate it, or re-extract it.

    A query is recognised if the best image with a name shows its identity and reaches the threshold. A person is
    recognised if at least half of their queries are. Every threshold is set to the gallery's false accept rate on the
    queries of enrolled people, each searched without images of that person. Queries of unknown people do not influence
    it; they measure FPIR (Grother et al., NIST IR 8271, 2019). If all cameras are known, images of the query's identity
    and camera are left out, as in ``lreid test``; otherwise only the query itself is.

    Among the options within the limits (or among all, if none is), the function chooses the one that loses the fewest
    people, then the one that recognises the most queries, then the least expensive one.

    Args:
        where: place of a calibrated gallery.
        new: checkpoint of the new model.
        images: queries as in :func:`lreid.search.list_images`; those without an identity are skipped.
        limits: limits for the new model.
        out: folder for temporary galleries, which are deleted.
        checkpoint: the gallery's model, if its file has moved.
        skip_bad: skip images that cannot be read, in the queries and in the gallery.
        device, engine: as in :func:`lreid.load_model`.

    Returns:
        The comparison. Its ``results`` contain figures in per cent: ``today`` and ``ways`` (the options), each with
        ``threshold``, ``mAP``, ``rank1``, ``true_positive_rate`` and ``fpir`` (None without unknown people). Each
        option also has the ``lost`` and ``gained`` people, the same by Rank-1 alone, ``lost_share``, and its cost in
        ``seconds`` and ``bytes``, or the ``reason`` why it is impossible. ``people`` counts the recognised queries of
        each person; ``by_camera`` and ``by_enrolment`` contain figures of groups.

    Raises:
        InputError: the gallery is not calibrated, no query has a match, the new model is the gallery's model, all
            options are impossible, or an argument is invalid.
    """
    named = NamedGallery.load(where)
    about = named.gallery.about
    if about.threshold is None or about.false_accept_rate is None:
        raise InputError(f"{where}: has no threshold; run lreid search calibrate first")
    queries = [image for image in images if image.identity is not None]
    people = set(named.identities.values())
    if not any(image.identity in people for image in queries):
        raise InputError(
            f"{where}: none of the {len(images)} images shows a person of the gallery by name; put them into folders "
            "named after the people, or list them in a CSV file"
        )
    if limits.fpir is not None and all(image.identity in people for image in queries):
        raise InputError("--max-fpir: every image shows an enrolled person; add images of other people")
    model, old = load_model(new, device, engine=engine), named.model(checkpoint, device, engine)
    if fingerprint(model) == about.model:
        raise InputError(f"{new}: is already the gallery's model; give a different one")
    queries, pixels = read_images(queries, old, about.names, skip_bad=skip_bad)
    rank = partial(_ranked, queries=queries, rate=about.false_accept_rate)
    today = rank(named, named.extract(old, pixels))
    pixels = read_images(queries, model, about.names, skip_bad=skip_bad)[1]
    features = extract(model, pixels, flips(new))

    def searched(of: NamedGallery) -> Ranked:
        if model.dim != of.gallery.width:
            raise InputError(f"{new}: its features have {model.dim} numbers, those in the gallery {of.gallery.width}")
        return rank(of, of.norm(features, pixels.camids) if of.norm else features)

    def migrated(to: Path) -> NamedGallery:
        migrate(where, to)
        return NamedGallery.load(to)

    def extracted(to: Path) -> NamedGallery:
        return extract_beside(named, model, new, place_of(to), skip_bad=skip_bad)

    out.mkdir(parents=True, exist_ok=True)
    ways = [_way(AS_IS, lambda _: named, searched)]
    with tempfile.TemporaryDirectory(prefix="check-", dir=out) as folder:
        as_is = ways[0][1]
        if as_is is None:
            ways.append(({"way": MIGRATED, "reason": ways[0][0]["reason"]}, None))
        else:  # a copy has the same features and therefore the same rankings
            ways.append(_way(MIGRATED, migrated, lambda _: as_is, Path(folder, "copy.gallery")))
        ways.append(_way(EXTRACTED, extracted, searched, Path(folder, "new.gallery")))
    enrolled = np.isfinite(today.own)
    names = np.array([image.identity for image in queries])
    unknown = ~np.isin(names, sorted(people))
    for figures, ranked in ways:
        if ranked is not None:
            figures |= _figures(ranked, enrolled, unknown) | _changes(today, ranked, names, enrolled)
    possible = [way for way in ways if way[1] is not None]
    if not possible:
        raise InputError(f"{ways[0][0]['reason']}; {ways[-1][0]['reason']}")
    within = [way for way in possible if not limits.broken(way[0])]
    chosen, ranked = min(within or possible, key=lambda way: (way[0]["lost_share"], -way[0]["true_positive_rate"]))
    assert ranked is not None
    both = today, ranked
    cameras = np.array([image.camera or "" for image in queries])
    results = {
        "schema": 1,
        "gallery": str(where),
        "images": len(named.gallery),
        "old_model": str(checkpoint or named.checkpoint),
        "new_model": str(new),
        "queries": int(enrolled.sum()),
        "unknown_queries": int(unknown.sum()),
        "skipped": len(images) - int((enrolled | unknown).sum()),
        "camera_filter": _has_cameras(queries, today.rows),
        "false_accept_rate": 100 * about.false_accept_rate,
        "stored_threshold": about.threshold,
        "limits": limits._asdict(),
        "today": _figures(today, enrolled, unknown),
        "ways": [figures for figures, _ in ways],
        "chosen": chosen["way"],
        "passed": bool(within),
        "people": _people(both, names, enrolled),
        "by_camera": _by(both, {each: cameras == each for each in sorted({*cameras} - {""})}, enrolled, unknown),
        "by_enrolment": _by(both, _enrolment(today.rows, names), enrolled, unknown),
    }
    named.gallery.close()
    return Comparison(results, queries, today, ranked)


def _has_cameras(queries: Sequence[SearchImage], rows: Rows) -> bool:
    """Whether the cameras of all images are known."""
    return rows.cams.dtype == object and None not in {*rows.cams, *(image.camera for image in queries)}


def _ranked(named: NamedGallery, features: np.ndarray, *, queries: Sequence[SearchImage], rate: float) -> Ranked:
    """Returns the rankings of queries with features (Q, D), and the threshold for a false accept rate."""
    rows, search = named.gallery.labels(), GallerySearch(named.gallery, DEPTH)
    apart: tuple[Any, Any] = [image.path for image in queries], rows.paths
    if _has_cameras(queries, rows):
        apart = [image.camera for image in queries], rows.cams
    query, gallery = comparable(
        Labels([image.identity for image in queries], apart[0]), Labels(rows.ids, apart[1]), (len(queries), len(rows))
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


def _way(
    name: str, make: Callable[[Path], NamedGallery], rank: Callable[[NamedGallery], Ranked], file: Path | None = None
) -> tuple[Json, Ranked | None]:
    """An option with its cost; if it is impossible, the reason instead of rankings."""
    start = perf_counter()
    try:
        named = make(file or Path())
        seconds = perf_counter() - start if file else 0.0
        ranked = rank(named)
    except OutOfMemory:
        raise
    except InputError as error:
        return {"way": name, "reason": str(error)}, None
    return {"way": name, "reason": None, "seconds": seconds, "bytes": file.stat().st_size if file else 0}, ranked


def _figures(ranked: Ranked, enrolled: np.ndarray, unknown: np.ndarray) -> Json:
    """Figures of some queries, in per cent; None without queries."""

    def share(values: np.ndarray) -> float | None:
        return 100 * float(values.mean()) if len(values) else None

    return {
        "threshold": ranked.threshold,
        "mAP": share(np.nan_to_num(ranked.ap)[enrolled]),
        "rank1": share(ranked.first[enrolled]),
        "true_positive_rate": share(ranked.recognised[enrolled]),
        "fpir": share(ranked.let_in[unknown]),
    }


def _changes(today: Ranked, new: Ranked, names: np.ndarray, enrolled: np.ndarray) -> Json:
    """The people who are no longer recognised, and those who newly are."""
    changes: Json = {}
    for end, rule in (("", "recognised"), ("_rank1", "first")):
        before, after = (_of_people(getattr(each, rule), names, enrolled) for each in (today, new))
        held, holds = ({name for name, (hits, count) in each.items() if 2 * hits >= count} for each in (before, after))
        changes |= {f"lost{end}": sorted(held - holds), f"gained{end}": sorted(holds - held)}
    return changes | {"lost_share": 100 * len(changes["lost"]) / len(before)}


def _of_people(hits: np.ndarray, names: np.ndarray, enrolled: np.ndarray) -> dict[str, tuple[int, int]]:
    """The number of hits and of queries for each person with matches."""
    people, which, counts = np.unique(names[enrolled], return_inverse=True, return_counts=True)
    sums = np.bincount(which, hits[enrolled], len(people)).astype(int)
    return {str(name): (int(hit), int(count)) for name, hit, count in zip(people, sums, counts, strict=True)}


def _people(both: tuple[Ranked, Ranked], names: np.ndarray, enrolled: np.ndarray) -> list[Json]:
    """For each person the number of queries, of recognised ones and of Rank-1 hits, today and with the new model."""
    counts = [_of_people(getattr(each, rule), names, enrolled) for rule in ("recognised", "first") for each in both]
    heads = ("found_today", "found_new", "rank1_today", "rank1_new")
    return [
        {"name": name, "queries": count} | dict(zip(heads, (each[name][0] for each in counts), strict=True))
        for name, (_, count) in counts[0].items()
    ]


def _by(both: tuple[Ranked, Ranked], groups: dict[str, np.ndarray], enrolled: np.ndarray, unknown: np.ndarray) -> Json:
    """Figures of groups of queries, today and with the new model; empty if there is only one group."""
    if len(groups) < 2:
        return {}
    return {
        name: {
            "queries": int((enrolled & group).sum()),
            "today": _figures(both[0], enrolled & group, unknown & group),
            "new": _figures(both[1], enrolled & group, unknown & group),
        }
        for name, group in groups.items()
    }


def _enrolment(rows: Rows, names: np.ndarray) -> dict[str, np.ndarray]:
    """Queries in groups of about equally many people, by the earliest time of their gallery images in seconds."""
    enrolled: dict[str, int] = {}
    for name, time in zip(rows.ids, rows.times.tolist(), strict=True):
        if time >= 0:
            enrolled[name] = min(time, enrolled.get(name, time))
    wanted = {name: enrolled[name] for name in names if name in enrolled}
    if not wanted:
        return {}
    moments = np.array(sorted(wanted.values()))
    starts = np.unique(moments[np.arange(GROUPS) * len(moments) // GROUPS])
    group_of = {name: int(np.searchsorted(starts, time, side="right")) - 1 for name, time in wanted.items()}
    groups = np.array([group_of.get(name, -1) for name in names])
    return {str(int(start)): groups == number for number, start in enumerate(starts)}
