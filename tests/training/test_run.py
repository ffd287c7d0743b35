"""Whole runs on a tiny benchmark: repeatable, exemplar-free, and clear about bad input."""

import json
import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import FEW, ONE_TASK, csv_config, reproducible_values, tiny_config, train_interrupted
from torch import nn

from lreid.build import benchmark_of, method_of, model_of
from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.data.samplers import CameraSampler
from lreid.data.synthetic import draw
from lreid.errors import InputError
from lreid.evaluation import Observer
from lreid.loading import load_model
from lreid.methods.dwopp import DwoPP
from lreid.models import register_backbone
from lreid.report import task_table
from lreid.results import fault
from lreid.results import read as read_results
from lreid.training import progress
from lreid.training.run import batching_of, run_folder_for, train

pytestmark = pytest.mark.slow
config, listed = partial(tiny_config, FEW), partial(csv_config, **FEW)
two_tasks = partial(tiny_config, FEW | {"BENCHMARK.TASKS_PER_DATASET": 2, "TRAIN.EPOCHS": 2})


def test_data_without_test_images_trains_without_metrics(tmp_path: Path) -> None:
    for person in range(4):
        for shot in range(3):
            Image.fromarray(draw(f"synthetic:plaza/0/{person}/1/{shot}")).save(tmp_path / f"{person}_{shot}.png")
    rows = [f"{person}_{shot}.png\t{person}\ttrain" for person in range(4) for shot in range(3)]
    (tmp_path / "list.csv").write_text("\n".join(["path\tpid\tsplit", *rows]))
    cfg = config({"BENCHMARK.TRAIN": f"csv:{tmp_path / 'list.csv'}", "BENCHMARK.TASKS_PER_DATASET": 2})
    results = train(cfg, tmp_path / "run")
    assert results["mAP"] == [[], []] and results["galleries"] == [] and results["loss_history"]
    assert read_results(tmp_path / "run")["tasks"] == ["list 1/2", "list 2/2"]
    assert task_table(results).endswith("nothing is measured, because there are no test images")


def test_run_folder_has_the_documented_files(unbroken: Path) -> None:
    results = json.loads((unbroken / "results.json").read_text())
    wanted = {"schema": 1, "method": "dwopp", "benchmark": "synthetic-10", "seed": 0}
    assert wanted.items() <= results.items()
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


def test_same_seed_gives_same_results(unbroken: Path, tmp_path: Path) -> None:
    expected = json.loads((unbroken / "results.json").read_text())
    assert reproducible_values(train(config(), tmp_path / "again")) == reproducible_values(expected)
    other = train(config(SEED=1), tmp_path / "other")
    assert other["loss_history"] != expected["loss_history"]


def test_unfused_network_is_evaluated_before_the_fused_one(tmp_path: Path) -> None:
    """The un-fused one of the second task is what a run without fusion would have had; the first task fuses nothing."""
    options = {"METHOD__NAME": "fused_ft", "TRAIN__EPOCHS": 1}
    both = train(config(**options, METHOD__FUSION=0.3, EVAL__UNFUSED=True), tmp_path / "both")
    plain = train(config(**options, METHOD__FUSION=1.0), tmp_path / "plain")
    alone = train(config(**options, METHOD__FUSION=0.3), tmp_path / "alone")
    for metric in ("mAP", "mINP"):
        assert both["unfused"][metric][:2] == plain[metric][:2]
        assert both[metric] == alone[metric] and both["unfused"][metric][0] == both[metric][0]
        assert both["summary"][f"unfused_seen_{metric}"] == both["unfused"][metric][-1][0]
    history = both["loss_history"]  # the third task begins with what was fused
    assert history[:2] == plain["loss_history"][:2] and history[2] != plain["loss_history"][2]
    assert alone["unfused"] == {} and "unfused_seen_mAP" not in alone["summary"]
    assert fault(both) is None
    assert "unfused mAP" in str(fault(both | {"unfused": {"mAP": [[1.0]]}}))
    dwopp = train(config(EVAL__UNFUSED=True, TRAIN__EPOCHS=1), tmp_path / "dwopp")  # does nothing after a task
    assert dwopp["unfused"] == {}


