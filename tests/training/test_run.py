"""Whole runs on a tiny benchmark: repeatable, resumable, exemplar-free, and clear about bad input."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import FEW, broken_off
from tiny import tiny_config as config
from yacs.config import CfgNode

import lreid
from lreid.build import benchmark_of, method_of
from lreid.checkpoint import load_checkpoint, save_checkpoint
from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.data.synthetic import draw, load_synthetic
from lreid.errors import InputError
from lreid.evaluation import Evaluator, Observer
from lreid.methods import method_class, method_defaults, method_names
from lreid.methods.dwopp import DwoPP
from lreid.report import task_table
from lreid.results import fault
from lreid.results import read as read_results
from lreid.training import trainer
from lreid.training.run import batching_of, run_folder_for, train
from lreid.training.run_folder import RunFolder

pytestmark = pytest.mark.slow


def figures(results: dict[str, Any]) -> dict[str, Any]:
    """All of a result but what a clock or an installation decides."""
    return {
        key: value
        for key, value in results.items()
        if key not in ("seconds", "images_per_second", "peak_memory_mib", "versions")
    }


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("unbroken") / "run"
    train(config(), out)
    return out


def test_a_list_without_test_is_trained_on_without_figures(tmp_path: Path) -> None:
    for person in range(4):
        for shot in range(3):
            Image.fromarray(draw(f"synthetic:plaza/0/{person}/1/{shot}")).save(tmp_path / f"{person}_{shot}.png")
    rows = [f"{person}_{shot}.png\t{person}\ttrain" for person in range(4) for shot in range(3)]
    (tmp_path / "list.csv").write_text("\n".join(["path\tpid\tsplit", *rows]))
    cfg = config({"BENCHMARK.TRAIN": f"csv:{tmp_path / 'list.csv'}", "BENCHMARK.TASKS_PER_DATASET": 2})
    results = train(cfg, tmp_path / "run")
    assert results["mAP"] == [[], []] and results["galleries"] == [] and results["loss_history"]
    assert read_results(tmp_path / "run")["tasks"] == ["list 1/2", "list 2/2"]
    assert task_table(results).endswith("no test images, nothing is measured")
    assert "Loss" in (tmp_path / "run/report.html").read_text()


def test_the_run_folder_keeps_its_contract(unbroken: Path) -> None:
    results = json.loads((unbroken / "results.json").read_text())
    assert (results["schema"], results["method"], results["benchmark"], results["seed"]) == (
        1,
        "dwopp",
        "synthetic-10",
        0,
    )
    assert len(results["tasks"]) == 3
    (gallery,) = results["galleries"]
    assert gallery["kind"] == "seen" and gallery["queries"] == 12
    for metric in ("mAP", "rank1", "rank5", "rank10"):
        assert np.shape(results[metric]) == (3, 1)
        assert all(0 < row[0] <= 100 for row in results[metric])
    assert results["summary"]["seen_mAP"] == results["mAP"][-1][0]
    assert results["exemplars"] == 0 and set(results["seconds"]) == {"train", "train_cpu", "evaluate"}
    assert results["peak_memory_mib"] > 100 and results["config"]["METHOD.NAME"] == "dwopp"
    assert {"config.yaml", "results.json", "log.txt", "report.html", "learning_curve.png"} <= {
        file.name for file in unbroken.iterdir()
    }
    names = sorted(file.name for file in (unbroken / "checkpoints").iterdir())
    assert names == ["task-01.pt", "task-02.pt", "task-03.pt"]
    assert {entry["task"] for entry in results["loss_history"]} == {0, 1, 2}
    assert "distill" in results["loss_history"][-1] and "distill" not in results["loss_history"][0]


def test_the_same_seed_gives_the_same_figures(unbroken: Path, tmp_path: Path) -> None:
    expected = json.loads((unbroken / "results.json").read_text())
    assert figures(train(config(), tmp_path / "again")) == figures(expected)
    other = train(config(SEED=1), tmp_path / "other")
    assert other["loss_history"] != expected["loss_history"]


def test_workers_do_not_change_the_figures(unbroken: Path, tmp_path: Path) -> None:
    results = train(config(DATA__WORKERS=2), tmp_path / "run")
    assert figures(results) == figures(json.loads((unbroken / "results.json").read_text()))


@pytest.mark.parametrize("epochs", [1, 3, 4, 8])
def test_a_broken_run_goes_on_to_the_same_figures(unbroken: Path, tmp_path: Path, epochs: int) -> None:
    """Broken off within the first task, before its second, within it, and within the last."""
    out = tmp_path / "run"
    broken_off(config(), out, epochs)
    with pytest.raises(InputError, match="already holds a run; add --resume"):
        train(config(), out)
    results = train(config(), out, resume=True)
    assert figures(results) == figures(json.loads((unbroken / "results.json").read_text()))
    assert json.loads((out / "results.json").read_text()) == results
    for name in ("task-01.pt", "task-03.pt"):
        one, other = (torch.load(each / "checkpoints" / name)["model"] for each in (out, unbroken))
        assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", ["dwopp", "cclis"])  # one that augments images by itself, too
def test_a_run_broken_off_before_an_evaluation_goes_on_to_the_same_figures(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is trained and saved, but neither looked at nor ended."""
    cfg = config(METHOD__NAME=name)
    expected = train(cfg, tmp_path / "unbroken")
    out, evaluate, evaluations = tmp_path / "run", Evaluator.evaluate, 0

    def interrupted(self: Evaluator, *args: Any, **options: Any) -> Any:
        nonlocal evaluations
        evaluations += 1
        if evaluations == 2:
            raise KeyboardInterrupt
        return evaluate(self, *args, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Evaluator, "evaluate", interrupted)
        train(cfg, out)
    assert figures(train(cfg, out, resume=True)) == figures(expected)


