"""Test trained models: figures as a table and JSON, ranked images as a page."""

from __future__ import annotations

import argparse
import json
import logging
import re
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from yacs.config import CfgNode

from lreid.apps.gallery_test import score_gallery
from lreid.apps.rankings import page_section
from lreid.build import benchmark_of, evaluator_of, index_of
from lreid.checkpoint import task_checkpoints
from lreid.config import ARGUMENTS, check_values, differing_keys, load_config
from lreid.data.images import Images
from lreid.data.listing import OwnTest, csv_tests, folders_test
from lreid.data.records import Benchmark, QueryGallery
from lreid.devices import pick_device
from lreid.errors import InputError, counted, naming_keys
from lreid.evaluation.evaluator import Evaluator
from lreid.evaluation.scoring import hardest_rankings, notes_on, score
from lreid.files import require_writable, write_text
from lreid.gallery.places import SCHEME
from lreid.loading import load_model, model_config
from lreid.models.adapt import AdaptedNorm
from lreid.models.embedder import Embedder
from lreid.models.fingerprint import fingerprint
from lreid.report import ranked
from lreid.report.tables import cross_model_table, index_table, number, score_table
from lreid.retrieval import CameraNorm
from lreid.retrieval.rerank import KReciprocal, expand_queries
from lreid.zoo import PREFIX

logger = logging.getLogger("lreid")

SHOWN = 30  # rankings a test set on the page

Features = tuple[np.ndarray, np.ndarray]  # (Q, D), (G, D)

KEY = re.compile(r"[A-Z][A-Z0-9_]*(\.[A-Z0-9_]+)*")


def run(args: argparse.Namespace) -> None:
    """Tests, writes both files and prints the table."""
    if (args.query is None) != (args.gallery is None):
        raise InputError("--query and --gallery go together; give both")
    if args.query and args.csv:
        raise InputError("--csv and --query are two ways to name images; give one of them")
    # The list of checkpoints takes in the KEY VALUE pairs that follow it.
    files = list(takewhile(lambda word: not KEY.fullmatch(word) or Path(word).exists(), args.checkpoint))
    overrides = args.checkpoint[len(files) :] + args.overrides
    if args.gallery and (args.gallery.startswith(SCHEME) or Path(args.gallery).is_file()):
        _test_gallery(args, [Path(file) for file in files], overrides)
        return
    results = score_checkpoints(
        [Path(file) for file in files],
        args.out,
        config=args.config,
        overrides=overrides,
        folders=(args.query, Path(args.gallery)) if args.query else None,
        csv=args.csv,
        adapt_norm=args.adapt_norm,
        rerank=args.rerank,
        expand=args.expand,
        cross_model=args.cross_model,
        blur=args.blur,
    )
    print(f"\n{score_table(results)}")
    if any("index" in row for row in results["rows"]):
        print(f"\n{index_table(results)}")
    if args.cross_model:
        print(f"\n{cross_model_table(results)}")


def _test_gallery(args: argparse.Namespace, checkpoints: Sequence[Path], overrides: Sequence[str]) -> None:
    for name in ("config", "adapt_norm", "rerank", "expand", "cross_model", "blur"):
        if getattr(args, name) not in (None, False, []):
            raise InputError(
                f"--{name.replace('_', '-')}: {args.gallery} is searched as it is; give a folder, or leave it out"
            )
    if len(checkpoints) > 1:
        raise InputError(f"--checkpoint: {args.gallery} is of one model; name one, or none for the one it knows")
    checkpoint = checkpoints[0] if checkpoints else None
    out = args.out or Path(f"{args.gallery.removeprefix(SCHEME).strip('/').split('/')[-1]}-test")
    results = score_gallery(args.gallery, args.query, checkpoint=checkpoint, out=out, overrides=overrides)
    print(f"\n{score_table(results)}")
    if any("index" in row for row in results["rows"]):
        print(f"\n{index_table(results)}")


