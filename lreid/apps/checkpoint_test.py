"""Score the models of checkpoints: metrics as JSON, and a page of ranked images."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from yacs.config import CfgNode

from lreid.build import benchmark_of, evaluator_of, index_of
from lreid.checkpoint import task_checkpoints
from lreid.config import ARGUMENTS, check_values, differing_keys, load_config
from lreid.data.images import read_image
from lreid.data.listing import Pattern, folders_test
from lreid.data.records import Benchmark, QueryGallery, Record
from lreid.errors import InputError, counted, naming_keys
from lreid.evaluation.evaluator import Evaluator
from lreid.evaluation.scoring import score
from lreid.evaluation.test_report import Ranking, described, hardest_rankings, notes_on, row_of
from lreid.evaluation.test_set import ListedTest, TestSet
from lreid.loading import load_model, model_config
from lreid.models.embedder import Embedder
from lreid.models.fingerprint import fingerprint
from lreid.report.rendering import Match, Panel, RankedQuery, Tile, Verdict, ranked_panel, thumbnail, write_ranked
from lreid.report.tables import number
from lreid.results import METRICS, figures_of
from lreid.retrieval.protocols import average_evaluations
from lreid.utils.devices import pick_device
from lreid.utils.files import require_own, write_text
from lreid.utils.identities import DISTRACTOR
from lreid.zoo.names import PREFIX

logger = logging.getLogger("lreid")

SHOWN = 30  # number of rankings per test set on the page
MATRICES = ("mAP", "rank1")  # metrics for which there is a matrix of query models and gallery models
# Config keys that affect the metrics of a test.
SCORING = tuple(f"EVAL.{key}" for key in ("AP", "CAMERA_FILTER", "FLIP", "INDEX", "METRIC", "OUTFITS"))
TESTING = ("BENCHMARK", "DATA", "DEVICE", "EVAL", "INPUT", "MODEL", "SYNTHETIC")  # keys that a test reads

# Measurements in addition to the plain ranking: a row each of features standardised per camera, of k-reciprocal
# re-ranking and of expanded queries, and the galleries of every model searched with the queries of every model.
Measurement = Literal["adapt_norm", "rerank", "expand", "cross_model"]

Features = tuple[np.ndarray, np.ndarray]  # (Q, D), (G, D)


@naming_keys(**ARGUMENTS)
def score_checkpoints(
    paths: Sequence[Path],
    out: Path | None = None,
    *,
    config: Sequence[Path] = (),
    overrides: Sequence[str] = (),
    images: tuple[Path, Path] | Path | None = None,
    extras: Collection[Measurement] = (),
    blur: bool = False,
) -> dict[str, Any]:
    """Score the models of checkpoints and write ``test.json`` and ``ranked.html``.

    The first checkpoint's config determines the test sets, unless config files or images are given.

    Args:
        paths: models as in :func:`lreid.load_model`; a run folder means the checkpoints of all its finished tasks.
        out: output folder; None means ``test/NAME`` in the run folder, or ``…-test/NAME`` next to the checkpoint.
        config, overrides: config files that replace the test sets and ``EVAL`` keys of the run, and ``KEY VALUE`` pairs
            that take precedence.
        images: folders of queries and gallery (see :func:`lreid.data.listing.folders_test`), or a CSV file with the
            splits query and gallery (see :func:`lreid.data.tables.csv_tests`).
        extras: measurements in addition to the plain ranking.
        blur: whether to blur the images on the page.

    Returns:
        The content of ``test.json``, with metrics in per cent. The list ``rows`` has a row per ``checkpoint``, ``test``
        and ``variant``, see :func:`lreid.evaluation.test_report.row_of`. A ``transductive`` variant uses all test
        images before it ranks. The list ``hardest`` contains the queries with the lowest AP by the last checkpoint. The
        entry ``cross_model`` contains matrices ``mAP`` and ``rank1`` with a row per model that extracts queries. Other
        keys are ``tests``, ``metric``, ``ap`` and ``notes``.
    """
    checkpoints = _named(_checkpoints_in(paths))
    cfg = _test_config(checkpoints, config, overrides, image_list=images is not None)
    gallery = images[1] if isinstance(images, tuple) else images
    tested = cfg.BENCHMARK.NAME if gallery is None else _short(gallery)
    out = out or _default_folder(next(iter(checkpoints.values()))) / tested
    require_own(out / "test.json", out / "ranked.html")
    suite = _Suite(cfg, _tests_of(cfg, images))
    if "adapt_norm" in extras and (without := [test.name for test in suite.tests if not test.has_cameras]):
        raise InputError(f"--adapt-norm: the cameras of {without[0]} are unknown; remove the option")
    results, sections = _scored(suite, checkpoints, extras, blur)
    write_text(out / "test.json", json.dumps(results, indent=1) + "\n")
    _write_page(out, list(checkpoints)[-1], results, sections)
    logger.info("figures are in %s, ranked images in %s", out / "test.json", out / "ranked.html")
    return results


def _scored(
    suite: _Suite, checkpoints: dict[str, Path], extras: Collection[Measurement], blur: bool
) -> tuple[dict[str, Any], list[Panel]]:
    """Return the content of ``test.json``, and page sections with the last checkpoint's hardest queries."""
    queries = _queries_of_all(suite, checkpoints) if "cross_model" in extras else {}
    rows: list[dict[str, Any]] = []
    columns: dict[str, list[list[dict[str, float]]]] = {test.name: [] for test in suite.tests}
    hardest, sections, last = {}, [], list(checkpoints)[-1]
    for name, model, test, features in _extracted(suite, checkpoints, queries):
        of = {"checkpoint": name, "model": fingerprint(model), "test": test.name}
        scored = _rows(suite, test, features, extras)
        rows += [of | row for row in scored]
        logger.info("%s on %s: mAP %s", name, test.name, number(scored[0]["mAP"]))
        scores = (score(test, (query, features[1])) for query in queries.get(test.name, {}).values())
        columns[test.name].append([figures_of(average_evaluations(each)) for each in scores])
        if name == last:
            rankings = hardest_rankings(test, features, count=SHOWN)
            sections.append(page_section(test, rankings, scored[0], blur))
            hardest[test.name] = _hardest(test, rankings)
    results = content_of(checkpoints, suite.loaded, rows, metric=suite.cfg.EVAL.METRIC, notes=_notes(rows, suite))
    matrices = _matrices(columns, list(checkpoints)) if queries else []
    return results | {"cross_model": matrices, "hardest": hardest}, sections


