"""Score a saved gallery (in a file or in Milvus) with labelled queries, by the same search as ``lreid search``."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lreid.apps.checkpoint_test import content_of
from lreid.config import ARGUMENTS, check_values
from lreid.data.datasets import Sources
from lreid.data.images import Images
from lreid.data.records import QueryGallery, Record
from lreid.errors import InputError, naming_keys
from lreid.evaluation.test_report import notes_on, row_of
from lreid.evaluation.test_set import ListedTest, Rules, file_numbers
from lreid.gallery.gallery import Gallery
from lreid.gallery.images import list_images, read_images, require_some
from lreid.gallery.scoring import GallerySearch
from lreid.gallery.store import GalleryRows
from lreid.loading import model_config
from lreid.utils.files import require_own, write_text
from lreid.utils.identities import UNKNOWN, identities_of_test

logger = logging.getLogger("lreid")


@naming_keys(**ARGUMENTS)
def score_gallery(
    where: str, query: Path, *, checkpoint: Path | None = None, out: Path, overrides: Sequence[str] = ()
) -> dict[str, Any]:
    """Search a gallery with labelled queries, score the matches, and write ``test.json`` to the folder ``out``.

    Args:
        where: address of the gallery, see :func:`lreid.gallery.gallery.place_of`.
        query: folder or CSV file, see :func:`lreid.gallery.list_images`.
        checkpoint: file of the gallery's model, if the file was moved.
        overrides: ``KEY VALUE`` pairs for the config of the model; only ``EVAL`` and ``DEVICE`` keys have an effect.

    Returns:
        Results in the form of :func:`lreid.apps.checkpoint_test.score_checkpoints`, with a row ``gallery KIND``. If the
        gallery stores features, a row ``plain`` has the metrics of the exact ranking. Images without an identity are
        distractors.
    """
    require_own(out / "test.json")
    gallery = Gallery.load(where)
    file = Path(checkpoint or gallery.extraction.checkpoint)
    cfg = model_config(file, overrides)
    check_values(cfg)
    model = gallery.load_network(checkpoint, cfg.DEVICE)
    listed = list_images([query], "query", Sources(cfg.DATA.ROOT, pattern=cfg.DATA.PATTERN))
    if nameless := [image.path for image in listed if image.identity is None]:
        raise InputError(
            f"{nameless[0]}: the query has no identity; name files like 0002_c1.jpg, or put them into "
            "folders named after the identities"
        )
    _, images = read_images(listed, model, gallery.about.names, skip_bad=cfg.DATA.SKIP_BAD_IMAGES)
    require_some(images)
    search = GallerySearch(gallery, cfg.EVAL.INDEX_DEPTH)
    test = _test_of(where, images, search.labels, Rules("cosine", cfg.EVAL.AP, cfg.EVAL.CAMERA_FILTER))
    features = gallery.extraction(model, images), search.features()
    of = {"checkpoint": file.stem, "model": gallery.about.model, "test": where, "transductive": False}
    row = of | {"variant": f"gallery {search.index}"} | row_of(test, features, search)
    rows = [row] if features[1] is None else [of | {"variant": "plain"} | row_of(test, features), row]
    results = content_of({file.stem: file}, [test], rows, metric="cosine", notes=notes_on(test, row))
    write_text(out / "test.json", json.dumps(results, indent=1) + "\n")
    logger.info("figures in %s", out / "test.json")
    gallery.close()
    return results


@dataclass(frozen=True)
class _Listed:
    """The images of a gallery without pixels, with the interface of the images of a test set."""

    records: Sequence[Record]
    pids: np.ndarray
    camids: np.ndarray


def _test_of(where: str, images: Images, labels: GalleryRows, rules: Rules) -> ListedTest:
    """Make a test set of queries and all images of a gallery; images without an identity are distractors."""
    ids = identities_of_test(labels.ids)
    records = [Record(*each) for each in zip(labels.paths, ids.tolist(), labels.cams.tolist(), strict=True)]
    has_cameras = not (images.camids == UNKNOWN).any() and not (labels.cams == UNKNOWN).any()
    itself = 0
    if not (rules.camera_filter and has_cameras):
        itself = int(np.isin(*file_numbers([record.path for record in images.records], labels.paths)).sum())
    test = QueryGallery(where, "unseen", images.records, tuple(records), in_gallery=itself, has_cameras=has_cameras)
    return ListedTest(test, images, _Listed(records, ids, labels.cams), rules)
