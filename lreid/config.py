"""The configuration: every key with its default, and how files and overrides are merged.

A config file may name the files that it builds on under ``_BASE_`` (a path or a list, relative to the file).
Later sources win: ``_BASE_``, the file, the next file, then ``KEY VALUE`` pairs of the command line.

The config ends at the door: ``build_*`` functions turn it into plain keyword arguments.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from yacs.config import CfgNode

from lreid.errors import InputError

CONFIGS = Path(__file__).parent / "configs"  # those that come with lreid: benchmarks, methods, recipes, augmentations


class _Loader(yaml.SafeLoader):
    """YAML without aliases: nine lines of them can stand for a billion values."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(f"line {self.peek_event().start_mark.line + 1}: write values out, without aliases")
        return super().compose_node(parent, index)


def default_config() -> CfgNode:
    """The defaults: DwoPP (BMVC 2022) on the built-in benchmark ``synthetic-10``.

    The recipes of the papers, for real images, are in ``configs/recipes``.
    """
    cfg = CfgNode()
    cfg.SEED = 0  # one seed for every generator
    cfg.DEVICE = "auto"  # auto, cpu, cuda, cuda:1 …

    cfg.BENCHMARK = CfgNode()
    cfg.BENCHMARK.NAME = "synthetic-10"  # shown in tables
    cfg.BENCHMARK.TRAIN = ["synthetic:plaza"]  # data sets in the order they are learned
    cfg.BENCHMARK.UNSEEN = []  # data sets that are only tested on
    cfg.BENCHMARK.TASKS_PER_DATASET = 10  # identities of each set are cut into so many tasks
    cfg.BENCHMARK.POOL = False  # merge the sets of TRAIN into one before cutting
    cfg.BENCHMARK.IDENTITIES = 0  # at most so many training identities a set, 0 = all
    cfg.BENCHMARK.JOINT = False  # learn all tasks at once, as an upper bound
    cfg.BENCHMARK.ORDER = "ascending"  # order of identities: ascending or random
    cfg.BENCHMARK.ORDER_SEED = 0  # seed of the random order
    cfg.BENCHMARK.UNSEEN_GALLERIES = "separate"  # separate, merged into one (as AKA does), or both
    cfg.BENCHMARK.SPLITS = 1  # unseen sets with random splits: average over so many, 0 = all (10 or 20)
    cfg.BENCHMARK.SPLIT_SEED = 0  # seed of the random splits
    cfg.BENCHMARK.CAMERAS = "apart"  # of sets without cameras: apart (query 0, gallery 1) or same (both 0)

    cfg.DATA = CfgNode()
    cfg.DATA.ROOT = "datasets"  # folder that holds the data sets
    cfg.DATA.CACHE_GIB = 4.0  # decoded images of a task are kept in memory up to this size
    cfg.DATA.CACHE_DIR = ""  # folder on disk for those that do not fit, "" = decode them in every epoch
    cfg.DATA.CACHE_DIR_GIB = 50.0  # size up to which it is filled
    cfg.DATA.SKIP_BAD_IMAGES = False  # leave out images that cannot be read instead of stopping
    cfg.DATA.WORKERS = 0  # loader processes; 0 is fastest while the images fit in the cache
    cfg.DATA.AUGMENT_ON = "cpu"  # cpu, or device: the GPU mirrors, normalises and erases

    cfg.SYNTHETIC = CfgNode()  # size of the drawn data sets (synthetic:DOMAIN)
    cfg.SYNTHETIC.TRAIN_IDENTITIES = 480
    cfg.SYNTHETIC.TEST_IDENTITIES = 150
    cfg.SYNTHETIC.IMAGES_PER_IDENTITY = 10
    cfg.SYNTHETIC.DISTRACTORS = 300  # gallery images of nobody
    cfg.SYNTHETIC.SEED = 0  # another seed draws other people

    cfg.INPUT = CfgNode()
    cfg.INPUT.HEIGHT = 64  # pixels
    cfg.INPUT.WIDTH = 32
    cfg.INPUT.MEAN = [0.485, 0.456, 0.406]  # of RGB in [0, 1]
    cfg.INPUT.STD = [0.229, 0.224, 0.225]
    cfg.INPUT.FLIP = 0.5  # probability of a horizontal flip
    cfg.INPUT.ERASING = False  # the random erasing of DMML, growing over a task's epochs
    cfg.INPUT.PIPELINE = ""  # file of an albumentations pipeline that comes before flip and erasing

    cfg.EPISODE = CfgNode()
    cfg.EPISODE.IDENTITIES = 24  # identities an episode
    cfg.EPISODE.SUPPORT = 4  # support images an identity
    cfg.EPISODE.QUERY = 1  # query images an identity

    cfg.BATCH = CfgNode()  # P x K batches of the methods without episodes
    cfg.BATCH.IDENTITIES = 24  # identities a batch
    cfg.BATCH.IMAGES = 5  # images an identity

    cfg.STREAM = CfgNode()  # a single pass over each task in place of epochs of batches
    cfg.STREAM.SEGMENT = 0  # images a step; 0 = batches as above (a method that needs a stream: P x K images)
    cfg.STREAM.CORRELATION = 1  # images of an identity in a row
    cfg.STREAM.ITERATIONS = 1  # steps on every segment

    cfg.MODEL = CfgNode()
    cfg.MODEL.BACKBONE = "small"  # small, resnet18/34/50/101, torchreid:NAME
    cfg.MODEL.WEIGHTS = "none"  # none, imagenet, zoo:NAME, or a file

    cfg.METHOD = CfgNode(new_allowed=True)  # further keys are the options of the named method
    cfg.METHOD.NAME = "dwopp"  # a file of lreid/methods
    cfg.METHOD.ALIAS = ""  # its name in results and tables where its options make another method of it

    cfg.TRAIN = CfgNode()
    cfg.TRAIN.EPOCHS = 30  # a task; every identity occurs once an epoch
    cfg.TRAIN.OPTIMIZER = "adam"  # adam, sgd
    cfg.TRAIN.MOMENTUM = 0.0  # of sgd
    cfg.TRAIN.LR = 1e-3  # from random weights, 2e-4 from those of ImageNet
    cfg.TRAIN.WEIGHT_DECAY = 1e-4  # L2, coupled
    cfg.TRAIN.SCHEDULE = "exponential"  # exponential, cosine; anew for every task
    cfg.TRAIN.DECAY_START = 0.5  # share of the epochs at the full rate
    cfg.TRAIN.DECAY_FACTOR = 0.005  # rate in the last epoch of a task, relative to LR; 1 for a single pass
    cfg.TRAIN.WARMUP_EPOCHS = 0  # the rate rises from a hundredth over so many epochs
    cfg.TRAIN.ACCUMULATE = 1  # batches an update; their mean gradient is taken
    cfg.TRAIN.PRECISION = "fp32"  # of the network in training: fp32, bf16, fp16
    cfg.TRAIN.TEACHER_PRECISION = "fp32"  # of previous models that are distilled; others change their targets
    cfg.TRAIN.CHECKPOINT_MINUTES = 5.0  # time between checkpoints within a task, 0 = every epoch
    cfg.TRAIN.CHECKPOINT_STEPS = 0  # a checkpoint after so many steps, too; 0 = by time alone
    cfg.TRAIN.TENSORBOARD = False  # write TensorBoard scalars into the run folder

    cfg.EVAL = CfgNode()
    cfg.EVAL.METRIC = "cosine"  # cosine, euclidean
    cfg.EVAL.AP = "rectangular"  # rectangular, or trapezoidal as DwoPP's code has it
    cfg.EVAL.CAMERA_FILTER = True  # leave out gallery images of the query's identity and camera
    cfg.EVAL.FLIP = False  # add the features of the mirrored image
    cfg.EVAL.DRIFT_STEPS = 0  # after a task switch: how far old images move in so many steps; slow
    cfg.EVAL.ACCURACY = False  # of classification, too; where classes are tested that were trained
    cfg.EVAL.BATCH_SIZE = 128  # images a forward pass
    return cfg


