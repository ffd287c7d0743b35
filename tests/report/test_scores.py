from lreid.report.scores import cross_model_table, score_table


def row(checkpoint: str, variant: str, transductive: bool, figures: list[float], rates: list[float]) -> dict:
    names = ("mAP", "mINP", "rank1", "rank5", "rank10")
    return {
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
    } | dict(zip(names, figures, strict=True))


RESULTS = {
    "ap": "trapezoidal",
    "metric": "cosine",
    "notes": ["north: a note"],
    "rows": [
        row("task-01", "plain", False, [41.25, 10, 50, 75, 100], [12.5, 0]),
        row("task-10", "re-ranked", True, [50.04, 9.96, 60, 80, 90], []),
    ],
    "cross_model": [{"test": "north", "checkpoints": ["task-01", "task-10"], "mAP": [[41.25, 3], [4, 50]]}],
}


def test_score_table() -> None:
    assert score_table(RESULTS).splitlines() == [
        "per cent; trapezoidal AP, cosine metric; open set by cosine",
        "",
        "checkpoint  test set  features                   mAP  mINP    R1    R5    R10  TPR@1%  TPR@0.1%  no match",
        "─" * 105,
        "task-01     north     plain                     41.2  10.0  50.0  75.0  100.0    12.5       0.0         3",
        "task-10     north     re-ranked (transductive)  50.0  10.0  60.0  80.0   90.0       –         –         3",
        "north: a note",
    ]


def test_without_open_set_there_are_no_columns_for_it() -> None:
    text = score_table(RESULTS | {"rows": RESULTS["rows"][1:]})
    assert "TPR" not in text and "open set" not in text


def test_cross_model_table() -> None:
    assert cross_model_table(RESULTS).splitlines() == [
        "mAP on north, queries of the row's model in the gallery of the column's model",
        "",
        "query model  task-01  task-10",
        "─────────────────────────────",
        "task-01         41.2      3.0",
        "task-10          4.0     50.0",
    ]
