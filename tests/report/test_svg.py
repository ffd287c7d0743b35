import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from lreid.report.svg import (
    HEIGHT,
    MARGIN,
    SHAPES,
    SIZE,
    WIDTH,
    Dot,
    Line,
    common_box,
    dot_keys,
    line_chart,
    line_keys,
    line_style,
    scatter,
    spread_ticks,
)


def chart(lines, **options):
    settings = {"x_range": (1, 3), "x_label": "tasks", "x_ticks": [(1, "1"), (3, "3")], "title": "a <b> & c"}
    drawn = [Line(name, points, line_style(place)) for place, (name, points) in enumerate(lines.items())]
    return ET.fromstring(line_chart(drawn, **(settings | options)))


def points_of(svg):
    return [
        [tuple(map(float, point.split(","))) for point in line.get("points").split()] for line in svg.iter("polyline")
    ]


def test_values_are_drawn_to_scale():
    svg = chart({"seen": [(1, 0.0), (2, 25.0), (3, 50.0)], "unseen": [(1, 10.0)]})
    (first, second, third), (other,) = points_of(svg)
    assert second[0] == pytest.approx((first[0] + third[0]) / 2)
    assert second[1] == pytest.approx((first[1] + third[1]) / 2, abs=0.1)
    assert first[1] > other[1] > second[1]  # y grows downwards
    assert len(list(svg.iter("circle"))) == 1  # a lone point would not be seen otherwise
    assert svg.get("aria-label") == "a <b> & c"


def test_axis_ends():
    texts = [text.text for text in chart({"Rank-1": [(1, 20.0), (3, 99.0)]}, y_max=100).iter("text")]
    assert texts == ["0", "20", "40", "60", "80", "100", "1", "3", "tasks"]


@pytest.mark.parametrize("values", [[], [0.0], [1e-7, 3e-7], [4e5], [-0.02, 1.0], [math.nan, 2.0, math.inf]])
def test_any_values_stay_inside(values):
    svg = chart({"loss": list(enumerate(values, start=1))}, dots=True)
    (points,) = points_of(svg)
    assert len(points) == sum(map(math.isfinite, values))
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)


def test_one_task_is_drawn():
    svg = chart({"seen": [(1, 5.0)]}, x_range=(1, 1), x_ticks=[(1, "1")])
    assert all(math.isfinite(number) for point in points_of(svg)[0] for number in point)


@pytest.mark.parametrize(("count", "labels"), [(3, "1 2 3"), (20, "1 3 5 7 9 11 13 15 17 19")])
def test_ticks_are_thinned_out(count, labels):
    assert " ".join(label for _, label in spread_ticks(count)) == labels


def test_a_band_reaches_as_far_up_as_down():
    line = Line("a", [(1, 10.0), (2, 20.0)], "line-0", [2.0, 0.0])
    svg = ET.fromstring(line_chart([line], x_range=(1, 2), x_label="", x_ticks=[], title=""))
    (band,) = (path for path in svg.iter("path") if path.get("class") == "band")
    corners = [tuple(map(float, pair.split())) for pair in band.get("d")[1:-1].split("L")]
    first, second = points_of(svg)[0]
    assert [x for x, _ in corners] == [first[0], second[0], second[0], first[0]]
    assert corners[0][1] + corners[3][1] == pytest.approx(2 * first[1], abs=0.1)
    assert corners[3][1] - corners[0][1] == pytest.approx(0.4 * (first[1] - second[1]), abs=0.2)
    assert corners[1] == corners[2] == second


def test_the_axis_holds_the_bands_up_to_its_end():
    def texts(**options):
        line = Line("a", [(1, 10.0), (2, -10.0)], "line-0", [25.0, 0.0])
        svg = ET.fromstring(line_chart([line], x_range=(1, 2), x_label="", x_ticks=[], title="", **options))
        return [text.text for text in svg.iter("text")][:-1]

    assert texts() == ["-20", "-10", "0", "10", "20", "30", "40"]
    assert texts(y_max=20) == ["-20", "-10", "0", "10", "20"]


def test_a_line_below_zero_hangs_from_the_zero_line():
    svg = chart({"forgetting": [(1, -3.0), (3, -12.5)]})
    assert [text.text for text in svg.iter("text")][:4] == ["-15", "-10", "-5", "0"]
    assert len([path for path in svg.iter("path") if path.get("class") == "grid zero"]) == 1


def test_an_upright_line_marks_a_place():
    (mark,) = (path for path in chart({"a": [(1, 1.0)]}, mark=1).iter("path") if path.get("class") == "mark")
    assert mark.get("d").startswith("M40.0 ")


def test_thirty_lines_look_different():
    assert len({line_style(place) for place in range(30)}) == 30
    legend = ET.fromstring(f"<p>{line_keys([Line('a & <b>', (), line_style(13), label='<b>')])}</p>")
    assert legend[0].get("class") == "key line-3 dash-1" and legend[0].text == "<b>"
    assert legend[0].get("data-name") == "a & <b>"


def places(svg):
    return [
        tuple(map(float, path.get("transform")[len("translate(") : -1].split()))
        for path in svg.iter("path")
        if path.get("transform")
    ]


def test_dots_are_drawn_to_one_scale():
    box = common_box(np.array([[0.0, 0.0], [4.0, 1.0]]), np.array([[2.0, -1.0]]))
    assert box == (0, -1, 4, 1)
    dots = [Dot(0, 0, 0, 0, "a"), Dot(4, 0, 13, 1, "b & <c>"), Dot(2, 1, 2, 9, "d")]
    svg = ET.fromstring(scatter(dots, box, "<title>"))
    assert places(svg) == [
        (MARGIN, SIZE / 2),
        (SIZE - MARGIN, SIZE / 2),
        (SIZE / 2, SIZE / 2 - (SIZE - 2 * MARGIN) / 4),
    ]
    drawn = [path for path in svg.iter("path") if path.get("transform")]
    assert [path.get("class") for path in drawn] == ["dot line-0", "dot line-3", "dot line-2"]
    assert [path.get("d") for path in drawn] == [SHAPES[0], SHAPES[1], SHAPES[9 - len(SHAPES)]]
    assert [path[0].text for path in drawn] == ["a", "b & <c>", "d"]


def test_one_place_is_the_middle():
    points = np.ones((2, 2))
    svg = ET.fromstring(scatter([Dot(1, 1, 0, 0, "")] * 2, common_box(points), ""))
    assert places(svg) == [(SIZE / 2, SIZE / 2)] * 2


def test_keys_show_a_shape_or_a_colour():
    shapes, colours = (ET.fromstring(f"<p>{dot_keys(['a', '<b>'], shapes=shapes)}</p>") for shapes in (True, False))
    assert [path.get("d") for path in shapes.iter("path")] == list(SHAPES[:2])
    assert [key.get("class") for key in colours] == ["shape line-0", "shape line-1"]
    assert "".join(shapes[1].itertext()) == "<b>"


def test_long_numbers_have_room_on_the_left() -> None:
    for top, longest in ((100.0, 3), (0.0025, 6)):
        svg = chart({"seen": [(1, 0.0), (3, top)]})
        labels = [each for each in svg.iter("text") if each.get("text-anchor") == "end"]
        assert max(len(each.text) for each in labels) == longest
        assert {each.get("x") for each in labels} == {str(34 + 8 * max(0, longest - 5))}
        assert points_of(svg)[0][0][0] == 40 + 8 * max(0, longest - 5)  # and the lines begin behind them