def load_config(files: Sequence[str | Path] = (), overrides: Sequence[str] = ()) -> CfgNode:
    """The defaults, overlaid with config files in order and then with ``KEY VALUE`` pairs.

    Args:
        files: YAML files; each may name others under ``_BASE_``.
        overrides: flat list ``[key, value, key, value, …]``; values are Python literals or plain strings.

    Returns:
        The resolved, frozen config.

    Raises:
        InputError: a file is missing or no YAML mapping, a key is unknown (the nearest known one is named), a
            value has the wrong type, or a key has no value.
    """
    cfg = default_config()
    for file in files:
        _merge_file(cfg, Path(file), seen=())
    _override(cfg, overrides)
    cfg.freeze()
    return cfg


def check_values(cfg: CfgNode) -> None:
    """Finds values out of range before a run spends time on them.

    Raises:
        InputError: the first such key, with what it must be.
    """
    at_least = {
        "SEED": 0,
        "INPUT.HEIGHT": 1,
        "INPUT.WIDTH": 1,
        "TRAIN.EPOCHS": 1,
        "EVAL.BATCH_SIZE": 1,
        "DATA.WORKERS": 0,
        "DATA.CACHE_GIB": 0,
        "TRAIN.CHECKPOINT_MINUTES": 0,
        "TRAIN.WEIGHT_DECAY": 0,
        "INPUT.FLIP": 0,
        "TRAIN.DECAY_START": 0,
        "TRAIN.WARMUP_EPOCHS": 0,
        "BENCHMARK.SPLITS": 0,
        "BENCHMARK.SPLIT_SEED": 0,
        "STREAM.SEGMENT": 0,
        "STREAM.CORRELATION": 1,
        "STREAM.ITERATIONS": 1,
        "TRAIN.MOMENTUM": 0,
        "DATA.CACHE_DIR_GIB": 0,
        "TRAIN.ACCUMULATE": 1,
        "TRAIN.CHECKPOINT_STEPS": 0,
        "EVAL.DRIFT_STEPS": 0,
        "BENCHMARK.ORDER_SEED": 0,
        "EPISODE.IDENTITIES": 1,
        "EPISODE.SUPPORT": 1,
        "EPISODE.QUERY": 1,
        "BATCH.IDENTITIES": 1,
        "BATCH.IMAGES": 1,
    }
    at_most = {
        "SEED": 2**32 - 1,
        "BENCHMARK.SPLIT_SEED": 2**32 - 1,
        "BENCHMARK.ORDER_SEED": 2**32 - 1,
        "INPUT.HEIGHT": 4096,
        "INPUT.WIDTH": 4096,
        "INPUT.FLIP": 1,
        "TRAIN.MOMENTUM": 1,
        "TRAIN.DECAY_START": 1,
        "TRAIN.DECAY_FACTOR": 1,
    }
    above_zero = ("TRAIN.LR", "TRAIN.DECAY_FACTOR")
    choices = {
        "EVAL.METRIC": ("cosine", "euclidean"),
        "EVAL.AP": ("rectangular", "trapezoidal"),
        "TRAIN.OPTIMIZER": ("adam", "sgd"),
        "TRAIN.SCHEDULE": ("exponential", "cosine"),
        "TRAIN.PRECISION": ("fp32", "bf16", "fp16"),
        "TRAIN.TEACHER_PRECISION": ("fp32", "bf16", "fp16"),
        "DATA.AUGMENT_ON": ("cpu", "device"),
        "BENCHMARK.ORDER": ("ascending", "random"),
        "BENCHMARK.UNSEEN_GALLERIES": ("separate", "merged", "both"),
        "BENCHMARK.CAMERAS": ("apart", "same"),
    }
    for key, value in leaves(cfg):
        numbers = value if isinstance(value, (list, tuple)) else [value]
        if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
            raise InputError(f"{key} is {value}; it must be a finite number")
        if key in at_least and value < at_least[key]:
            raise InputError(f"{key} is {value}; it must be {at_least[key]} or more")
        if key in above_zero and value <= 0:
            raise InputError(f"{key} is {value}; it must be above 0")
        if key in at_most and value > at_most[key]:
            raise InputError(f"{key} is {value}; it must be {at_most[key]} or less")
        if key in choices and value not in choices[key]:
            raise InputError(f"{key} is {value!r}; it must be {' or '.join(choices[key])}")
        if key in ("INPUT.MEAN", "INPUT.STD") and not (
            len(value) == 3 and all(type(number) in (int, float) and abs(number) <= 255 for number in value)
        ):
            raise InputError(f"{key} is {value}; it must be three numbers, one for each of red, green and blue")
        if key == "INPUT.STD" and min(value) <= 0:
            raise InputError(f"{key} is {value}; they must be above 0")
        if key in ("BENCHMARK.TRAIN", "BENCHMARK.UNSEEN") and not all(type(name) is str for name in value):
            raise InputError(f"{key} is {value}; it must be a list of data sets, such as ['market1501']")
        if key == "BENCHMARK.NAME" and (value in (".", "..") or "/" in value or not value.isprintable()):
            raise InputError(f"{key} is {value!r}; it names the run's folder, so it must be a name, not a path")


