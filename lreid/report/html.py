"""One page about a run: a single HTML file that needs no network and no JavaScript."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from lreid.files import write_text
from lreid.report.results import Results, average, counted, curve, is_trained, number, read_results
from lreid.report.svg import line_chart, spread_ticks

HARDEST = 15  # identities listed

STYLE = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --text: #1c2430; --soft: #5d6878;
  --rule: #dfe3e9; --heat: 37 99 235; --line-0: #2563eb; --line-1: #d9600b; --line-2: #15803d;
  --good: #15803d; --bad: #b91c1c; --note: #fff4d6; }
@media (prefers-color-scheme: dark) {
  :root { --page: #12161c; --card: #1b212a; --text: #e6eaf0; --soft: #98a3b3; --rule: #303946;
  --heat: 96 150 255; --line-0: #7aa7ff; --line-1: #ffa05c; --line-2: #5fd08a; --good: #5fd08a;
  --bad: #ff8585; --note: #3a3118; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0 0 4px; }
p { margin: 0 0 12px; }
.soft { color: var(--soft); }
.note { background: var(--note); border-radius: 8px; padding: 8px 12px; margin: 12px 0 0; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 12px; padding: 16px;
  margin-top: 16px; }
.cards { display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(116px, 1fr));
  margin-top: 16px; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 12px; padding: 12px; }
.card b { display: block; font-size: 1.5rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: .85rem; }
.good { color: var(--good); } .bad { color: var(--bad); }
.charts { display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr)); }
figure { margin: 0; min-width: 0; max-width: 640px; } figcaption { font-weight: 600; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font-size: 11px; }
svg .grid { stroke: var(--rule); fill: none; }
polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
polyline.line-0 { stroke: var(--line-0); } circle.line-0 { fill: var(--line-0); }
polyline.line-1 { stroke: var(--line-1); stroke-dasharray: 6 4; } circle.line-1 { fill: var(--line-1); }
.key::before { content: ""; display: inline-block; width: 18px; margin-right: 6px; vertical-align: middle;
  border-top: 3px solid var(--line-0); }
.key.one::before { border-top: 3px dashed var(--line-1); }
.key { margin-right: 16px; font-weight: 400; color: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: separate; border-spacing: 2px; font-variant-numeric: tabular-nums; }
th { font-weight: 600; text-align: left; font-size: .85rem; padding: 4px 8px; vertical-align: bottom; }
td { padding: 4px 8px; text-align: right; white-space: nowrap; }
td.text { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.matrix th[scope=row] { position: sticky; left: 0; background: var(--card); white-space: nowrap;
  max-width: 20em; overflow: hidden; text-overflow: ellipsis; vertical-align: middle; }
.matrix th[scope=col] { text-align: right; white-space: nowrap; }
@media (max-width: 640px) { .matrix th[scope=row] { max-width: 9em; } }
.matrix td { border-radius: 6px; min-width: 64px; line-height: 1.2;
  background: rgb(var(--heat) / var(--depth, 0)); }
.matrix td small { display: block; opacity: .75; }
.matrix td.before { background: none; border: 1px dashed var(--rule); color: var(--soft);
  font-style: italic; }
.matrix .mean { font-weight: 600; background: none; }
.bar { display: inline-block; width: 90px; height: 8px; border-radius: 4px; background: var(--rule);
  overflow: hidden; vertical-align: middle; }
.bar i { display: block; height: 100%; background: var(--line-0); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 12px;
  margin: 8px 0 0; }
dt { color: var(--soft); font-size: .85rem; } dd { margin: 0; overflow-wrap: anywhere; }
"""


def write_report(run_dir: str | Path) -> Path:
    """Writes ``report.html`` into a run folder from the ``results.json`` in it.

    The page is whole in itself, readable on a phone, and follows the reader's light or dark mode. It is
    written to a temporary file and renamed.

    Args:
        run_dir: the run folder; the run may be unfinished.

    Returns:
        The path of the page.

    Raises:
        InputError: there are no results to read, or the page cannot be written.
    """
    results = read_results(Path(run_dir) / "results.json")
    path = Path(run_dir) / "report.html"
    write_text(path, _page(results))
    return path


