"""Show images of a run: rankings, activation maps, and maps of features before and after a task.

Making these images needs the checkpoints and the data of the run, unlike :mod:`lreid.report`, which needs only results.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lreid.apps.checkpoint_test import Shown, page_section, ready
from lreid.build import benchmark_of, evaluator_of
from lreid.checkpoint import task_checkpoints
from lreid.config import ARGUMENTS
from lreid.data.images import read_image
from lreid.errors import naming_keys
from lreid.evaluation.scoring import score
from lreid.evaluation.test_report import hardest_rankings
from lreid.evaluation.test_set import TestSet
from lreid.loading import model_config
from lreid.models.embedder import Embedder
from lreid.report import rendering
from lreid.report.rendering import Panel, inside, panel
from lreid.report.scatter import Dot, common_box, dot_keys, scatter
from lreid.report.sections import HARDEST, IdentityKey, Pictures, finished, hardest_identities, most_forgotten
from lreid.report.tables import Group, grouped
from lreid.results import Results, figures_of
from lreid.retrieval.arrays import unit_rows
from lreid.retrieval.protocols import average_evaluations
from lreid.utils.extras import Extra

RANKINGS, LOOKED_INTO = 10, 4  # number of queries with matches on the page, and number of queries with activation maps
ON_THE_MAP = 10  # number of identities on a map of features
PER_IDENTITY = 12  # maximum number of images per identity


@naming_keys(**ARGUMENTS)
def image_sections(run: Path, *, blur: bool = False) -> list[Panel]:
    """Make sections about each test set of a run, for :func:`lreid.report.write_page`.

    The sections show the hardest queries of the last model, with frames around gallery images that mark them as right
    or wrong. The hardest of the queries are also shown with activation maps. Further maps show features of test
    identities before and after the last task.

    Args:
        run: run folder with checkpoints; the data sets of the run must exist.
        blur: whether to blur the images.
    """
    cfg = model_config(run)
    checkpoints = task_checkpoints(run / "checkpoints")
    models = {f"after task {task}": ready(checkpoints[task]) for task in list(checkpoints)[-2:]}
    model = next(reversed(models.values()))
    evaluator = evaluator_of(cfg, benchmark_of(cfg))

    rankings, maps = [], []
    for test in evaluator.tests:
        features = evaluator.features(model, test)
        metrics = figures_of(average_evaluations(score(test, features)))
        hardest = hardest_rankings(test, features, count=RANKINGS)
        shown = page_section(test, hardest, metrics, blur)
        rankings.append(shown._replace(title=f"Ranked matches, {test.name}"))
        blank = torch.zeros(1, 3, model.height, model.width, device=model.mean.device)
        if activation_maps(model, blank) is not None:
            shown = page_section(test, hardest[:LOOKED_INTO], metrics, blur, look=partial(_attended, model))
            note = (
                "The same images, bright where the last feature map has a large norm (Euclidean, over its channels; "
                "scaled per image from the smallest to the largest). The maps show where the features are strong, "
                "but not why an image has its rank."
            )
            rankings.append(shown._replace(title=f"Activation maps, {test.name}", note=note))
        maps.append(_feature_maps(test, models))
    return [*rankings, *maps]


def images_of_runs(folders: Sequence[Path], runs: Sequence[Results], *, blur: bool) -> tuple[list[Panel], Pictures]:
    """Return page sections about the first run of each group, and images of identities."""
    groups = grouped(runs)
    places = {id(run): folder for run, folder in zip(runs, folders, strict=True)}
    first = {group.name: places[id(group.runs[0])] for group in groups}
    sections: list[Panel] = []
    for group in groups:
        shown = image_sections(first[group.name], blur=blur)
        sections += [inside(f"Images, {group.method} on {group.benchmark}", group.name, shown)] if groups[1:] else shown
    return sections, pictures_of(groups, first, blur=blur)


def pictures_of(groups: Sequence[Group], folders: Mapping[str, Path], *, blur: bool = False) -> Pictures:
    """Make images of the hardest identities, and of the rankings of the most forgotten identities.

    The rankings are shown after every task of each method.

    Args:
        groups: groups of all runs on a page.
        folders: folder of the first run in each group, by :attr:`Group.name`. The folder must have checkpoints, and the
            data sets of the run must exist.
        blur: whether to blur the images.
    """
    faces: dict[IdentityKey, rendering.Tile] = {}
    rankings: dict[tuple[IdentityKey, str], list[tuple[int, rendering.RankedQuery]]] = {}
    for benchmark in dict.fromkeys(group.benchmark for group in groups):
        members = [group for group in groups if group.benchmark == benchmark]
        forgotten = {(each.gallery, each.identity) for each in most_forgotten(members)}
        hard = hardest_identities(finished([run for group in members for run in group.runs]))[:HARDEST]
        wanted = forgotten | {(each.gallery, each.number) for each in hard}
        for group in members:
            cfg = model_config(folders[group.name])
            checkpoints = task_checkpoints(folders[group.name] / "checkpoints")
            evaluator = evaluator_of(cfg, benchmark_of(cfg))
            shown = [Shown(test, blur) for test in evaluator.tests]
            chosen: list[dict[int, int]] = []  # per test set, the first query of each identity
            for each in shown:
                first = {record.pid: row for row, record in reversed(list(enumerate(each.query)))}
                chosen.append({pid: first[pid] for name, pid in wanted if name == each.test.name and pid in first})
                for pid, row in chosen[-1].items():
                    faces.setdefault((benchmark, each.test.name, pid), each.tile(each.query[row]))
            for task, path in checkpoints.items() if forgotten else ():
                model = ready(path)
                for each, rows in zip(shown, chosen, strict=True):
                    people = {row: pid for pid, row in rows.items() if (each.test.name, pid) in forgotten}
                    if not people:
                        continue
                    features = evaluator.features(model, each.test)
                    hardest = hardest_rankings(each.test, features, count=len(people), depth=5, among=people)
                    for ranking in hardest:
                        key = (benchmark, each.test.name, people[ranking.query])
                        rankings.setdefault((key, group.name), []).append((task, each.ranking(ranking)))
    return Pictures(faces, rankings)


@torch.inference_mode()
def activation_maps(model: Embedder, images: Tensor) -> np.ndarray | None:
    """Compute the norm of a network's last feature map at each position, without gradients.

    Source: Zagoruyko and Komodakis, "Paying More Attention to Attention", ICLR 2017, Section 3.1. The paper sums
    ``|A|^p`` over the channels of the feature map A; this function computes the root of this sum for ``p = 2``.

    Args:
        model: network in evaluation mode.
        images: (B, 3, H, W) float, normalised.

    Returns:
        Maps (B, h, w) float32 in [0, 1], scaled from the smallest to the largest norm of each image (0 if all are
        equal); None if the backbone returns vectors.
    """
    features = model.backbone(images)
    if features.ndim != 4:
        return None
    norms = features.float().norm(dim=1)  # (B, h, w)
    low, high = norms.amin((1, 2), keepdim=True), norms.amax((1, 2), keepdim=True)
    return ((norms - low) / (high - low).clamp(min=1e-12)).cpu().numpy()


def overlay(image: np.ndarray, heat: np.ndarray) -> np.ndarray:
    """Draw a map (h, w) in [0, 1] in colours over a grey image; the argument and the result are (H, W, 3) uint8."""
    height, width = image.shape[:2]
    large = Image.fromarray(heat.astype(np.float32)).resize((width, height), Image.Resampling.BILINEAR)
    colours = 255 * Extra("matplotlib", "plots").colormaps["inferno"](np.asarray(large))[..., :3]  # (H, W, 3)
    grey = image.mean(2, keepdims=True)  # (H, W, 1)
    return (0.4 * grey + 0.6 * colours).round().astype(np.uint8)


def common_plane(*features: np.ndarray) -> tuple[list[np.ndarray], float]:
    """Project sets of features of unit length onto the plane of their two principal components.

    The sign of each component makes its largest entry positive, so that the result is reproducible.

    Args:
        features: sets of features (n_i, D) float, which this function scales to unit length; D > 1.

    Returns:
        The points (n_i, 2) of each set, and the plane's share of the variance, in [0, 1].
    """
    together = np.concatenate([unit_rows(torch.from_numpy(each).double(), "features").numpy() for each in features])
    centred = together - together.mean(0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)  # axes (rank, D)
    axes = axes[:2]
    largest = np.abs(axes).argmax(1)
    axes = axes * np.sign(axes[np.arange(len(axes)), largest])[:, None]
    points = centred @ axes.T  # (n, 2)
    share = float((sizes[:2] ** 2).sum() / max((sizes**2).sum(), 1e-30))
    return np.split(points, np.cumsum([len(each) for each in features])[:-1]), share


def _attended(model: Embedder, path: str) -> np.ndarray:
    """Read an image, and draw the activation map of a model over it."""
    fitted = read_image(path, height=model.height, width=model.width)
    heat = activation_maps(model, model.normalise(torch.from_numpy(fitted)[None]))
    image = read_image(path)
    return image if heat is None else overlay(image, heat[0])


def _feature_maps(test: TestSet, models: Mapping[str, Embedder]) -> Panel:
    """Make a section with one map per model that shows features of some identities of a test set."""
    images, names = (test.query, test.gallery), test.test.names
    everybody = sorted(set(test.query.pids.tolist()))
    identities = everybody[:: max(1, len(everybody) // ON_THE_MAP)][:ON_THE_MAP]
    rows = [
        (place, part[row], part.records[row])
        for place, pid in enumerate(identities)
        for part, row in [(part, row) for part in images for row in np.flatnonzero(part.pids == pid).tolist()][
            :PER_IDENTITY
        ]
    ]
    shown = np.stack([image for _, image, _ in rows])
    points, share = common_plane(*(model.extract(shown) for model in models.values()))
    cameras = sorted({record.camid for *_, record in rows})
    box = common_box(*points)
    charts = []
    for title, places in zip(models, points, strict=True):
        dots = [
            Dot(x, y, colour, cameras.index(camid), f"{names.identity(pid)}, {names.camera(camid)}")
            for (x, y), (colour, _, (_, pid, camid)) in zip(places.tolist(), rows, strict=True)
        ]
        charts.append((title.capitalize(), scatter(dots, box, f"{title}: features of {len(dots)} images"), ""))
    note = (
        f"{len(rows)} images of {len(identities)} test identities (colours) by {len(cameras)} cameras (shapes). "
        f"Features of unit length are projected onto two principal components, the same for all maps, which contain "
        f"{100 * share:.0f} % of the variance."
    )
    legend = dot_keys([names.identity(pid) for pid in identities], shapes=False)
    legend += dot_keys([names.camera(camera) for camera in cameras], shapes=True)
    title = f"Map of features, {test.name}"
    return panel("charts.html", title, note, legend=legend, charts=charts, table=None)
