"""Training on your images: choices, and fine-tuning from a previous run without forgetting."""

import argparse
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import as_arguments
from zoo_entries import write_card

from lreid import zoo
from lreid.apps.custom import Plan, batch_keys, finished_task, gains, input_size, next_steps, plan
from lreid.apps.train import add_arguments, short_keys, split_words
from lreid.build import benchmark_of, command_of, evaluator_of, load_run_config
from lreid.checkpoint import load_checkpoint
from lreid.config import config_from_text, differing_keys, load_config
from lreid.data.custom import read_custom
from lreid.data.images import Size
from lreid.data.records import DataSet, Record
from lreid.data.synthetic import draw
from lreid.errors import InputError
from lreid.loading import load_model
from lreid.methods import method_class
from lreid.report.page import ReportObserver
from lreid.training.run import train

FAST = as_arguments(
    {"TRAIN.EPOCHS": 1, "INPUT.HEIGHT": 32, "INPUT.WIDTH": 16, "EPISODE.IDENTITIES": 2, "BATCH.IDENTITIES": 2}
)


def people(folder: Path, domain: str, first: int, number: int = 8) -> Path:
    """A folder an identity, each with two images by each of two cameras."""
    for person in range(first, first + number):
        for camera in (1, 2):
            for shot in range(2):
                file = folder / f"person-{person}" / f"cam{camera}_{shot}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(draw(f"synthetic:{domain}/0/{person}/{camera}/{shot}")).save(file)
    return folder


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_intermixed_args(words)


def typed(command: str) -> Plan:
    """Return the plan of a command of ``lreid train``."""
    args = parsed(*shlex.split(command)[2:])
    images, overrides = split_words(args.overrides)
    if images is None:
        return Plan(load_run_config(args.config, overrides), "")
    return plan(images, args.config, overrides, args.before)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return people(tmp_path / "shop", "plaza", 0)


def test_choices_for_a_folder(shop: Path) -> None:
    found = plan(shop, [], [])
    cfg, card = found.cfg, zoo.find(zoo.SMALL_PEOPLE.removeprefix("zoo:"))
    assert cfg.BENCHMARK.NAME == "shop" and [f"own:{shop}"] == cfg.BENCHMARK.TRAIN
    assert (cfg.BENCHMARK.TASKS_PER_DATASET, cfg.EPISODE.SUPPORT, cfg.BATCH.IMAGES) == (1, 3, 4)
    assert (cfg.MODEL.WEIGHTS, cfg.TRAIN.LR) == (zoo.SMALL_PEOPLE, 2e-4)
    assert (card.height, card.width) == (cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH)
    assert cfg.METHOD.NAME == "retrace" and found.before is None
    for fact in ("5 identities, 20 images, 2 cameras", "6 queries, 6 gallery images", "2.0 times", zoo.SMALL_PEOPLE):
        assert fact in found.text
    assert max(map(len, found.text.splitlines())) <= 160


def test_batch_fits_the_method_and_the_task(shop: Path, tmp_path: Path) -> None:
    mall = people(tmp_path / "mall", "mall", first=0, number=40)

    def identities(folder: Path, *overrides: str) -> int:
        return plan(folder, [], overrides).cfg.BATCH.IDENTITIES

    assert identities(shop) == identities(shop, "METHOD.NAME", "bot_ft") < 6
    assert identities(mall) == 8 and identities(mall, "METHOD.NAME", "bot_ft") == 16
    assert identities(mall, "BATCH.IDENTITIES", "11") == 11
    assert plan(mall, [], ["METHOD.NAME", "dwopp"]).cfg.EPISODE.IDENTITIES == 16  # and reads no BATCH