def config_from_text(text: str, source: str, overrides: Sequence[str] = ()) -> CfgNode:
    """The config that :meth:`CfgNode.dump` wrote, frozen.

    Args:
        text: YAML without ``_BASE_``.
        source: named in errors.
        overrides: of :func:`load_config`.

    Raises:
        InputError: as :func:`load_config`.
    """
    cfg = default_config()
    _set_all(cfg, leaves(_parsed(text, source)), source)
    _override(cfg, overrides)
    cfg.freeze()
    return cfg


def method_options(cfg: CfgNode) -> dict[str, Any]:
    """The keys of ``METHOD`` but ``NAME`` and ``ALIAS``, in lower case: keyword arguments of the method's class."""
    return {key.lower(): value for key, value in cfg.METHOD.items() if key not in ("NAME", "ALIAS")}


def method_title(cfg: CfgNode) -> str:
    """What the method is called in results and tables."""
    return cfg.METHOD.ALIAS or cfg.METHOD.NAME


def differing_keys(one: CfgNode, other: CfgNode) -> list[str]:
    """Full names of the keys whose values differ, sorted."""
    left, right = dict(leaves(one)), dict(leaves(other))
    return sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key))


def _merge_file(cfg: CfgNode, file: Path, seen: tuple[Path, ...]) -> None:
    if file.resolve() in seen:
        raise InputError(f"{file}: builds on itself through _BASE_; remove the circle")
    try:
        content = _parsed(file.read_text(encoding="utf-8-sig"), str(file))
    except FileNotFoundError:
        raise InputError(f"{file}: no such config file; configs/ holds those that come with lreid") from None
    except IsADirectoryError:
        raise InputError(f"{file}: is a folder; name a YAML file in it") from None
    except (OSError, ValueError) as error:  # not UTF-8, or a NUL in the path
        raise InputError(f"{file}: cannot be read: {error}") from None
    bases = content.pop("_BASE_", [])
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(base, str) and "\0" not in base for base in bases):
        raise InputError(f"{file}: _BASE_ must be a path or a list of paths, got {bases!r}")
    for base in bases:
        _merge_file(cfg, file.parent / base, (*seen, file.resolve()))
    _set_all(cfg, leaves(content), source=str(file))


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        content = yaml.load(text, _Loader)
    except RecursionError:
        raise InputError(f"{source}: not valid YAML: nested too deeply") from None
    except Exception as error:  # values such as 2001-99-99 make PyYAML raise nearly anything
        raise InputError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise InputError(f"{source}: must hold KEY: value lines, not a {type(content).__name__}")
    return content


