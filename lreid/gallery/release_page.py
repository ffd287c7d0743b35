"""Report what a new model would change, as a page, as JSON and in one line."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from lreid.errors import counted, rounded_up
from lreid.gallery.findings import findings, is_wide, ranked_query, too_few
from lreid.gallery.gallery import Matches
from lreid.gallery.release_check import ModelComparison, Ranked
from lreid.report.rendering import Cell, Panel, RankedQuery, Table, TableRow, panel, ranked_panel, write_ranked
from lreid.report.tables import duration, number
from lreid.retrieval.ranking import ranking_of
from lreid.utils.clock import SINCE_START
from lreid.utils.files import write_text

PAGE, FIGURES = "check.html", "check.json"
MOST_PEOPLE = 12  # maximum number of people per section that are shown with images
MATCHES = 5  # number of gallery images per query
HEADS = {"rank1": "Rank-1", "true_positive_rate": "TPIR", "mAP": "mAP", "fpir": "FPIR"}


def write_check(comparison: ModelComparison, out: Path, *, blur: bool = False) -> str:
    """Write the results as the page ``check.html`` and as ``check.json``.

    Args:
        comparison: the result of :func:`lreid.gallery.release_check.check`.
        out: folder in which the files are written.
        blur: whether to blur the images on the page.

    Returns:
        The verdict in one line.
    """
    results = comparison.results
    verdict = verdict_of(results)
    write_text(out / FIGURES, json.dumps(results | {"verdict": verdict}, indent=1) + "\n")
    chosen, wide = _chosen(results), is_wide(comparison.queries[0].path)
    before, after = comparison.today.recognised, comparison.new.recognised
    panels = [_ways(results)]
    for title, people, changed in (
        ("No longer found", chosen["lost"], before & ~after),
        ("Newly found", chosen["gained"], after & ~before),
    ):
        if people:
            rankings = _examples(comparison, people[:MOST_PEOPLE], changed, blur)
            count = f"{MOST_PEOPLE} of these people" if len(people) > MOST_PEOPLE else "Each of these people"
            note = f"{count} with one query, before and after ({chosen['way']}); People lists all of them."
            panels.append(ranked_panel(f"{title}: {len(people)}", note, rankings, wide))
    panels += [*_groups(results, "camera", "Cameras"), *_groups(results, "enrolment", "Enrolment"), *_people(results)]
    title = f"{_word(results).capitalize()}: {results['new_model']} for {Path(results['gallery']).name}"
    write_ranked(out / PAGE, title, _intro(results, verdict), panels)
    return verdict


def verdict_of(results: dict[str, Any]) -> str:
    """Summarise the most important results in one line."""
    chosen, limits = _chosen(results), results["limits"]
    lost = f"{len(chosen['lost'])} of {counted(len(results['people']), 'person').replace('persons', 'people')}"
    ways = [
        f"{way['way']} {'not possible' if way['reason'] else number(way['true_positive_rate']) + ' %'}"
        for way in results["ways"]
    ]
    parts = [
        f"{lost} no longer found ({number(chosen['lost_share'])} %{_limit(limits['lost'])}), "
        f"{len(chosen['gained'])} newly found",
        f"queries found {number(results['today']['true_positive_rate'])} % before, "
        f"{number(chosen['true_positive_rate'])} % after ({', '.join(ways)})",
        f"threshold {rounded_up(results['today']['threshold'])} before, {rounded_up(chosen['threshold'])} after",
    ]
    if chosen["fpir"] is not None:
        today = number(results["today"]["fpir"])
        parts.append(
            f"unknown people accepted {today} % before, {number(chosen['fpir'])} % after{_limit(limits['fpir'])}"
        )
    return f"{_word(results)}: {results['new_model']}, gallery {chosen['way']}: {'; '.join(parts)}"


def before_and_after(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Compare the metrics of two models in one line, without those that were not measured."""
    shown = [(HEADS[key], before[key], after[key]) for key in ("mAP", "true_positive_rate", "fpir")]
    parts = [f"{head} {number(old)} % before, {number(new)} % after" for head, old, new in shown if new is not None]
    limits = (rounded_up(each["threshold"]) for each in (before, after))
    return "; ".join([*parts, "threshold {} before, {} after".format(*limits)])


def _word(results: dict[str, Any]) -> str:
    if all(limit is None for limit in results["limits"].values()):
        return "no limit set"
    return "pass" if results["passed"] else "fail"


def _limit(limit: float | None) -> str:
    return "" if limit is None else f", limit {limit:g} %"


def _chosen(results: dict[str, Any]) -> dict[str, Any]:
    return next(way for way in results["ways"] if way["way"] == results["chosen"])


def _intro(results: dict[str, Any], verdict: str) -> list[str]:
    rate, today = results["false_accept_rate"], results["today"]["threshold"]
    lines = [
        verdict,
        f"{counted(results['queries'], 'query')} of {len(results['people'])} people of the gallery "
        f"({counted(results['images'], 'image')}), {results['unknown_queries']} of unknown people, "
        f"{results['skipped']} left out. Before: {results['old_model']}; after: {results['new_model']}.",
        f"A query is found if the best image with a name shows the query's person and reaches the threshold. A person "
        "is found if at least half of the person's queries are found. Thresholds are set on the queries of known "
        f"people, at a false accept rate of {rate:g} %: {rounded_up(today)} before (the gallery "
        f"stores {rounded_up(results['stored_threshold'])}). " + too_few(results["queries"], rate / 100),
        "Images of the query's identity and camera are left out of each ranking."
        if results["camera_filter"]
        else "Not all cameras are known, so only the query image itself is left out of its ranking.",
    ]
    if not results["unknown_queries"]:
        lines.append("FPIR is not measured, because no query shows a person who is not in the gallery.")
    return lines