@pytest.mark.parametrize("name", [name for name in method_names() if name != "dwopp"])
def test_every_method_goes_on_to_the_same_figures(name: str, tmp_path: Path) -> None:
    """Broken off in the middle of the second task of three, or of the only one."""
    options = method_defaults(method_class(name))
    short = {f"METHOD__{option.upper()}": 2 for option in ("style_steps", "passes") if option in options}
    cfg = config(FEW, METHOD__NAME=name, **short)
    whole = train(cfg, tmp_path / "whole")
    broken_off(cfg, tmp_path / "broken", 4)
    assert figures(train(cfg, tmp_path / "broken", resume=True)) == figures(whole)
    model = lreid.load_model(tmp_path / "whole" / "checkpoints" / f"task-{len(whole['tasks']):02d}.pt")
    assert isinstance(model.neck, torch.nn.BatchNorm1d) == method_class(name).neck


class EvaluatedOnly(Observer):
    """Breaks a run off when the second task has been evaluated and before that is saved."""

    def after_evaluation(self, task: Task) -> None:
        if task.index == 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["fused_ft", "lstkc", "lstkc_pp", "dkp", "dkp_pp", "dask", "retrace"])
def test_networks_that_are_fused_after_a_task_are_fused_again(name: str, tmp_path: Path) -> None:
    """Killed between fusion and the end of the task: the checkpoint is that before fusion."""
    short = {"METHOD__STYLE_STEPS": 2} if name in ("dkp_pp", "dask") else {}
    cfg = config(FEW, METHOD__NAME=name, TRAIN__EPOCHS=1, EVAL__UNFUSED=True, **short)
    whole = train(cfg, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(cfg, tmp_path / "broken", observers={"break": EvaluatedOnly()})
    assert figures(train(cfg, tmp_path / "broken", resume=True)) == figures(whole)
    one, other = (load_checkpoint(tmp_path / run / "checkpoints" / "task-03.pt") for run in ("whole", "broken"))
    assert one["model"].keys() == other["model"].keys()
    for tensor, same in zip(one["model"].values(), other["model"].values(), strict=True):
        assert tensor.equal(same)


def test_fused_and_unfused_networks_are_evaluated_in_one_run(tmp_path: Path) -> None:
    """The un-fused one of the second task is what a run without fusion would have had; the first task fuses nothing."""
    options = {"METHOD__NAME": "fused_ft", "TRAIN__EPOCHS": 1}
    both = train(config(FEW, **options, METHOD__FUSION=0.3, EVAL__UNFUSED=True), tmp_path / "both")
    plain = train(config(FEW, **options, METHOD__FUSION=1.0), tmp_path / "plain")
    alone = train(config(FEW, **options, METHOD__FUSION=0.3), tmp_path / "alone")
    for metric in ("mAP", "mINP"):
        assert both["unfused"][metric][:2] == plain[metric][:2]
        assert both[metric] == alone[metric] and both["unfused"][metric][0] == both[metric][0]
        assert both["summary"][f"unfused_seen_{metric}"] == both["unfused"][metric][-1][0]
    assert alone["unfused"] == {} and "unfused_seen_mAP" not in alone["summary"]
    assert fault(both) is None
    assert "unfused mAP is no matrix" in str(fault(both | {"unfused": {"mAP": [[1.0]]}}))
    dwopp = train(config(FEW, EVAL__UNFUSED=True, TRAIN__EPOCHS=1), tmp_path / "dwopp")  # does nothing after a task
    assert dwopp["unfused"] == {}


@pytest.mark.parametrize(
    ("name", "lost"),
    [("dkp", "prototypes"), ("dask", "rehearser"), ("dkp_pp", "rehearser"), ("lstkc_pp", "long_teacher")],
)
@pytest.mark.parametrize("how", ["absent", "empty"])
def test_a_checkpoint_without_what_a_method_needs_is_told(name: str, lost: str, how: str, tmp_path: Path) -> None:
    if (name, how) == ("lstkc_pp", "empty"):
        pytest.skip("the second task has a single teacher")
    short = {"METHOD__STYLE_STEPS": 1} if name in ("dkp_pp", "dask") else {}
    cfg = config(FEW, METHOD__NAME=name, TRAIN__EPOCHS=1, **short)
    broken_off(cfg, tmp_path / "run", 1)
    (path,) = (tmp_path / "run" / "checkpoints").glob("task-01.pt")
    for other in set(path.parent.glob("*.pt")) - {path}:
        other.unlink()
    state = load_checkpoint(path)
    if how == "absent":
        del state["method"][lost]
    elif lost == "rehearser":
        state["method"][lost]["kernels"] = None
    else:
        state["method"][lost] = None
    save_checkpoint(path, state)
    with pytest.raises(InputError, match=f"task-01.pt: keeps no {lost}, which the method needs to go on; another meth"):
        train(cfg, tmp_path / "run", resume=True)


def test_a_finished_run_stays_as_it_is(unbroken: Path) -> None:
    before = (unbroken / "results.json").read_bytes()
    train(config(), unbroken, resume=True)
    assert (unbroken / "results.json").read_bytes() == before


def test_results_that_were_not_written_any_more_are(unbroken: Path, tmp_path: Path) -> None:
    """Killed after the last checkpoint and before results.json."""
    shutil.copytree(unbroken, tmp_path / "run")
    (tmp_path / "run" / "results.json").unlink()
    train(config(), tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "results.json").read_bytes() == (unbroken / "results.json").read_bytes()


def test_another_config_is_not_resumed(unbroken: Path) -> None:
    with pytest.raises(InputError, match=r"task-03.pt: was made with another config: SEED, TRAIN.LR differ"):
        train(config(SEED=3, TRAIN__LR=1e-4), unbroken, resume=True)


def test_joint_training_is_one_task(tmp_path: Path) -> None:
    results = train(config(METHOD__NAME="joint"), tmp_path / "run")
    assert results["tasks"] == ["joint"] and len(results["mAP"]) == 1
    assert results["summary"]["forgetting"] is None
    # Twelve identities by two make six episodes an epoch, three times those of a task of four.
    assert results["images_trained"] == 3 * 6 * 2 * 3  # epochs x episodes x identities x images


def test_a_saved_model_loads_and_extracts(unbroken: Path) -> None:
    model = lreid.load_model(unbroken / "checkpoints" / "task-03.pt")
    address = (
        load_synthetic("plaza", train_identities=1, test_identities=1, images_per_identity=3, distractors=0, seed=0)
        .train[0]
        .path
    )
    features = model.extract([draw(address)])
    assert features.shape == (1, 256) and features.dtype == np.float32
    np.testing.assert_allclose(features, model.extract([address]))


# --------------------------------------------------------------- a data set of files


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """A CSV data set of 12 training and 4 test identities in three domains."""
    folder = tmp_path / "people"
    folder.mkdir()
    rows = []
    drawn = load_synthetic(
        "plaza", train_identities=12, test_identities=12, images_per_identity=4, distractors=0, seed=0
    )
    for split in ("train", "query", "gallery"):
        pids = sorted({record.pid for record in getattr(drawn, split)})
        for number, record in enumerate(getattr(drawn, split)):
            name = f"{split}{number:03d}.png"
            Image.fromarray(draw(record.path)).save(folder / name)
            domain = "abc"[pids.index(record.pid) // 4]
            rows.append((name, f"{split == 'train'}-{record.pid}", record.camid, split, domain))
    with open(folder / "index.csv", "w", newline="") as file:
        csv.writer(file).writerows([("path", "pid", "camid", "split", "domain"), *rows])
    return folder


def of_files(people: Path, **changes: Any) -> CfgNode:
    source = {"BENCHMARK__TRAIN": [f"csv:{people}/index.csv"], "BENCHMARK__TASKS_PER_DATASET": 1}
    return config(**(source | changes))


def test_images_of_past_tasks_are_not_needed(people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DwoPP keeps no exemplars: it finishes although each task's images are deleted once the task is over."""
    end_task: Callable[[DwoPP, Task], None] = DwoPP.end_task
    deleted = []

    def forgetful(self: DwoPP, task: Task) -> None:
        for record in task.records:
            os.unlink(record.path)
            deleted.append(record.path)
        end_task(self, task)

    out = tmp_path / "run"
    monkeypatch.setattr(DwoPP, "end_task", forgetful)
    broken_off(of_files(people, DATA__CACHE_GIB=0.0), out, 4)
    results = train(of_files(people, DATA__CACHE_GIB=0.0), out, resume=True)  # not to resume either
    assert results["tasks"] == ["a", "b", "c"] and len(results["mAP"]) == 3
    assert len(set(deleted)) == 48 and not list(people.glob("train*.png"))
    names = results["identity_names"]  # as they are in the file
    assert all(name.startswith("False-") for each in names.values() for name in each.values())
    for test in "abc":
        assert list(names[test]) == [str(pid) for pid in results["identity_ap"][test]["ids"]]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("half a gallery", "images, identities or cameras are others"),
        ("labels", "images, identities or cameras are others"),
        ("training image", "images of b have another content"),
        ("test image", "images of a have another content"),
        ("past image", ""),
    ],
)
def test_a_run_is_not_resumed_on_other_data(people: Path, tmp_path: Path, change: str, told: str) -> None:
    """Its figures would be of neither."""
    cfg, index = of_files(people), people / "index.csv"
    broken_off(cfg, tmp_path / "run", 4)
    rows = index.read_text().splitlines()
    if change == "half a gallery":
        rows = [row for place, row in enumerate(rows) if ",gallery," not in row or place % 2]
    elif change == "labels":
        one, other, *_ = sorted({row.split(",")[1] for row in rows if row.endswith(",train,b")})
        swapped = {one: other, other: one}
        rows = [",".join(swapped.get(part, part) for part in row.split(",")) for row in rows]
    else:
        domain, split = {"training": "b,", "test": "a,", "past": "a,"}[change.split()[0]], "train"
        split = "query" if change == "test image" else "train"
        name = next(row.split(",")[0] for row in rows if f",{split},{domain[0]}" in row)
        Image.new("RGB", (16, 32), "red").save(people / name)
    index.write_text("\n".join(rows) + "\n")
    before = (tmp_path / "run" / "results.json").read_bytes()
    if not told:
        assert len(train(cfg, tmp_path / "run", resume=True)["mAP"]) == 3
        return
    with pytest.raises(InputError, match=told):
        train(cfg, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "results.json").read_bytes() == before


def test_a_folder_is_locked_before_its_state_is_read(tmp_path: Path) -> None:
    """Of two starts one must see what the other has done, so the second reads nothing as long as the first works."""
    with RunFolder(tmp_path / "run"), pytest.raises(InputError, match="another run is at work in this folder"):
        train(config(), tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()  # nothing was written to it


def test_domains_one_after_the_other(people: Path, tmp_path: Path) -> None:
    cfg = of_files(
        people,
        BENCHMARK__TRAIN=[f"csv:{people}/index.csv#{name}" for name in "ba"],
        BENCHMARK__UNSEEN=[f"csv:{people}/index.csv#c"],
    )
    results = train(cfg, tmp_path / "run")
    assert [(each["name"], each["kind"], each["first_task"]) for each in results["galleries"]] == [
        ("b", "seen", 0),
        ("a", "seen", 1),
        ("c", "unseen", None),
    ]
    assert np.shape(results["mAP"]) == (2, 3)
    assert results["summary"]["unseen_mAP"] == results["mAP"][1][2]


def test_a_bad_image_is_named_or_skipped(people: Path, tmp_path: Path) -> None:
    victim = people / "train005.png"
    whole = victim.read_bytes()
    for content, message in [(whole[: len(whole) // 2], "decoded"), (b"", "empty"), (b"no image", "decoded")]:
        victim.write_bytes(content)
        with pytest.raises(InputError, match=f"train005.png: image .*{message}.*DATA.SKIP_BAD_IMAGES"):
            train(of_files(people), tmp_path / "run")
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
    (people / "query003.png").unlink()
    results = train(of_files(people, DATA__SKIP_BAD_IMAGES=True), tmp_path / "run")
    assert results["skipped_images"] == 2
    assert results["skipped"] == [str(people / "query003.png"), str(victim)]
    assert "train005.png" in (tmp_path / "run" / "log.txt").read_text()


def test_a_missing_image_of_a_later_task_is_told_at_once(people: Path, tmp_path: Path) -> None:
    (people / "train047.png").unlink()
    with pytest.raises(InputError, match="train047.png"):
        train(of_files(people), tmp_path / "run")
    assert not list((tmp_path / "run" / "checkpoints").iterdir())


def test_a_full_disk_loses_nothing_saved(unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, save, saves = tmp_path / "run", torch.save, 0

    def until_full(state: Any, file: Any) -> None:
        nonlocal saves
        saves += 1
        if saves == 6:
            file.write(b"the beginning of it")
            raise OSError(28, "No space left on device")
        save(state, file)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", until_full)
        with pytest.raises(InputError, match=r"last.pt: cannot be written .*No space left"):
            train(config(), out)
    assert figures(train(config(), out, resume=True)) == figures(json.loads((unbroken / "results.json").read_text()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"EPISODE__IDENTITIES": 5}, "EPISODE.IDENTITIES is 5, but task 'plaza 1/3' has"),
        ({"METHOD__NAME": "dwop"}, "METHOD.NAME 'dwop' is no method"),
        ({"BENCHMARK__TRAIN": ["market1501"], "DATA__ROOT": "nowhere"}, "nowhere"),
        ({"BENCHMARK__TRAIN": ["market1502"]}, "market1502.*market1501"),
        ({"MODEL__WEIGHTS": "none.pth"}, "none.pth: no such file"),
        ({"DEVICE": "cuda:77"}, "DEVICE is 'cuda:77', which cannot be used"),
        ({"DEVICE": "meta"}, "DEVICE is 'meta', which cannot be used"),
        ({"TRAIN__EPOCHS": -1}, "TRAIN.EPOCHS is -1"),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        train(config(**changes), tmp_path / "run")
    assert "\n" not in str(error.value)


def test_a_checkpoint_of_another_architecture(unbroken: Path, tmp_path: Path) -> None:
    shutil.copytree(unbroken, tmp_path / "run")
    path = tmp_path / "run" / "checkpoints" / "task-03.pt"
    state = torch.load(path)
    state["model"] = {key.replace("stem", "trunk"): value for key, value in state["model"].items()}
    torch.save(state, path)
    with pytest.raises(InputError, match="of another architecture"):
        train(config(), tmp_path / "run", resume=True)


def test_a_diverging_loss_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="the loss is not finite in epoch .* lower TRAIN.LR"):
        train(config(TRAIN__LR=1e30), tmp_path / "run")


class PageReader(Observer):
    """Keeps the page as it is whenever a task begins to learn from a batch."""

    def __init__(self, page: Path) -> None:
        self.page, self.seen = page, set()

    def before_loss(self, batch: Batch) -> None:
        if self.page.exists():
            self.seen.add(self.page.read_text(encoding="utf-8"))


def test_page_and_log_tell_how_far_a_run_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "SHOWN_EVERY", 0.0)
    reader = PageReader(tmp_path / "run" / "report.html")
    train(config(), tmp_path / "run", observers={"reader": reader})
    lines = re.findall(r"task (\d) of 3, epoch (\d) of 3, (.*) left", (tmp_path / "run" / "log.txt").read_text())
    told = [(task, epoch) for task, epoch, _ in lines]
    assert told == [(task, epoch) for task in "123" for epoch in "0123"][1:]
    running = [text for text in reader.seen if "Running: task 2 of 3, epoch 1 of 3" in text]
    assert running and all("data-until=" in text for text in running)
    tasks = {re.search(r"Running: task (\d)", text)[1] for text in reader.seen}  # never one that waits no more
    assert tasks == set("123")
    assert "data-until=" not in reader.page.read_text() and "Running" not in reader.page.read_text()


def test_the_page_of_a_run_that_broke_off_waits_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "SHOWN_EVERY", 0.0)
    broken_off(config(), tmp_path / "run", epochs=4)
    text = (tmp_path / "run" / "report.html").read_text()
    assert "Unfinished: 1 of 3 tasks" in text and "data-until=" not in text


class Unordered(Observer):
    """Does what torch has no deterministic algorithm for."""

    def before_loss(self, batch: Batch) -> None:
        torch.zeros(3).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))


@pytest.mark.slow
def test_what_cannot_be_deterministic_is_told(tmp_path: Path) -> None:
    cfg = config(METHOD__NAME="dmml_ft", TRAIN__DETERMINISTIC=True)
    told = "^TRAIN.DETERMINISTIC: put_ does not have a deterministic implementation.*; set it to False$"
    with pytest.raises(InputError, match=told):
        train(cfg, tmp_path / "run", observers={"unordered": Unordered()})
    assert not torch.are_deterministic_algorithms_enabled()


def test_tensorboard_on_request(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    results = train(config(TRAIN__TENSORBOARD=True), tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert {"train/dmml", "train/distill", "train/lr", "summary/seen_mAP"} <= set(events.Tags()["scalars"])
    assert events.Scalars("summary/seen_mAP")[-1].value == pytest.approx(results["summary"]["seen_mAP"])
    assert len(events.Scalars("train/dmml")) == 9  # epochs of all tasks


def test_run_folders_are_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = Path("runs/synthetic-10-dwopp-seed0")
    assert run_folder_for(config(), resume=False) == run_folder_for(config(), resume=True) == first
    first.mkdir(parents=True)
    assert run_folder_for(config(), resume=True) == first
    assert run_folder_for(config(), resume=False) == Path(f"{first}-2")
    Path(f"{first}-2").mkdir()
    assert run_folder_for(config(), resume=True) == Path(f"{first}-2")


def test_a_stream_shows_every_image_once_with_several_steps_each(tmp_path: Path) -> None:
    stream = config(METHOD__NAME="bot_ft", TRAIN__EPOCHS=1, STREAM__SEGMENT=10, STREAM__ITERATIONS=3)
    results = train(stream, tmp_path / "run")
    images = sum(len(task.records) for task in benchmark_of(stream).tasks)
    assert results["images_trained"] == 3 * images
    with pytest.raises(InputError, match="STREAM.SEGMENT is above 0, but the method learns from episodes"):
        train(config(METHOD__NAME="dwopp", STREAM__SEGMENT=10), tmp_path / "other")


def test_sgd_is_not_adam(tmp_path: Path) -> None:
    adam = train(config(METHOD__NAME="dmml_ft"), tmp_path / "adam")
    sgd = train(config(METHOD__NAME="dmml_ft", TRAIN__OPTIMIZER="sgd", TRAIN__MOMENTUM=0.9), tmp_path / "sgd")
    assert sgd["loss_history"][0] != adam["loss_history"][0] or sgd["mAP"] != adam["mAP"]


def test_a_run_may_rank_through_an_index(tmp_path: Path) -> None:
    exact = train(config(), tmp_path / "exact")
    flat = train(config(EVAL__BACKEND="faiss"), tmp_path / "flat")
    asked = {key: exact[key] for key in ("config", "command", "changed")}
    assert figures(flat) | asked == figures(exact)
    assert "rectangular AP, faiss flat\n" in task_table(flat) and "rectangular AP\n" in task_table(exact)
    with pytest.raises(InputError, match=r"^EVAL.INDEX is 'IVF999,Flat', .* points .* should be at least as large"):
        train(config(EVAL__BACKEND="faiss", EVAL__INDEX="IVF999,Flat"), tmp_path / "refused")
    assert not (tmp_path / "refused" / "results.json").exists()


def test_drift_is_watched_at_every_switch_and_changes_nothing(tmp_path: Path) -> None:
    plain = train(config(FEW, METHOD__NAME="er"), tmp_path / "plain")
    watched = train(config(FEW, METHOD__NAME="er", EVAL__DRIFT_STEPS=2), tmp_path / "watched")
    assert watched["mAP"] == plain["mAP"] and watched["loss_history"] == plain["loss_history"]
    assert plain["drift"] == [] and [entry["task"] for entry in watched["drift"]] == [1, 2]
    for entry in watched["drift"]:
        for curves in (entry["buffer"], entry["held out: plaza"]):
            assert len(curves["step"]) == len(curves["since_switch"]) == 2
            assert 0 < curves["step"][0] == curves["since_switch"][0] < 2
    for entry in watched["gradient_norms"]:
        assert len(entry["stored"]) == len(entry["incoming"]) == 2 and min(entry["stored"]) > 0


def test_what_was_watched_within_a_task_is_kept(tmp_path: Path) -> None:
    """The run breaks off after one of the updates that are watched, or after both."""
    cfg = config(FEW, METHOD__NAME="er_ace", EVAL__DRIFT_STEPS=3, TRAIN__CHECKPOINT_STEPS=1, TRAIN__EPOCHS=4)
    whole = train(cfg, tmp_path / "whole")
    for epochs in (5, 7):
        out = tmp_path / f"broken{epochs}"
        broken_off(cfg, out, epochs)
        assert figures(train(cfg, out, resume=True)) == figures(whole)
    assert [len(entry["buffer"]["step"]) for entry in whole["drift"]] == [3, 3]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"BENCHMARK__TASKS_PER_DATASET": 99}, "BENCHMARK.TASKS_PER_DATASET is 99; must be from 1 to "),
        ({"BENCHMARK__TRAIN": ["synthetic:plaza", "synthetic:plaza"]}, "BENCHMARK.TRAIN has two data sets of the name"),
        ({"SYNTHETIC__DISTRACTORS": 99999}, "SYNTHETIC.DISTRACTORS of synthetic:plaza is 99999; must be from 0 to "),
        ({"MODEL__BACKBONE": "smal"}, "MODEL.BACKBONE is 'smal'; the nearest known one is small"),
        ({"MODEL__WEIGHTS": "imagenet"}, "MODEL.WEIGHTS is imagenet, but small has no ImageNet weights"),
    ],
)
def test_what_is_wrong_with_an_argument_names_its_key(changes: dict[str, object], told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=told):
        train(config(**changes), tmp_path / "run")


