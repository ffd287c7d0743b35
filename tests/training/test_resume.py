"""Runs that broke off go on to the figures of unbroken ones, or say why they cannot."""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import clips
import pytest
import torch
from PIL import Image
from tiny import FEW, NETWORKS, InterruptAfter, csv_config, reproducible_values, tiny_config, train_interrupted

import lreid
from lreid.build import benchmark_of, method_of
from lreid.checkpoint import load_checkpoint, load_newest, save_checkpoint
from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.errors import InputError
from lreid.evaluation import Observer
from lreid.evaluation.evaluator import Evaluator
from lreid.methods import Method, method_class, method_defaults, method_names
from lreid.training.run import train
from lreid.training.run_folder import RunFolder

pytestmark = pytest.mark.slow
config = partial(tiny_config, FEW)


def differing(one: Any, other: Any, key: str = "") -> Iterator[str]:
    """The keys of a checkpoint, as paths, under which another one holds something else."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for name in one:
            yield from differing(one[name], other[name], f"{key}/{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, pair in enumerate(zip(one, other, strict=True)):
            yield from differing(*pair, f"{key}/{place}")
    elif isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        filled = one.nan_to_num().equal(other.nan_to_num()) and one.isnan().equal(other.isnan())
        if one.dtype != other.dtype or not filled:
            yield key
    elif one != other:
        yield key


CLOCKS = ("/results/seconds", "/results/images_per_second", "/results/peak_memory_mib", "/results/versions/commit")


class Copies(Observer):
    """Copies the folder of a run, as a kill would leave it: the second task evaluated, and within the third."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def before_task(self, task: Task) -> None:
        self.at = [task.index, 0]

    def before_loss(self, batch: Batch) -> None:
        self.at[1] += 1
        if self.at == [2, 2]:
            shutil.copytree(self.out, self.out.with_name("within"))

    def after_evaluation(self, task: Task) -> None:
        if task.index == 1:
            shutil.copytree(self.out, self.out.with_name("evaluated"))


RETURNING = {"BENCHMARK.GROUPS": [["a", 1, 2], ["b", 3, 4], ["c", 5, 6]], "BENCHMARK.TASKS_PER_DATASET": 1}
REID = ["er_aml_reid", "der_reid", "cclis_reid"]  # methods with another head


@pytest.fixture
def images_with_gradient(monkeypatch: pytest.MonkeyPatch) -> dict[object, int]:
    """Images of each forward pass of a network in training that a backward pass reached."""
    calls: dict[object, int] = {}

    def watch(network: torch.nn.Module, _: Any, output: torch.Tensor) -> None:
        if output.requires_grad and network.training:  # gss only compares gradients in evaluation mode
            call, count = object(), len(output)
            output.register_hook(lambda _: calls.update({call: count}))

    def watched(*arguments: Any, **options: Any) -> Method:
        method = method_of(*arguments, **options)
        method.model.backbone.register_forward_hook(watch)
        return method

    monkeypatch.setattr("lreid.training.run.method_of", watched)
    return calls


@pytest.mark.parametrize("name", [*method_names(), *REID])
def test_every_method_resumes_bit_for_bit(name: str, tmp_path: Path, images_with_gradient: dict[object, int]) -> None:
    """With identities that return on later tasks; networks that are fused after a task are fused again."""
    options = {} if name in REID else method_defaults(method_class(name))
    short = {"style_steps": 1, "style_batch": 2, "passes": 1}
    short = {f"METHOD.{option.upper()}": value for option, value in short.items() if option in options}
    takes = "exemplars" in options and name != "pad"
    more = {"METHOD.EXEMPLARS": 8} if takes else {}
    if name == "pad":
        clips.register()
    saves = {"TRAIN.EPOCHS": 1, "TRAIN.CHECKPOINT_STEPS": 1, "EVAL.UNFUSED": True}
    cfg = config(NETWORKS.get(name, {}), RETURNING, short, more, saves, METHOD__NAME=name)
    first, second, third = benchmark_of(cfg).tasks
    assert set(first.classes) & set(second.classes) & set(third.classes)
    whole = train(cfg, tmp_path / "whole", observers={"copies": Copies(tmp_path / "whole")})
    assert whole["images_trained"] == sum(images_with_gradient.values())
    last = load_checkpoint(tmp_path / "whole" / "checkpoints" / "task-03.pt")
    for copy in ("evaluated", "within"):
        assert reproducible_values(train(cfg, tmp_path / copy, resume=True)) == reproducible_values(whole)
        again = load_checkpoint(tmp_path / copy / "checkpoints" / "task-03.pt")
        last["observers"] = again["observers"]  # without the one that copies
        assert [key for key in differing(last, again) if not key.startswith(CLOCKS)] == []
    model = lreid.load_model(tmp_path / "whole" / "checkpoints" / "task-03.pt")
    assert name in REID or isinstance(model.neck, torch.nn.BatchNorm1d) == method_class(name).neck


