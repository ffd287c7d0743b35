import csv
import io
import re

import pytest

from lreid.errors import InputError
from lreid.report import comparison_table, task_table
from lreid.report.comparison import compare_table
from lreid.report.tables import WIDTH, cross_model_table, index_table, number, score_table
from lreid.results import METRICS, gain_interval


def line_of(table, start):
    (line,) = [line for line in table.splitlines() if line.startswith(start)]
    return re.split(r"\s{2,}", line.strip())


def test_task_table_shows_every_cell(results):
    table = task_table(results())
    assert "dwopp on synthetic-4, seed 0: 3 of 4 tasks" in table
    assert "rectangular AP" in table
    assert line_of(table, "after task") == ["after task", "plaza", "harbor", "mall", "seen mean"]  # one unseen set
    assert line_of(table, "2 city 2/4") == ["2 city 2/4", "10.0 / 30.0", "(11.0 / 31.0)", "12.0 / 32.0", "10.0 / 30.0"]
    assert line_of(table, "3 city 3/4")[1:] == ["20.0 / 40.0", "21.0 / 41.0", "22.0 / 42.0", "20.5 / 40.5"]
    changes = line_of(table, "forgetting")
    figures = re.findall(r"[+-]?\d+\.\d", " ".join(changes))
    assert figures == ["-1.2", "+11.2", "+20.0", "11.0"]  # and plasticity, backward and forward transfer
    assert "in brackets: the domain had not been trained yet" in table


def test_task_table_without_unseen_galleries_or_changes(results):
    run = results(rows=1, unseen=(), seen=("plaza",))
    run["summary"] |= {"forgetting": None, "plasticity": None, "backward_transfer": None}
    table = task_table(run)
    assert line_of(table, "after task") == ["after task", "plaza"]  # its mean would be the same again
    assert "unseen" not in table and "forgetting" not in table and "brackets" not in table


def test_task_table_before_the_first_task(results):
    assert task_table(results(rows=0)).endswith("mAP / Rank-1 in per cent, rectangular AP")


def test_task_table_of_many_galleries_fits_a_terminal(results):
    names = tuple(f"gallery-{place}" for place in range(12))
    table = task_table(results(seen=names[:2], unseen=names[2:]))
    assert max(map(len, table.splitlines())) <= WIDTH == 100
    assert line_of(table, "3 city 3/4") == ["3 city 3/4", "20.5 / 40.5", "26.5 / 46.5"]
    for column, name in enumerate(names):  # after the last task
        assert line_of(table, f"{name} ")[-1] == f"{20 + column}.0 / {40 + column}.0"
    assert "brackets" not in table  # every domain is trained by then


def test_comparison_over_seeds(results):
    runs = [results(rows=4, seed=seed, shift=shift) for seed, shift in enumerate((0.0, 1.0, 5.0))]
    runs += [results(rows=4, method="dmml_ft", unseen=())]
    table = comparison_table(runs)
    # 20.5, 21.5, 25.5: mean 22.5, sample deviation sqrt(7)
    assert line_of(table, "synthetic-4  dwopp")[:6] == ["synthetic-4", "dwopp", "rectangular", "4", "3", "22.5 ± 2.6"]
    assert line_of(table, "synthetic-4  dwopp")[-2:] == ["-1.2 ± 0.0", "+11.2 ± 0.0"]
    assert line_of(table, "synthetic-4  dmml_ft")[4:9] == ["1", "20.5", "40.5", "–", "–"]


def test_joint_training_has_no_mean_over_tasks(results):
    joint = results(method="joint", rows=1, tasks=["all"], seen=("plaza",))
    other = results(method="joint", rows=1, tasks=["all"], seen=("plaza",), benchmark="other")
    rows = list(csv.DictReader(io.StringIO(comparison_table([results(rows=4), joint, other], "csv"))))
    assert [row["mean_over_tasks_mAP"] for row in rows] == ["10.1000", "", "10.1000"]
    assert [row["seen_mAP"] for row in rows] == 3 * ["20.5000"]