def content_of(
    checkpoints: Mapping[str, Path], tests: Sequence[ListedTest], rows: list[dict[str, Any]], **values: Any
) -> dict[str, Any]:
    """Return the content of ``test.json`` without matrices and hardest queries; ``values`` are ``metric`` and notes."""
    return {
        "generator": "lreid",
        "schema": 1,
        "checkpoints": {name: str(path) for name, path in checkpoints.items()},
        "ap": tests[0].rules.ap,
        "tests": [described(test) for test in tests],
        "rows": rows,
        "cross_model": [],
        "hardest": {},
    } | values


def ready(path: Path, device: str = "auto") -> Embedder:
    """Load a model onto a device of this machine, with the memory format in which convolutions are fastest."""
    return load_model(path, device).to(memory_format=torch.channels_last)


class _Suite:
    """The test sets of a test, with their images at the input size of a model."""

    def __init__(self, cfg: CfgNode, tests: Sequence[QueryGallery]) -> None:
        self.cfg, self.tests = cfg, tests
        self.device, self.index = pick_device(cfg.DEVICE), index_of(cfg)
        self.evaluators: dict[tuple[int, int], Evaluator] = {}

    def evaluator(self, model: Embedder) -> Evaluator:
        size = (model.height, model.width)
        if size not in self.evaluators:
            cfg = self.cfg.clone()
            cfg.defrost()
            cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH = size
            self.evaluators[size] = evaluator_of(cfg, Benchmark("", (), tuple(self.tests)), model.dim)
        return self.evaluators[size]

    @property
    def loaded(self) -> Sequence[TestSet]:
        """Return the test sets with loaded images, at the first input size that was used."""
        return next(iter(self.evaluators.values())).tests

    @property
    def skipped(self) -> list[str]:
        return sorted({path for evaluator in self.evaluators.values() for path in evaluator.skipped})


def _tests_of(cfg: CfgNode, images: tuple[Path, Path] | Path | None) -> Sequence[QueryGallery]:
    """Return the test sets of the given images, or else those of the benchmark in the config."""
    if images is None:
        return benchmark_of(cfg).tests
    if not isinstance(images, tuple):
        from lreid.data.tables import csv_tests  # most tests need no tables

        return csv_tests(images, Path(cfg.DATA.ROOT))
    return [folders_test(*images, Pattern(cfg.DATA.PATTERN) if cfg.DATA.PATTERN else None)]


def _queries_of_all(suite: _Suite, checkpoints: dict[str, Path]) -> dict[str, dict[str, np.ndarray]]:
    """Return for every test set the query features (Q, D) by every model."""
    # Queries come before galleries, so that only one gallery at a time is in memory.
    queries: dict[str, dict[str, np.ndarray]] = {test.name: {} for test in suite.tests}
    widths = {}
    for name, path in checkpoints.items():
        model = ready(path, suite.cfg.DEVICE)
        evaluator = suite.evaluator(model)
        widths[name] = model.dim
        for test in evaluator.tests:
            queries[test.name][name] = evaluator.extract(model, test.query)
    if len(set(widths.values())) > 1:
        lengths = ", ".join(f"{name} {width}" for name, width in widths.items())
        raise InputError(f"--cross-model: features of different lengths cannot be compared ({lengths})")
    return queries


