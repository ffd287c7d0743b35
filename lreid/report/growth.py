"""Show how metrics change with the size of the gallery, as a table for the terminal and as charts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lreid.errors import InputError
from lreid.report.chart_sections import Chart
from lreid.report.plots import Axis, Line, line_keys
from lreid.report.rendering import Panel, panel
from lreid.report.tables import number, text_table
from lreid.utils.files import files_below
from lreid.utils.reading import read_json

SHOWN = {  # figures with their names and number of decimals
    "mAP": ("mAP", 1),
    "rank1": ("R1", 1),
    "threshold": ("threshold", 3),
    "true_positive_rate": ("TPIR", 1),
}


def growth_table(growth: Sequence[Mapping[str, Any]]) -> str:
    """Format the growth results of ``test.json`` as a table: one row per checkpoint, test set and gallery size."""
    heads = ["checkpoint", "test set", "identities", "images", *(title for title, _ in SHOWN.values())]
    rows = [
        [
            each["checkpoint"],
            each["test"],
            str(point["identities"]),
            number(point["images"], 0),
            *(" ± ".join(number(value, digits) for value in point[key]) for key, (_, digits) in SHOWN.items()),
        ]
        for each in growth
        for point in each["points"]
    ]
    head = "growth of the gallery: mean ± standard deviation over random parts; threshold and TPIR at FPIR 1 %"
    return "\n".join([head, "", text_table(heads, rows, left=2)])


def growth_in(folder: Path) -> list[dict[str, Any]]:
    """Read the results of ``lreid test --growth`` from every ``test.json`` in the folder of a run.

    Raises:
        InputError: a file cannot be read.
    """
    growth = []
    for file in files_below(folder / "test"):
        if file.name == "test.json":
            try:
                growth += [{"checkpoint": each["checkpoint"], **each} for each in read_json(file).get("growth", [])]
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise InputError(
                    f"{file}: is not a result of lreid test ({error}); test again, or move it away"
                ) from None
    return growth


def growth_panels(growth: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Make a section per test set with charts over the number of enrolled identities; each line is a checkpoint."""
    panels = []
    for test in dict.fromkeys(each["test"] for each in growth):
        models = [each for each in growth if each["test"] == test]
        sizes = sorted({point["identities"] for each in models for point in each["points"]})
        ticks = tuple((size, str(size)) for size in sizes[-3:])
        axis = Axis("enrolled identities", (0, sizes[-1]), ticks)
        charts = [Chart(title, _lines(models, key), axis) for key, (title, _) in SHOWN.items()]
        panels.append(
            panel(
                "charts.html",
                f"Growth of the gallery, {test}",
                "Random parts of the gallery; bands are one standard deviation. The threshold has FPIR 1 %.",
                charts=[(chart.title, chart.svg, "") for chart in charts],
                legend=line_keys(charts[0].lines),
                table=None,
            )
        )
    return panels


def _lines(models: Sequence[Mapping[str, Any]], key: str) -> list[Line]:
    return [
        Line(
            each["checkpoint"],
            tuple((point["identities"], point[key][0]) for point in each["points"]),
            place,
            tuple(point[key][1] for point in each["points"]),
        )
        for place, each in enumerate(models)
    ]