@naming_keys(**ARGUMENTS)
def score_checkpoints(
    paths: Sequence[Path],
    out: Path | None = None,
    *,
    config: Sequence[Path] = (),
    overrides: Sequence[str] = (),
    folders: tuple[Path, Path] | None = None,
    csv: Path | None = None,
    adapt_norm: Literal["gallery", "camera", "features"] | None = None,
    rerank: bool = False,
    expand: bool = False,
    cross_model: bool = False,
    blur: bool = False,
) -> dict[str, Any]:
    """Scores the models of checkpoints and writes ``test.json`` and ``ranked.html``.

    The test sets are those of the first checkpoint's config, unless another config, folders or a CSV file are given.

    Args:
        paths: models of :func:`lreid.load_model`, or run folders for the checkpoints of all their finished tasks.
        out: folder to write to; None means ``test/NAME`` in the run folder, or ``…-test/NAME`` beside the first
            checkpoint, with a name for the benchmark, the gallery's folder or the CSV file that is tested on.
        config: files of another config for the test sets and ``EVAL``.
        overrides: ``KEY VALUE`` pairs on top of either config.
        folders: queries and gallery, see :func:`lreid.data.listing.folders_test`.
        csv: file with the splits query and gallery, see :func:`lreid.data.listing.csv_tests`.
        adapt_norm: more rows, with BatchNorm statistics of the gallery or of each of its cameras, or with features
            standardised by camera.
        rerank: more rows, with k-reciprocal re-ranking.
        expand: more rows, with expanded queries.
        cross_model: the mAP of every model's queries in every model's gallery as well.
        blur: blur the images of the page.

    Returns:
        The content of ``test.json``; all in per cent:

        * ``rows``: figures of :func:`lreid.evaluation.scoring.score` for each ``checkpoint``, ``test`` and ``variant``
          (``plain``, which is exact; ``index NAME`` with ``EVAL.BACKEND faiss``; ``expanded queries``, ``re-ranked``,
          ``adapt-norm gallery`` …); ``transductive`` marks those that look at all queries together or adapt to the
          gallery's images;
        * ``tests``, ``metric``, ``ap``, ``camera_filter``, ``notes``;
        * ``hardest``: the last checkpoint's queries of lowest AP, by test set;
        * ``cross_model``: if wanted, matrices ``mAP`` and ``rank1``, a row for each query model.

    Raises:
        InputError: a checkpoint, the config, the data or the combination of arguments does not fit.
    """
    if not paths:
        raise InputError("--checkpoint: none is named; name a file, a run folder or zoo:NAME")
    checkpoints = _named(_checkpoints_in(paths))
    cfg = _test_config(checkpoints, config, overrides, own_images=folders is not None or csv is not None)
    tested = _short(folders[1]) if folders else _short(csv) if csv else cfg.BENCHMARK.NAME
    out = out or _default_folder(next(iter(checkpoints.values()))) / tested
    require_writable(out / "test.json")
    own = [folders_test(*folders)] if folders else csv_tests(csv) if csv else None
    tests = tuple(each.test for each in own) if own else benchmark_of(cfg).tests
    suite = _Suite(cfg, tests, own)
    if adapt_norm in ("camera", "features") and (
        lacking := [test.name for test in tests if not suite.has_cameras(test)]
    ):
        raise InputError(
            f"--adapt-norm {adapt_norm}: the cameras of {lacking[0]} are not known; use --adapt-norm gallery"
        )
    # For the matrix the queries of all models are there before the first gallery, so only one gallery is held.
    queries: dict[str, list[np.ndarray]] = {}
    if cross_model:
        queries = {name: suite.query_features(load_model(path)) for name, path in checkpoints.items()}
        _require_one_width(queries)

    rows: list[dict[str, Any]] = []
    columns: dict[str, list[list[dict[str, Any]]]] = {test.name: [] for test in tests}  # of the matrices
    hardest, sections = {}, []
    last = next(reversed(checkpoints))
    for name, path in checkpoints.items():
        model = suite.ready(load_model(path))
        known = {"checkpoint": name, "model": fingerprint(model)}
        for place, (test, images) in enumerate(zip(tests, suite.images(model), strict=True)):
            query = queries[name][place] if cross_model else suite.extract(model, images[0])
            features = query, suite.extract(model, images[1])
            variants = _variants(suite, model, test, images, features, adapt_norm, rerank, expand)
            rows += [known | {"test": test.name} | figures for figures in variants]
            logger.info("%s on %s: mAP %s", name, test.name, number(variants[0]["mAP"]))
            protocol = suite.protocol(test)
            columns[test.name].append(
                [
                    score(test, images, (other[place], features[1]), **protocol, open_set=False)
                    for other in queries.values()
                ]
            )
            if name == last:
                rankings = hardest_rankings(test, images, features, **protocol, count=SHOWN)
                sections.append(page_section(test, images, rankings, variants[0], blur))
                hardest[test.name] = [
                    {
                        "query": (query := images[0].records[each.query]).path,
                        "identity": test.names.identities.get(query.pid, str(query.pid)),
                        "ap": each.ap,
                        "first_match": each.first_match,
                    }
                    for each in rankings
                ]

    results: dict[str, Any] = {
        "schema": 1,
        "checkpoints": {name: str(path) for name, path in checkpoints.items()},
        "metric": cfg.EVAL.METRIC,
        "ap": cfg.EVAL.AP,
        "tests": [
            {
                "name": test.name,
                "queries": len(test.query),
                "gallery": len(test.gallery),
                "camera_filter": suite.protocol(test)["camera_filter"],
            }
            for test in tests
        ],
        "rows": rows,
        "cross_model": [
            {"test": test, "checkpoints": list(checkpoints)}
            | {
                metric: [[column[model][metric] for column in matrix] for model in range(len(queries))]
                for metric in ("mAP", "rank1")
            }
            for test, matrix in columns.items()
            if cross_model
        ],
        "hardest": hardest,
        "notes": _notes(rows, suite),
    }
    write_text(out / "test.json", json.dumps(results, indent=1) + "\n")
    kind = "cosine similarity" if cfg.EVAL.METRIC == "cosine" else "distance"
    intro = [
        f"Checkpoint {checkpoints[last]}. For each query the nearest images of the gallery, hardest queries first.",
        f"Under each: its rank, {kind}, identity and camera. Behind a line: the first right one, if it comes later.",
    ]
    ranked.write_ranked(out / "ranked.html", f"Ranked images, {last}", intro, sections, links=_links(out))
    logger.info("figures in %s, images in %s", out / "test.json", out / "ranked.html")
    return results


