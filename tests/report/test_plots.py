"""Charts: what their elements hold, against the values that they are drawn from."""

import io
import math
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from lreid.report import learning_curve, sensitivity_curve
from lreid.report.plots import WIDTH, Axis, Line, line_chart, line_keys
from lreid.report.plots import lines_of as runs_lines
from lreid.report.scatter import MARGIN, SHAPES, SIZE, Dot, common_box, dot_keys, scatter
from lreid.report.tables import grouped

AXIS = Axis("tasks", (1, 3), ((1, "1"), (3, "3")))


def chart(*lines, title="a <b> & c", **options):
    return ET.fromstring(line_chart(lines, title, AXIS._replace(**options)))


def element(svg, name):
    """The parts of an element of the chart with a name."""
    return [group for group in svg.iter("g") if group.get("data-name") == name]


def marks(part):
    """Where markers stand, and what they show on hover."""
    return [(float(use.get("x")), float(use.get("y")), use[0].text) for use in part.iter("use") if len(use)]


def corners(part):
    """The points of a path."""
    words = part.find(".//path").get("d").translate(str.maketrans("", "", "MLz")).split()
    moved = [float(use.get("y")) for use in part.iter("use") if not len(use)] or [0.0]  # a band that is drawn elsewhere
    return [(float(x), float(y) + moved[0]) for x, y in zip(words[::2], words[1::2], strict=True)]


def texts(svg):
    return [text.text for text in svg.iter("text")]


def test_values_are_drawn_to_scale_and_shown_on_hover():
    seen = Line("<seen>", ((1, 0.0), (2, 25.0), (3, 50.0)))
    svg = chart(seen, Line("unseen", ((1, 10.0),), place=1))
    (part,), (other,) = element(svg, "<seen>"), element(svg, "unseen")
    first, second, third = marks(part)
    assert [text for *_, text in marks(part)] == ["<seen>: 0.00", "<seen>: 25.00", "<seen>: 50.00"]
    assert second[0] == pytest.approx((first[0] + third[0]) / 2)
    assert second[1] == pytest.approx((first[1] + third[1]) / 2, abs=0.1)
    assert first[1] > marks(other)[0][1] > second[1]  # y grows downwards
    assert corners(part) == [(x, y) for x, y, _ in marks(part)]
    assert svg.get("aria-label") == "a <b> & c"
    assert "var(--line-0)" in ET.tostring(part, "unicode") and "var(--line-1)" in ET.tostring(other, "unicode")
    lone = chart(seen, Line("lone", ((1, 10.0),)), dots=False)  # which would not be seen without its marker
    assert [len(marks(element(lone, name)[0])) for name in ("<seen>", "lone")] == [0, 1]


def test_charts_are_reproducible_and_self_contained():
    line = Line("a", ((1, 10.0), (3, 20.0)), band=(1.0, 2.0))
    first = line_chart((line,), "t", AXIS)
    assert line_chart((line,), "t", AXIS) == first
    assert "//" not in first and "<style" not in first and "#1f77b4" not in first and "font-family" not in first
    svg = ET.fromstring(first)
    names = {each.get("id") for each in svg.iter() if each.get("id")}
    assert names and not names & {each.get("id") for each in ET.fromstring(line_chart((line,), "u", AXIS)).iter()}
    assert {use.get("href")[1:] for use in svg.iter("use")} <= names


@pytest.mark.parametrize(
    ("points", "options", "levels"),
    [
        (((1, 20.0), (3, 99.0)), {"y_max": 100}, ["0", "20", "40", "60", "80", "100"]),
        (((1, -3.0), (3, -12.5)), {}, ["-15", "-10", "-5", "0"]),
        (((1, 0.0), (3, 0.0025)), {}, ["0", "0.0005", "0.001", "0.0015", "0.002", "0.0025"]),
        (((1, 10.0), (2, -10.0)), {"y_max": 20}, ["-20", "-10", "0", "10", "20"]),
    ],
)
def test_axis_ends(points, options, levels):
    band = (25.0, 0.0) if len(levels) == 5 else ()
    svg = chart(Line("a", points, band=band), **options)
    assert texts(svg) == ["1", "3", "tasks", *levels]
    left = min(x for x, *_ in marks(element(svg, "a")[-1]))
    assert left >= 40 + 8 * max(0, max(map(len, levels)) - 5) - 0.1  # room for long numbers