def _page(results: Results) -> str:
    title = escape(f"{results['method']} on {results['benchmark']}")
    done, total = len(results["mAP"]), len(results["tasks"])
    sections = [_learning_curves, _matrix, _losses, _hardest] if done else [_losses]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>",
            f"<h1>{title}</h1>",
            f'<p class="soft">Seed {escape(str(results["seed"]))}, {total} tasks, '
            f"{counted(len(results['galleries']), 'test set')}. All figures in per cent; "
            f"{escape(results['ap'])} average precision.</p>",
            f'<p class="note">Unfinished: {done} of {total} tasks are done.</p>' if done < total else "",
            _cards(results),
            *(section(results) for section in sections),
            _settings(results),
            "</main>\n</body>\n</html>\n",
        ]
    )


def _cards(results: Results) -> str:
    """Figures of the summary; forgetting and its like with their sign, coloured by it."""
    plain = (
        ("seen_mAP", "mAP, seen"),
        ("seen_rank1", "Rank-1, seen"),
        ("unseen_mAP", "mAP, unseen"),
        ("unseen_rank1", "Rank-1, unseen"),
        ("mean_over_tasks_mAP", "mAP, mean over tasks"),
    )
    signed = (
        ("forgetting", "forgetting per task"),
        ("plasticity", "plasticity per task"),
        ("backward_transfer", "backward transfer"),
    )
    summary = results["summary"]
    cards = [
        f'<div class="card"><b>{number(summary[key])}</b><span>{label}</span></div>'
        for key, label in plain
        if summary.get(key) is not None
    ]
    for key, label in signed:
        value = summary.get(key)
        if value is not None:
            tone = "good" if value > 0 else "bad" if value < 0 else ""
            text = number(value, signed=True)
            cards.append(f'<div class="card"><b class="{tone}">{text}</b><span>{label}</span></div>')
    return f'<div class="cards">{"".join(cards)}</div>' if cards else ""


def _section(title: str, note: str, body: str) -> str:
    return f'<section>\n<h2>{title}</h2>\n<p class="soft">{note}</p>\n{body}\n</section>'


def _learning_curves(results: Results) -> str:
    total = len(results["tasks"])
    charts = []
    for metric, label in (("mAP", "mAP"), ("rank1", "Rank-1")):
        lines = {}
        for kind in ("seen", "unseen"):
            points = [
                (task, value)
                for task, value in enumerate(curve(results, metric, kind), start=1)
                if value is not None
            ]
            if points:
                lines[kind] = points
        chart = line_chart(
            lines,
            x_range=(1, total),
            x_label="tasks learned",
            x_ticks=spread_ticks(total),
            title=f"{label} after every task",
            dots=True,
            y_max=100,
        )
        keys = "".join(
            f'<span class="key{" one" if place else ""}">{kind}</span>' for place, kind in enumerate(lines)
        )
        charts.append(f"<figure><figcaption>{label}<br>{keys}</figcaption>{chart}</figure>")
    note = "Seen: mean over the test sets whose domain has been trained by then."
    return _section("Learning curve", note, f'<div class="charts">{"".join(charts)}</div>')


