"""Forgetting and plasticity, against those of the summary and by hand."""

import numpy as np
import pytest

from lreid.report.sections import gallery_figures
from lreid.results import summarise_run, task_changes


def drawn(results, seed=0):
    """Results with random average precisions, the second gallery with more identities than the first."""
    rng = np.random.default_rng(seed)
    run = results(rows=4)
    for number, (name, history) in enumerate(run["identity_ap"].items()):
        history["ids"] = list(range(2 + number))
        history["ap"] = rng.uniform(0, 100, (4, 2 + number)).tolist()
        for row, values in zip(run["mAP"], history["ap"], strict=True):
            row[list(run["identity_ap"]).index(name)] = float(np.mean(values))
    return run


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_mean_over_tasks_is_the_figure_of_the_summary(results, seed):
    run = drawn(results, seed)
    wanted = summarise_run(run)
    falls, rises = np.mean(task_changes(run), axis=0)
    assert falls == pytest.approx(wanted["forgetting"]) and rises == pytest.approx(wanted["plasticity"])
    assert falls < 0 < rises


def test_seen_set_counts_from_its_task(results):
    run = results(rows=4)  # harbor, the second, is trained from task index 2 on
    for row, values in enumerate(([10.0, 20.0], [90.0, 0.0], [50.0, 30.0], [40.0, 70.0])):
        run["identity_ap"]["harbor"]["ap"][row] = values
        run["mAP"][row][1] = sum(values) / 2
    # From task 1 to 2: -40 and +30; from 2 to 3: -10 and +40.
    assert gallery_figures(run, "harbor") == [40.0, 55.0, 55.0, (-20 - 5) / 2, (15 + 20) / 2]


def test_unseen_set_counts_from_the_first_task(results):
    run = drawn(results)
    first, best, last, *_ = gallery_figures(run, "mall")
    column = [row[2] for row in run["mAP"]]
    assert (first, best, last) == (column[0], max(column), column[-1])


def test_missing_values_are_none(results):
    assert task_changes(results(rows=1)) == []
    assert gallery_figures(results(rows=1), "harbor") == [None] * 5
    assert gallery_figures(results(rows=1), "plaza") == [0.0, 0.0, 0.0, None, None]
    assert task_changes(results(rows=3, seen=())) == [None, None]
    run = results(rows=3)
    del run["identity_ap"]
    assert task_changes(run) == [None, None] and gallery_figures(run, "plaza")[3:] == [None, None]