class InterruptAtEvaluation(Observer):
    """Interrupt a run after the evaluation of its second task."""

    def after_evaluation(self, task: Task) -> None:
        if task.index == 1:
            raise KeyboardInterrupt


def test_training_seconds_cover_whole_tasks_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a run that is killed within a task, and again between the last step of a task and its end."""
    now = 0.0

    def takes(owner: type, name: str, seconds: float) -> None:
        inner = getattr(owner, name)

        def slow(*arguments: Any, **options: Any) -> Any:
            nonlocal now
            now += seconds
            return inner(*arguments, **options)

        monkeypatch.setattr(owner, name, slow)

    for clock in ("perf_counter", "process_time"):
        monkeypatch.setattr(time, clock, lambda: now)
    for hook, seconds in (("begin_task", 1e1), ("loss", 1), ("finish_task", 1e3), ("end_task", 1e4)):
        takes(method_class("dwopp"), hook, seconds)
    for owner, name in ((Evaluator, "evaluate"), (RunFolder, "save_current"), (RunFolder, "save_task")):
        takes(owner, name, 1e6)
    cfg, out = config(METHOD__NAME="dwopp", EVAL__UNFUSED=True), tmp_path / "run"
    train_interrupted(cfg, out, 4)
    with pytest.raises(KeyboardInterrupt):
        train(cfg, out, resume=True, observers={"break": InterruptAtEvaluation()})
    for results in (train(cfg, out, resume=True), train(cfg, tmp_path / "whole")):
        expected = results["steps_trained"] + 3 * (1e1 + 1e3 + 1e4)
        assert results["seconds"]["train"] == results["seconds"]["train_cpu"] == expected
        assert results["images_per_second"] == round(results["images_trained"] / expected, 1)


@pytest.mark.parametrize("name", ["co2l", "cclis"])
def test_stream_with_exemplars_resumes_and_has_their_steps(name: str, tmp_path: Path) -> None:
    """16 images per task and 8 exemplars in segments of 8: 2 steps, then 3 of the union, or 4 of equal halves."""
    stream = {"STREAM.SEGMENT": 8, "TRAIN.EPOCHS": 2, "TRAIN.CHECKPOINT_STEPS": 1, "METHOD.EXEMPLARS": 8}
    cfg = config(stream, METHOD__NAME=name)
    whole = train(cfg, tmp_path / "whole", observers={"copies": Copies(tmp_path / "whole")})
    later = {"co2l": 3, "cclis": 4}[name]
    assert whole["steps_trained"] == 2 * (2 + 2 * later)
    assert whole["images_trained"] == (2 * 2 * (16 + 2 * 24) if name == "co2l" else 2 * (16 + 2 * 32))
    for copy in ("evaluated", "within"):
        assert reproducible_values(train(cfg, tmp_path / copy, resume=True)) == reproducible_values(whole)


def test_checkpoint_without_state_of_the_method_is_refused(tmp_path: Path) -> None:
    cfg = config(METHOD__NAME="lstkc_pp", TRAIN__EPOCHS=1)
    train_interrupted(cfg, tmp_path / "run", 1)
    (path,) = (tmp_path / "run" / "checkpoints").glob("task-01.pt")
    for other in set(path.parent.glob("*.pt")) - {path}:
        other.unlink()
    state = load_checkpoint(path)
    del state["method"]["long_teacher"]
    save_checkpoint(path, state)
    with pytest.raises(InputError, match="task-01.pt: does not contain long_teacher"):
        train(cfg, tmp_path / "run", resume=True)


def test_resuming_a_finished_run_writes_missing_results(unbroken: Path, tmp_path: Path) -> None:
    shutil.copytree(unbroken, tmp_path / "run")
    (tmp_path / "run" / "results.json").unlink()
    train(config(), tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "results.json").read_bytes() == (unbroken / "results.json").read_bytes()


def test_resume_refuses_another_config(unbroken: Path) -> None:
    with pytest.raises(InputError, match="already contains a run; add --resume"):
        train(config(), unbroken)
    with pytest.raises(InputError, match="task-03.pt: .*SEED, TRAIN.LR"):
        train(config(SEED=3, TRAIN__LR=1e-4), unbroken, resume=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("half a gallery", "images, identities or cameras differ"),
        ("labels", "images, identities or cameras differ"),
        ("training image", "contents of the images of b differ"),
        ("test image", "contents of the images of a differ"),
        ("past image", ""),
    ],
)
def test_resume_refuses_changed_data(people: Path, tmp_path: Path, change: str, message: str) -> None:
    """Its figures would be of neither."""
    cfg, index = csv_config(people, **FEW), people / "index.csv"
    train_interrupted(cfg, tmp_path / "run", 4)
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
    if not message:
        assert len(train(cfg, tmp_path / "run", resume=True)["mAP"]) == 3
        return
    with pytest.raises(InputError, match=message):
        train(cfg, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "results.json").read_bytes() == before


def test_folder_in_use_is_refused(tmp_path: Path) -> None:
    """Of two starts one must see what the other has done, so the second reads nothing as long as the first works."""
    with RunFolder(tmp_path / "run"), pytest.raises(InputError, match="another run uses this folder"):
        train(config(), tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()  # nothing was written to it


def test_unequal_epochs_resume_to_the_same_results(tmp_path: Path) -> None:
    """A longer first task, epochs of so many batches, one schedule over all tasks, BoT's augmentation."""
    cfg = config(
        METHOD__NAME="bot_ft",
        TRAIN__EPOCHS=2,
        TRAIN__FIRST_EPOCHS=4,
        TRAIN__EPOCH_COVERS="images",
        TRAIN__EPOCH_STEPS=3,
        TRAIN__SCHEDULE="steps",
        TRAIN__MILESTONES=[2, 6],
        TRAIN__STEP_FACTOR=0.1,
        TRAIN__RESTARTS=False,
        INPUT__PIPELINE=["photographs", "flip-crop10-erase"],
    )
    whole = train(cfg, tmp_path / "whole")
    assert whole["steps_trained"] == (4 + 2 + 2) * 3
    course = [(entry["task"], entry["epoch"], entry["lr"]) for entry in whole["loss_history"]]
    rates = [1e-3, 1e-4, 1e-4, 1e-4, 1e-4, 1e-5, 1e-5, 1e-5]
    places = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2), (2, 1), (2, 2)]
    assert course == [(*place, pytest.approx(rate)) for place, rate in zip(places, rates, strict=True)]
    for epochs in (3, 5):
        out = tmp_path / str(epochs)
        train_interrupted(cfg, out, epochs)
        assert reproducible_values(train(cfg, out, resume=True)) == reproducible_values(whole)