def test_start_leaves_the_network_unchanged(tmp_path: Path) -> None:
    cfg = config(METHOD__NAME="start")
    train(cfg, tmp_path / "run")
    torch.manual_seed(cfg.SEED)
    before, after = model_of(cfg, pretrained=True).state_dict(), load_model(tmp_path / "run").state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_joint_training_has_one_task(tmp_path: Path) -> None:
    results = train(config(METHOD__NAME="joint"), tmp_path / "run")
    assert results["tasks"] == ["joint"] and len(results["mAP"]) == 1
    assert results["summary"]["forgetting"] is None
    # Twelve identities by two make six episodes an epoch, three times those of a task of four.
    assert results["images_trained"] == 3 * 6 * 2 * 3  # epochs x episodes x identities x images


def test_run_without_exemplars_never_reads_past_images(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    train_interrupted(listed(people, DATA__CACHE_GIB=0.0), out, 4)
    results = train(listed(people, DATA__CACHE_GIB=0.0), out, resume=True)  # not to resume either
    assert results["tasks"] == ["a", "b", "c"] and len(results["mAP"]) == 3
    assert len(set(deleted)) == 48 and not list(people.glob("train*.png"))
    names = results["identity_names"]  # as they are in the file
    assert all(name.startswith("False-") for each in names.values() for name in each.values())
    for test in "abc":
        assert list(names[test]) == [str(pid) for pid in results["identity_ap"][test]["ids"]]


def test_each_domain_is_a_task_with_a_gallery(people: Path, tmp_path: Path) -> None:
    cfg = csv_config(
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


def test_unreadable_image_is_refused_or_skipped(people: Path, tmp_path: Path) -> None:
    victim = people / "train005.png"
    whole = victim.read_bytes()
    victim.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="train005.png: .*DATA.SKIP_BAD_IMAGES"):
        train(listed(people), tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    later = people / "train047.png"  # of the third task
    later.rename(tmp_path / later.name)
    with pytest.raises(InputError, match=later.name):
        train(listed(people), tmp_path / "run")
    assert not list((tmp_path / "run" / "checkpoints").iterdir())
    shutil.rmtree(tmp_path / "run")
    (tmp_path / later.name).rename(later)
    (people / "query003.png").unlink()
    keys = {"METHOD__NAME": "bot_ft", "METHOD__EXEMPLARS": 500, "DATA__SKIP_BAD_IMAGES": True}
    results = train(listed(people, **keys), tmp_path / "run")
    assert results["skipped_images"] == 2 and results["exemplars"] == 47  # of 48 training images
    assert results["skipped"] == [str(people / "query003.png"), str(victim)]
    assert "train005.png" in (tmp_path / "run" / "log.txt").read_text()


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
        ({"BENCHMARK__TASKS_PER_DATASET": 99}, "BENCHMARK.TASKS_PER_DATASET is 99; must be from 1 to "),
        ({"BENCHMARK__TRAIN": ["synthetic:plaza", "synthetic:plaza"]}, "BENCHMARK.TRAIN has a second data set called"),
        ({"SYNTHETIC__DISTRACTORS": 99999}, "SYNTHETIC.DISTRACTORS of synthetic:plaza is 99999; must be 10000 or less"),
        (
            {"METHOD__NAME": "bot_ft", "BATCH__NEIGHBOURS": 2},
            "BATCH.NEIGHBOURS is 2, but batches ignore cameras; set BATCH.OTHER_CAMERAS True",
        ),
        ({"MODEL__BACKBONE": "smal"}, "MODEL.BACKBONE is 'smal'; the nearest name is small"),
        ({"MODEL__WEIGHTS": "imagenet"}, "MODEL.WEIGHTS is imagenet, but few has no ImageNet weights"),
        ({"EVAL__INDEX": "IVF999,Flat"}, "EVAL.INDEX is 'IVF999,Flat'"),
        ({"INPUT__PIPELINE": ["nope.yaml"]}, "INPUT.PIPELINE: nope.yaml"),
    ],
)
def test_bad_values_are_refused_by_key(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        train(config(**changes), tmp_path / "run")
    assert "\n" not in str(error.value) and not (tmp_path / "run" / "results.json").exists()


def test_run_without_a_terminal_logs_its_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    with caplog.at_level("INFO", "lreid"):
        train(config(), tmp_path / "run")
    log = (tmp_path / "run" / "log.txt").read_text()
    assert all(f"task {task} of 3, epoch {epoch} of 3: dmml " in log for task in (1, 2, 3) for epoch in (1, 2, 3))
    steps = [(int(step), int(total)) for step, total in re.findall(r"step (\d+) of (\d+), about \d+ min left", log)]
    assert log.index("step 1 of") < log.index("epoch 1 of 3") and {total for _, total in steps} == {len(steps) + 1}
    assert [step for step, _ in steps] == [*range(1, len(steps) + 1)]


class Unordered(Observer):
    """Does what torch has no deterministic algorithm for."""

    def before_loss(self, batch: Batch) -> None:
        torch.zeros(3).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))


