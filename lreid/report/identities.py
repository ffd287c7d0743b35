"""Sections about single test identities: those with the lowest average precision, and those forgotten most."""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from lreid.report.chart_sections import band_note, group_keys, task_chart
from lreid.report.plots import Line, Points, lines_of
from lreid.report.rendering import VERDICTS, Panel, RankedQuery, Tile, panel
from lreid.report.tables import Group, labels, number
from lreid.results import Results

HARDEST = 15  # maximum number of hardest identities
MOST_FORGOTTEN = 8  # maximum number of forgotten identities
ROOM = 4  # maximum number of methods in one line
FORGOTTEN = 10.0  # loss in points of average precision from which an identity counts as forgotten

IdentityKey = tuple[str, str, int]  # benchmark, test set and number of the identity


class Pictures(NamedTuple):
    """Images for a page that shows how several runs rank test identities.

    Attributes:
        faces: an image of each identity.
        rankings: for each identity and :attr:`Group.name`, pairs of a task number (from 1) and a query's ranking after
            this task.
    """

    faces: Mapping[IdentityKey, Tile] = MappingProxyType({})
    rankings: Mapping[tuple[IdentityKey, str], Sequence[tuple[int, RankedQuery]]] = MappingProxyType({})


class ForgottenIdentity(NamedTuple):
    """A test identity and its average precision in per cent after every task.

    Attributes:
        gallery: test set of the identity.
        curves: one curve for each group that has several tasks and tests the identity, by :attr:`Group.name`. A curve
            consists of pairs: the number of the task (from 1), and the mean AP over the runs of the group. The first
            task of a curve is the one that trains on the domain of the test set.
    """

    gallery: str
    identity: int
    name: str
    curves: dict[str, list[tuple[int, float]]]

    @property
    def lost(self) -> float:
        """Points of average precision that the group with the largest loss lost, from the best to the last task."""
        return max(map(_lost, self.curves.values()))


def _lost(curve: Sequence[tuple[int, float]]) -> float:
    """Return how many points of average precision an identity lost from its best task to the last one."""
    return max(value for _, value in curve) - curve[-1][1]


def most_forgotten(groups: Sequence[Group]) -> list[ForgottenIdentity]:
    """Select up to :data:`MOST_FORGOTTEN` identities that lost most AP in any group, from the best to the last task.

    Only identities that lost at least :data:`FORGOTTEN` points are selected. Merged test sets are left out.
    """
    people: dict[tuple[str, int], ForgottenIdentity] = {}
    for group in groups:
        first = group.runs[0]
        for gallery in first["galleries"]:
            entries = [run.get("identity_ap", {}).get(gallery["name"]) for run in group.runs]
            histories = [each for each in entries if each and len(each["ap"]) > 1]
            if gallery["kind"] == "merged" or len(histories) < len(entries):
                continue
            means = np.mean([each["ap"] for each in histories], 0)  # (tasks, identities)
            begin = gallery["first_task"] or 0
            names = first.get("identity_names", {}).get(gallery["name"], {})
            for identity, values in zip(histories[0]["ids"], means.T.tolist(), strict=True):
                name = names.get(str(identity), str(identity))
                key = gallery["name"], identity
                person = people.setdefault(key, ForgottenIdentity(*key, name, {}))
                if curve := list(enumerate(values[begin:], start=begin + 1)):
                    person.curves[group.name] = curve
    forgotten = [person for person in people.values() if person.curves and person.lost >= FORGOTTEN]
    return sorted(forgotten, key=lambda person: -person.lost)[:MOST_FORGOTTEN]


def fate(curve: Sequence[tuple[int, float]], by: str) -> str:
    """Say whether the group ``by`` retained or forgot an identity, and in which task."""
    values = [value for _, value in curve]
    best, last = int(np.argmax(values)), values[-1]
    change = f"{number(values[best])} → {number(last)}"
    if values[best] - last < FORGOTTEN:
        return f"kept by {by} ({change})"
    falls = -np.diff(values[best:])
    return f"forgotten by {by} in task {curve[best + 1 + int(np.argmax(falls))][0]} ({change})"


