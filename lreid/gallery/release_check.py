"""Measure what a new model would change for the people in a gallery, without changing the gallery."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from lreid.errors import InputError, OutOfMemory
from lreid.gallery.image_list import SearchImage, read_images
from lreid.gallery.named_gallery import NamedGallery, extract, flips
from lreid.gallery.scoring import GallerySearch
from lreid.gallery.store import Rows, place_of
from lreid.gallery.versions import extract_beside, migrate
from lreid.loading import load_model
from lreid.models.embedder import Embedder
from lreid.models.fingerprint import fingerprint
from lreid.retrieval.arrays import as_features, unit_rows
from lreid.retrieval.open_set import best_scores, threshold_for
from lreid.retrieval.ranking import evaluate_scores
from lreid.retrieval.scores import BlockScores, IndexScores, cosines_of
from lreid.utils.files import only_one_process
from lreid.utils.identities import Labels, comparable

DEPTH = 1000  # images per query in a gallery that stores codes instead of features
WORK = ".galleries.lreid"  # folder of temporary galleries
GROUPS = 4  # number of groups into which people are divided by time of enrolment
AS_IS, MIGRATED, EXTRACTED = "as it is", "migrated", "re-extracted"  # options, the least expensive first

Json = dict[str, Any]


class Limits(NamedTuple):
    """Limits for a new model, in per cent; None means no limit.

    Attributes:
        lost: share of the enrolled people whom the new model no longer recognises.
        fpir: share of the queries of unknown people that reach the threshold.
    """

    lost: float | None = None
    fpir: float | None = None

    def broken(self, figures: Json) -> bool:
        """Whether the measurements of an option exceed a limit."""
        pairs = ((self.lost, figures["lost_share"]), (self.fpir, figures["fpir"]))
        return any(limit is not None and value > limit for limit, value in pairs)


@dataclass(frozen=True)
class Ranked:
    """Rankings of a gallery of G images for Q queries.

    Attributes:
        score: function that returns the scores of a slice of the queries.
        query, gallery: labels of queries and gallery, from :func:`lreid.utils.identities.comparable`.
        rows: labels of the gallery images, as names instead of numbers.
        own, others: best scores ``(Q,)`` for the query's own and for other identities, see
            :func:`lreid.retrieval.open_set.best_scores`.
        ap: average precision ``(Q,)``; NaN if a query has no match.
        threshold: lowest cosine similarity at which a query is accepted.
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
        """``(Q,)`` bool: whether the best image shows the query's identity (Rank-1)."""
        return self.own > self.others

    @property
    def recognised(self) -> np.ndarray:
        """``(Q,)`` bool: whether the best image shows the query's identity and reaches the threshold."""
        return self.first & (self.own >= self.threshold)

    @property
    def let_in(self) -> np.ndarray:
        """``(Q,)`` bool: whether an image of another identity reaches the threshold."""
        return self.others >= self.threshold


Option = tuple[Json, Ranked | None]  # measurements, and rankings (None if the option is impossible)


@dataclass(frozen=True)
class Queries:
    """Labels of Q queries.

    Attributes:
        names, cameras: ``(Q,)`` text, names of identities and cameras; an unknown camera is empty.
        enrolled: ``(Q,)`` bool, whether the gallery has a match for each query.
        unknown: ``(Q,)`` bool, whether the person in each query is not in the gallery.
    """

    names: np.ndarray
    cameras: np.ndarray
    enrolled: np.ndarray
    unknown: np.ndarray

    @classmethod
    def of(cls, images: Sequence[SearchImage], ranked: Ranked, named: NamedGallery) -> Queries:
        """Create the labels of query images, from the images and from their rankings in the gallery ``named``."""
        names = np.array([image.identity for image in images])
        unknown = ~np.isin(names, sorted(set(named.identities.values())))
        return cls(names, np.array([image.camera or "" for image in images]), np.isfinite(ranked.own), unknown)

    def within(self, group: np.ndarray) -> Queries:
        """Limit the queries to a group ``(Q,)`` bool; queries outside it count neither as enrolled nor as unknown."""
        return replace(self, enrolled=self.enrolled & group, unknown=self.unknown & group)

    def by_camera(self) -> dict[str, np.ndarray]:
        """For each known camera, return a mask ``(Q,)`` of its queries."""
        return {each: self.cameras == each for each in sorted({*self.cameras} - {""})}


class Models(NamedTuple):
    """The two models to compare.

    Attributes:
        new: checkpoint of the new model.
        old: file of the gallery's model, if the file was moved.
        device: see :func:`lreid.load_model`.
    """

    new: Path
    old: Path | None = None
    device: str = "auto"


@dataclass(frozen=True)
class Comparison:
    """The result of :func:`check`.

    Attributes:
        results: measurements as values for JSON, see :func:`check`.
        queries: the query images; each has an identity.
        today, new: rankings with the gallery's model, and rankings with the new model under the chosen option.
    """

    results: Json
    queries: list[SearchImage]
    today: Ranked
    new: Ranked


