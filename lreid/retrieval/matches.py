"""Compute the ranks of a query's matches without sorting its ranking."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from lreid.utils.identities import JUNK

# These constants affect only the speed, not the results. They were tuned for numpy with AVX-512.
SORT = 17  # sorting a gallery takes as long as comparing this many matches with the entire gallery
COPIED = 1 / 64  # share of a gallery up to which the values to sort are copied out first
SAMPLED = 256  # number of scores from which this share is estimated


class SameIdentity:
    """Find the gallery images of each query's identity; junk images have no identity and are never found.

    Args:
        gallery_ids: ``(G,)`` int64.
    """

    def __init__(self, gallery_ids: np.ndarray):
        self.order = np.argsort(gallery_ids, kind="stable")
        self.ids = gallery_ids[self.order]

    def __call__(self, query_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return all pairs with the same identity, as ascending query rows and gallery columns."""
        start = np.searchsorted(self.ids, query_ids, side="left")
        count = np.searchsorted(self.ids, query_ids, side="right") - start
        count[query_ids == JUNK] = 0
        rows = np.repeat(np.arange(len(query_ids)), count)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        return rows, self.order[np.repeat(start, count) + within]


def count_ahead(scores: Tensor, rows: np.ndarray, columns: np.ndarray, scale: Tensor | None = None) -> np.ndarray:
    """For each match ``scores[rows, columns]``, count the gallery images ahead of it, which is its rank from 0.

    An image is ahead of a match if it has a higher score, or an equal score and an earlier position in the gallery.

    Args:
        scores: ``(B, G)`` scores, ``-inf`` for images that are left out of the ranking.
        rows: ``(P,)`` query rows of the matches, ascending.
        columns: ``(P,)`` gallery columns of the matches, whose scores are finite.
        scale: ``(G,)`` positive factors, by which scores are first multiplied in place.

    Returns:
        Ranks ``(P,)`` int64, the same on every device.
    """
    if scores.device.type == "cpu":
        return _count_by_sorting(scores.numpy(), rows, columns, None if scale is None else scale.numpy())
    return _count_by_comparing(scores if scale is None else scores.mul_(scale), rows, columns)


def _count_by_comparing(scores: Tensor, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Implementation of :func:`count_ahead` for devices that compare entire rows quickly, such as GPUs."""
    places = torch.arange(scores.shape[1], device=scores.device)  # (G,)
    rows, columns = (torch.from_numpy(index).to(scores.device) for index in (rows, columns))
    step = max(1, len(scores) // 4)  # limits the memory of a step to the size of the scores
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
    """Implementation of :func:`count_ahead` for CPUs, where numpy sorts values at a few nanoseconds each.

    The position of a match's score among the sorted scores gives two numbers: that of images with higher scores and
    that of images with equal scores. Only images with equal scores are also compared by position in the gallery. Scores
    below the lowest match are left out; if many remain, they are set to one value, which sorts fast. For a few matches
    of very low rank, comparing all images is faster than sorting.
    """
    targets = scores[rows, columns] if scale is None else scores[rows, columns] * scale[columns]  # (P,)
    order = np.lexsort((targets, rows))
    columns, targets = columns[order], targets[order]  # ascending within a row
    with np.errstate(over="ignore"):  # below the lowest float is -inf
        below = np.nextafter(targets, -np.inf, dtype=targets.dtype)
    bounds = np.searchsorted(rows, np.arange(len(scores) + 1))
    numbers = np.arange(np.diff(bounds).max())
    ahead = np.empty(len(rows), dtype=np.int64)

    def count(row: int, room: np.ndarray) -> None:
        line, start, stop = scores[row], bounds[row], bounds[row + 1]  # (G,)
        if scale is not None:
            line *= scale  # here, because the steps below need this row in the cache
        sample = np.sort(line[::SAMPLED])
        place = sample.searchsorted(targets[start:stop])  # estimates how many images rank after each match
        behind = (numbers[: stop - start] - SORT / len(sample) * place).argmin()
        first = start + behind
        if len(sample) - place[behind] < COPIED * len(sample):
            ordered = np.compress(line >= targets[first], line)
        else:  # equal values cost the sort almost nothing, less than copying the others out
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
        room = np.empty_like(scores[0])  # allocated once, because an allocation per row is slow
        for row in chunk:
            count(row, room)

    rows_with_matches = np.flatnonzero(np.diff(bounds))
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # sorting releases Python's global lock
        list(pool.map(count_all, np.array_split(rows_with_matches, max(1, len(rows_with_matches) // 16))))
    counts = np.empty_like(ahead)
    counts[order] = ahead
    return counts
