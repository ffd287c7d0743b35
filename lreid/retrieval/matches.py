"""Find the ranks of a query's matches without sorting its ranking."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from lreid.identities import JUNK


class SameIdentity:
    """Finds the gallery images of each query's identity. Junk has no identity.

    Args:
        gallery_ids: ``(G,)`` int64.
    """

    def __init__(self, gallery_ids: np.ndarray):
        self.order = np.argsort(gallery_ids, kind="stable")
        self.ids = gallery_ids[self.order]

    def __call__(self, query_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All pairs of one identity: query rows, ascending, and gallery columns."""
        start = np.searchsorted(self.ids, query_ids, side="left")
        count = np.searchsorted(self.ids, query_ids, side="right") - start
        count[query_ids == JUNK] = 0
        rows = np.repeat(np.arange(len(query_ids)), count)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        return rows, self.order[np.repeat(start, count) + within]


def count_ahead(scores: Tensor, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """How many gallery images stand ahead of each match ``scores[rows, columns]``: its rank, from 0.

    Ahead are higher scores, and equal ones that come earlier in the gallery.

    Args:
        scores: ``(B, G)``; ``-inf`` where an image is left out of the ranking.
        rows: ``(P,)`` ascending query rows.
        columns: ``(P,)`` gallery columns; their scores are finite.

    Returns:
        ``(P,)`` int64, the same on every device.
    """
    if scores.device.type == "cpu":
        return _count_by_sorting(scores.numpy(), rows, columns)
    return _count_by_comparing(scores, rows, columns)


def _count_by_comparing(scores: Tensor, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """For devices on which comparing whole rows costs next to nothing."""
    places = torch.arange(scores.shape[1], device=scores.device)  # (G,)
    rows, columns = (torch.from_numpy(index).to(scores.device) for index in (rows, columns))
    step = max(1, len(scores) // 4)  # keeps what a step allocates below the size of the scores
    counts = []
    for row, column in zip(rows.split(step), columns.split(step), strict=True):
        others = scores[row]  # (P, G)
        target = scores[row, column][:, None]  # (P, 1)
        earlier = (others == target) & (places < column[:, None])
        counts.append(((others > target) | earlier).sum(1))
    return torch.cat(counts).cpu().numpy()


def _count_by_sorting(scores: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """For CPUs, where numpy sorts bare values at a few nanoseconds each.

    Sorted values tell how many exceed a match and how many equal it. Only among equals do positions matter. Values
    below the last match tell nothing; where they are many, they are left out first.
    """
    bounds = np.searchsorted(rows, np.arange(len(scores) + 1))
    ahead = np.empty(len(rows), dtype=np.int64)

    def count(row: int) -> None:
        line, pairs = scores[row], slice(bounds[row], bounds[row + 1])  # (G,)
        targets = line[columns[pairs]]
        least, sample = targets.min(), line[::64]
        if np.count_nonzero(sample >= least) < len(sample) / 2:
            ordered = np.compress(line >= least, line)
        else:
            ordered = line.copy()  # scores keep their order
        ordered.sort()
        end = np.searchsorted(ordered, targets, side="right")
        ahead[pairs] = len(ordered) - end
        for tied in np.flatnonzero((end > 1) & (ordered[end - 2] == targets)):
            earlier = line[: columns[pairs][tied]]
            ahead[pairs][tied] += np.count_nonzero(earlier == targets[tied])

    def count_all(chunk: np.ndarray) -> None:
        for row in chunk:
            count(row)

    wanted = np.flatnonzero(np.diff(bounds))
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # sorting releases the interpreter
        list(pool.map(count_all, np.array_split(wanted, max(1, len(wanted) // 16))))
    return ahead
