"""Averages, forgetting and plasticity, against numbers worked out by hand."""

from typing import Any

import pytest

from lreid.results import average, cross_average, curve, summarise_run


def two_domains() -> dict[str, Any]:
    """Two domains learned one after the other, and one that is never trained."""
    return {
        "galleries": [
            {"name": "a", "kind": "seen", "first_task": 0},
            {"name": "b", "kind": "seen", "first_task": 1},
            {"name": "c", "kind": "unseen", "first_task": None},
        ],
        "mAP": [[60.0, 20.0, 30.0], [50.0, 70.0, 40.0]],
        "rank1": [[80.0, 30.0, 35.0], [70.0, 90.0, 45.0]],
        "identity_ap": {
            "a": {"ids": [1, 2], "ap": [[40.0, 80.0], [50.0, 50.0]]},
            "b": {"ids": [1, 2], "ap": [[10.0, 30.0], [70.0, 70.0]]},
            "c": {"ids": [1], "ap": [[30.0], [40.0]]},
        },
    }


def test_summary_after_the_last_task() -> None:
    assert summarise_run(two_domains()) == pytest.approx(
        {
            "seen_mAP": 60.0,
            "seen_rank1": 80.0,
            "unseen_mAP": 40.0,
            "unseen_rank1": 45.0,
            "mean_over_tasks_mAP": (60 + 60) / 2,  # only "a" is seen after the first task
            "mean_over_tasks_rank1": (80 + 80) / 2,
            "forgetting": -30 / 4,  # identities of a: +10, -30; of b: +60, +40
            "plasticity": (10 + 60 + 40) / 4,
            "backward_transfer": 50.0 - 60.0,
            "forward_transfer": 20.0,  # of b, before its task; a comes first and c never
        }
    )


def test_summary_after_the_first_task_has_no_forgetting() -> None:
    first = two_domains()
    for rows in (first["mAP"], first["rank1"], *(each["ap"] for each in first["identity_ap"].values())):
        del rows[1:]
    found = summarise_run(first)
    assert found["seen_mAP"] == 60.0
    assert found["forgetting"] is found["plasticity"] is found["backward_transfer"] is None
    assert found["forward_transfer"] is None


def test_forward_transfer_is_the_map_before_training() -> None:
    three = two_domains()
    three["galleries"][2] |= {"kind": "seen", "first_task": 2}
    for rows in (three["mAP"], three["rank1"], *(each["ap"] for each in three["identity_ap"].values())):
        rows.append(rows[-1])
    assert summarise_run(three)["forward_transfer"] == pytest.approx((20 + 40) / 2)


def test_summary_without_unseen_galleries() -> None:
    seen_only = two_domains()
    del seen_only["galleries"][2]
    assert summarise_run(seen_only)["unseen_mAP"] is None


def test_merged_gallery_is_not_part_of_the_unseen_mean() -> None:
    """The figure of Table 2 of DwoPP is that of the merged set; the mean is over the sets themselves alone."""
    both = two_domains()
    both["galleries"] += [
        {"name": "d", "kind": "unseen", "first_task": None},
        {"name": "merged unseen", "kind": "merged", "first_task": None},
    ]
    for metric, more in (("mAP", (10.0, 33.0)), ("rank1", (5.0, 44.0))):
        for row in both[metric]:
            row += more
    found = summarise_run(both)
    assert (found["unseen_mAP"], found["merged_mAP"]) == ((40.0 + 10.0) / 2, 33.0)
    assert (found["unseen_rank1"], found["merged_rank1"]) == ((45.0 + 5.0) / 2, 44.0)
    assert {key: value for key, value in found.items() if not key.startswith(("unseen", "merged"))} == {
        key: value for key, value in summarise_run(two_domains()).items() if not key.startswith("unseen")
    }


def test_reindex_free_metrics_use_the_galleries_of_their_own_task() -> None:
    crossed = {"a": {"mAP": [[60.0], [44.0, 50.0]]}, "b": {"mAP": [[20.0], [22.0, 70.0]]}}
    crossed["a"]["rank1"] = crossed["b"]["rank1"] = [[1.0], [2.0, 3.0]]
    mapped = {"a": {"mAP": [[9.0], [46.0, 9.0]]}, "b": {"mAP": [[9.0], [9.0, 8.0]]}}
    mapped["a"]["rank1"] = mapped["b"]["rank1"] = [[9.0], [9.0, 9.0]]
    found = summarise_run(two_domains() | {"cross_model": crossed, "cross_model_mapped": mapped})
    assert found["reindex_free_mAP"] == (44.0 + 70.0) / 2  # a was trained in the first task, b in the second
    assert (found["mapped_mAP"], found["mapped_rank1"]) == ((46.0 + 8.0) / 2, 9.0)
    only_unseen = two_domains() | {"cross_model": crossed}
    only_unseen["galleries"] = only_unseen["galleries"][2:]
    assert cross_average(only_unseen, "mAP", 1, 0) is None


def test_seen_mean_covers_only_trained_domains(results: Any) -> None:
    run = results(rows=4)
    assert curve(run, "mAP", "seen") == [0.0, 10.0, 20.5, 30.5]  # the second gallery from the third task on
    assert curve(run, "mAP", "unseen") == [2.0, 12.0, 22.0, 32.0]
    assert average(run, "rank1", 2, "seen") == 40.5
    assert average(results(unseen=()), "mAP", 0, "unseen") is None