class _Suite:
    """The test sets, their images at the size a model wants, and how they are scored."""

    def __init__(self, cfg: CfgNode, tests: Sequence[QueryGallery], own: Sequence[OwnTest] | None) -> None:
        self.cfg, self.tests = cfg, tests
        self.own = {each.test.name: each for each in own or ()}
        self.device = pick_device(cfg.DEVICE)
        self.evaluators: dict[tuple[int, int], Evaluator] = {}

    def ready(self, model: Embedder) -> Embedder:
        return model.to(self.device).to(memory_format=torch.channels_last)

    def evaluator(self, model: Embedder) -> Evaluator:
        size = (model.height, model.width)
        if size not in self.evaluators:
            cfg = self.cfg.clone()
            cfg.defrost()
            cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH = size
            # The evaluator refuses tests without a match; with unknown cameras the filter is off.
            cfg.EVAL.CAMERA_FILTER = all(self.protocol(test)["camera_filter"] for test in self.tests)
            self.evaluators[size] = evaluator_of(cfg, Benchmark("", (), tuple(self.tests)), model.dim)
        return self.evaluators[size]

    def images(self, model: Embedder) -> list[tuple[Images, Images]]:
        return self.evaluator(model).images

    def extract(self, model: Embedder, images: Images) -> np.ndarray:
        return model.extract(images, **self.evaluator(model).extraction)

    def query_features(self, model: Embedder) -> list[np.ndarray]:
        model = self.ready(model)
        return [self.extract(model, query) for query, _ in self.images(model)]

    def has_cameras(self, test: QueryGallery) -> bool:
        return test.name not in self.own or self.own[test.name].has_cameras

    def protocol(self, test: QueryGallery) -> dict[str, Any]:
        evaluation = self.cfg.EVAL
        return {
            "metric": evaluation.METRIC,
            "ap": evaluation.AP,
            "camera_filter": evaluation.CAMERA_FILTER and self.has_cameras(test),
        }

    @property
    def skipped(self) -> list[str]:
        return sorted({path for evaluator in self.evaluators.values() for path in evaluator.skipped})


def _variants(
    suite: _Suite,
    model: Embedder,
    test: QueryGallery,
    images: tuple[Images, Images],
    features: Features,
    adapt_norm: str | None,
    rerank: bool,
    expand: bool,
) -> list[dict[str, Any]]:
    """Figures of every wanted way to compare, the plain one first."""
    query, gallery = features
    protocol = suite.protocol(test)

    def row(variant: str, transductive: bool, both: Features, **options: Any) -> dict[str, Any]:
        figures = score(test, images, both, **(protocol | {"device": suite.device} | options))
        return {"variant": variant, "transductive": transductive} | figures

    rows = [row("plain", False, features)]
    if index := index_of(suite.cfg):
        rows.append(row(f"index {index.index}", False, features, index=index))
    if expand:
        expanded = expand_queries(query, gallery, device=suite.device).cpu().numpy()
        # Expanded queries are unit vectors, which can be compared by cosine similarity alone.
        rows.append(row("expanded queries", False, (expanded, gallery), metric="cosine"))
    if rerank:
        rows.append(row("re-ranked", True, features, rerank=KReciprocal(), open_set=False))
    if adapt_norm == "features":
        of_cameras = CameraNorm.estimate(np.concatenate(features), np.concatenate([each.camids for each in images]))
        standard = [of_cameras(part, each.camids) for part, each in zip(features, images, strict=True)]
        rows.append(row("adapt-norm features", True, (standard[0], standard[1]), metric="cosine"))
    elif adapt_norm:
        extraction = suite.evaluator(model).extraction
        norm = _adapted_norm(model, *images, by_camera=adapt_norm == "camera", batch_size=extraction["batch_size"])
        adapted = [norm.extract(model, each, each.camids, **extraction) for each in images]
        rows.append(row(f"adapt-norm {adapt_norm}", True, (adapted[0], adapted[1])))
    return rows


