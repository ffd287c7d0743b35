"""Show the rankings of a tested model as images, on the pages of ``lreid test`` and ``lreid report``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lreid.data.images import Images, read_image
from lreid.data.records import QueryGallery, Record
from lreid.evaluation.scoring import Ranking
from lreid.identities import DISTRACTOR
from lreid.report import ranked
from lreid.report.tables import number


def page_section(
    test: QueryGallery,
    images: tuple[Images, Images],
    rankings: Sequence[Ranking],
    figures: dict[str, Any],
    blur: bool,
    look: Callable[[str], np.ndarray] = read_image,
) -> ranked.Section:
    """The hardest queries of a test set with the images ranked first.

    Args:
        test: the test set.
        images: of queries and gallery.
        rankings: of :func:`lreid.evaluation.scoring.hardest_rankings`.
        figures: of :func:`lreid.evaluation.scoring.score`.
        blur: blur the images.
        look: gives the image (H, W, 3) uint8 of a path.
    """
    query, gallery = (each.records for each in images)
    looked_for = {record.pid for record in query}

    def tile(record: Record) -> ranked.Tile:
        nobody = record.pid == DISTRACTOR and DISTRACTOR not in {*looked_for, *test.names.identities}
        who = "distractor" if nobody else test.names.identity(record.pid)
        labels = (who, test.names.camera(record.camid)) if record.camid >= 0 else (who,)
        return ranked.Tile(ranked.thumbnail(look(record.path), blur=blur), record.path, labels)

    def verdict(record: Record, pid: int) -> ranked.Verdict:
        return "right" if record.pid == pid else "wrong" if record.pid in looked_for else "distractor"

    shown = [
        ranked.RankedQuery(
            tile(query[each.query]),
            f"AP {number(each.ap)} %, first of {each.num_matches} right at rank {each.first_match}",
            [
                ranked.Match(rank, f"{value:.3f}", verdict(gallery[row], query[each.query].pid), tile(gallery[row]))
                for rank, row, value in zip(each.ranks, each.rows, each.scores, strict=True)
            ],
        )
        for each in rankings
    ]
    height, width = read_image(query[0].path).shape[:2]
    told = ", ".join(f"Rank-{k} {number(figures[f'rank{k}'])}" for k in (1, 5, 10))
    note = (
        f"mAP {number(figures['mAP'])}, {told}. {len(query)} queries, {len(gallery)} gallery images; "
        f"the {len(shown)} hardest queries."
    )
    return ranked.Section(test.name, note, shown, wide=width > height)