def _extracted(
    suite: _Suite, checkpoints: dict[str, Path], queries: dict[str, dict[str, np.ndarray]]
) -> Iterator[tuple[str, Embedder, TestSet, Features]]:
    """Yield each pair of model and test set, with the features that are not among ``queries`` extracted now."""
    for name, path in checkpoints.items():
        model = ready(path, suite.cfg.DEVICE)
        evaluator = suite.evaluator(model)
        for test in evaluator.tests:
            query = queries[test.name][name] if queries else evaluator.extract(model, test.query)
            yield name, model, test, (query, evaluator.extract(model, test.gallery))


def _rows(suite: _Suite, test: TestSet, features: Features, extras: Collection[Measurement]) -> list[dict[str, Any]]:
    """Compute the metrics of all requested variants, beginning with the plain ranking."""
    flat = suite.index if suite.index and suite.index.index == "flat" else None  # other kinds affect only their own row
    plain: dict[str, Any] = {"index": flat, "cost": False, "device": suite.device}

    def row(variant: str, transductive: bool, test: ListedTest, both: Features, **options: Any) -> dict[str, Any]:
        figures = row_of(test, both, **(plain | options))
        return {"variant": variant, "transductive": transductive} | figures

    rows = [row("plain", False, test, features)]
    if suite.index and not flat:
        rows.append(row(f"index {suite.index.index}", False, test, features, index=suite.index, cost=True))
    if "expand" in extras:
        from lreid.retrieval.rerank import expand_queries

        expanded = expand_queries(*features, device=suite.device).cpu().numpy()
        # Expanded queries are unit vectors, so they are compared by cosine similarity.
        rows.append(row("expanded queries", False, test.by("cosine"), (expanded, features[1])))
    if "rerank" in extras:
        from lreid.retrieval.rerank import KReciprocal

        rows.append(row("re-ranked", True, test, features, index=None, rerank=KReciprocal()))
    if "adapt_norm" in extras:
        from lreid.retrieval.camera_norm import CameraNorm

        cameras = test.query.camids, test.gallery.camids
        of_cameras = CameraNorm.estimate(np.concatenate(features), np.concatenate(cameras))
        query, gallery = (of_cameras(part, each) for part, each in zip(features, cameras, strict=True))
        rows.append(row("adapt-norm features", True, test.by("cosine"), (query, gallery)))
    return rows


def _matrices(columns: dict[str, list[list[dict[str, float]]]], models: list[str]) -> list[dict[str, Any]]:
    """Combine columns, each of one gallery, into a matrix per test set; a row has the queries of one model."""
    return [
        {"test": test, "checkpoints": models}
        | {metric: [[column[row][metric] for column in matrix] for row in range(len(models))] for metric in MATRICES}
        for test, matrix in columns.items()
    ]


def _hardest(test: TestSet, rankings: Sequence[Ranking]) -> list[dict[str, Any]]:
    """Return the rankings of the hardest queries, shortened for JSON."""
    queries = [test.query.records[each.query] for each in rankings]
    return [
        {
            "query": query.path,
            "identity": test.test.names.identities.get(query.pid, str(query.pid)),
            "ap": each.ap,
            "first_match": each.first_match,
        }
        for query, each in zip(queries, rankings, strict=True)
    ]


def _write_page(out: Path, name: str, results: dict[str, Any], sections: Sequence[Panel]) -> None:
    """Write ``ranked.html`` with the rankings of a checkpoint."""
    kind = "cosine similarity" if results["metric"] == "cosine" else "distance"
    intro = [
        f"Checkpoint {results['checkpoints'][name]}. The page shows the nearest gallery images of each query; the "
        "hardest queries come first.",
        f"Below each image are rank, {kind}, identity and camera. If the first image of the query's identity ranks "
        "lower, it is shown after a line.",
    ]
    links = [("test.json", "test.json")]
    if (out.resolve() / "../../report.html").exists():  # the folder is in that of a run
        links.append(("report", "../../report.html"))
    write_ranked(out / "ranked.html", f"Ranked images, {name}", intro, sections, links=links)


def _checkpoints_in(paths: Sequence[Path]) -> list[Path]:
    """Return the checkpoint files; a run folder means the checkpoints of all its finished tasks."""
    checkpoints = []
    for path in paths:
        if path.is_dir():
            inside = path / "checkpoints" if (path / "checkpoints").is_dir() else path
            files = list(task_checkpoints(inside).values())
            if not files:
                raise InputError(f"{path}: contains no task-01.pt …; pass a run folder with a finished task, or a file")
            checkpoints += files
        else:
            checkpoints.append(path)
    return list(dict.fromkeys(checkpoints))


