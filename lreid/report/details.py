"""The end of a page: the hardest identities, the protocol, the keys in which runs differ, and the versions."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from lreid.report.groups import Group, labels
from lreid.report.page import Row, scroll, section, table
from lreid.report.results import Results, counted, number

HARDEST = 15  # identities listed


def hardest(groups: Sequence[Group], where: str) -> str:
    """The identities with the lowest AP after the last task, mean over the finished runs of all groups.

    Conventions of AP have lists of their own. Merged test sets are left out: their people are in other ones too.
    """
    runs = [run for group in groups for run in group.runs]
    conventions = list(dict.fromkeys(run["ap"] for run in runs))
    return "\n".join(
        _hardest([run for run in runs if run["ap"] == ap], where + (f", {ap} AP" if len(conventions) > 1 else ""))
        for ap in conventions
    )


def _hardest(runs: Sequence[Results], where: str) -> str:
    runs = [run for run in runs if len(run["mAP"]) == len(run["tasks"])] or runs
    people: dict[tuple[str, Any], list[tuple[float, float]]] = {}  # AP now, best AP of each run
    for run in runs:
        own = {gallery["name"] for gallery in run["galleries"] if gallery["kind"] != "merged"}
        for gallery, history in run.get("identity_ap", {}).items():
            if gallery in own and history["ap"]:
                best = map(max, zip(*history["ap"], strict=True))
                for identity, now, top in zip(history["ids"], history["ap"][-1], best, strict=True):
                    people.setdefault((gallery, identity), []).append((now, top))
    if not people:
        return ""
    means = [
        (sum(now for now, _ in each) / len(each), *person, sum(top for _, top in each) / len(each))
        for person, each in people.items()
    ]
    lines = "".join(
        f'<tr><td class="text">{escape(str(identity))}</td><td class="text">{escape(gallery)}</td>'
        f'<td>{number(now)} <span class="bar"><i style="width:{now:.1f}%"></i></span></td>'
        f"<td>{number(top)}</td></tr>"
        for now, gallery, identity, top in sorted(means, key=lambda person: person[0])[:HARDEST]
    )
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("identity", "test set", "AP now", "best so far"))
    over = f", mean over {len(runs)} runs" if len(runs) > 1 else ""
    note = f"Lowest average precision after the last task{over}, out of {len(people)} test identities."
    body = f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"
    return section(f"Hardest identities{where}", note, scroll(body, "Hardest identities"))


def differing_keys(groups: Sequence[Group], where: str) -> str:
    """The keys of the config in which the groups of a benchmark differ."""
    configs = [group.runs[0].get("config") or {} for group in groups]
    keys = dict.fromkeys(key for config in configs for key in config)
    rows = [
        Row("", [key, *(str(config.get(key, "–")) for config in configs)])
        for key in keys
        if key != "METHOD.NAME" and any(config.get(key) != configs[0].get(key) for config in configs)
    ]
    if not rows or len(groups) < 2:
        return ""
    note = "Keys of the config whose values are not the same in all runs; a dash where a run does not have the key."
    body = table("Config keys that differ", ["key", *labels(groups)], rows)
    return section(f"Config keys that differ{where}", note, body)


def protocol(groups: Sequence[Group], where: str) -> str:
    """What was tested and how: runs are to be compared where all of this is the same."""
    runs = [run for group in groups for run in group.runs]
    configs = [run.get("config") or {} for run in runs]
    galleries = {
        gallery["name"]: f"{counted(gallery['queries'], 'query').replace('querys', 'queries')} in {gallery['gallery']}"
        for run in runs
        for gallery in run["galleries"]
        if "queries" in gallery
    }
    entries: list[tuple[str, Any]] = [
        ("fingerprint", _distinct(run.get("protocol") for run in runs)),
        ("average precision", _distinct(run["ap"] for run in runs)),
        ("metric", _distinct(config.get("EVAL.METRIC") for config in configs)),
        ("camera filter", _distinct(_switch(config.get("EVAL.CAMERA_FILTER")) for config in configs)),
        ("mirrored images added", _distinct(_switch(config.get("EVAL.FLIP")) for config in configs)),
        ("cameras", _distinct(config.get("BENCHMARK.CAMERAS") for config in configs)),
        *(("test set " + name, told) for name, told in galleries.items()),
    ]
    return section(f"Protocol{where}", "", _list(entries))


def settings(runs: Sequence[Results]) -> str:
    """What was run and with which versions; of one run also what it cost."""
    entries: list[tuple[str, Any]] = [
        ("method", _distinct(run["method"] for run in runs)),
        ("benchmark", _distinct(run["benchmark"] for run in runs)),
        ("seed", _distinct(run["seed"] for run in runs)),
    ]
    if len(runs) == 1:
        (run,) = runs
        seconds = run.get("seconds", {})
        memory = run.get("peak_memory_mib")
        entries += [
            ("stored exemplars", run.get("exemplars")),
            ("skipped images", run.get("skipped_images")),
            ("training time", _duration(seconds.get("train"))),
            ("evaluation time", _duration(seconds.get("evaluate"))),
            ("training speed", _rate(run.get("images_per_second"))),
            ("peak memory", f"{memory} MiB" if memory else None),
        ]
    packages = dict.fromkeys(name for run in runs for name in run.get("versions", {}))
    entries += [(name, _distinct(run.get("versions", {}).get(name) for run in runs)) for name in packages]
    return section("Settings and versions", "", _list(entries))


def _list(entries: Sequence[tuple[str, Any]]) -> str:
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(str(value))}</dd></div>"
        for name, value in entries
        if value is not None
    )
    return f"<dl>{items}</dl>" if items else ""


def _distinct(values: Any) -> str | None:
    """Each value once, with commas; None where there is none."""
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None)) or None


def _switch(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _duration(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _rate(images_per_second: float | None) -> str | None:
    return None if images_per_second is None else f"{images_per_second:.0f} images/s"