def test_other_epochs_go_on_to_the_same_figures(tmp_path: Path) -> None:
    """A longer first task, epochs of so many batches, one schedule over all tasks, BoT's augmentation."""
    cfg = config(
        FEW,
        METHOD__NAME="bot_ft",
        TRAIN__EPOCHS=2,
        TRAIN__FIRST_EPOCHS=4,
        TRAIN__EPOCH_OF="images",
        TRAIN__EPOCH_STEPS=3,
        TRAIN__SCHEDULE="steps",
        TRAIN__MILESTONES=[2, 6],
        TRAIN__DECAY_FACTOR=0.1,
        TRAIN__RESTARTS=False,
        INPUT__PAD=2,
        INPUT__ERASING_PROBABILITY=0.5,
    )
    whole = train(cfg, tmp_path / "whole")
    assert whole["steps_trained"] == (4 + 2 + 2) * 3
    course = [(entry["task"], entry["epoch"], entry["lr"]) for entry in whole["loss_history"]]
    rates = [1e-3, 1e-4, 1e-4, 1e-4, 1e-4, 1e-5, 1e-5, 1e-5]
    places = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2), (2, 1), (2, 2)]
    assert course == [(*place, pytest.approx(rate)) for place, rate in zip(places, rates, strict=True)]
    for epochs in (3, 5):
        out = tmp_path / str(epochs)
        broken_off(cfg, out, epochs)
        assert figures(train(cfg, out, resume=True)) == figures(whole)


def test_batches_hold_images_of_other_cameras_where_they_are_asked_for() -> None:
    for asked in (False, True):
        cfg = config(METHOD__NAME="bot_ft", BATCH__OTHER_CAMERAS=asked, BATCH__IMAGES=6)
        method = method_of(cfg, torch.device("cpu"), pretrained=False)
        task = benchmark_of(cfg).tasks[0]
        batches = batching_of(cfg, torch.device("cpu")).batches(method, task)
        camera = {record.path: record.camid for record in task.records}
        seen = [camera[path] for index in range(len(batches)) for path in batches[index].paths]
        blocks = [seen[first : first + 6] for first in range(0, len(seen), 6)]  # of four images by other cameras
        assert asked == all(block[0] not in block[1:] for block in blocks)