def _adapted_norm(model: Embedder, query: Images, gallery: Images, *, by_camera: bool, batch_size: int) -> AdaptedNorm:
    """Statistics of the gallery; those of cameras that it has no images of are of the queries."""
    norm = AdaptedNorm.estimate(model, gallery, gallery.camids if by_camera else None, batch_size=batch_size)
    elsewhere = ~np.isin(query.camids, gallery.camids)
    if not by_camera or not elsewhere.any():
        return norm
    of_queries = AdaptedNorm.estimate(model, query, np.where(elsewhere, query.camids, -1), batch_size=batch_size)
    return AdaptedNorm(norm.whole, norm.cameras | of_queries.cameras)


def _require_one_width(queries: dict[str, list[np.ndarray]]) -> None:
    widths = {name: features[0].shape[1] for name, features in queries.items()}
    if len(set(widths.values())) > 1:
        told = ", ".join(f"{name} {width}" for name, width in widths.items())
        raise InputError(f"--cross-model: features of different lengths cannot be compared ({told})")


def _checkpoints_in(paths: Sequence[Path]) -> list[Path]:
    """The files that are meant: of a run folder those of its finished tasks."""
    found = []
    for path in paths:
        if path.is_dir():
            inside = path / "checkpoints" if (path / "checkpoints").is_dir() else path
            files = list(task_checkpoints(inside).values())
            if not files:
                raise InputError(f"{path}: holds no task-01.pt …; name a run folder with a finished task, or a file")
            found += files
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def _named(paths: Sequence[Path]) -> dict[str, Path]:
    """Checkpoints by the shortest names that tell them apart."""
    runs = [path.parent.parent if path.parent.name == "checkpoints" else path.parent for path in paths]
    candidates: tuple[Callable[[Path, Path], str], ...] = (
        lambda path, _: path.stem,
        lambda path, run: f"{run.resolve().name}/{path.stem}",
        lambda path, _: str(path),
    )
    for name in candidates:
        names = {name(path, run): path for path, run in zip(paths, runs, strict=True)}
        if len(names) == len(paths):
            break
    return names


def _test_config(
    checkpoints: dict[str, Path], files: Sequence[Path], overrides: Sequence[str], *, own_images: bool
) -> CfgNode:
    """The config that says what to test on and how.

    Raises:
        InputError: a value is out of range, or the checkpoints were made for different benchmarks.
    """
    named = load_config(files, overrides) if files else None
    configs = {path: named or model_config(path, overrides) for path in checkpoints.values()}
    (first, cfg), *others = configs.items()
    groups = ("EVAL.",) if own_images else ("BENCHMARK.", "SYNTHETIC.", "EVAL.")
    for path, other in others:
        changed = [key for key in differing_keys(cfg, other) if key.startswith(groups)]
        if changed:
            raise InputError(
                f"{path}: its config is not for the same tests as that of {first} ({', '.join(changed)} differ); "
                "name one with --config"
            )
    check_values(cfg)
    return cfg


def _short(path: Path) -> str:
    """A name for a folder or a file that others like it elsewhere do not have."""
    path = path.resolve()
    return f"{path.parent.name}-{path.stem}".strip("-")


def _links(out: Path) -> list[tuple[str, str]]:
    """From the page of a test to its figures, and to the report of the run that it lies in."""
    report = out.parents[1] / "report.html" if len(out.parents) > 1 else out
    return [("test.json", "test.json"), *([("report", "../../report.html")] if report.exists() else [])]


def _default_folder(checkpoint: Path) -> Path:
    checkpoint = Path(str(checkpoint).removeprefix(PREFIX))
    if checkpoint.parent.name == "checkpoints":
        return checkpoint.parent.parent / "test"
    return checkpoint.parent / f"{checkpoint.stem}-test"


def _notes(rows: Sequence[dict[str, Any]], suite: _Suite) -> list[str]:
    """What a reader of the table must know, one line each."""
    notes = []
    for test in suite.tests:
        figures = next(row for row in rows if row["test"] == test.name)
        itself = 0 if suite.protocol(test)["camera_filter"] else test.in_gallery
        notes += notes_on(test.name, figures, len(test.query), has_cameras=suite.has_cameras(test), itself=itself)
    if any(row["transductive"] for row in rows):
        notes.append("transductive: used all test images before ranking; does not compare with rows that did not")
    if suite.skipped:
        notes.append(
            f"skipped {counted(len(suite.skipped), 'image')} that cannot be read, the first: {suite.skipped[0]}"
        )
    return notes
