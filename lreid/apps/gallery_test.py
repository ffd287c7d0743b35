"""Score a gallery that was saved, in a file or in Milvus, with labelled queries: its own search, as users have it."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lreid.config import ARGUMENTS, check_values
from lreid.errors import InputError, naming_keys
from lreid.evaluation.protocol import file_numbers
from lreid.evaluation.scoring import FALSE_ACCEPT_RATES, notes_on, told_costs, told_figures
from lreid.files import write_text
from lreid.gallery.scoring import GallerySearch
from lreid.identities import UNKNOWN
from lreid.loading import model_config
from lreid.report.tables import number
from lreid.results import MAX_RANK
from lreid.retrieval import cost_of
from lreid.retrieval.arrays import unit_rows
from lreid.retrieval.index import IndexScores
from lreid.retrieval.open_set import rates_of_scores
from lreid.retrieval.ranking import evaluate_scores
from lreid.retrieval.scores import BlockScores, Cosines
from lreid.search.named_gallery import NamedGallery
from lreid.search.own_images import list_images, read_images, require_some

logger = logging.getLogger("lreid")


@naming_keys(**ARGUMENTS)
def score_gallery(
    where: str, query: Path, *, checkpoint: Path | None = None, out: Path, overrides: Sequence[str] = ()
) -> dict[str, Any]:
    """Scores what a gallery finds for labelled queries, and writes ``test.json``.

    Args:
        where: of the gallery, see :func:`lreid.gallery.places.place_of`.
        query: folder or CSV file, see :func:`lreid.search.list_images`.
        checkpoint: of the gallery's model, if it is not where it was.
        out: folder to write to.
        overrides: ``KEY VALUE`` pairs over the config of the model, of which ``EVAL`` and ``DEVICE`` count.

    Returns:
        The content of ``test.json`` as of :func:`lreid.apps.test.score_checkpoints`: a row ``gallery KIND`` and, if the
        gallery keeps features, an exact row ``plain``. Images without an identity are distractors.

    Raises:
        InputError: the gallery, the queries or the model do not fit together.
    """
    named = NamedGallery.load(where)
    cfg = model_config(checkpoint or named.checkpoint, overrides)
    check_values(cfg)
    model = named.model(checkpoint, cfg.DEVICE)
    listed = list_images([query], "query")
    if nameless := [image.path for image in listed if image.identity is None]:
        raise InputError(
            f"{nameless[0]}: a query without identity; name files like 0002_c1.jpg, or put them into "
            "folders named after the identities"
        )
    listed, images = read_images(listed, model, named.gallery.about.names, skip_bad=cfg.DATA.SKIP_BAD_IMAGES)
    require_some(images)

    search = GallerySearch(named.gallery, cfg.EVAL.INDEX_DEPTH)
    has_cameras = not (images.camids == UNKNOWN).any() and not (search.labels.cams == UNKNOWN).any()
    camera_filter = cfg.EVAL.CAMERA_FILTER and has_cameras
    cams, itself = (images.camids, search.labels.cams), 0
    if not camera_filter:
        cams = file_numbers([image.path for image in listed], search.labels.paths)
        itself = int(np.isin(*cams).sum())
    filtered = camera_filter or itself > 0
    ids = search.labels.ids
    ids = np.where(ids == UNKNOWN, min(ids.min() - 1, UNKNOWN - 1), ids)  # -1 would be junk, and left out
    labels = images.pids, ids, *cams

    queries = unit_rows(torch.from_numpy(named.extract(model, images)), "query features")
    features = search.features()
    exact = Cosines(queries, torch.from_numpy(features)) if features is not None else None

    def row(variant: str, score: BlockScores) -> dict[str, Any]:
        result = evaluate_scores(score, *labels, ap=cfg.EVAL.AP, camera_filter=filtered, max_rank=MAX_RANK)
        try:
            rates = [rates_of_scores(score, *labels, camera_filter=filtered, false_accept_rates=FALSE_ACCEPT_RATES)]
        except InputError:  # there is no impostor
            rates = []
        return {
            "checkpoint": str(checkpoint or named.checkpoint),
            "model": named.gallery.about.model,
            "test": where,
            "variant": variant,
            "transductive": False,
            **told_figures(result, rates),
        }

    kind = named.gallery.about.kind
    found = row(f"gallery {kind}", IndexScores(search, queries, len(ids), exact))
    rows = [found]
    if exact is not None:
        found["index"] = told_costs(kind, cfg.EVAL.INDEX_DEPTH, [cost_of(search, exact)])
        rows.insert(0, row("plain", exact))
    logger.info("%s: mAP %s", where, number(found["mAP"]))
    results = {
        "schema": 1,
        "checkpoints": {found["checkpoint"]: found["checkpoint"]},
        "metric": "cosine",
        "ap": cfg.EVAL.AP,
        "tests": [{"name": where, "queries": len(images), "gallery": len(ids), "camera_filter": camera_filter}],
        "rows": rows,
        "cross_model": [],
        "hardest": {},
        "notes": notes_on(where, found, len(images), has_cameras=has_cameras, itself=itself),
    }
    write_text(out / "test.json", json.dumps(results, indent=1) + "\n")
    named.gallery.close()
    return results
