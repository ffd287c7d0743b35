import io
import sys

import numpy as np
import pytest

from lreid.report import learning_curve, sensitivity_curve


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
    runs = [results(rows=3, shift=1.0), results(rows=2, shift=4.0), results(rows=4, method="joint", unseen=())]
    axes = learning_curve(runs).axes[0]
    assert lines_of(axes)["dwopp, seen"] == ([1, 2], [2.5, 12.5])
    assert set(lines_of(axes)) == {"dwopp, seen", "dwopp, unseen", "joint, seen"}
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([band.min(), band.max()], [2.5 - 4.5**0.5, 12.5 + 4.5**0.5])


def test_benchmarks_are_told_apart(results):
    axes = learning_curve([results(), results(benchmark="market")]).axes[0]
    assert {"dwopp, synthetic-4, seen", "dwopp, market, seen"} <= set(lines_of(axes))


def test_configs_are_told_apart(results):
    runs = [results(unseen=(), config={"METHOD.TEMPERATURE": value}) for value in (1.0, 2.0)]
    assert set(lines_of(learning_curve(runs).axes[0])) == {
        "dwopp, TEMPERATURE 1.0, seen",
        "dwopp, TEMPERATURE 2.0, seen",
    }


def test_many_methods_share_one_legend_and_look_apart(results):
    figure = learning_curve([results(method=f"m{place:02d}", unseen=()) for place in range(15)])
    assert len(figure.legends) == 1 and not any(axes.get_legend() for axes in figure.axes)
    assert [text.get_text() for text in figure.legends[0].get_texts()][::14] == ["m00, seen", "m14, seen"]
    assert len({(line.get_color(), line.get_marker()) for line in figure.axes[0].lines}) == 15


def test_sensitivity_is_a_line_of_means_over_the_values(results):
    runs = [
        results(method=method, shift=shift, config={"METHOD.TEMPERATURE": value, "TRAIN.LR": 0.1})
        for method, value, shift in [
            ("dwopp", 10.0, 4),
            ("dwopp", 0.1, 1),
            ("dwopp", 0.1, 3),
            ("dwopp", 1.0, 2),
            ("dwpp", 1.0, 0),
        ]
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
        results(protocol=str(value), config={"SYNTHETIC.TRAIN_IDENTITIES": value, "TRAIN.LR": 0.1})
        for value in (480, 240)
    ]
    (axes,) = sensitivity_curve(runs, "SYNTHETIC.TRAIN_IDENTITIES").axes
    assert lines_of(axes) == {"dwopp": ([240, 480], [20.5, 20.5])}


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_saves_as_png_without_pyplot(results, rows):
    file = io.BytesIO()
    learning_curve(results(rows=rows)).savefig(file, format="png")
    assert file.getvalue().startswith(b"\x89PNG")
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