def _named(paths: Sequence[Path]) -> dict[str, Path]:
    """Return the checkpoints by name, where names are as short as possible but different."""
    runs = [path.parent.parent if path.parent.name == "checkpoints" else path.parent for path in paths]
    short = [path.stem for path in paths]
    with_run = [f"{run.resolve().name}/{name}" for run, name in zip(runs, short, strict=True)]
    names = next((each for each in (short, with_run) if len(set(each)) == len(paths)), list(map(str, paths)))
    return dict(zip(names, paths, strict=True))


def _test_config(
    checkpoints: dict[str, Path], files: Sequence[Path], overrides: Sequence[str], *, image_list: bool
) -> CfgNode:
    """Return the config that defines the test sets and the evaluation."""
    named = load_config(files, overrides) if files else None
    configs = {path: named or model_config(path, overrides) for path in checkpoints.values()}
    (first, cfg), *others = configs.items()
    groups = SCORING if image_list else ("BENCHMARK.", "SYNTHETIC.", *SCORING)
    for path, other in others:
        changed = [key for key in differing_keys(cfg, other) if key.startswith(groups)]
        if changed:
            raise InputError(
                f"{path}: its config and that of {first} define different tests ({', '.join(changed)} differ); choose "
                "the tests by --config"
            )
    check_values(cfg, TESTING)
    return cfg


def _short(path: Path) -> str:
    """Name a folder or file by the last two parts of its path."""
    path = path.resolve()
    return f"{path.parent.name}-{path.stem}".strip("-")


def _default_folder(checkpoint: Path) -> Path:
    checkpoint = Path(str(checkpoint).removeprefix(PREFIX))
    if checkpoint.parent.name == "checkpoints":
        return checkpoint.parent.parent / "test"
    return checkpoint.parent / f"{checkpoint.stem}-test"


def _notes(rows: Sequence[dict[str, Any]], suite: _Suite) -> list[str]:
    """Return the notes to print below the table, one line each."""
    notes = []
    for test in suite.loaded:
        notes += notes_on(test, next(row for row in rows if row["test"] == test.name))
    if any(row["transductive"] for row in rows):
        notes.append("transductive rows use all test images before ranking; do not compare them with other rows")
    if suite.skipped:
        notes.append(f"skipped {counted(len(suite.skipped), 'image')} that cannot be read, such as {suite.skipped[0]}")
    return notes


class Shown:
    """Create tiles and rankings from the images of a test set."""

    def __init__(self, test: TestSet, blur: bool, look: Callable[[str], np.ndarray] = read_image) -> None:
        self.test, self.blur, self.look = test, blur, look
        self.query, self.gallery = test.query.records, test.gallery.records
        self.looked_for = {record.pid for record in self.query}

    def tile(self, record: Record) -> Tile:
        """Create the tile of an image, with identity and camera as text."""
        names = self.test.test.names
        nobody = record.pid == DISTRACTOR and DISTRACTOR not in {*self.looked_for, *names.identities}
        who = "distractor" if nobody else names.identity(record.pid)
        labels = (who, names.camera(record.camid)) if record.camid >= 0 else (who,)
        return Tile(thumbnail(self.look(record.path), blur=self.blur), record.path, labels)

    def ranking(self, ranking: Ranking) -> RankedQuery:
        """Create the tiles of a query and of the first images in its ranking."""
        pid = self.query[ranking.query].pid
        return RankedQuery(
            self.tile(self.query[ranking.query]),
            f"AP {number(ranking.ap)} %, first of {ranking.num_matches} matches at rank {ranking.first_match}",
            [
                Match(rank, f"{value:.3f}", self._verdict(self.gallery[row], pid), self.tile(self.gallery[row]))
                for rank, row, value in zip(ranking.ranks, ranking.rows, ranking.scores, strict=True)
            ],
        )

    def _verdict(self, record: Record, pid: int) -> Verdict:
        return "right" if record.pid == pid else "wrong" if record.pid in self.looked_for else "distractor"


def page_section(
    test: TestSet,
    rankings: Sequence[Ranking],
    metrics: Mapping[str, float],
    blur: bool,
    look: Callable[[str], np.ndarray] = read_image,
) -> Panel:
    """Create a page section with the hardest queries of a test set, and the first images of their rankings."""
    shown = Shown(test, blur, look)
    height, width = read_image(shown.query[0].path).shape[:2]
    figures = ", ".join(f"{metric.label} {number(metrics[metric.name])}" for metric in METRICS)
    note = (
        f"{figures}. {counted(len(shown.query), 'query')}, {counted(len(shown.gallery), 'gallery image')}; "
        f"the {len(rankings)} hardest queries."
    )
    return ranked_panel(test.name, note, [shown.ranking(each) for each in rankings], wide=width > height)