def _matrix(results: Results) -> str:
    galleries = results["galleries"]
    kinds = [kind for kind in ("seen", "unseen") if any(gallery["kind"] == kind for gallery in galleries)]
    largest = max(max(row) for row in results["mAP"]) or 1
    heads = "".join(
        f'<th scope="col">{escape(gallery["name"])}<br><span class="soft">{gallery["kind"]}</span></th>'
        for gallery in galleries
    ) + "".join(f'<th scope="col">mean<br><span class="soft">{kind}</span></th>' for kind in kinds)
    lines = []
    for row, task in enumerate(results["tasks"][: len(results["mAP"])]):
        cells = []
        for column, gallery in enumerate(galleries):
            value, rank1 = results["mAP"][row][column], results["rank1"][row][column]
            figures = f"{number(value)}<small>{number(rank1)}</small>"
            if gallery["kind"] != "seen" or is_trained(gallery, row):
                cells.append(f'<td style="--depth:{0.06 + 0.5 * value / largest:.2f}">{figures}</td>')
            else:
                cells.append(f'<td class="before" title="before its domain was trained">{figures}</td>')
        for kind in kinds:
            mean, rank1 = (average(results, metric, row, kind) for metric in ("mAP", "rank1"))
            cells.append(f'<td class="mean">{number(mean)}<small>{number(rank1)}</small></td>')
        name = escape(task)
        lines.append(f'<tr><th scope="row" title="{name}">{row + 1} {name}</th>{"".join(cells)}</tr>')
    note = "mAP after every task, Rank-1 below it. Dashed and slanted: before the domain was trained."
    table = (
        f"<table><thead><tr><th>after task</th>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    )
    return _section("Results matrix", note, f'<div class="scroll matrix">{table}</div>')


def _losses(results: Results) -> str:
    """A chart for each term of the loss, as their sizes differ."""
    history = results.get("loss_history") or []
    names = list(
        dict.fromkeys(key for entry in history for key in entry if key not in ("task", "epoch", "lr"))
    )
    if not names:
        return ""
    starts: dict[int, int] = {}  # first point of each task
    for place, entry in enumerate(history):
        starts.setdefault(entry["task"], place)
    shown = {task for task, _ in spread_ticks(len(results["tasks"]))}
    charts = []
    for name in names:
        chart = line_chart(
            {name: [(place, entry[name]) for place, entry in enumerate(history) if name in entry]},
            x_range=(0, len(history) - 1),
            x_label="task",
            x_ticks=[(place, str(task + 1)) for task, place in starts.items() if task + 1 in shown],
            title=f"loss term {name}",
        )
        charts.append(f"<figure><figcaption>{escape(name)}</figcaption>{chart}</figure>")
    note = "Mean over an epoch of each term, before its weight; ticks stand where tasks begin."
    return _section("Loss", note, f'<div class="charts">{"".join(charts)}</div>')


def _hardest(results: Results) -> str:
    """The identities with the lowest AP after the last task."""
    people = []
    for gallery, history in results.get("identity_ap", {}).items():
        if history["ap"]:
            best = map(max, zip(*history["ap"], strict=True))
            people.extend(
                (now, gallery, identity, top)
                for now, identity, top in zip(history["ap"][-1], history["ids"], best, strict=True)
            )
    if not people:
        return ""
    lines = [
        f'<tr><td class="text">{escape(str(identity))}</td><td class="text">{escape(gallery)}</td>'
        f'<td>{number(now)} <span class="bar"><i style="width:{now:.1f}%"></i></span></td>'
        f"<td>{number(top)}</td></tr>"
        for now, gallery, identity, top in sorted(people, key=lambda person: person[0])[:HARDEST]
    ]
    head = "<tr><th>identity</th><th>test set</th><th>AP now</th><th>best so far</th></tr>"
    table = f"<table><thead>{head}</thead><tbody>{''.join(lines)}</tbody></table>"
    note = f"Lowest average precision after the last task, out of {len(people)} test identities."
    return _section("Hardest identities", note, f'<div class="scroll">{table}</div>')


def _settings(results: Results) -> str:
    seconds = results.get("seconds", {})
    entries: list[tuple[str, Any]] = [
        ("method", results["method"]),
        ("benchmark", results["benchmark"]),
        ("seed", results["seed"]),
        ("average precision", results["ap"]),
        ("stored exemplars", results.get("exemplars")),
        ("skipped images", results.get("skipped_images")),
        ("training time", _duration(seconds.get("train"))),
        ("evaluation time", _duration(seconds.get("evaluate"))),
        ("training speed", _rate(results.get("images_per_second"))),
        *results.get("versions", {}).items(),
    ]
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(str(value))}</dd></div>"
        for name, value in entries
        if value is not None
    )
    return f"<section>\n<h2>Settings and versions</h2>\n<dl>{items}</dl>\n</section>"


def _duration(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _rate(images_per_second: float | None) -> str | None:
    return None if images_per_second is None else f"{images_per_second:.0f} images/s"