def _override(cfg: CfgNode, overrides: Sequence[str]) -> None:
    if len(overrides) % 2:
        raise InputError(f"{overrides[-1]}: a key without a value; overrides are KEY VALUE pairs")
    _set_all(cfg, zip(overrides[::2], overrides[1::2], strict=True), source="command line")


def leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The full name and the value of every key."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _set_all(cfg: CfgNode, pairs: Iterable[tuple[str, Any]], source: str) -> None:
    # The method's name first, since another name drops the options of the one before.
    for key, value in sorted(pairs, key=lambda pair: pair[0] != "METHOD.NAME"):
        _set(cfg, key, value, source)


def _set(cfg: CfgNode, key: str, value: Any, source: str) -> None:
    """Sets one key after checking that it exists and that the value has its type."""
    *parents, name = key.split(".")
    node = cfg
    for parent in parents:
        if not isinstance(node.get(parent), CfgNode):
            raise _unknown_key(cfg, key, source)
        node = node[parent]
    # yacs reads numbers and lists out of strings, also 1e-4, which YAML takes for a string.
    try:
        value = CfgNode._decode_cfg_value(value)
    except (MemoryError, RecursionError):  # Python's parser at thousands of brackets
        raise InputError(f"{source}: {key} is nested too deeply") from None
    if key == "METHOD.NAME" and value != node.NAME:
        for option in [option for option in node if option not in ("NAME", "ALIAS")]:
            del node[option]
        node.ALIAS = ""
    if name in node:
        node[name] = _typed(value, node[name], key, source)
    elif node.is_new_allowed():  # an option of a method, which checks it itself
        node[name] = value
    else:
        raise _unknown_key(cfg, key, source)


def _typed(value: Any, default: Any, key: str, source: str) -> Any:
    if isinstance(default, CfgNode):
        raise InputError(f"{source}: {key} is a group of keys, not a value; set {key}.{next(iter(default))} …")
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if isinstance(default, list) and isinstance(value, tuple):
        return list(value)
    if isinstance(default, str) and value is None:  # YAML's and Python's "none" written without quotes
        return "none"
    if type(value) is not type(default):
        raise InputError(
            f"{source}: {key} must be of type {type(default).__name__} (such as {default!r}), got {value!r}"
        )
    return value


def _unknown_key(cfg: CfgNode, key: str, source: str) -> InputError:
    known = [name for name, _ in leaves(cfg)]
    nearest = difflib.get_close_matches(key.upper(), known, n=1, cutoff=0.0)[0]
    return InputError(f"{source}: unknown key {key}; the nearest known one is {nearest}")