def test_incomparable_runs_are_not_averaged(results):
    runs = [
        results(rows=4),
        results(rows=3),
        results(rows=4, ap="trapezoidal"),
        results(rows=4, benchmark="other"),
        results(rows=0),
    ]
    lines = list(csv.DictReader(io.StringIO(comparison_table(runs, "csv"))))
    assert [(line["benchmark"], line["AP"], line["tasks"], line["n"]) for line in lines] == [
        ("synthetic-4", "rectangular", "4", "1"),
        ("synthetic-4", "rectangular", "3/4", "1"),
        ("synthetic-4", "trapezoidal", "4", "1"),
        ("other", "rectangular", "4", "1"),
        ("synthetic-4", "rectangular", "0/4", "1"),
    ]
    assert lines[-1]["seen_mAP"] == ""


def test_csv_has_mean_and_deviation(results):
    runs = [results(rows=4, shift=shift, benchmark='a,"b"') for shift in (0.0, 2.0)]
    runs[0]["versions"], runs[1]["versions"] = {"commit": "a1", "torch": "2"}, {"commit": "b2", "torch": "2"}
    (line,) = csv.DictReader(io.StringIO(comparison_table(runs, "csv")))
    assert line["benchmark"] == 'a,"b"'
    assert float(line["seen_mAP"]) == pytest.approx(21.5)
    assert float(line["seen_mAP_std"]) == pytest.approx(2**0.5, abs=1e-4)
    assert float(line["forgetting"]) == -1.25
    assert (line["commit"], line["torch"], line["processor"]) == ("a1; b2", "2", "")


def test_markdown_and_latex_escape_names(results):
    runs = [results(rows=4, method="a|b_c&d", unseen=())]
    markdown = comparison_table(runs, "markdown").splitlines()
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in markdown} == {13}
    assert r"a\|b_c&d" in markdown[2]
    latex = comparison_table(runs * 2, "latex")
    assert r"a|b\_c\&d" in latex
    assert r"20.5 $\pm$ 0.0" in latex
    assert latex.startswith(r"\begin{tabular}{llllrrrrrrrr}") and latex.endswith(r"\end{tabular}")


def test_unknown_format_is_named(results):
    with pytest.raises(ValueError, match="'pdf'"):
        comparison_table([results()], "pdf")


DKPPP = {"networks": 90 * 2**20, "domain": 9 * 2**19, "identity": 3 * 2**10, "templates": 1}


@pytest.mark.parametrize(
    ("changes", "cells"),
    [
        ({"steps_trained": 3, "stored": DKPPP}, ["17", "2", "900", "500.0", "90.0", "4.5", "3.0", "1"]),
        ({"seconds": {"train": 4.0}}, ["17", "4", "900", *5 * ["–"]]),
        ({"seconds": {}, "exemplars": None, "peak_memory_mib": None}, 8 * ["–"]),
    ],
)
def test_cost_is_shown_where_it_is_known(results, changes, cells):
    cost = {"seconds": {"train": 9.0, "train_cpu": 1.5}, "peak_memory_mib": 900}
    run = results(**(cost | changes))
    head, _, line = comparison_table([run], cost=True).splitlines()
    kept = ["stored networks, MiB", "stored per domain, MiB", "stored per identity, KiB", "templates of people"]
    assert re.split(r"\s{2,}", head)[-8:] == ["exemplars", "train s", "peak MiB", "ms per step", *kept]
    assert re.split(r"\s{2,}", line)[-8:] == cells
    (row,) = csv.DictReader(io.StringIO(comparison_table([run, run], "csv", cost=True)))
    assert row["exemplars_std"] == ("" if cells[0] == "–" else "0.0000")
    assert "exemplars" not in comparison_table([run])


def test_images_column_appears_if_runs_differ_in_training_images(results):
    one, two, other = (results(rows=4, method=name) | {"images_trained": 19200} for name in ("dwopp", "dwpp", "lwf"))
    half = results(method="half") | {"images_trained": 9600}  # unfinished
    elsewhere = results(rows=4, benchmark="other") | {"images_trained": 300}
    assert "images" not in comparison_table([one, two, other, half, elsewhere])
    other["images_trained"] = 51200
    head, _, *lines = comparison_table([one, two, other]).splitlines()
    assert head.endswith("images") and [line.split()[-1] for line in lines] == ["19200", "19200", "51200"]
    assert comparison_table([one, two, other], cost=True).count(" images ") == 1


