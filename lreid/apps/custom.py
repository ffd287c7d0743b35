"""Choose how to train on custom images, print these choices, and report the gain of the run."""

import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from math import sqrt
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Template
from tabulate import tabulate
from yacs.config import CfgNode

from lreid import zoo
from lreid.build import load_run_config, resolved, sources_of
from lreid.checkpoint import load_checkpoint, task_checkpoints
from lreid.config import ARGUMENTS, Source, config_from_text, layers, leaves, load_config, method_file
from lreid.data.custom import PREFIX, CustomSet, read_custom, source_of, title_of
from lreid.data.datasets import load_datasets
from lreid.data.images import UPRIGHT, Size, typical_size
from lreid.data.listing import first_few
from lreid.data.records import DataSet
from lreid.errors import ArgumentError, InputError, counted, naming_keys, one_line
from lreid.methods import method_class
from lreid.report.sections import CLEAR, gain_rows
from lreid.results import Results
from lreid.utils.devices import pick_device
from lreid.zoo.names import PEOPLE, SMALL_PEOPLE, SMALL_VEHICLES, VEHICLES

FULL = (256, 128)  # input size of networks with ImageNet weights, height and width
RATE = 2e-4  # learning rate for networks from the zoo
# For trained networks, the best method that stores no data about people, see docs/results/new-places.md.
METHOD = "retrace"
MOST_IDENTITIES, MOST_IMAGES = 24, 5  # maximum number of identities per batch, and of images per identity
STEP = 16  # pixels; a square input is a multiple of this, because networks halve an image several times
_TEMPLATE = Template(Path(__file__).with_suffix(".md").read_text("utf-8"), trim_blocks=True, lstrip_blocks=True)


@dataclass(frozen=True)
class Plan:
    """The choices for a run on custom images.

    Attributes:
        cfg: config of the run.
        text: the choices as text, each with the option that changes it.
        before: checkpoint from which the run fine-tunes, if any.
    """

    cfg: CfgNode
    text: str
    before: Path | None = None


