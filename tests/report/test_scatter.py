import xml.etree.ElementTree as ET

import numpy as np

from lreid.report.scatter import MARGIN, SHAPES, SIZE, Dot, common_box, dot_keys, scatter


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