@pytest.mark.slow
def test_nondeterministic_operation_is_refused(tmp_path: Path) -> None:
    cfg = config(METHOD__NAME="dmml_ft", TRAIN__DETERMINISTIC=True)
    message = "^TRAIN.DETERMINISTIC: put_ does not have a deterministic implementation.*; set it to False$"
    with pytest.raises(InputError, match=message):
        train(cfg, tmp_path / "run", observers={"unordered": Unordered()})
    assert not torch.are_deterministic_algorithms_enabled()


def test_tensorboard_receives_losses_and_summary(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    results = train(config(TRAIN__LOGGERS=["tensorboard"]), tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert {"train/dmml", "train/distill", "train/lr", "summary/seen_mAP"} <= set(events.Tags()["scalars"])
    assert events.Scalars("summary/seen_mAP")[-1].value == pytest.approx(results["summary"]["seen_mAP"])
    figures = [[each.value for each in events.Scalars(f"test/plaza/{name}")] for name in ("mAP", "rank1")]
    assert figures == [pytest.approx([row[0] for row in results[name]]) for name in ("mAP", "rank1")]
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


def test_stream_draws_every_image_once(tmp_path: Path) -> None:
    stream = config(METHOD__NAME="bot_ft", TRAIN__EPOCHS=1, STREAM__SEGMENT=10, STREAM__ITERATIONS=3)
    results = train(stream, tmp_path / "run")
    images = sum(len(task.records) for task in benchmark_of(stream).tasks)
    assert results["images_trained"] == 3 * images
    with pytest.raises(InputError, match="STREAM.SEGMENT is above 0"):
        train(config(METHOD__NAME="dwopp", STREAM__SEGMENT=10), tmp_path / "other")


ODD = {"SYNTHETIC.TRAIN_IDENTITIES": 15, "SYNTHETIC.IMAGES_PER_IDENTITY": 3, "TRAIN.EPOCHS": 1}  # 15 images a task
ALONE = {"BATCH.IDENTITIES": 1, "BATCH.IMAGES": 1}


@pytest.mark.parametrize(
    ("method", "keys", "named"),
    [
        ("bot_ft", {"STREAM.SEGMENT": 2}, "STREAM.SEGMENT"),
        ("lwf", {"STREAM.SEGMENT": 1}, "STREAM.SEGMENT"),
        ("retrace", ALONE, "BATCH.IMAGES"),
        ("dkp_pp", ALONE, "BATCH.IMAGES"),
        ("er", {"METHOD.REID_HEAD": True, "STREAM.SEGMENT": 2}, "STREAM.SEGMENT"),
        ("er", {"METHOD.REID_HEAD": True, "METHOD.REPLAY": 1}, "METHOD.REPLAY"),
        ("gdumb", {"METHOD.REID_HEAD": True, "METHOD.BATCH": 1}, "METHOD.BATCH"),
        ("er", {"MODEL.BACKBONE": "point", "STREAM.SEGMENT": 2}, "STREAM.SEGMENT"),
    ],
)
def test_single_image_batch_with_batch_norm_is_refused(
    method: str, keys: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=f"^{named} "):
        train(config(ODD, keys, METHOD__NAME=method), tmp_path / "run")
    assert not list((tmp_path / "run").glob("checkpoints/*"))


@pytest.mark.parametrize(
    ("method", "keys"),
    [
        ("pass_proto", {"STREAM.SEGMENT": 2}),  # four rotations of each image
        ("er", {"STREAM.SEGMENT": 2}),  # no neck, and maps of several positions
        ("der", {"METHOD.REID_HEAD": True, "METHOD.EXEMPLARS": 1}),  # a memory that can give one image only
        ("gdumb", {"METHOD.REID_HEAD": True, "METHOD.EXEMPLARS": 3, "METHOD.BATCH": 2, "METHOD.PASSES": 2}),
    ],
)
def test_single_image_batch_is_accepted_where_it_can_be_normalised(
    method: str, keys: dict[str, Any], tmp_path: Path
) -> None:
    results = train(config(ODD, keys, METHOD__NAME=method), tmp_path / "run")
    assert len(results["mAP"]) == 3 and np.isfinite(results["mAP"]).all()


@register_backbone("point")
class Point(nn.Sequential):
    """Normalises maps of a single position."""

    dim = 16

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, self.dim, 3, 4), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(self.dim))


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("config.yaml", "mine: 1\n", "is not the config of a run; choose a different --out"),
        ("config.yaml", "[", "is not the config of a run"),
        ("results.json", "{}", "exists, but the run has no checkpoint to continue; choose a different --out"),
    ],
)
@pytest.mark.parametrize("resume", [False, True])
def test_new_run_overwrites_no_file(name: str, content: str, why: str, resume: bool, tmp_path: Path) -> None:
    file = tmp_path / "run" / name
    file.parent.mkdir()
    file.write_text(content)
    with pytest.raises(InputError, match=f"^{file}: {why}"):
        train(config(), file.parent, resume=resume)
    assert file.read_text() == content