def test_files_and_the_command_line_override_choices(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("INPUT: {HEIGHT: 48}\nTRAIN: {LR: 0.01}\n")
    cfg = plan(shop, [tmp_path / "mine.yaml"], ["BENCHMARK.TASKS_PER_DATASET", "2", "METHOD.NAME", "lwf"]).cfg
    assert (cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH, cfg.TRAIN.LR, cfg.METHOD.NAME) == (48, 32, 0.01, "lwf")
    assert cfg.BENCHMARK.TASKS_PER_DATASET == 2 and cfg.BATCH.IDENTITIES == 2  # five are trained on
    with pytest.raises(InputError, match="BENCHMARK.TASKS_PER_DATASET is 3, but shop has 5"):
        plan(shop, [], ["BENCHMARK.TASKS_PER_DATASET", "3"])
    cfg = plan(shop, [], ["MODEL.BACKBONE", "resnet18"]).cfg
    assert (cfg.MODEL.WEIGHTS, cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH) == ("imagenet", 256, 128)
    assert plan(shop, [], ["MODEL.WEIGHTS", "none"]).cfg.TRAIN.LR == load_config().TRAIN.LR
    with pytest.raises(InputError, match="BATCH.IDENTITIES is ignored by dwopp"):
        plan(shop, [], ["METHOD.NAME", "dwopp", "BATCH.IDENTITIES", "2"])


def test_photographs_start_from_the_model_of_photographs(shop: Path, tmp_path: Path) -> None:
    for file in shop.glob("*/*.png"):
        Image.open(file).resize((50, 120)).save(file)
    card = zoo.find(zoo.PEOPLE.removeprefix("zoo:"))
    cfg = plan(shop, [], []).cfg
    assert (zoo.PEOPLE, card.backbone, 0.1) == (cfg.MODEL.WEIGHTS, cfg.MODEL.BACKBONE, cfg.MODEL.SCALE)
    assert (256, 128, card.mean) == (cfg.INPUT.HEIGHT, cfg.INPUT.WIDTH, cfg.INPUT.MEAN)
    assert (cfg.TRAIN.FROZEN_LAYERS, cfg.TRAIN.LAYER_DECAY) == (6, 0.8)
    cfg = plan(shop, [], ["MODEL.BACKBONE", "small"]).cfg  # another network than that of the images' size
    assert (cfg.MODEL.WEIGHTS, cfg.INPUT.HEIGHT, cfg.TRAIN.FROZEN_LAYERS) == (zoo.SMALL_PEOPLE, 64, 0)
    cfg = plan(shop, [], ["MODEL.WEIGHTS", zoo.VEHICLES]).cfg  # chosen against the shape of the images
    assert (cfg.MODEL.WEIGHTS, cfg.TRAIN.FROZEN_LAYERS, cfg.TRAIN.LAYER_DECAY) == (zoo.VEHICLES, 6, 0.8)


def test_model_of_the_zoo_defines_the_network(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"MODEL.POOLING": "gem"}
    image = {"height": 128, "width": 64, "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}
    write_card(tmp_path / "other.json", b"", backbone="resnet18", config=config, **image)
    monkeypatch.setenv("LREID_ZOO_CARDS", str(tmp_path))
    for name in ("PEOPLE", "SMALL_PEOPLE"):
        monkeypatch.setattr(f"lreid.apps.custom.{name}", "zoo:other")
    cfg = plan(shop, [], []).cfg
    assert (cfg.MODEL.BACKBONE, cfg.MODEL.WEIGHTS, cfg.MODEL.POOLING) == ("resnet18", "zoo:other", "gem")
    assert {key: cfg.INPUT[key.upper()] for key in image} == image
    assert plan(shop, [], ["MODEL.BACKBONE", "small"]).cfg.MODEL.WEIGHTS == "imagenet"


def test_large_network_on_a_cpu_trains_a_third_of_the_epochs(shop: Path) -> None:
    small, large = ["DEVICE", "cpu"], ["DEVICE", "cpu", "MODEL.WEIGHTS", zoo.PEOPLE]
    full = plan(shop, [], small).cfg.TRAIN.EPOCHS
    epochs = [plan(shop, [], [*large, *more]).cfg.TRAIN.EPOCHS for more in ([], ["TRAIN.EPOCHS", str(full)])]
    assert epochs == [full // 3, full] and full > 3


def test_list_without_training_images_is_refused(shop: Path) -> None:
    (shop / "index.csv").write_text("path,pid,split\nperson-0/cam1_0.png,0,query\nperson-0/cam1_1.png,0,gallery\n")
    with pytest.raises(InputError, match="index has no image of the split train"):
        plan(shop, [], [])


@pytest.mark.parametrize("method", ["retrace", "bot_ft", "dwopp"])
def test_recorded_command_makes_the_same_run(shop: Path, method: str) -> None:
    cfg = plan(shop, [], ["METHOD.NAME", method]).cfg
    ignored = "BATCH." if method == "dwopp" else "EPISODE."
    assert all(key.startswith(ignored) for key in differing_keys(typed(command_of(cfg)).cfg, cfg))


def test_short_options_stand_for_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = parsed("SEED", "1", "--epochs", "3", "--method", "lwf", "TRAIN.LR", "1e-4", "--device", "cpu")
    assert split_words(args.overrides) == (None, ["SEED", "1", "TRAIN.LR", "1e-4"])
    cfg = load_config(overrides=short_keys(args))
    assert (cfg.TRAIN.EPOCHS, cfg.METHOD.NAME, cfg.DEVICE, cfg.BENCHMARK.NAME) == (3, "lwf", "cpu", "synthetic-10")
    cfg = load_config(overrides=short_keys(parsed("--data", "csv:my/shop.csv", "--data", "market1501")))
    assert cfg.BENCHMARK.TRAIN == ["csv:my/shop.csv", "market1501"] and cfg.BENCHMARK.NAME == "shop+market1501"
    assert short_keys(parsed()) == [] and split_words([]) == (None, [])  # DwoPP on the built-in benchmark
    monkeypatch.chdir(tmp_path)
    assert split_words(["shop"]) == (Path("shop"), [])  # to be told that it is not there
    assert split_words(["SEDE", "1"]) == (None, ["SEDE", "1"])
    assert split_words(["SEED"]) == (None, ["SEED"])
    (tmp_path / "METHODS").mkdir()
    assert split_words(["METHODS", "SEED", "1"]) == (Path("METHODS"), ["SEED", "1"])


@pytest.mark.slow
def test_gain_is_measured_on_the_same_queries(shop: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lreid")
    cfg = plan(shop, [], ["TRAIN.EPOCHS", "1"]).cfg
    assert cfg.MODEL.WEIGHTS == zoo.SMALL_PEOPLE and cfg.EVAL.INITIAL
    results = train(cfg, tmp_path / "run", command="lreid train shop")
    assert results["command"] == "lreid train shop"
    evaluator = evaluator_of(cfg, benchmark_of(cfg))
    (figures,) = evaluator.evaluate(load_model(zoo.SMALL_PEOPLE))
    assert results["initial"]["mAP"] == [round(figures.metrics["mAP"], 4)]
    people_of = results["identity_ap"]["shop"]
    assert results["initial_ap"]["shop"] == [round(each, 4) for each in figures.identity_ap.values()]
    assert sum(people_of["queries"]) == figures.num_valid == results["galleries"][0]["valid_queries"]
    mean = np.average(people_of["ap"][-1], weights=people_of["queries"])
    assert mean == pytest.approx(results["mAP"][-1][0], abs=1e-3)
    text = gains(results)
    before, after = results["initial"]["mAP"][0], results["mAP"][0][0]
    assert f"{before:.1f} → {after:.1f}" in text and f"{after - before:+.1f} (" in text
    assert "6 queries of 3 identities, too few to show differences under" in text
    for phase in ("evaluating the initial model", "task 1/1: interpolating weights", "evaluating 12 test images"):
        assert phase in caplog.text
    assert not (tmp_path / "run" / "learning_curve.png").exists()  # of one task, it is a point
    commands = next_steps(shop, tmp_path / "run").splitlines()[1:]
    assert [shlex.split(line)[:2] for line in commands] == [["lreid", word] for word in ("search", "report", "train")]


def test_images_that_are_not_upright_start_from_the_model_of_vehicles(shop: Path) -> None:
    for file in shop.glob("*/*.png"):
        Image.open(file).resize((200, 160)).save(file)
    found = plan(shop, [], [])
    assert found.cfg.MODEL.WEIGHTS == zoo.VEHICLES and "for vehicles" in found.text
    assert (found.cfg.INPUT.HEIGHT, found.cfg.INPUT.WIDTH) == (160, 160)
    chosen = plan(shop, [], ["MODEL.WEIGHTS", zoo.PEOPLE])
    assert chosen.cfg.MODEL.WEIGHTS == zoo.PEOPLE and "for vehicles" not in chosen.text
    for file in shop.glob("*/*.png"):
        Image.open(file).resize((64, 48)).save(file)
    assert plan(shop, [], []).cfg.MODEL.WEIGHTS == zoo.SMALL_VEHICLES


@pytest.mark.slow
def test_fine_tuning_distils_and_tests_the_past(shop: Path, tmp_path: Path) -> None:
    first = tmp_path / "first"
    train(plan(shop, [], [*FAST, "METHOD.NAME", "dwopp"]).cfg, first)
    others = people(tmp_path / "others", "snow", 100)
    chosen = plan(others, [], FAST, first)
    assert [f"own:{shop}"] == chosen.cfg.BENCHMARK.LEARNED and chosen.cfg.BENCHMARK.LEARNED_IDENTITIES == 5
    results = train(chosen.cfg, tmp_path / "second", before=chosen.before)
    assert results["benchmark"] == "others" and results["tasks"] == ["before", "others"]
    again = typed(results["command"])
    assert again.before == chosen.before and differing_keys(again.cfg, chosen.cfg) == ["BATCH.IDENTITIES"]  # ignored
    assert [(each["name"], each["first_task"]) for each in results["galleries"]] == [("shop", 0), ("others", 1)]
    number = len({record.pid for record in read_custom(others)[0].data_set.train})
    assert results["task_identities"] == [5, number]
    # Its first row is the model of the first run, and its first teacher too.
    saved = [load_checkpoint(run / "checkpoints/task-01.pt") for run in (first, tmp_path / "second")]
    assert all(torch.equal(value, saved[1]["model"][key]) for key, value in saved[0]["model"].items())
    assert all(torch.equal(value, saved[1]["method"]["teacher"][key]) for key, value in saved[0]["model"].items())
    assert results["mAP"][0][0] == saved[0]["results"]["mAP"][0][0]
    assert "distill" in results["loss_history"][0]  # distilled from the first step on
    rows = {line.split("  ")[0]: line for line in gains(results).splitlines()}
    for column, (name, who) in enumerate([("shop", "learned before"), ("others", "new")]):
        before, after = (results["mAP"][row][column] for row in (0, 1))
        assert who in rows[name] and f"{before:.1f} → {after:.1f}" in rows[name]

    # A run that was killed early resumes to the same weights, without the first run.
    killed = tmp_path / "killed"
    (killed / "checkpoints").mkdir(parents=True)
    shutil.copy(tmp_path / "second/checkpoints/task-01.pt", killed / "checkpoints")
    train(chosen.cfg, killed, resume=True)
    whole, resumed = (load_model(run / "checkpoints/task-02.pt").state_dict() for run in (tmp_path / "second", killed))
    assert all(torch.equal(value, resumed[key]) for key, value in whole.items())

    # A third run fine-tunes from both, without the images of the first.
    shutil.rmtree(shop)
    third = plan(people(tmp_path / "more" / "others", "park", 200), [], FAST, tmp_path / "second")
    assert [f"own:{others}"] == third.cfg.BENCHMARK.LEARNED and 5 + number == third.cfg.BENCHMARK.LEARNED_IDENTITIES
    assert f"own:{shop} cannot be tested any more" in third.text
    results = train(third.cfg, tmp_path / "third", before=third.before)
    assert [each["name"] for each in results["galleries"]] == ["others before", "others"]


@pytest.fixture(scope="module")
def dmml_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run without a neck, in a folder with ``shop/``, which it was trained on."""
    folder = tmp_path_factory.mktemp("before")
    train(plan(people(folder / "shop", "plaza", 0), [], [*FAST, "METHOD.NAME", "dmml_ft"]).cfg, folder / "run")
    return folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), [("dmml_ft", "retrace"), ("bot_ft", "dwopp")])
def test_another_method_continues_with_the_network_and_its_own_neck(
    old: str, new: str, dmml_run: Path, tmp_path: Path
) -> None:
    run, shop = dmml_run, dmml_run.with_name("shop")
    if old != "dmml_ft":
        run = tmp_path / "run"
        train(plan(shop, [], [*FAST, "METHOD.NAME", old]).cfg, run)
    chosen = plan(shop, [], [*FAST, "METHOD.NAME", new, "TRAIN.LR", "1e-9"], run)
    results = train(chosen.cfg, tmp_path / "on", before=chosen.before)
    before, after = (load_model(folder / "checkpoints/task-01.pt") for folder in (run, tmp_path / "on"))
    for name, value in before.backbone.state_dict().items():
        if not name.endswith(("running_mean", "running_var", "num_batches_tracked")):
            torch.testing.assert_close(after.backbone.state_dict()[name], value, rtol=0, atol=1e-6)
    assert isinstance(after.neck, torch.nn.BatchNorm1d) == method_class(new).neck
    assert len(results["mAP"]) == 2


@pytest.mark.slow
def test_unusable_previous_runs_are_refused(dmml_run: Path, tmp_path: Path) -> None:
    run, shop = dmml_run, dmml_run.with_name("shop")
    with pytest.raises(InputError, match=r"gone: .*|no such file"):
        plan(shop, [], [], tmp_path / "gone")
    with pytest.raises(InputError, match="contains no checkpoint of a finished task"):
        finished_task(shop)
    # Some methods need only the network of the previous run.
    chosen = plan(shop, [], [*FAST, "METHOD.NAME", "dwopp"], run)
    assert chosen.cfg.BENCHMARK.LEARNED == []  # the same folder is tested as new
    assert re.search(r"note: 5 have names of people in earlier tasks \(person-\d, ", chosen.text)
    assert "distill" in train(chosen.cfg, tmp_path / "b", before=chosen.before)["loss_history"][0]
    for method, message in (
        ("ida", "METHOD.NAME: ida needs state that .*, a checkpoint of dmml_ft,"),
        ("bot_ft", "continue with dmml_ft, or with dwopp or retrace"),
    ):
        chosen = plan(shop, [], [*FAST, "METHOD.NAME", method], run)
        with pytest.raises(InputError, match=message):
            train(chosen.cfg, tmp_path / "c", before=chosen.before)
        assert not (tmp_path / "c").exists()
    with pytest.raises(InputError, match="d: has no checkpoint yet; .* --from"):
        train(chosen.cfg, tmp_path / "d")


NAMES = ['O\'Neil, "Pat"', "two\nlines", "<b>bold<p>&amp;", "שרה\u202ex", "a;b\tc", "=1+1", "-1", " "]


@pytest.mark.slow
def test_any_name_is_trained_shown_and_fine_tuned_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / '<i>"all", \n#1 שלום; {}%'
    for number, name in enumerate(NAMES):
        people(home, "plaza", number, 1)
        (home / f"person-{number}").rename(home / name)
    chosen = plan(home, [], FAST)
    assert chosen.cfg.BENCHMARK.NAME == '<i>"all", _#1 שלום; {}%'
    results = train(chosen.cfg, tmp_path / "run", observers={"report": ReportObserver()})
    assert [gallery["name"] for gallery in results["galleries"]] == ['<i>"all", _#1 שלום; {}%']
    page = (tmp_path / "run/report.html").read_text()
    assert "<i>" not in page and "&lt;i&gt;" in page
    train(config_from_text((tmp_path / "run/config.yaml").read_text(), ""), tmp_path / "run", resume=True)
    others = plan(people(tmp_path / "others", "snow", 100), [], FAST, tmp_path / "run").cfg.BENCHMARK
    assert [f"own:{home}"] == others.LEARNED


def counted_set(identities: int, images: int = 1) -> DataSet:
    """A data set with so many training images of every identity."""
    return DataSet("own", tuple(Record("", pid, 0) for pid in range(identities) for _ in range(images)), (), ())


@pytest.mark.parametrize(
    ("identities", "tasks", "batch"), [(5, 1, 5), (24, 1, 24), (30, 1, 15), (49, 1, 16), (49, 5, 9), (6, 3, 2)]
)
def test_batches_of_a_task_have_even_sizes(identities: int, tasks: int, batch: int) -> None:
    keys = batch_keys([counted_set(identities)], tasks=tasks)
    assert (keys["BATCH.IDENTITIES"], keys["BENCHMARK.TASKS_PER_DATASET"]) == (batch, tasks)


@pytest.mark.parametrize(("pool", "tasks", "batch"), [(False, 1, 4), (True, 1, 24), (True, 5, 4)])
def test_smallest_task_limits_the_batch(pool: bool, tasks: int, batch: int) -> None:
    sets = [counted_set(20), counted_set(4)]
    assert batch_keys(sets, tasks=tasks, pool=pool)["EPISODE.IDENTITIES"] == batch
    short = "own+own has 24" if pool else "own has 4"
    with pytest.raises(InputError, match=re.escape(f"tasks is 13, but {short}")):
        batch_keys(sets, tasks=13, pool=pool)


@pytest.mark.parametrize(("each", "images"), [(1, 2), (2, 2), (3, 3), (5, 5), (50, 5)])
def test_batch_has_the_median_number_of_images_per_identity(each: int, images: int) -> None:
    keys = batch_keys([counted_set(4, each)])
    assert keys["BATCH.IMAGES"] == keys["EPISODE.SUPPORT"] + keys["EPISODE.QUERY"] == images


@pytest.mark.parametrize(
    ("ratio", "initial", "chosen"),
    [
        (2.5, (64, 32), (64, 32)),
        (1.5, (64, 32), (64, 32)),
        (1.0, (64, 32), (48, 48)),
        (0.8, (256, 128), (176, 176)),
        (0.5, (64, 32), (32, 64)),
    ],
)
def test_input_has_the_shape_of_the_images(ratio: float, initial: tuple[int, int], chosen: tuple[int, int]) -> None:
    assert input_size(Size(4000, ratio), *initial) == chosen
    assert input_size(None, *initial) == initial