def check(
    where: str | Path,
    models: Models,
    images: Sequence[SearchImage],
    limits: Limits = Limits(),  # noqa: B008 (a tuple)
    *,
    out: Path,
    skip_bad: bool = False,
) -> Comparison:
    """Compare a gallery's model with a new model under three options: keep, migrate or re-extract the gallery.

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
        models: checkpoints of both models.
        images: queries from :func:`lreid.gallery.list_images`; images without an identity are skipped.
        out: folder for temporary galleries, which are deleted at the end.
        skip_bad: whether to skip query and gallery images that cannot be read.

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
    named = NamedGallery.load(where)
    listed, rate = _labelled(named, images)
    new = load_model(models.new, models.device)
    old = named.model(models.old, models.device)
    if fingerprint(new) == named.gallery.about.model:
        raise InputError(f"{models.new}: is already the gallery's model; pass a different one")
    listed, pixels = read_images(listed, old, named.gallery.about.names, skip_bad=skip_bad)
    if limits.fpir is not None and {image.identity for image in listed} <= {*named.identities.values()}:
        raise InputError("--max-fpir: every image shows an enrolled person; add images of other people")
    today = _ranked(named, named.extract(old, pixels), listed, rate)
    queries = Queries.of(listed, today, named)
    with _work_folder(out) as folder:
        options = _Options(named, new, models.new, listed, rate, skip_bad).tried(folder)
    for figures, ranked in options:
        if ranked is not None:
            figures |= _figures(ranked, queries) | _changes(today, ranked, queries)
    chosen, ranked, passed = _chosen(options, limits)
    both, times = (today, ranked), _enrolment(today.rows, queries.names)
    results = {
        "schema": 1,
        "gallery": str(where),
        "images": len(named.gallery),
        "old_model": str(models.old or named.checkpoint),
        "new_model": str(models.new),
        "queries": int(queries.enrolled.sum()),
        "unknown_queries": int(queries.unknown.sum()),
        "skipped": len(images) - int((queries.enrolled | queries.unknown).sum()),
        "camera_filter": _has_cameras(listed, today.rows),
        "false_accept_rate": 100 * rate,
        "stored_threshold": named.gallery.about.threshold,
        "limits": limits._asdict(),
        "today": _figures(today, queries),
        "ways": [figures for figures, _ in options],
        "chosen": chosen["way"],
        "passed": passed,
        "people": _people(both, queries),
        "by_camera": _by(both, queries, queries.by_camera()),
        "by_enrolment": _by(both, queries, times),
    }
    named.gallery.close()
    return Comparison(results, listed, today, ranked)


@contextmanager
def _work_folder(out: Path) -> Iterator[Path]:
    """Create a folder for temporary galleries and delete it at the end; first delete the folder of a killed process."""
    folder = out / WORK
    with ExitStack() as stack:
        try:
            out.mkdir(parents=True, exist_ok=True)
            stack.enter_context(only_one_process(out))
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        except OSError as error:
            raise InputError(f"{folder}: cannot be written ({error.strerror}); choose another place") from None
        try:
            yield folder
        finally:
            with suppress(OSError):  # rmtree does not ignore errors of closing a folder
                shutil.rmtree(folder, ignore_errors=True)


def _labelled(named: NamedGallery, images: Sequence[SearchImage]) -> tuple[list[SearchImage], float]:
    """Return the images that have an identity, and the false accept rate of the gallery, which must be calibrated."""
    about, people = named.gallery.about, set(named.identities.values())
    if about.threshold is None or about.false_accept_rate is None:
        raise InputError(f"{named.where}: has no threshold; run lreid search calibrate first")
    if not any(image.identity in people for image in images):
        raise InputError(
            f"{named.where}: none of the {len(images)} images names a person in the gallery; put the images into "
            "folders named after people, or list them in a CSV file"
        )
    return [image for image in images if image.identity is not None], about.false_accept_rate


@dataclass(frozen=True)
class _Options:
    """The three options for a new model; ``rate`` is the false accept rate for which thresholds are set."""

    named: NamedGallery
    model: Embedder
    checkpoint: Path
    images: list[SearchImage]
    rate: float
    skip_bad: bool

    def tried(self, folder: Path) -> list[Option]:
        """For each option, rank the images and measure the cost. Temporary galleries are written to ``folder``."""
        pixels = read_images(self.images, self.model, self.named.gallery.about.names, skip_bad=self.skip_bad)[1]
        features = extract(self.model, pixels, flips(self.checkpoint))

        def searched(of: NamedGallery) -> Ranked:
            widths = self.model.dim, of.gallery.width
            if widths[0] != widths[1]:
                raise InputError(
                    f"{self.checkpoint}: its features have {widths[0]} numbers, but those in the gallery {widths[1]}"
                )
            return _ranked(of, of.norm(features, pixels.camids) if of.norm else features, self.images, self.rate)

        as_is = _option(AS_IS, lambda _: self.named, searched)
        ranked = as_is[1]
        if ranked is None:
            migrated: Option = {"way": MIGRATED, "reason": as_is[0]["reason"]}, None
        else:  # a migrated copy has the same features and therefore the same rankings
            migrated = _option(MIGRATED, self._migrated, lambda _: ranked, folder / "copy.gallery")
        return [as_is, migrated, _option(EXTRACTED, self._extracted, searched, folder / "new.gallery")]

    def _migrated(self, to: Path) -> NamedGallery:
        migrate(self.named.where, to)
        return NamedGallery.load(to)

    def _extracted(self, to: Path) -> NamedGallery:
        return extract_beside(self.named, self.model, self.checkpoint, place_of(to), skip_bad=self.skip_bad)


def _chosen(options: Sequence[Option], limits: Limits) -> tuple[Json, Ranked, bool]:
    """Return the measurements and rankings of the chosen option, and whether it is within the limits."""
    possible = [(figures, ranked) for figures, ranked in options if ranked is not None]
    if not possible:
        raise InputError(f"{options[0][0]['reason']}; {options[-1][0]['reason']}")
    within = [option for option in possible if not limits.broken(option[0])]
    best = min(within or possible, key=lambda option: (option[0]["lost_share"], -option[0]["true_positive_rate"]))
    return *best, bool(within)


def _has_cameras(queries: Sequence[SearchImage], rows: Rows) -> bool:
    """Whether the cameras of all images are known."""
    return rows.cams.dtype == object and None not in {*rows.cams, *(image.camera for image in queries)}


def _ranked(named: NamedGallery, features: np.ndarray, queries: Sequence[SearchImage], rate: float) -> Ranked:
    """Rank the gallery for queries with features (Q, D), and set the threshold for a false accept rate."""
    rows, search = named.gallery.labels(), GallerySearch(named.gallery, DEPTH)
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


def _option(
    name: str, make: Callable[[Path], NamedGallery], rank: Callable[[NamedGallery], Ranked], file: Path | None = None
) -> Option:
    """Measure the cost and the rankings of an option, or return the reason why it is impossible."""
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


def _figures(ranked: Ranked, queries: Queries) -> Json:
    """Compute the metrics of queries in per cent; a metric is None if no query contributes to it."""

    def share(values: np.ndarray) -> float | None:
        return 100 * float(values.mean()) if len(values) else None

    enrolled = queries.enrolled
    return {
        "threshold": ranked.threshold,
        "mAP": share(np.nan_to_num(ranked.ap)[enrolled]),
        "rank1": share(ranked.first[enrolled]),
        "true_positive_rate": share(ranked.recognised[enrolled]),
        "fpir": share(ranked.let_in[queries.unknown]),
    }


def _changes(today: Ranked, new: Ranked, queries: Queries) -> Json:
    """Return the people who are no longer recognised, and the people who are newly recognised."""
    changes: Json = {}
    for end, rule in (("", "recognised"), ("_rank1", "first")):
        before, after = (_of_people(getattr(each, rule), queries) for each in (today, new))
        held, holds = ({name for name, (hits, count) in each.items() if 2 * hits >= count} for each in (before, after))
        changes |= {f"lost{end}": sorted(held - holds), f"gained{end}": sorted(holds - held)}
    return changes | {"lost_share": 100 * len(changes["lost"]) / len(before)}


def _of_people(hits: np.ndarray, queries: Queries) -> dict[str, tuple[int, int]]:
    """Count the hits and the queries of each enrolled person."""
    people, which, counts = np.unique(queries.names[queries.enrolled], return_inverse=True, return_counts=True)
    sums = np.bincount(which, hits[queries.enrolled], len(people)).astype(int)
    return {str(name): (int(hit), int(count)) for name, hit, count in zip(people, sums, counts, strict=True)}


def _people(both: tuple[Ranked, Ranked], queries: Queries) -> list[Json]:
    """For each person, count queries, recognised queries and Rank-1 hits, today and with the new model."""
    counts = [_of_people(getattr(each, rule), queries) for rule in ("recognised", "first") for each in both]
    heads = ("found_today", "found_new", "rank1_today", "rank1_new")
    return [
        {"name": name, "queries": count} | dict(zip(heads, (each[name][0] for each in counts), strict=True))
        for name, (_, count) in counts[0].items()
    ]


def _by(both: tuple[Ranked, Ranked], queries: Queries, groups: dict[str, np.ndarray]) -> Json:
    """Compute metrics of groups of queries, today and with the new model; empty if there is only one group."""
    if len(groups) < 2:
        return {}
    parts = {name: queries.within(group) for name, group in groups.items()}
    return {
        name: {"queries": int(part.enrolled.sum()), "today": _figures(both[0], part), "new": _figures(both[1], part)}
        for name, part in parts.items()
    }


def _enrolment(rows: Rows, names: np.ndarray) -> dict[str, np.ndarray]:
    """Group queries by the time at which their person was enrolled: the earliest time of the person's gallery images.

    Each group has about the same number of people.
    """
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