def test_run_without_checkpoints_may_start_again(tmp_path: Path) -> None:
    cfg = config(ONE_TASK)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(cfg.dump())
    assert train(cfg, tmp_path / "run")["mAP"]


def test_drift_is_measured_at_every_switch_without_changing_training(tmp_path: Path) -> None:
    plain = train(config(METHOD__NAME="er"), tmp_path / "plain")
    watched = train(config(METHOD__NAME="er", EVAL__DRIFT_STEPS=2), tmp_path / "watched")
    assert watched["mAP"] == plain["mAP"] and watched["loss_history"] == plain["loss_history"]
    assert plain["drift"] == [] and [entry["task"] for entry in watched["drift"]] == [1, 2]
    for entry in watched["drift"]:
        for curves in (entry["buffer"], entry["held out: plaza"]):
            assert len(curves["step"]) == len(curves["since_switch"]) == 2
            assert 0 < curves["step"][0] == curves["since_switch"][0] < 2
    for entry in watched["gradient_norms"]:
        assert len(entry["stored"]) == len(entry["incoming"]) == 2 and min(entry["stored"]) > 0


def test_batches_have_images_of_other_cameras_on_request() -> None:
    for asked in (False, True):
        cfg = config(METHOD__NAME="bot_ft", BATCH__OTHER_CAMERAS=asked, BATCH__IMAGES=6)
        method = method_of(cfg, torch.device("cpu"), pretrained=False)
        task = benchmark_of(cfg).tasks[0]
        batches = batching_of(cfg, torch.device("cpu")).batches(method, task)
        camera = {record.path: record.camid for record in task.records}
        seen = [camera[path] for index in range(len(batches)) for path in batches[index].paths]
        blocks = [seen[first : first + 6] for first in range(0, len(seen), 6)]  # of four images by other cameras
        assert asked == all(block[0] not in block[1:] for block in blocks)


def test_neighbours_use_the_camera_sampler() -> None:
    cfg = config(METHOD__NAME="bot_ft", BATCH__NEIGHBOURS=2, BATCH__IDENTITIES=4, BATCH__OTHER_CAMERAS=True)
    method = method_of(cfg, torch.device("cpu"), pretrained=False)
    task = benchmark_of(cfg).tasks[0]
    sampler = batching_of(cfg, torch.device("cpu")).sampler(method, task, task.records)
    assert isinstance(sampler, CameraSampler) and sampler.neighbours == 2


@pytest.mark.parametrize("name", ["dwopp", "pass_proto"])
def test_method_without_own_memory_replays_exemplars(name: str, tmp_path: Path) -> None:
    """Of two tasks of six identities: the second is learned from images of all twelve."""
    results = [
        train(two_tasks(METHOD__NAME=name, METHOD__EXEMPLARS=exemplars), tmp_path / str(exemplars))
        for exemplars in (0, 24)
    ]
    assert [each["exemplars"] for each in results] == [0, 24]
    first, second = (
        [{key: entry[key] for key in entry if key != "lr"} for entry in each["loss_history"]] for each in results
    )
    assert first[:2] == second[:2] and first[2:] != second[2:]
    memory = torch.load(tmp_path / "24" / "checkpoints" / "task-02.pt", weights_only=True)["method"]["memory"]
    assert sorted(memory["labels"].tolist()) == sorted(2 * list(range(12)))


def test_workers_do_not_change_results(tmp_path: Path) -> None:
    cfgs = [two_tasks(METHOD__NAME="erd", DATA__WORKERS=workers) for workers in (0, 2)]
    one, two = (train(cfg, tmp_path / str(cfg.DATA.WORKERS)) for cfg in cfgs)
    assert "align" in one["loss_history"][-1] and one["exemplars"] == 48
    assert one["loss_history"] == two["loss_history"] and one["mAP"] == two["mAP"]