@pytest.mark.parametrize("values", [[], [0.0], [1e-7, 3e-7], [4e5], [-0.02, 1.0]])
def test_values_stay_inside_the_chart(values):
    svg = chart(Line("loss", tuple(enumerate(values, start=1))))
    shown = [point for part in element(svg, "loss") for point in marks(part)]
    assert len(shown) == len(values)
    assert all(0 <= x <= WIDTH and 0 <= y <= WIDTH for x, y, _ in shown)


def test_means_that_are_not_finite_are_left_out(results):
    (line,) = runs_lines(grouped([results()]), lambda _: [(1, [math.nan]), (2, [3.0]), (3, [math.inf]), (4, [None])])
    assert line.points == ((2, 3.0),)


def test_one_task_is_drawn():
    (part,) = element(chart(Line("seen", ((1, 5.0),)), limits=(1, 1), ticks=((1, "1"),)), "seen")
    assert all(math.isfinite(number) for number in marks(part)[0][:2])


def test_band_is_symmetric():
    band, line = element(chart(Line("a", ((1, 10.0), (3, 20.0)), band=(2.0, 0.0))), "a")
    (x, y), (end, top) = (point[:2] for point in marks(line))
    heights = sorted(height for at, height in corners(band) if at == pytest.approx(x))
    assert heights[0] + heights[-1] == pytest.approx(2 * y, abs=0.1)
    assert heights[-1] - heights[0] == pytest.approx(0.4 * (y - top), abs=0.2)
    assert all(height == pytest.approx(top) for at, height in corners(band) if at == pytest.approx(end))


def test_vertical_line_marks_a_position():
    svg = chart(Line("a", ((1, 1.0), (3, 2.0))), mark=3)
    right = marks(element(svg, "a")[0])[1][0]
    upright = [path for path in svg.iter("path") if "stroke-dasharray" in path.get("style", "")]
    assert [float(word) for word in upright[0].get("d").split()[1::3]] == [pytest.approx(right)] * 2


def test_thirty_lines_look_different():
    assert len({Line("", (), place).style for place in range(30)}) == 30
    legend = ET.fromstring(f"<p>{line_keys([Line('a & <b>', (), 13, label='<b>')])}</p>")
    assert legend[0].get("class") == "key line-3 dash-1" and legend[0].text == "<b>"
    assert legend[0].get("data-name") == "a & <b>"


def test_dots_are_drawn_to_one_scale():
    box = common_box(np.array([[0.0, 0.0], [4.0, 1.0]]), np.array([[2.0, -1.0]]))
    assert box == (0, -1, 4, 1)
    dots = [Dot(0, 0, 0, 0, "a"), Dot(4, 0, 13, 1, "b & <c>"), Dot(2, 1, 2, 9, "d")]
    svg = ET.fromstring(scatter(dots, box, "<title>"))
    shown = {text: (x, y) for x, y, text in marks(svg)}
    middle, unit = SIZE / 2, (SIZE - 2 * MARGIN) / 4
    wanted = {"a": (MARGIN, middle), "b & <c>": (SIZE - MARGIN, middle), "d": (middle, middle - unit)}
    assert shown == {name: pytest.approx(place, abs=2) for name, place in wanted.items()}
    colours = [use.get("style") for use in svg.iter("use")]
    assert all(f"var(--line-{place})" in style for place, style in zip((0, 3, 2), colours, strict=True))
    assert len({path.get("d") for path in svg.findall(".//defs/path")}) == 2  # of "a", and the square of "b" and "d"


def test_single_point_is_centred():
    svg = ET.fromstring(scatter([Dot(1, 1, 0, 0, "")] * 2, common_box(np.ones((2, 2))), ""))
    assert [point[:2] for point in marks(svg)] == [pytest.approx((SIZE / 2, SIZE / 2))] * 2


def test_keys_show_a_shape_or_a_colour():
    shapes, colours = (ET.fromstring(f"<p>{dot_keys(['a', '<b>'], shapes=shapes)}</p>") for shapes in (True, False))
    assert [key[0].text for key in shapes] == list(SHAPES.values())[:2]
    assert [key.get("class") for key in colours] == ["shape line-0", "shape line-1"]
    assert "".join(shapes[1].itertext()).endswith("<b>")


