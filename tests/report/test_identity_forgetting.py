"""Who was forgotten, when and by whom."""

import re

import numpy as np
import pytest

from lreid.report import write_page
from lreid.report.rendering import Match, RankedQuery, Tile
from lreid.report.sections import Pictures, fate, identity_forgetting, most_forgotten
from lreid.report.tables import grouped

TILE = Tile(b"jpeg", "a.jpg", ("id 7",))


def run_with(results, curves, **changes):
    """A run of four tasks on one test set, with the AP of each identity after every task."""
    run = results(rows=4, seen=("plaza",), unseen=(), **changes)
    run["identity_ap"] = {"plaza": {"ids": list(curves), "ap": np.array(list(curves.values())).T.tolist()}}
    return run


def test_identities_with_the_largest_loss_come_first(results):
    first = run_with(results, {7: [90, 80, 20, 30], 8: [50, 50, 50, 45], 9: [40, 90, 90, 40]})
    second = run_with(results, {7: [90, 90, 90, 88], 8: [50, 20, 20, 49], 9: [40, 41, 42, 43]}, method="other")
    people = most_forgotten(grouped([first, second]))
    assert [(person.identity, person.lost) for person in people] == [(7, 60.0), (9, 50.0)]  # 8 comes back
    first["identity_names"] = {"plaza": {"7": "car <7>"}}
    assert [person.name for person in most_forgotten(grouped([first]))] == ["car <7>", "9"]


def test_seeds_are_averaged_and_a_domain_counts_from_its_task(results):
    runs = [run_with(results, {7: [50 + step, 70, 70, 30 - step]}, seed=step) for step in (0, 10)]
    (person,) = most_forgotten(grouped(runs))
    (curve,) = person.curves.values()
    assert curve == [(1, 55.0), (2, 70.0), (3, 70.0), (4, 25.0)]
    for run in runs:
        run["galleries"][0]["first_task"] = 3
    assert most_forgotten(grouped(runs)) == []  # learned in the last task: nothing to forget


def test_runs_without_histories_have_no_such_section(results):
    run = results(rows=1)
    assert identity_forgetting(grouped([run]), "") == []
    run = results(rows=4)
    del run["identity_ap"]
    assert identity_forgetting(grouped([run]), "") == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([90, 80, 20, 30], "forgotten by it in task 3 (90.0 → 30.0)"),
        ([10, 90, 90, 40], "forgotten by it in task 4 (90.0 → 40.0)"),
        ([90, 20, 95, 80], "forgotten by it in task 4 (95.0 → 80.0)"),  # an earlier fall was made good
        ([90, 20, 90, 81], "kept by it (90.0 → 81.0)"),
        ([10, 20, 30, 40], "kept by it (40.0 → 40.0)"),
    ],
)
def test_fate_names_the_task_with_the_largest_fall(values, message):
    assert fate(list(enumerate(map(float, values), start=1)), "it") == message


def test_page_shows_curves_and_rankings_of_each_method(results, tmp_path, charted):
    runs = [
        run_with(results, {7: [90, 80, 20, 30]}, method="weak"),
        run_with(results, {7: [90, 90, 90, 88]}, method="firm"),
    ]
    groups = grouped(runs)
    key = ("synthetic-4", "plaza", 7)
    query = RankedQuery(TILE, "AP 3.0 %, first of 2 right at rank 9", [Match(1, "0.5", "wrong", TILE)])
    pictures = Pictures({key: TILE}, {(key, groups[0].name): [(1, query), (3, query)]})
    (panel,) = identity_forgetting(groups, "", pictures)
    assert "forgotten by weak in task 3 (90.0 → 30.0)" in panel.body
    assert "kept by firm (90.0 → 88.0)" in panel.body
    assert re.findall(r"<p>(Task \d)", panel.body) == ["Task 1", "Task 3"] and "<h3>weak</h3>" in panel.body
    assert "<h3>firm</h3>" not in panel.body  # it has no images
    assert [line.points[-1] for line in charted["AP of 7"]] == [(4, 30.0), (4, 88.0)]
    assert 'class="tile wrong"' in panel.body
    write_page(tmp_path / "a.html", runs, pictures=pictures)
    text = (tmp_path / "a.html").read_text()
    assert 'class="face"><img loading="lazy"' in text  # beside the hardest identities
    write_page(tmp_path / "b.html", runs)
    assert "<img" not in (tmp_path / "b.html").read_text()


def test_many_methods_are_counted(results):
    runs = [run_with(results, {7: [90, 80, 20, 30 + 12 * place]}, method=f"m{place}") for place in range(6)]
    (panel,) = identity_forgetting(grouped(runs), "")
    summary, below = panel.body.split("</summary>")
    assert "forgotten by 5 of 6" in summary and "m0" not in summary.split("<details")[1]  # 90 stays of the last
    assert "forgotten by m4 in task 3 (90.0 → 78.0)" in below and "kept by m5 (90.0 → 90.0)" in below
