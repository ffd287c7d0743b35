import io
import sys

import numpy as np
import pytest

from lreid.report import learning_curve, results_heat_map


def lines_of(axes):
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}


def test_one_run(results):
    left, right = learning_curve(results()).axes
    assert lines_of(left) == {
        "dwopp, seen": ([1, 2, 3], [0.0, 10.0, 20.5]),
        "dwopp, unseen": ([1, 2, 3], [2.0, 12.0, 22.0]),
    }
    assert lines_of(right)["dwopp, seen"][1] == [20.0, 30.0, 40.5]


def test_seeds_are_averaged_up_to_the_shortest(results):
    runs = [
        results(rows=3, shift=1.0),
        results(rows=2, shift=4.0),
        results(rows=4, method="joint", unseen=()),
    ]
    axes = learning_curve(runs).axes[0]
    assert lines_of(axes)["dwopp, seen"] == ([1, 2], [2.5, 12.5])
    assert set(lines_of(axes)) == {"dwopp, seen", "dwopp, unseen", "joint, seen"}
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([band.min(), band.max()], [2.5 - 4.5**0.5, 12.5 + 4.5**0.5])


def test_benchmarks_are_told_apart(results):
    axes = learning_curve([results(), results(benchmark="market")]).axes[0]
    assert {"dwopp, synthetic-4, seen", "dwopp, market, seen"} <= set(lines_of(axes))


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_saves_as_png_without_pyplot(results, rows):
    file = io.BytesIO()
    learning_curve(results(rows=rows)).savefig(file, format="png")
    assert file.getvalue().startswith(b"\x89PNG")
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_heat_map_holds_the_matrix(results):
    axes = results_heat_map(results(), "rank1").axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), results()["rank1"])
    assert [text.get_text() for text in axes.texts[:6]] == [
        "20.0",
        "(21.0)",
        "22.0",
        "30.0",
        "(31.0)",
        "32.0",
    ]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["plaza", "harbor", "mall"]


def test_heat_map_needs_a_task(results):
    with pytest.raises(ValueError, match="no task is finished"):
        results_heat_map(results(rows=0))