def test_drift_and_gradients_after_task_switches(results):
    """Means over updates, switches and sets of held-out images; ``since_switch`` does not count."""
    far = [9.0, 9.0]
    run = results(
        drift=[
            {
                "task": 1,
                "buffer": {"step": [0.1, 0.2], "since_switch": far},
                "held out: a": {"step": [0.2, 0.4], "since_switch": far},
                "held out: b": {"step": [0.6, 0.8], "since_switch": far},
            },
            {"task": 2, "buffer": {"step": [0.3, 0.8], "since_switch": far}},
        ],
        gradient_norms=[{"task": 1, "stored": [None, 0.5], "incoming": [0.25, 0.75]}],
    )
    (row,) = csv.DictReader(io.StringIO(comparison_table([run], "csv", switches=True)))
    names = ("drift_stored", "drift_held_out", "gradient_stored", "gradient_incoming")
    assert [float(row[name]) for name in names] == [0.35, 0.5, 0.5, 0.5]
    assert "drift, stored" in comparison_table([run], switches=True)
    (row,) = csv.DictReader(io.StringIO(comparison_table([results()], "csv", switches=True)))
    assert row["drift_stored"] == ""


def scored(checkpoint: str, variant: str, transductive: bool, figures: list[float], rates: list[float]) -> dict:
    names = ("mAP", "mINP", "rank1", "rank5", "rank10")
    return (
        {
            "checkpoint": checkpoint,
            "test": "north",
            "variant": variant,
            "transductive": transductive,
            "num_absent": 1,
            "num_filtered": 2,
            "open_set": [
                {"false_accept_rate": far, "threshold": 0.5, "true_positive_rate": rate}
                for far, rate in zip((1.0, 0.1), rates, strict=False)
            ],
        }
        | {metric.name: 1.0 for metric in METRICS}
        | dict(zip(names, figures, strict=True))
    )


RESULTS = {
    "ap": "trapezoidal",
    "metric": "cosine",
    "notes": ["north: a note"],
    "rows": [
        scored("task-01", "plain", False, [41.25, 10, 50, 75, 100], [12.5, 0]),
        scored("task-10", "re-ranked", True, [50.04, 9.96, 60, 80, 90], []),
    ],
    "cross_model": [{"test": "north", "checkpoints": ["task-01", "task-10"], "mAP": [[41.25, 3], [4, 50]]}],
}


def test_score_table() -> None:
    head, space, *lines, note = score_table(RESULTS).splitlines()
    assert (head, space, note) == ("per cent; trapezoidal AP, cosine metric; open set by cosine", "", "north: a note")
    heads = ["checkpoint", "test set", "features", "mAP", "mINP", "R1", "R5", "R10", "TPR@1%", "TPR@0.1%", "no match"]
    more = [metric.title for metric in METRICS if metric.title not in heads]
    heads[8:8], ones = more, ["1.0"] * len(more)
    assert [re.split(r"\s{2,}", line) for line in lines if not line.startswith("-")] == [
        heads,
        ["task-01", "north", "plain", "41.2", "10.0", "50.0", "75.0", "100.0", *ones, "12.5", "0.0", "3"],
        ["task-10", "north", "re-ranked (transductive)", "50.0", "10.0", "60.0", "80.0", "90.0", *ones, "–", "–", "3"],
    ]


def test_no_open_set_no_columns() -> None:
    text = score_table(RESULTS | {"rows": RESULTS["rows"][1:]})
    assert "TPR" not in text and "open set" not in text


def test_cross_model_table() -> None:
    assert cross_model_table(RESULTS).splitlines() == [
        "mAP on north: features of queries by the row's model, of the gallery by the column's model",
        "",
        "query model      task-01    task-10",
        "-------------  ---------  ---------",
        "task-01             41.2        3.0",
        "task-10              4.0       50.0",
    ]


@pytest.mark.parametrize(
    ("value", "signed", "text"),
    [
        (12.34, False, "12.3"),
        (12.34, True, "+12.3"),
        (-0.01, True, "0.0"),
        (-0.01, False, "0.0"),
        (-1.25, True, "-1.2"),
        (None, False, "–"),
        (float("nan"), True, "–"),
    ],
)
def test_numbers_are_formatted(value, signed, text):
    assert number(value, signed=signed) == text