@naming_keys(**ARGUMENTS, tasks="BENCHMARK.TASKS_PER_DATASET")
def plan(path: Path, files: Sequence[Source], overrides: Sequence[str], before: Path | None = None) -> Plan:
    """Choose how to train on the images of a folder or a CSV file.

    Args:
        path: the folder or CSV file, see :func:`lreid.data.custom.source_of`.
        files, overrides: config files and pairs as in :func:`lreid.config.load_config`, which take precedence over the
            choices.
        before: a finished run, or a checkpoint of a finished task, from which the run fine-tunes. The config of the
            earlier run determines network, method and settings.

    Raises:
        InputError: the images, the run or a key cannot be used.
    """
    notes: list[str] = []
    old = before and finished_task(before)
    keys, learned_names = _inherited(old, notes) if old else ({}, set())
    wanted = load_config([keys, *files], overrides, report=False)
    given = {key for _, each in layers(files, overrides) for key in each}
    name = source_of(path, Path(wanted.DATA.ROOT))
    own = read_custom(Path(name.removeprefix(PREFIX)), sources_of(wanted)) if name.startswith(PREFIX) else []
    data_sets = [each.data_set for each in own] or load_datasets(name, sources_of(wanted))
    if untrained := [each.name for each in data_sets if not each.train]:
        raise InputError(f"{path}: {untrained[0]} has no image of the split train; add some")
    if repeated := sorted(learned_names & set().union(*map(_names, data_sets))):
        examples = first_few(repeated)
        notes.append(f"{len(repeated)} have names of people in earlier tasks ({examples}); they count as other people")
    keys |= {"BENCHMARK.NAME": title_of(path), "BENCHMARK.TRAIN": [name]}
    keys["BENCHMARK.LEARNED"] = [each for each in keys.get("BENCHMARK.LEARNED", []) if each != name]
    tasks = wanted.BENCHMARK.TASKS_PER_DATASET if "BENCHMARK.TASKS_PER_DATASET" in given else 1
    keys |= batch_keys(data_sets, tasks=tasks, pool=wanted.BENCHMARK.POOL)
    identities = keys["BATCH.IDENTITIES"]
    size = typical_size([record for data_set in data_sets for record in data_set.train])
    if not old:
        keys |= {"METHOD.NAME": METHOD, "EVAL.INITIAL": True} | _start(wanted, given, size)
        keys["INPUT.HEIGHT"], keys["INPUT.WIDTH"] = input_size(size, keys["INPUT.HEIGHT"], keys["INPUT.WIDTH"])
        if "MODEL.WEIGHTS" not in given or wanted.MODEL.WEIGHTS != "none":
            keys["TRAIN.LR"] = RATE
    cfg = load_run_config([keys, *files], overrides)
    method = cfg.METHOD.NAME
    if "BATCH.IDENTITIES" not in given and method_class(method).batches == "identities":
        # The file of a method may set fewer identities per batch, but not more than a task has.
        identities = min(identities, method_file(method).get("BATCH.IDENTITIES", identities))
        overrides = [*overrides, "BATCH.IDENTITIES", str(identities)]
        cfg = resolved(load_config([keys, *files], overrides, report=False))
    slow = cfg.MODEL.BACKBONE != "small" and pick_device(cfg.DEVICE).type == "cpu"
    if slow and not old and "TRAIN.EPOCHS" not in given:  # with --from, the number of epochs is inherited
        few, full = max(1, cfg.TRAIN.EPOCHS // 3), cfg.TRAIN.EPOCHS
        cfg = resolved(load_config([keys, *files], [*overrides, "TRAIN.EPOCHS", str(few)], report=False))
        notes.append(f"{few} epochs, because lreid trains on the CPU; --epochs {full} takes three times as long")
    ratio = size and size.ratio
    text = _plan_text(path, cfg, own, ratio=ratio, data_sets=data_sets, before=old and one_line(str(old)), notes=notes)
    return Plan(cfg, text, old)


def finished_task(run: Path) -> Path:
    """Return the checkpoint of the last task of a finished run; return a checkpoint file unchanged.

    Raises:
        InputError: the run or file does not exist, or the run is not finished.
    """
    if not run.is_dir():
        return run
    checkpoints = task_checkpoints(run / "checkpoints")
    if not checkpoints:
        raise InputError(f"{run}: contains no checkpoint of a finished task; pass a run folder or a checkpoint")
    last = checkpoints[max(checkpoints)]
    tasks = load_checkpoint(last)["results"].get("tasks", [])
    if max(checkpoints) < len(tasks):
        raise InputError(
            f"{run}: {max(checkpoints)} of {counted(len(tasks), 'task')} done; finish it with --resume first, or "
            f"name a checkpoint, {last}"
        )
    return last


def _inherited(checkpoint: Path, notes: list[str]) -> tuple[dict[str, Any], set[str]]:
    """Return config keys for a run that continues from a checkpoint and marks its data sets as learned.

    Also return the names of the identities on which the earlier run trained, if its data sets still exist.
    """
    state = load_checkpoint(checkpoint)
    if any(key not in state for key in ("config", "position", "results", "method")) or state["position"]["epoch"]:
        raise InputError(f"{checkpoint}: is not a checkpoint of a finished task (task-NN.pt); pass such a checkpoint")
    cfg = config_from_text(state["config"], str(checkpoint))
    if cfg.BENCHMARK.SCENARIO != "class-incremental":
        raise InputError(f"{checkpoint}: is of a {cfg.BENCHMARK.SCENARIO} run, which cannot add identities")
    done = state["position"]["task"]
    names: list[str] = []
    people: set[str] = set()
    for name in (*cfg.BENCHMARK.LEARNED, *cfg.BENCHMARK.TRAIN):
        try:
            data_sets = load_datasets(name, sources_of(cfg))
            names.append(name)
            people.update(*map(_names, data_sets))
        except InputError as error:
            notes.append(f"{name} cannot be tested any more, so forgetting of its people is not measured ({error})")
    fresh = {"NAME", "TRAIN", "POOL", "IDENTITIES", "JOINT", "TASKS_PER_DATASET"}
    keys = {key: value for key, value in leaves(cfg) if key.removeprefix("BENCHMARK.") not in fresh}
    if cfg.BENCHMARK.JOINT and keys["METHOD.ALIAS"]:  # the alias means joint training, which the new run is not
        keys["METHOD.ALIAS"] = ""
    return keys | {
        "BENCHMARK.LEARNED": names,
        "BENCHMARK.LEARNED_IDENTITIES": sum(state["results"]["task_identities"][:done]),
    }, people


def _names(data_set: DataSet) -> set[str]:
    """Return the names of all training identities that have a name."""
    named = data_set.names.identities
    return {named[record.pid] for record in data_set.train if record.pid in named}


def batch_keys(data_sets: Sequence[DataSet], *, tasks: int = 1, pool: bool = False) -> dict[str, Any]:
    """Choose the sizes of batches, as config keys both for methods with episodes and for methods with P x K batches.

    A batch contains at most 24 identities, and all batches of an epoch have about the same number of identities. The
    number of images per identity in a batch is the median over the identities, but at least 2 and at most 5.

    Args:
        data_sets: data sets with training images.
        tasks: number of tasks into which each data set is cut.
        pool: whether to merge all data sets before cutting them into ``tasks`` tasks.

    Raises:
        ArgumentError: a task would have fewer than two identities.
    """
    counts = [Counter((number, record.pid) for record in each.train) for number, each in enumerate(data_sets)]
    names = [each.name for each in data_sets]
    if pool:
        counts, names = [Counter(chain.from_iterable(count.elements() for count in counts))], ["+".join(names)]
    short, number = min(zip(names, map(len, counts), strict=True), key=itemgetter(1))
    smallest = number // tasks
    if smallest < 2:
        raise ArgumentError(
            "tasks",
            f"is {tasks}, but {short} has {counted(number, 'identity')} to train on, and a task needs two or more; "
            "lower it, or add identities",
        )
    identities = smallest // -(-smallest // MOST_IDENTITIES)
    images = min(max(int(median(images for count in counts for images in count.values())), 2), MOST_IMAGES)
    return {
        "BENCHMARK.TASKS_PER_DATASET": tasks,
        "EPISODE.IDENTITIES": identities,
        "EPISODE.SUPPORT": images - 1,
        "EPISODE.QUERY": 1,
        "BATCH.IDENTITIES": identities,
        "BATCH.IMAGES": images,
    }


def input_size(size: Size | None, height: int, width: int) -> tuple[int, int]:
    """Choose an input that is upright, square or wide, like most images, with about ``height`` x ``width`` pixels.

    Args:
        size: median size of the images, or None if none can be read.
        height, width: input size in pixels of the initial network, for upright images.
    """
    if size is None or size.ratio >= UPRIGHT:
        return height, width
    if size.ratio <= 1 / UPRIGHT:
        return width, height
    side = STEP * max(round(sqrt(height * width) / STEP), 1)
    return side, side


def _start(cfg: CfgNode, given: Collection[str], size: Size | None) -> dict[str, Any]:
    """Return the keys of the initial model: a zoo model, or ImageNet weights if the user chose another network.

    For upright images, the zoo model is the one for people, otherwise the one for vehicles. The small model is chosen
    if the images are not larger than its input.
    """
    models = (PEOPLE, SMALL_PEOPLE, VEHICLES, SMALL_VEHICLES)
    cards = {name: zoo.find(name.removeprefix(zoo.PREFIX)) for name in models}
    large, small = (PEOPLE, SMALL_PEOPLE) if size is None or size.ratio >= UPRIGHT else (VEHICLES, SMALL_VEHICLES)
    fits = small if size and size.pixels <= cards[small].height * cards[small].width else large
    if "MODEL.WEIGHTS" in given and cfg.MODEL.WEIGHTS in cards:
        fits = cfg.MODEL.WEIGHTS
    elif "MODEL.BACKBONE" in given:
        of_network = [name for name in (fits, large, small) if cards[name].backbone == cfg.MODEL.BACKBONE]
        if not of_network:
            return {"MODEL.WEIGHTS": "imagenet", "INPUT.HEIGHT": FULL[0], "INPUT.WIDTH": FULL[1]}
        fits = of_network[0]
    card = cards[fits]
    inherited = ("MODEL.POOLING", "MODEL.NORM", "MODEL.SCALE")
    network = {"MODEL.WEIGHTS": fits, "MODEL.BACKBONE": card.backbone}
    if fits in (PEOPLE, VEHICLES):  # a small data set should not change the first layers, which find edges and colours
        network |= {"TRAIN.FROZEN_LAYERS": 6, "TRAIN.LAYER_DECAY": 0.8}
    network |= {key: value for key, value in card.config.items() if key in inherited}
    return network | {f"INPUT.{key.upper()}": getattr(card, key) for key in ("height", "width", "mean", "std")}


def _plan_text(path: Path, cfg: CfgNode, own: Sequence[CustomSet], **values: Any) -> str:
    """Fill the template ``custom.md``: a line per choice with the option that changes it, then the notes."""
    sets = [
        {
            "name": one_line(each.name),
            "identities": len({record.pid for record in each.train}),
            "tested": len({record.pid for record in each.query}),
            "cameras": len(own[number].cameras) if own else None,
            "data": each,
        }
        for number, each in enumerate(values["data_sets"])
    ]
    text = _TEMPLATE.render(cfg=cfg, sets=sets, own=bool(own), counted=counted, **values)
    rows = [(line.partition("\t")[0], *line.partition("\t")[2].rpartition("\t")[::2]) for line in text.splitlines()]
    width = max(len(what) for _, what, _ in rows if len(what) < 60)
    table = [f"  {name:8} {what:{width}}  {f'({how})' if how else ''}".rstrip() for name, what, how in rows]
    notes = [*(note for each in own for note in each.notes), *values["notes"]]
    return "\n".join([f"{path}: lreid chose (how to change)", *table, *(f"  note: {note}" for note in notes)])


def gains(results: Results) -> str:
    """Make a table of :func:`lreid.report.sections.gain_rows`, with the smallest visible difference per test set."""
    rows = gain_rows(results)
    head = "before → after on the same queries, in per cent; better, worse: number of identities whose AP changed by"
    table = tabulate([row for row, _ in rows], headers="keys", disable_numparse=True)
    return "\n".join([f"{head} {CLEAR:g} points or more", "", table, "", *(note for _, note in rows)])


def next_steps(images: Path, run: Path) -> str:
    """Return the commands that usually follow: see ranked images, search, and fine-tune on other people."""
    gallery = f"{one_line(title_of(images))}.gallery"
    search = shlex.join(["lreid", "search", "build", gallery, str(images), "--checkpoint", str(run)])
    others = [["lreid", "report", str(run), "--images"], ["lreid", "train", "OTHER_IMAGES", "--from", str(run)]]
    return "\n  ".join(["next:", search, *map(shlex.join, others)])
