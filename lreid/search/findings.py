"""Tell what a search of a gallery found: as values for JSON, as a line of text and as a page of images."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from lreid.data.images import read_image
from lreid.errors import InputError, counted
from lreid.files import write_text
from lreid.gallery import Matches
from lreid.report import ranked
from lreid.search.named_gallery import name_of


def findings(matches: Matches, queries: Sequence[str], *, calibrated: bool) -> list[dict[str, Any]]:
    """What a gallery says about queries, for JSON.

    Returns:
        For each query ``image``, ``unknown`` (None without a threshold), ``identity`` of the best match, or with a
        threshold of the best known one (None if unknown), and ``matches`` with ``rank``, ``path``, ``identity``,
        ``camera``, ``score``, ``known``.
    """
    return [_finding(matches, row, path, calibrated) for row, path in enumerate(queries)]


def _finding(matches: Matches, row: int, path: str, calibrated: bool) -> dict[str, Any]:
    found = [
        {
            "rank": column + 1,
            "path": matches.paths[row, column],
            "identity": name_of(matches.ids[row, column]),
            "camera": name_of(matches.cams[row, column]),
            "score": float(matches.scores[row, column]),
            "known": bool(matches.known[row, column]) if calibrated else None,
        }
        for column in range(matches.scores.shape[1])
        if matches.keys[row, column] >= 0
    ]
    unknown = not any(match["known"] for match in found) if calibrated else None
    best = next((match["identity"] for match in found if match["known"] is not False), None)
    return {"image": path, "unknown": unknown, "identity": best, "matches": found}


def threshold_text(threshold: float, false_accept_rate: float) -> str:
    """A threshold and what it was set for."""
    return f"{threshold:.3f} (false accept rate {100 * false_accept_rate:g} %)"


def too_few(images: int | None, false_accept_rate: float | None) -> str:
    """What to know of a threshold that was set with too few images for its rate, a sentence; "" where it was not."""
    if images is None or not false_accept_rate or false_accept_rate * images >= 1:
        return ""
    return (
        f"{images} images are too few for a false accept rate of {100 * false_accept_rate:g} %; instead none of them "
        "reaches the threshold."
    )


def verdict(finding: dict[str, Any], threshold: float | None, false_accept_rate: float | None) -> str:
    """One line about a query of :func:`lreid.search.query`."""
    if not finding["matches"]:
        return "nothing to compare with"
    best = finding["matches"][0]
    if threshold is None or false_accept_rate is None:
        who = best["identity"] or "an identity without a name"
        return f"nearest: {who}, {best['score']:.3f}; calibrate the gallery to tell unenrolled people"
    rule = f"threshold {threshold_text(threshold, false_accept_rate)}"
    named = next((match for match in finding["matches"] if match["identity"] is not None), None)
    if named is None:
        return f"unknown: none of the nearest has a name, {rule}"
    if finding["unknown"]:
        nearest = "the nearest" if named is best else "the nearest with a name"
        return f"unknown: {nearest} has {named['score']:.3f}, {rule}"
    return f"known: {finding['identity']}, {named['score']:.3f}, {rule}"


def short_names(paths: Sequence[str]) -> list[str]:
    """The paths without the folders that all of them are in."""
    parts = [path.split("/") for path in paths]
    same = takewhile(lambda each: len(set(each)) == 1, zip(*(folders for *folders, _ in parts), strict=False))
    shared = sum(1 for _ in same)
    return ["/".join(each[shared:]) for each in parts]


def write_findings(results: dict[str, Any], out: Path, *, blur: bool = False) -> None:
    """Writes what :func:`lreid.search.query` gives as ``matches.json`` and as the page ``matches.html``."""
    title = f"Found in {Path(results['gallery']).name}"
    count = counted(results["images"], "image")
    intro = f"{count} in the gallery. Under each match: its rank, cosine similarity, identity, camera."
    section = _page_section(results, blur)
    write_text(out / "matches.json", json.dumps(results, indent=1) + "\n")
    ranked.write_ranked(out / "matches.html", title, [intro], [section])


def _page_section(results: dict[str, Any], blur: bool) -> ranked.Section:
    wide = []

    def tile(path: str, labels: tuple[str, ...]) -> ranked.Tile:
        try:
            image = read_image(path)
        except InputError:  # the gallery outlives its images
            return ranked.Tile(None, path, labels)
        wide.append(image.shape[1] > image.shape[0])
        return ranked.Tile(ranked.thumbnail(image, blur=blur), path, labels)

    def labels(match: dict[str, Any]) -> tuple[str, ...]:
        camera = () if match["camera"] is None else (f"cam {match['camera']}",)
        return (match["identity"] or "no name", *camera)

    names = short_names([finding["image"] for finding in results["queries"]])
    verdicts: dict[bool | None, ranked.Verdict] = {None: "", True: "known", False: "below"}
    rankings = [
        ranked.RankedQuery(
            tile(finding["image"], (name,)),
            verdict(finding, results["threshold"], results["false_accept_rate"]),
            [
                ranked.Match(
                    match["rank"],
                    f"{match['score']:.3f}",
                    verdicts[match["identity"] and match["known"]],
                    tile(match["path"], labels(match)),
                )
                for match in finding["matches"]
            ],
        )
        for name, finding in zip(names, results["queries"], strict=True)
    ]
    threshold = results["threshold"]
    note = (
        "Not calibrated: the nearest identity is shown, enrolled or not."
        if threshold is None
        else f"Who scores below {threshold:.3f} counts as unknown; so {100 * results['false_accept_rate']:g} % of "
        f"impostors are accepted. {too_few(results['calibrated_on'], results['false_accept_rate'])}".rstrip()
    )
    return ranked.Section("Matches", note, rankings, wide=sum(wide) > len(wide) / 2)
