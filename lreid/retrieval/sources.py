"""Make the scores of features against features, exact, re-ranked, or of what a search finds."""

from __future__ import annotations

from typing import Any

import torch

from lreid.errors import InputError
from lreid.retrieval.arrays import as_comparable, unit_rows
from lreid.retrieval.index import IndexScores, Search
from lreid.retrieval.rerank import KReciprocal
from lreid.retrieval.scores import BlockScores, Cosines, ExactScores, Metric, Scorer


def scores_of(
    query_features: Any,
    gallery_features: Any,
    metric: Metric = "cosine",
    *,
    device: torch.device | str | None = None,
    rerank: KReciprocal | None = None,
    search: Search | None = None,
) -> BlockScores:
    """Scores that rank the gallery for every query. Arguments are those of :func:`lreid.retrieval.evaluate`."""
    queries, gallery = as_comparable(query_features, gallery_features, device)  # (Q, D), (G, D)
    if rerank is None:
        return _found(Scorer(queries, gallery, metric), search)
    if search:
        raise InputError("re-ranking compares all images with all, so it takes no search")
    return rerank(queries, gallery, metric)


def cosines_of(
    query_features: Any,
    gallery_features: Any,
    *,
    device: torch.device | str | None = None,
    search: Search | None = None,
) -> BlockScores:
    """Cosine similarities in [-1, 1], which a threshold can be compared with. Arguments as of :func:`scores_of`."""
    queries, gallery = as_comparable(query_features, gallery_features, device)  # (Q, D), (G, D)
    return _found(Cosines(unit_rows(queries, "query features"), unit_rows(gallery, "gallery features")), search)


def _found(exact: ExactScores, search: Search | None) -> BlockScores:
    """All scores, or those of what a search finds."""
    return IndexScores(search, exact.queries, exact.shape[1], exact) if search else exact