def identity_forgetting(groups: Sequence[Group], where: str, pictures: Pictures = Pictures()) -> list[Panel]:  # noqa: B008
    """Show an entry per identity, with its rankings and its average precision after every task for every method."""
    people = most_forgotten(groups)
    if not people:
        return []
    named = dict(zip([group.name for group in groups], labels(groups), strict=True))
    shown: list[dict[str, Any]] = []
    drawn: list[Line] = []
    for person in people:
        key = (groups[0].benchmark, person.gallery, person.identity)
        lines = lines_of(groups, partial(_of_identity, gallery=person.gallery, identity=person.identity))
        drawn += lines
        shown.append(
            {
                "name": person.name,
                "gallery": person.gallery,
                "fates": [(group, fate(curve, named[group])) for group, curve in person.curves.items()],
                "lost": sum(_lost(curve) >= FORGOTTEN for curve in person.curves.values()),
                "chart": task_chart(groups, f"AP of {person.name}", lines),
                "face": pictures.faces.get(key),
                "methods": [(group, label, pictures.rankings.get((key, group), ())) for group, label in named.items()],
            }
        )
    note = (
        f"The {len(people)} test identities that lost most average precision (AP) from their best task to the last. "
        "A click on an identity shows its AP after every task. An identity counts as forgotten in the task with the "
        f"largest fall of AP, and as retained if it lost less than {FORGOTTEN:g} points." + band_note(drawn)
    )
    if any(queries for person in shown for *_, queries in person["methods"]):
        note += " The images show how every method ranked the gallery for one query of the identity after every task."
    title = f"Who was forgotten, when and by whom{where}"
    return [
        panel(
            "identity_forgetting.html",
            title,
            note,
            legend=group_keys(groups),
            people=shown,
            verdicts=VERDICTS,
            room=ROOM,
        )
    ]


def _of_identity(runs: Sequence[Results], gallery: str, identity: int) -> Points:
    """Return the average precision of an identity after every task of each run; empty if a run does not test it."""
    histories = [run.get("identity_ap", {}).get(gallery, {"ids": [], "ap": []}) for run in runs]
    if any(identity not in each["ids"] for each in histories):
        return []
    curves = [[row[each["ids"].index(identity)] for row in each["ap"]] for each in histories]
    return enumerate(zip(*curves, strict=True), start=1)


class Hard(NamedTuple):
    """A test identity with its average precision after the last and after its best task, averaged over runs."""

    gallery: str
    number: int
    identity: str
    now: float
    best: float


def hardest(groups: Sequence[Group], where: str, pictures: Pictures = Pictures()) -> list[Panel]:  # noqa: B008
    """List the identities with the lowest AP after the last task, averaged over the finished runs of all groups.

    Each AP convention has a list of its own. Merged test sets are left out, because their identities also occur in
    other test sets.
    """
    runs = [run for group in groups for run in group.runs]
    conventions = list(dict.fromkeys(run["ap"] for run in runs))
    panels = []
    for ap in conventions:
        of_convention = finished([run for run in runs if run["ap"] == ap])
        if not (people := hardest_identities(of_convention)):
            continue
        title = f"Hardest identities{where}" + (f", {ap} AP" if len(conventions) > 1 else "")
        over = f", mean over {len(of_convention)} runs" if len(of_convention) > 1 else ""
        note = f"Lowest average precision after the last task{over}, out of {len(people)} test identities."
        shown = [
            each._asdict() | {"face": pictures.faces.get((groups[0].benchmark, each.gallery, each.number))}
            for each in people[:HARDEST]
        ]
        panels.append(panel("hardest.html", title, note, people=shown))
    return panels


def finished(runs: Sequence[Results]) -> Sequence[Results]:
    """Select the finished runs, or all runs if none of them is finished."""
    return [run for run in runs if len(run["mAP"]) == len(run["tasks"])] or runs


def hardest_identities(runs: Sequence[Results]) -> list[Hard]:
    """Return all test identities in ascending order of average precision."""
    people: dict[tuple[str, int, str], list[tuple[float, float]]] = {}  # final AP and best AP of each run
    for run in runs:
        own = {gallery["name"] for gallery in run["galleries"] if gallery["kind"] != "merged"}
        for gallery, history in run.get("identity_ap", {}).items():
            if gallery in own and history["ap"]:
                names = run.get("identity_names", {}).get(gallery, {})
                best = map(max, zip(*history["ap"], strict=True))
                for identity, now, top in zip(history["ids"], history["ap"][-1], best, strict=True):
                    name = names.get(str(identity), str(identity))
                    people.setdefault((gallery, identity, name), []).append((now, top))
    means = [Hard(*who, fmean(now for now, _ in each), fmean(best for _, best in each)) for who, each in people.items()]
    return sorted(means, key=lambda person: person.now)
