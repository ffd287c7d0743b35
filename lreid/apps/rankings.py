"""Show the rankings of a tested model as images, on the pages of ``lreid test`` and ``lreid report``."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lreid.data.images import read_image
from lreid.data.records import Record
from lreid.errors import counted
from lreid.evaluation.hardest import Ranking
from lreid.evaluation.test_set import TestSet
from lreid.report.rendering import Match, RankedQuery, RankedSection, Tile, Verdict, thumbnail
from lreid.report.tables import number
from lreid.results import METRICS
from lreid.utils.identities import DISTRACTOR


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
) -> RankedSection:
    """Create a page section with the hardest queries of a test set, and the first images of their rankings."""
    shown = Shown(test, blur, look)
    height, width = read_image(shown.query[0].path).shape[:2]
    figures = ", ".join(f"{metric.label} {number(metrics[metric.name])}" for metric in METRICS)
    note = (
        f"{figures}. {counted(len(shown.query), 'query')}, {counted(len(shown.gallery), 'gallery image')}; "
        f"the {len(rankings)} hardest queries."
    )
    return RankedSection(test.name, note, [shown.ranking(each) for each in rankings], wide=width > height)
