"""Present the results of a search as values for JSON, lines of text and pages of images."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from lreid.data.images import read_image
from lreid.errors import InputError, counted, rounded_up
from lreid.gallery.gallery import Matches
from lreid.gallery.images import name_of
from lreid.report.rendering import Match, RankedQuery, Tile, Verdict, anchor, ranked_panel, thumbnail, write_ranked
from lreid.utils.files import require_own, write_text

PAGE_BYTES = 1_500_000  # maximum size of the images on a page
OUTCOMES = {  # sections of a page, in order
    "wrong": "Wrong: the best match is a different person",
    "unknown": "Unknown: nobody reaches the threshold",
    "right": "Right: the best match is that person",
    "found": "Best matches",
}


def findings(
    matches: Matches, queries: Sequence[str], expected: Sequence[str | None], *, calibrated: bool
) -> list[dict[str, Any]]:
    """Return the results of queries to a gallery as values for JSON.

    Args:
        matches: matches of the queries, one row per query.
        queries: paths of the queries.
        expected: the enrolled person in each query, or None if unknown.
        calibrated: whether the gallery has a threshold.

    Returns:
        For each query: ``image``, ``expected``, ``unknown`` (None without a threshold), ``identity`` and ``matches``.
        The entry ``identity`` is the identity of the best match. If there is a threshold and no match reaches it, the
        entry ``identity`` is None. A match has ``rank``, ``path``, ``identity``, ``camera``, ``score`` and ``known``.
    """
    results = []
    for row, (path, person) in enumerate(zip(queries, expected, strict=True)):
        entries = [
            {
                "rank": column + 1,
                "path": matches.paths[row, column],
                "identity": name_of(matches.ids[row, column]),
                "camera": name_of(matches.cams[row, column]),
                "score": float(matches.scores[row, column]),
                "known": bool(matches.known[row, column]) if calibrated else None,
            }
            for column in np.flatnonzero(matches.keys[row] >= 0).tolist()
        ]
        unknown = not any(match["known"] for match in entries) if calibrated else None
        best = next((match["identity"] for match in entries if match["known"] is not False), None)
        results.append({"image": path, "expected": person, "unknown": unknown, "identity": best, "matches": entries})
    return results


def first_match(finding: dict[str, Any]) -> dict[str, Any] | None:
    """Return the best match that is not the query image itself, or None if there are no other matches."""
    own = {os.path.abspath(image) for image in finding.get("images", [finding["image"]])}
    return next((match for match in finding["matches"] if match["path"] not in own), None)


def query_name(finding: dict[str, Any]) -> str:
    """Return the path of a query, or its folder if the query consists of several images."""
    return os.path.dirname(finding["image"]) if "images" in finding else finding["image"]


def rank1(queries: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Count the queries with an expected identity, and the queries whose best match has the expected identity.

    The query image itself does not count as a match. A query without any other match counts as wrong.
    """
    expected = [each for each in queries if each["expected"] is not None]
    firsts = [(each["expected"], first_match(each)) for each in expected]
    return len(expected), sum(first is not None and first["identity"] == who for who, first in firsts)


def summary(results: dict[str, Any]) -> list[str]:
    """Summarise the results of :func:`lreid.gallery.query`: counts, and Rank-1 accuracy if folders name people."""
    queries = results["queries"]
    lines = [f"{counted(len(queries), 'query')} in {counted(results['images'], 'image')}"]
    if results["threshold"] is None:
        lines[0] += "; no threshold is set: run lreid search calibrate to detect people who are not enrolled"
    else:
        unknown = sum(each["unknown"] for each in queries)
        rule = threshold_text(results["threshold"], results["false_accept_rate"])
        lines[0] += f": {len(queries) - unknown} recognised, {unknown} unknown at threshold {rule}"
    labelled, right = rank1(queries)
    if labelled:
        share = 100 * right / labelled
        lines.append(f"Rank-1 {share:.1f} %: {right} of {labelled} queries whose paths name a person in the gallery")
    return lines


def threshold_text(threshold: float, false_accept_rate: float) -> str:
    """Describe a threshold and its false accept rate."""
    return f"{rounded_up(threshold)} (false accept rate {100 * false_accept_rate:g} %)"


def too_few(images: int | None, false_accept_rate: float | None) -> str:
    """Return a warning if the threshold was computed from too few images, otherwise ""."""
    if images is None or not false_accept_rate or false_accept_rate * images >= 1:
        return ""
    return (
        f"{images} images are too few to set a false accept rate of {100 * false_accept_rate:g} %: no impostor among "
        "them reaches the threshold."
    )


def verdict(finding: dict[str, Any], threshold: float | None, false_accept_rate: float | None) -> str:
    """Describe the result of one query of :func:`lreid.gallery.query` in a line."""
    if not finding["matches"]:
        return "the gallery has no image to compare with"
    best = finding["matches"][0]
    if threshold is None or false_accept_rate is None:
        who = best["identity"] or "an identity without a name"
        return f"nearest: {who}, {best['score']:.3f}"
    rule = f"threshold {threshold_text(threshold, false_accept_rate)}"
    named = next((match for match in finding["matches"] if match["identity"] is not None), None)
    if named is None:
        return f"unknown: none of the matches has a name, {rule}"
    if finding["unknown"]:
        return f"unknown: the nearest is {named['identity']} with {named['score']:.3f}, {rule}"
    return f"known: {finding['identity']}, {named['score']:.3f}, {rule}"