def lines_of(axes):
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}


def test_learning_curve_of_one_run(results):
    left, right = learning_curve(results(rows=4)).axes
    assert lines_of(left) == {
        "dwopp, seen": ([1, 2, 3, 4], [0.0, 10.0, 20.5, 30.5]),
        "dwopp, unseen": ([1, 2, 3, 4], [2.0, 12.0, 22.0, 32.0]),
    }
    assert lines_of(right)["dwopp, seen"][1] == [20.0, 30.0, 40.5, 50.5]


def test_seeds_are_averaged(results):
    runs = [results(shift=1.0), results(shift=4.0), results(rows=4, method="joint", unseen=())]
    axes = learning_curve(runs).axes[0]
    assert lines_of(axes)["dwopp, 3/4 tasks, seen"] == ([1, 2, 3], [2.5, 12.5, 23.0])
    assert set(lines_of(axes)) == {"dwopp, 3/4 tasks, seen", "dwopp, 3/4 tasks, unseen", "joint, seen"}
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([band.min(), band.max()], [2.5 - 4.5**0.5, 23.0 + 4.5**0.5])


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ([{}, {"benchmark": "market"}], {"dwopp, synthetic-4, seen", "dwopp, market, seen"}),
        (
            [{"config": {"METHOD.TEMPERATURE": value}} for value in (1.0, 2.0)],
            {"dwopp, TEMPERATURE 1.0, seen", "dwopp, TEMPERATURE 2.0, seen"},
        ),
    ],
)
def test_benchmarks_and_configs_are_distinguished(results, changes, names):
    axes = learning_curve([results(rows=4, unseen=(), **each) for each in changes]).axes[0]
    assert set(lines_of(axes)) == names and len({line.get_color() for line in axes.lines}) == 2


def test_many_methods_share_one_legend_and_look_different(results):
    figure = learning_curve([results(rows=4, method=f"m{place:02d}", unseen=()) for place in range(15)])
    assert len(figure.legends) == 1 and not any(axes.get_legend() for axes in figure.axes)
    assert [text.get_text() for text in figure.legends[0].get_texts()][::14] == ["m00, seen", "m14, seen"]
    assert len({(line.get_color(), line.get_marker()) for line in figure.axes[0].lines}) == 15


def test_sensitivity_is_a_line_of_means_over_the_values(results):
    chosen = [("dwopp", 10.0, 4), ("dwopp", 0.1, 1), ("dwopp", 0.1, 3), ("dwopp", 1.0, 2), ("dwpp", 1.0, 0)]
    runs = [
        results(rows=4, method=method, shift=shift, config={"METHOD.TEMPERATURE": value, "TRAIN.LR": 0.1})
        for method, value, shift in chosen
    ]
    (axes,) = sensitivity_curve(runs, "METHOD.TEMPERATURE").axes
    assert lines_of(axes) == {"dwopp": ([0.1, 1.0, 10.0], [22.5, 22.5, 24.5]), "dwpp": ([1.0], [20.5])}
    assert axes.get_xscale() == "log" and axes.get_xlabel() == "METHOD.TEMPERATURE"
    band = axes.collections[0].get_paths()[0].vertices
    np.testing.assert_allclose(np.ptp(band[np.isclose(band[:, 0], 0.1), 1]), 2 * 2**0.5)
    (axes,) = sensitivity_curve(runs[3:], "METHOD.TEMPERATURE").axes
    assert axes.get_xscale() == "linear"


def test_sensitivity_to_a_key_of_the_data_is_one_line_too(results):
    runs = [
        results(rows=4, protocol=str(value), config={"SYNTHETIC.TRAIN_IDENTITIES": value, "TRAIN.LR": 0.1})
        for value in (480, 240)
    ]
    (axes,) = sensitivity_curve(runs, "SYNTHETIC.TRAIN_IDENTITIES").axes
    assert lines_of(axes) == {"dwopp": ([240, 480], [20.5, 20.5])}


@pytest.mark.parametrize("rows", [0, 3])
def test_saves_as_png_without_pyplot(results, rows):
    file = io.BytesIO()
    learning_curve(results(rows=rows)).savefig(file, format="png")
    assert file.getvalue().startswith(b"\x89PNG")
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
