"""The style sheet of every page: light and dark, phone and desk, screen and paper."""

from __future__ import annotations

# Ten colours for lines and dots, each with a contrast of 3 to 1 or more to the card behind it.
LIGHT = "2563eb d9600b 15803d c026a3 7c3aed 0e7490 b91c1c 854d0e 64748b 65720a"
DARK = "7aa7ff ffa05c 5fd08a f08bdc b79bff 4fc3dc ff8585 d6a35c a6b3c4 c3d04f"


def _palette(colours: str) -> str:
    return " ".join(f"--line-{place}: #{colour};" for place, colour in enumerate(colours.split()))


STYLE = f"""
:root {{ color-scheme: light dark; --page: #f6f7f9; --card: #fff; --text: #1c2430; --soft: #5d6878;
  --rule: #dfe3e9; --heat: 37 99 235; --good: #15803d; --bad: #b91c1c; --note: #fff4d6;
  {_palette(LIGHT)} }}
@media screen and (prefers-color-scheme: dark) {{
  :root {{ --page: #12161c; --card: #1b212a; --text: #e6eaf0; --soft: #98a3b3; --rule: #303946;
  --heat: 96 150 255; --good: #5fd08a; --bad: #ff8585; --note: #3a3118;
  {_palette(DARK)} }} }}
{" ".join(f".line-{place} {{ --line: var(--line-{place}); }}" for place in range(10))}
"""

STYLE += """
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0 0 4px; overflow-wrap: anywhere; }
p { margin: 0 0 12px; }
:focus-visible { outline: 3px solid var(--line-0); outline-offset: 2px; border-radius: 4px; }
.off { display: none !important; }
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
.filter { display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: center; margin-top: 16px;
  position: sticky; top: 0; z-index: 2; padding: 8px 0; background: var(--page); }
.filter input { flex: 1 1 200px; max-width: 360px; min-width: 0; font: inherit; color: inherit; padding: 8px 12px;
  background: var(--card); border: 1px solid var(--soft); border-radius: 8px; }
.charts { display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr)); }
figure { margin: 0; min-width: 0; max-width: 480px; } figcaption { font-weight: 600; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font-size: 12px; }
svg .grid { stroke: var(--rule); fill: none; } svg .zero { stroke: var(--soft); }
svg .mark { stroke: var(--soft); stroke-dasharray: 2 3; }
polyline { fill: none; stroke: var(--line); stroke-width: 2; stroke-linejoin: round; }
circle, .dot { fill: var(--line); } .band { fill: var(--line); opacity: .14; }
.dash-1 polyline { stroke-dasharray: 6 4; } .dash-2 polyline { stroke-dasharray: 2 3; }
.key { display: inline-block; margin-right: 16px; font-weight: 400; color: var(--soft); }
.key.off { display: none !important; }
.key::before { content: ""; display: inline-block; width: 18px; margin-right: 6px; vertical-align: middle;
  border-top: 3px solid var(--line); }
.key.dash-1::before { border-top-style: dashed; } .key.dash-2::before { border-top-style: dotted; }
.shape { display: inline-block; margin-right: 12px; color: var(--soft); }
.shape svg { display: inline-block; width: 14px; margin-right: 4px; vertical-align: -2px; }
.shape .dot { fill: var(--line, var(--soft)); } .dot { fill-opacity: .8; }
.keys { margin: 0 0 12px; line-height: 1.7; }
.scroll { overflow: auto; max-height: 85vh; }
thead th { position: sticky; top: 0; z-index: 1; background: var(--card); }
table { border-collapse: separate; border-spacing: 2px; font-variant-numeric: tabular-nums; }
th { font-weight: 600; text-align: left; font-size: .85rem; padding: 4px 8px; vertical-align: bottom; }
td { padding: 4px 8px; text-align: right; white-space: nowrap; }
td.text { text-align: left; }
tbody th[scope=row] { position: sticky; left: 0; background: var(--card); white-space: nowrap;
  max-width: 20em; overflow: hidden; text-overflow: ellipsis; vertical-align: middle; }
.matrix th[scope=col]:not(:first-child), th.number { text-align: right; white-space: nowrap; }
@media (max-width: 640px) { tbody th[scope=row] { max-width: 9em; } }
.list tbody tr:nth-child(even) :is(td, th) { background: color-mix(in srgb, var(--rule) 35%, var(--card)); }
th button { font: inherit; color: inherit; background: none; border: 0; padding: 4px 0; margin: -4px 0;
  cursor: pointer; text-align: inherit; white-space: nowrap; }
th button::after { content: "↕"; display: inline-block; width: 1.2em; text-align: right; color: var(--soft);
  opacity: .6; }
th[aria-sort] button::after { opacity: 1; color: var(--line-0); }
th[aria-sort=ascending] button::after { content: "↑"; } th[aria-sort=descending] button::after { content: "↓"; }
.matrix td { border-radius: 6px; min-width: 64px; line-height: 1.2;
  background: rgb(var(--heat) / var(--depth, 0)); }
.matrix td small { display: block; opacity: .75; }
.matrix td.before { background: none; border: 1px dashed var(--rule); color: var(--soft);
  font-style: italic; }
.matrix .mean { font-weight: 600; background: none; }
details { border-top: 1px solid var(--rule); padding: 4px 0; }
summary { cursor: pointer; padding: 4px 0; overflow-wrap: anywhere; }
.bar { display: inline-block; width: 90px; height: 8px; border-radius: 4px; background: var(--rule);
  overflow: hidden; vertical-align: middle; }
.bar i { display: block; height: 100%; background: var(--line-0); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 12px;
  margin: 8px 0 0; }
dt { color: var(--soft); font-size: .85rem; } dd { margin: 0; overflow-wrap: anywhere; }
@media print {
  :root { color-scheme: light; } body { background: none; font-size: 10pt; } main { max-width: none; padding: 0; }
  section, .card { border-color: #bbb; } figure, tr, .cards { break-inside: avoid; } h2 { break-after: avoid; }
  .filter, th button::after { display: none; } .scroll { overflow: visible; max-height: none; }
  thead th, tbody th[scope=row] { position: static; } td, th, .bar { print-color-adjust: exact; }
  details::details-content { display: block; content-visibility: visible; height: auto; } }
"""