def test_index_table() -> None:
    cost = {"depth": 100, "recall": {"1": 98.0, "10": 97.5}, "queries_per_second": 1234.4, "megabytes": 2.25}
    cost |= {"name": "hnsw", "build_seconds": 0.44}
    found = scored("task-01", "index hnsw", False, [40.0, 10, 50.5, 75, 100], []) | {"index": cost}
    head, _, *lines = index_table(RESULTS | {"rows": [*RESULTS["rows"], found]}).splitlines()
    assert head == "per cent; the index returns the 100 images per query, and all other images rank after these"
    heads = ["checkpoint", "test set", "index", "mAP", "minus exact", "R1", "minus exact", "recall@1", "@10", "@100"]
    assert [re.split(r"\s{2,}", line) for line in lines if not line.startswith("-")] == [
        [*heads, "queries/s", "MB", "build, s"],
        ["task-01", "north", "hnsw", "40.0", "-1.2", "50.5", "+0.5", "98.0", "97.5", "–", "1234", "2.2", "0.4"],
    ]


def test_merged_test_set_has_columns(results) -> None:
    plain, both = results(), results(method="other")
    both["summary"] |= {"merged_mAP": 31.25, "merged_rank1": 44.5, "merged_mINP": 3.0}
    assert "merged" not in comparison_table([plain])
    heads, first, second = list(csv.reader(io.StringIO(comparison_table([plain, both], "csv"))))
    names = [metric.name for metric in METRICS]
    kinds = ("seen", "unseen", "merged")
    assert [head for head in heads if head.split("_")[-1] in names and not head.startswith("mean")] == [
        f"{kind}_{name}" for kind in kinds for name in names if kind != "merged" or f"merged_{name}" in both["summary"]
    ]
    place = heads.index("merged_mAP")
    assert (first[place], second[place], second[heads.index("merged_rank1")]) == ("", "31.2500", "44.5000")
    assert "mINP" not in comparison_table([both])  # a terminal and paper have room for the main ones
    assert "31.2" in comparison_table([plain, both]) and "merged R1" in comparison_table([both], "latex")


def test_table_per_set_marks_the_best_and_the_second(results):
    runs = [results(rows=4, seed=seed, shift=shift) for seed, shift in ((0, 0.0), (1, 2.0))]
    runs += [results(rows=4, method="er", shift=4.0), results(rows=4, method="lwf", shift=-7.0)]
    heads, _, *rows = (line.split("|")[1:-1] for line in comparison_table(runs, "markdown", per_set=True).splitlines())
    first, *_, last = ([cell.strip() for cell in row] for row in rows)
    names = [f"{name} {metric}" for name in ("plaza", "harbor", "seen mean", "mall") for metric in ("mAP", "R1")]
    assert [head.strip() for head in heads][5:13] == names
    # After the last task, mAP is 30, 31 and 32 more than the shift; of two seeds, 1 more with a deviation of sqrt(2).
    assert first[5:9] == ["<u>31.0 ± 1.4</u>", "<u>51.0 ± 1.4</u>", "<u>32.0 ± 1.4</u>", "<u>52.0 ± 1.4</u>"]
    assert first[9:11] == ["<u>21.5 ± 1.4</u>", "<u>41.5 ± 1.4</u>"] and last[5] == "23.0"
    latex = comparison_table(runs, "latex", per_set=True)
    assert r"\textbf{34.0}" in latex and r"\underline{31.0 $\pm$ 1.4}" in latex
    for format in ("text", "csv"):
        assert not set("\1\2\3\4*<") & set(comparison_table(runs, format, per_set=True))


def test_two_runs_are_compared_by_the_bootstrap_of_their_queries(results):
    one, other = results(rows=4), results(rows=4, shift=3.0)
    for run in (one, other):
        run["identity_ap"]["plaza"]["queries"] = [3, 1]
    other["identity_ap"]["plaza"]["ap"][-1] = [25.0, 30.0]  # 15 and 30 before
    plaza, harbor, mall, mean = (re.split("  +", line) for line in compare_table(one, other, "AB").splitlines()[2:])
    low, high = gain_interval([15.0, 30.0], [25.0, 30.0], [3, 1])
    assert plaza == ["plaza", "seen", "30.0", "33.0", "+3.0", f"{low:+.1f} to {high:+.1f}".replace("+0.0", "0.0")]
    assert harbor[-1] == mall[-1] == "0.0 to 0.0" and mean[:5] == ["seen mean", "seen", "30.5", "33.5", "+3.0"]
    assert mean[5] == f"{low / 2:+.1f} to {high / 2:+.1f}".replace("+0.0", "0.0")  # the other set does not change
    other["identity_ap"] = {}
    with pytest.raises(InputError, match="--compare"):
        compare_table(one, other, "AB")