def test_resume_from_every_checkpoint_writes_equal_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that they hold but times, wherever the run broke off: after every step, epoch, task and evaluation."""
    cfg = config(METHOD__NAME="er_ace", TRAIN__EPOCHS=2, TRAIN__CHECKPOINT_STEPS=1, EVAL__DRIFT_STEPS=3)
    whole, copies = tmp_path / "whole", list[Path]()

    def with_copy(save: Callable[..., None]) -> Callable[..., None]:
        def wrapped(self: RunFolder, *state: Any) -> None:
            save(self, *state)
            copies.append(tmp_path / f"broken{len(copies)}")
            shutil.copytree(whole, copies[-1])

        return wrapped

    with monkeypatch.context() as patch:
        for name in ("save_current", "save_task"):
            patch.setattr(RunFolder, name, with_copy(getattr(RunFolder, name)))
        train(cfg, whole)
    positions = {tuple(load_newest(copy / "checkpoints")[1]["position"].values()) for copy in copies}
    assert {(0, 0, 1), (1, 1, 0), (1, 2, 0), (2, 0, 0), (3, 0, 0)} <= positions
    for copy in copies:
        train(cfg, copy, resume=True)
        for path in (whole / "checkpoints").iterdir():
            keys = differing(load_checkpoint(path), load_checkpoint(copy / "checkpoints" / path.name))
            assert [key for key in keys if not key.startswith(CLOCKS)] == [], (copy, path)


def test_resume_with_another_number_of_threads_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line names what differs; one under the same conditions, or of a finished run, logs none."""
    cfg, out, lines = config(TRAIN__EPOCHS=1), tmp_path / "run", []
    threads = torch.get_num_threads()
    for epochs, now, limit in ((1, threads, ""), (1, threads, ""), (0, threads + 1, ""), (1, threads + 1, "avx2")):
        caplog.clear()
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(torch, "get_num_threads", lambda now=now: now)
            if limit:
                patch.setenv("ONEDNN_MAX_CPU_ISA", limit)
            train(cfg, out, resume=True, observers={"break": InterruptAfter(epochs)})
        lines.append([each.getMessage() for each in caplog.records if "(now " in each.getMessage()])
    assert [len(each) for each in lines] == [0, 0, 1, 1]
    assert f"threads {threads} (now {threads + 1})" in lines[2][0] and "instruction" not in lines[2][0]
    assert "ONEDNN_MAX_CPU_ISA=avx2" in lines[3][0]
