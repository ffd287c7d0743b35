import json
import os

import pytest

from lreid.errors import InputError
from lreid.results import read as read_results
from lreid.results import write as write_results


def test_reads_a_run_folder_or_its_file(results, run_folder):
    folder = run_folder(results())
    assert read_results(folder) == read_results(folder / "results.json") == results()


def test_undecodable_names_are_escaped(results, tmp_path):
    """Of people in folders named in GBK: such a run trained and could never finish."""
    gbk = os.fsdecode("张三".encode("gbk"))
    escaped = r"\udcd5\udcc5\udcc8\udcfd"
    names = {"identity_names": {"gate": {"0": gbk, "1": "张三"}}, "skipped": [f"/people/{gbk}/0.jpg"]}
    write_results(tmp_path / "results.json", results(**names, command=f"lreid train {gbk}"))
    found = read_results(tmp_path)
    assert found["identity_names"] == {"gate": {"0": escaped, "1": "张三"}}
    assert found["skipped"] == [f"/people/{escaped}/0.jpg"] and found["command"] == f"lreid train {escaped}"
    json.loads((tmp_path / "results.json").read_text())["skipped"][0].encode()  # other programs can write it, too


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        ("{", "cannot be read as JSON"),
        ("[]", "not a results file of schema 1"),
        ('{"schema": 0}', "not a results file of schema 1"),
        ('{"schema": 2}', "not a results file of schema 1: a later version"),
        (json.dumps({"schema": 1, "method": "dwopp"}), "has no benchmark, seed"),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path, content, message):
    if content is not None:
        (tmp_path / "results.json").write_text(content)
    with pytest.raises(InputError, match=message) as error:
        read_results(tmp_path / "results.json")
    assert str(tmp_path / "results.json") in str(error.value)
    assert "\n" not in str(error.value)


def test_accuracy_rows_that_do_not_grow_are_refused(results, run_folder):
    rows = [[90.0], [80.0]]
    folder = run_folder(results(accuracy={"knn": {"class": rows, "task": rows}}))
    with pytest.raises(InputError, match="accuracy knn class"):
        read_results(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"summary": {"seen_mAP": float("nan")}}, "summary has a number that is not finite"),
        ({"gradient_norms": [{"task": 1, "stored": [float("nan")]}]}, "gradient_norms has a number"),
        ({"config": {"TRAIN.EPOCHS": 10**400}}, "config has a number"),
        ({"seed": -(10**400)}, "seed has a number"),
        ({"tasks": [], "mAP": [], "rank1": []}, "tasks has 0"),
        ({"loss_history": [{"task": 0, "epoch": 0, "dmml": 1.0}]}, "epoch 0 of task 0, of 4 tasks"),
        ({"loss_history": [{"task": 4, "epoch": 1, "dmml": 1.0}]}, "epoch 1 of task 4, of 4 tasks"),
        (
            {"galleries": [{"name": "plaza", "kind": "<b>", "first_task": None}]},
            "kind of gallery 'plaza' is '<b>', not seen, unseen or merged",
        ),
        ({"accuracy_summary": {"knn": {"class": {}}}}, "has no task"),
    ],
)
def test_results_that_break_a_report_are_refused(results, run_folder, changes, message):
    unused = {"rank5": [], "rank10": [], "identity_ap": {}, "mAP": [], "rank1": []}
    with pytest.raises(InputError, match=message) as error:
        read_results(run_folder(results() | unused | changes))
    assert "\n" not in str(error.value)


def test_unknown_keys_are_not_checked(results, run_folder):
    assert read_results(run_folder(results(remark={"1": float("inf")})))