def short_names(paths: Sequence[str]) -> list[str]:
    """Remove from paths the leading folders that all paths have in common."""
    parts = [path.split("/") for path in paths]
    same = takewhile(lambda each: len(set(each)) == 1, zip(*(folders for *folders, _ in parts), strict=False))
    shared = sum(1 for _ in same)
    return ["/".join(each[shared:]) for each in parts]


def write_findings(results: dict[str, Any], out: Path, *, blur: bool = False) -> None:
    """Write the results of :func:`lreid.gallery.query` to ``matches.json``, ``matches.html``, ``matches-2.html`` ….

    Queries with a wrong match come first, then unknown people, then all others; links at the top of each page lead to
    these groups. The images of a page have about ``PAGE_BYTES`` bytes in total.

    Args:
        out: folder to write to. Other pages of an earlier search stay in the folder.
        blur: whether to blur the images on the pages.
    """
    names = short_names([*map(query_name, results["queries"])])
    order = list(OUTCOMES)
    listed = [(_outcome(each), each, name) for each, name in zip(results["queries"], names, strict=True)]
    listed.sort(key=lambda each: order.index(each[0]))
    pages: list[dict[str, list[RankedQuery]]] = [{}]
    room = PAGE_BYTES
    for outcome, finding, name in listed:
        query = ranked_query(finding, name, results, blur=blur)
        size = sum(len(tile.source) for tile in (query.tile, *(match.tile for match in query.matches)))
        if size > room and pages[-1]:
            pages.append({})
            room = PAGE_BYTES
        room -= size
        pages[-1].setdefault(outcome, []).append(query)
    counts = Counter(outcome for outcome, *_ in listed)
    first = {outcome: number for number, page in reversed([*enumerate(pages, 1)]) for outcome in page}
    links = [
        (f"{outcome}: {count}", f"{_page_name(first[outcome])}#{anchor(OUTCOMES[outcome])}")
        for outcome, count in counts.items()
    ]
    links += [(f"page {each}", _page_name(each)) for each in range(1, len(pages) + 1) if pages[1:]]
    files = [out / _page_name(each) for each in range(1, len(pages) + 1)]
    require_own(out / "matches.json", *files)
    write_text(out / "matches.json", json.dumps({"generator": "lreid"} | results, indent=1) + "\n")
    wide = is_wide(listed[0][1]["image"])
    for number, page in enumerate(pages, 1):
        sections = [ranked_panel(OUTCOMES[outcome], "", rankings, wide) for outcome, rankings in page.items()]
        title = f"Matches in {Path(results['gallery']).name}" + (f", page {number} of {len(pages)}" * bool(pages[1:]))
        write_ranked(files[number - 1], title, [*summary(results), _note(results)], sections, links=links)


def _page_name(number: int) -> str:
    return "matches.html" if number == 1 else f"matches-{number}.html"


def _outcome(finding: dict[str, Any]) -> str:
    """Return the outcome of a query, a key of ``OUTCOMES``."""
    if finding["unknown"]:
        return "unknown"
    first = first_match(finding)
    if finding["expected"] is None:
        return "found"
    return "right" if first is not None and first["identity"] == finding["expected"] else "wrong"


def _note(results: dict[str, Any]) -> str:
    """Explain the scores on a page."""
    below = "Under each match are its rank, cosine similarity, identity and camera."
    if results["threshold"] is None:
        return f"{below} The gallery is not calibrated: the nearest identity is shown even for people not enrolled."
    return f"{below} {too_few(results['calibrated_on'], results['false_accept_rate'])}".rstrip()


def ranked_query(finding: dict[str, Any], name: str, results: dict[str, Any], *, blur: bool) -> RankedQuery:
    """Create the ranking of a query under a name, with the threshold of ``results``."""
    person = finding["expected"]
    named = "" if person is None else f"{person}: "
    headline = named + verdict(finding, results["threshold"], results["false_accept_rate"])
    matches = []
    for match in finding["matches"]:
        camera = () if match["camera"] is None else (f"cam {match['camera']}",)
        tile = _tile(match["path"], (match["identity"] or "no name", *camera), blur)
        matches.append(Match(match["rank"], f"{match['score']:.3f}", _verdict_of(match, person), tile))
    return RankedQuery(_tile(finding["image"], (name,), blur), headline, matches)


def is_wide(path: str) -> bool:
    """Whether an image is wider than high, so that a page of such images uses its layout for wide images."""
    try:
        height, width, _ = read_image(path).shape
    except InputError:  # the file may be missing
        return False
    return width > height


def _tile(path: str, labels: tuple[str, ...], blur: bool) -> Tile:
    try:
        jpeg = thumbnail(read_image(path), blur=blur)
    except InputError:  # the file may be missing
        jpeg = None
    return Tile(jpeg, path, labels)


def _verdict_of(match: dict[str, Any], expected: str | None) -> Verdict:
    if match["identity"] is None or (expected is None and match["known"] is None):
        return ""
    if expected is not None:
        return "right" if match["identity"] == expected else "wrong"
    return "known" if match["known"] else "below"
