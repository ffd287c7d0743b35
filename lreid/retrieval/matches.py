"""Find the ranks of a query's matches without sorting its ranking."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from lreid.identities import JUNK

# Tuned for speed with numpy's AVX-512; the results do not depend on these numbers.
SORT = 17  # sorting a whole gallery takes as long as comparing this many matches with all of it
FEW = 1 / 64  # share of a gallery up to which the values that are to be sorted are picked out
SAMPLED = 256  # scores, enough to estimate such shares


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


def count_ahead(scores: Tensor, rows: np.ndarray, columns: np.ndarray, scale: Tensor | None = None) -> np.ndarray:
    """The number of gallery images ahead of each match ``scores[rows, columns]``: its rank, from 0.

    Ahead are higher scores, and equal ones that come earlier in the gallery.

    Args:
        scores: ``(B, G)``; ``-inf`` where an image is left out of the ranking.
        rows: ``(P,)`` ascending query rows.
        columns: ``(P,)`` gallery columns; their scores are finite.
        scale: ``(G,)`` positive factors that the scores still lack, which are multiplied with them in place.

    Returns:
        ``(P,)`` int64, the same on every device.
    """
    if scores.device.type == "cpu":
        return _count_by_sorting(scores.numpy(), rows, columns, None if scale is None else scale.numpy())
    return _count_by_comparing(scores if scale is None else scores.mul_(scale), rows, columns)


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


def _count_by_sorting(
    scores: np.ndarray, rows: np.ndarray, columns: np.ndarray, scale: np.ndarray | None = None
) -> np.ndarray:
    """For CPUs, where numpy sorts bare values at a few nanoseconds each.

    Sorted values give how many exceed a match and how many equal it. Only among equals do positions matter. Values
    below a match do not matter, so they are left out, or made equal where they are many. The few matches that
    rank last, for which most of a gallery would have to be sorted, are compared with all images instead.
    """
    targets = scores[rows, columns] if scale is None else scores[rows, columns] * scale[columns]  # (P,)
    order = np.lexsort((targets, rows))
    columns, targets = columns[order], targets[order]  # ascending within a row
    with np.errstate(over="ignore"):  # below the least of all numbers is -inf
        below = np.nextafter(targets, -np.inf, dtype=targets.dtype)
    bounds = np.searchsorted(rows, np.arange(len(scores) + 1))
    numbers = np.arange(np.diff(bounds).max())
    ahead = np.empty(len(rows), dtype=np.int64)

    def count(row: int, room: np.ndarray) -> None:
        line, start, stop = scores[row], bounds[row], bounds[row + 1]  # (G,)
        if scale is not None:
            line *= scale  # here, since the row is in the cache from now on
        sample = np.sort(line[::SAMPLED])
        place = sample.searchsorted(targets[start:stop])  # estimates the share of the gallery ahead of each
        behind = (numbers[: stop - start] - SORT / len(sample) * place).argmin()
        first = start + behind
        if len(sample) - place[behind] < FEW * len(sample):
            ordered = np.compress(line >= targets[first], line)
        else:  # they sort as fast as if they were not there, which costs less than to pick the others out
            ordered = np.maximum(line, below[first], out=room)
        ordered.sort()
        end = ordered.searchsorted(targets[first:stop], side="right")
        ahead[first:stop] = len(ordered) - end
        for tied in first + np.flatnonzero(ordered[end - 2] == targets[first:stop]):
            ahead[tied] += np.count_nonzero(line[: columns[tied]] == targets[tied])
        for one in range(start, first):
            column, target = columns[one], targets[one]
            ahead[one] = np.count_nonzero(line[:column] >= target) + np.count_nonzero(line[column:] > target)

    def count_all(chunk: np.ndarray) -> None:
        room = np.empty_like(scores[0])  # memory that is taken and given back for every row is slow
        for row in chunk:
            count(row, room)

    wanted = np.flatnonzero(np.diff(bounds))
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # sorting releases the interpreter
        list(pool.map(count_all, np.array_split(wanted, max(1, len(wanted) // 16))))
    counts = np.empty_like(ahead)
    counts[order] = ahead
    return counts