def _ways(results: dict[str, Any]) -> Panel:
    """Make a table of the gallery today and of the three options for the new model."""
    heads = ["gallery", "threshold", *HEADS.values(), "lost", "lost (Rank-1)", "newly found", "time", "more disk"]
    rows = [["before, old model", *_metrics(results["today"]), *[None] * 5]]
    notes = [
        "The new model searches three galleries: the gallery as it is; mapped, as lreid search reindex --map does; "
        "and re-extracted, as lreid search reindex does. TPIR is the share of queries that "
        "are found, FPIR the share of unknown people's queries that are accepted. Figures are in per cent; "
        "time and disk space were measured on this machine."
    ]
    for way in results["ways"]:
        name = way["way"] + (" (chosen)" if way["way"] == results["chosen"] else "")
        if way["reason"] is not None:
            rows.append([name, *[None] * (len(heads) - 1)])
            notes.append(f"Not possible: {way['way']}, because {way['reason']}.")
        else:
            people = (len(way[key]) for key in ("lost", "lost_rank1", "gained"))
            cost = duration(way["seconds"]), f"{way['bytes'] / 1e6:.1f} MB"
            rows.append([name, *_metrics(way), *people, *cost])
    return _table("Three galleries for the new model", " ".join(notes), heads, rows)


def _metrics(figures: dict[str, Any]) -> list[Any]:
    return [Cell(rounded_up(figures["threshold"]), figures["threshold"]), *(figures[key] for key in HEADS)]


def _table(title: str, note: str, heads: Sequence[str], rows: Iterable[Iterable[Any]]) -> Panel:
    """Make a table of texts, numbers and None, which is shown as a dash."""

    def cell(value: Any) -> str | Cell:
        if isinstance(value, (int, float)):
            return Cell(str(value) if isinstance(value, int) else number(value), value)
        return "–" if value is None else value

    table = Table(title, heads, [TableRow("", [cell(value) for value in row]) for row in rows])
    return panel("table.html", title, note, table=table)


def _groups(results: dict[str, Any], by: str, title: str) -> list[Panel]:
    """Make a table of metrics of groups of queries, today and with the new model."""
    groups = results[f"by_{by}"]
    if not groups:
        return []
    shown = {key: head for key, head in HEADS.items() if any(each["new"][key] is not None for each in groups.values())}
    heads = [by, "queries", *(f"{head} {when}" for head in shown.values() for when in ("before", "after"))]
    rows = (
        [
            f"from {_moment(int(name))}" if by == "enrolment" else name,
            group["queries"],
            *(group[when][key] for key in shown for when in ("today", "new")),
        ]
        for name, group in groups.items()
    )
    note = "Figures in per cent, for the queries of each camera."
    if by == "enrolment":
        note = "Figures in per cent, for groups of people by the earliest time of their gallery images."
    return [_table(title, note, heads, rows)]


def _moment(seconds: int) -> str:
    """Format a time as a date if it is at least ``SINCE_START``, otherwise as seconds."""
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d}" if seconds >= SINCE_START else f"{seconds} s"


def _people(results: dict[str, Any]) -> list[Panel]:
    """Make a table of all people whose results change."""
    keys = ("name", "queries", "found_today", "found_new", "rank1_today", "rank1_new")
    changed = [
        [each[key] for key in keys]
        for each in results["people"]
        if each["found_today"] != each["found_new"] or each["rank1_today"] != each["rank1_new"]
    ]
    heads = ["person", "queries", "found before", "found after", "Rank-1 before", "Rank-1 after"]
    note = "People with a changed query: number of queries that are found, and number with the right person at rank 1."
    return [_table("People", note, heads, changed)] if changed else []


def _examples(comparison: ModelComparison, people: Sequence[str], changed: np.ndarray, blur: bool) -> list[RankedQuery]:
    """For each person, show the rankings of the first query whose result changes, today and with the new model."""
    rankings = []
    for name in people:
        row = next(row for row, image in enumerate(comparison.queries) if image.identity == name and changed[row])
        for when, ranked in (("before", comparison.today), ("after", comparison.new)):
            finding = _finding(ranked, row, comparison.queries[row].path, name)
            rule = {"threshold": ranked.threshold, "false_accept_rate": comparison.results["false_accept_rate"] / 100}
            query = ranked_query(finding, Path(finding["image"]).name, rule, blur=blur)
            rankings.append(replace(query, headline=f"{when}: {query.headline}"))
    return rankings


def _finding(ranked: Ranked, row: int, path: str, name: str) -> dict[str, Any]:
    """Return the nearest named images of a query, in the form of :func:`lreid.gallery.findings.findings`."""
    columns = ranking_of(ranked.score, ranked.query, ranked.gallery, row)[:MATCHES]
    scores = ranked.score(slice(row, row + 1))[:, columns].cpu().numpy()  # (1, k)
    labels = {key: column[None] for key, column in vars(ranked.rows[columns]).items()}
    return findings(Matches(scores, **labels, known=scores >= ranked.threshold), [path], [name], calibrated=True)[0]
