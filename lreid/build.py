"""From the config of a run to its objects, whose classes accept plain arguments and never a config."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from lreid.config import (
    COMMAND_LINE,
    CONFIGS,
    Source,
    differing_keys,
    layers,
    leaves,
    load_config,
    method_file,
    method_options,
    method_title,
)
from lreid.config_keys import FREE_KEYS, KEYS, Config
from lreid.data.datasets import Sources
from lreid.data.images import Images
from lreid.data.records import Benchmark
from lreid.data.tasks import Cut, Learned, Unseen, build_benchmark, merge_tasks
from lreid.errors import InputError, naming_keys
from lreid.evaluation import OBSERVERS
from lreid.evaluation.evaluator import Evaluator
from lreid.evaluation.observer import Observer
from lreid.evaluation.test_set import Rules, load_tests
from lreid.loading import initial_normalisation, network_of, network_of_entry
from lreid.methods import Method, build_method, method_class, method_defaults
from lreid.models.embedder import Embedder
from lreid.models.inputs import IMAGENET
from lreid.results import Results
from lreid.retrieval.index import FaissIndex
from lreid.utils.devices import PRECISIONS

LEARNS_FROM = {
    "episodes": "episodes of support and query images, set by EPISODE.*",
    "identities": "P x K images per batch, set by BATCH.* (on a stream, set by STREAM.*, if STREAM.SEGMENT is above 0)",
    "stream": "a stream, set by STREAM.* (and by BATCH.* if STREAM.SEGMENT is 0)",
}


def load_run_config(files: Sequence[Source] = (), overrides: Sequence[str] = (), *, report: bool = True) -> Config:
    """Load the config of a run, set automatic values (:func:`resolved`), and refuse keys without effect.

    Keys in lreid's benchmarks and recipes are not checked, because these files serve all methods. Keys of EPISODE and
    BATCH are not checked if one source (a file or the command line) sets keys of both. Options in a file for a
    different method are not checked.

    Raises:
        InputError: a key has no effect in the method of the config, or :func:`lreid.config.load_config` raises an
            error.
    """
    cfg = load_config(files, overrides, report=report)
    for source, keys in layers(files, overrides):
        serves_all = Path(source).resolve().parent in [(CONFIGS / each).resolve() for each in ("benchmarks", "recipes")]
        if not serves_all and keys.get("METHOD.NAME", cfg.METHOD.NAME) in (cfg.METHOD.NAME, cfg.METHOD.ALIAS):
            for name, reason in _ignored(cfg, keys, typed=source == COMMAND_LINE):
                raise InputError(f"{source}: {name} is ignored by {cfg.METHOD.NAME}, {reason}; remove it")
    if cfg.BENCHMARK.JOINT:
        _require_own_joint(files, overrides)
    return resolved(cfg)


def _require_own_joint(files: Sequence[Source], overrides: Sequence[str]) -> None:
    """Refuse ``BENCHMARK.JOINT`` from a method's file if a later file or the command line names another method."""
    joint = named = None
    for source, keys in layers(files, overrides):
        keys = method_file(keys.get("METHOD.NAME")) | keys
        if "BENCHMARK.JOINT" in keys:
            joint, named = source, keys.get("METHOD.NAME")
        elif named and keys.get("METHOD.NAME", named) != named:
            raise InputError(
                f"{source}: METHOD.NAME {keys['METHOD.NAME']} comes after {joint}, whose BENCHMARK.JOINT trains all "
                "tasks at once; add BENCHMARK.JOINT False to train them one after the other, or True to keep it"
            )


def _ignored(cfg: Config, keys: dict[str, Any], *, typed: bool) -> Iterator[tuple[str, str]]:
    """Yield the keys of a file or command line that have no effect in the config's method, each with the reason.

    A file may set options without effect to their defaults, as the ``config.yaml`` of a run does. On the command line
    (``typed``), options without effect are always refused.
    """
    cls = class_of(cfg)
    groups = {name.partition(".")[0] for name in keys}
    defaults = method_defaults(cls)
    for name in keys:
        group, _, last = name.partition(".")
        if group in ("EPISODE", "BATCH") and not groups >= {"EPISODE", "BATCH"}:
            if (group == "EPISODE") != (cls.batches == "episodes"):
                yield name, f"which trains on {LEARNS_FROM[cls.batches]}"
            elif typed and group == "BATCH" and (cfg.STREAM.SEGMENT or cls.batches == "stream"):
                yield name, "which trains on a stream here, because STREAM.SEGMENT is above 0"
        elif name.startswith("EVAL.PROBE_") and not cfg.EVAL.ACCURACY and cfg.EVAL[last] != KEYS[name].default:
            yield name, "whose accuracy is not measured; set EVAL.ACCURACY True on data with test images of classes"
        elif group == "STREAM" and last != "SEGMENT" and not cfg.STREAM.SEGMENT and cls.batches != "stream":
            if cfg.STREAM[last] != KEYS[name].default:
                yield name, "which trains on a stream only if STREAM.SEGMENT is above 0"
        elif (
            group == "METHOD"
            and last.lower() in cls.unused
            and (typed or cfg.METHOD.get(last, keys[name]) != defaults[last.lower()])
        ):
            yield name, "which inherits it but does not use it"


def resolved(cfg: Config) -> Config:
    """Add all options of the method and the initial weights' input normalisation to a config, and freeze it.

    Weights from a package, the zoo or a model file always determine the normalisation. Weights from timm's hub
    determine the normalisation only if the config has the default mean and standard deviation, which are ImageNet's.
    """
    cfg = cfg.clone()
    cfg.defrost()
    for option, default in method_defaults(class_of(cfg)).items():
        cfg.METHOD.setdefault(option.upper(), default)
    with naming_keys("MODEL"):
        trained_with = initial_normalisation(cfg)
    if trained_with and (cfg.MODEL.WEIGHTS != "hub" or tuple(map(list, IMAGENET)) == (cfg.INPUT.MEAN, cfg.INPUT.STD)):
        cfg.INPUT.MEAN, cfg.INPUT.STD = map(list, trained_with)
    cfg.freeze()
    return cfg


def class_of(cfg: Config) -> type[Method]:
    """Return the class of the method that a config names."""
    with naming_keys("METHOD"):
        return method_class(cfg.METHOD.NAME)


def benchmark_of(cfg: Config) -> Benchmark:
    """Build the benchmark that a config describes; :func:`learned` merges its tasks for joint training."""
    bench = cfg.BENCHMARK
    with naming_keys("BENCHMARK", **{key.lower(): f"SYNTHETIC.{key}" for key in cfg.SYNTHETIC}):
        return build_benchmark(
            bench.NAME,
            bench.TRAIN,
            unseen=Unseen(bench.UNSEEN, bench.UNSEEN_GALLERIES, bench.SPLITS),
            learned=Learned(bench.LEARNED, bench.LEARNED_IDENTITIES),
            cut=Cut(**{each.name: bench[each.name.upper()] for each in fields(Cut)}),  # named like the keys
            sources=sources_of(cfg),
        )


def sources_of(cfg: Config) -> Sources:
    """Return a config's settings for reading data sets."""
    return Sources(
        root=cfg.DATA.ROOT,
        cameras=cfg.BENCHMARK.CAMERAS,
        split_seed=cfg.BENCHMARK.SPLIT_SEED,
        dev_share=cfg.BENCHMARK.DEV_SHARE,
        pattern=cfg.DATA.PATTERN,
        synthetic={key.lower(): value for key, value in cfg.SYNTHETIC.items()},
    )


def learned(cfg: Config, benchmark: Benchmark) -> Benchmark:
    """Return the benchmark on which the run trains; with ``BENCHMARK.JOINT``, all its tasks are merged into one."""
    return merge_tasks(benchmark) if cfg.BENCHMARK.JOINT else benchmark


def model_of(cfg: Config, *, pretrained: bool) -> Embedder:
    """Build the network of a config, with random weights if ``pretrained`` is False."""
    weights = cfg.MODEL.WEIGHTS if pretrained else "none"
    model = network_of(cfg, weights=weights, neck=class_of(cfg).neck)
    with naming_keys("TRAIN"):
        model.freeze(cfg.TRAIN.FROZEN_LAYERS)
    return model


def method_of(cfg: Config, device: torch.device, *, pretrained: bool) -> Method:
    """Build the method that a config describes, with its network on a device."""
    model = model_of(cfg, pretrained=pretrained).to(device).to(memory_format=torch.channels_last)
    model.precision = PRECISIONS[cfg.TRAIN.PRECISION]
    with naming_keys("METHOD", backbone="MODEL.BACKBONE", adapter="MODEL.ADAPTER"):
        return build_method(cfg.METHOD.NAME, model, **method_options(cfg))


def naming_index_keys() -> AbstractContextManager[None]:
    """Replace argument names by config keys in errors that occur while an index is built or tried."""
    return naming_keys("EVAL", depth="EVAL.INDEX_DEPTH")


def initial_model_of(cfg: Config, method: Method) -> Embedder:
    """Return the initial model of a run: the zoo model that the config names, or else the method's network."""
    model = network_of_entry(cfg)
    return method.model if model is None else model.to(method.model.mean.device)


def index_of(cfg: Config) -> FaissIndex | None:
    """Build the index with which a config searches galleries, or return None for exact search."""
    evaluation = cfg.EVAL
    if evaluation.BACKEND == "exact":
        return None
    with naming_index_keys():
        return FaissIndex(evaluation.INDEX, evaluation.INDEX_DEPTH, evaluation.INDEX_DEVICE, evaluation.INDEX_FLOAT16)


def evaluator_of(cfg: Config, benchmark: Benchmark, dim: int = 0, folder: Path | None = None) -> Evaluator:
    """Build the evaluator that a config describes, for the test sets of a benchmark.

    Args:
        dim: length of the features. The index ``EVAL.INDEX`` is tried with features of this length before the run
            starts; 0 skips this test.
        folder: folder in which ``EVAL.CROSS_MODEL`` stores gallery features and maps after every task.
    """
    evaluation, size = cfg.EVAL, test_image_options(cfg)
    batch_size, stored = size.pop("batch_size"), None
    if evaluation.CROSS_MODEL and folder is not None:
        from lreid.evaluation.gallery_features import GalleryFeatures

        def images_of(task: int) -> Images | None:
            records = benchmark.tasks[task].records if task < len(benchmark.tasks) else ()
            return Images(records, **size | {"cache_gib": 0.0}) if records else None

        stored = GalleryFeatures(folder, images_of)
    with naming_index_keys():
        rules = Rules(evaluation.METRIC, evaluation.AP, evaluation.CAMERA_FILTER, evaluation.OUTFITS)
        tests = load_tests(benchmark.tests, rules, **size)
        evaluator = Evaluator(tests, flip=evaluation.FLIP, batch_size=batch_size, index=index_of(cfg), stored=stored)
        if dim:
            evaluator.try_index(dim)
    return evaluator


def observers_of(
    cfg: Config, benchmark: Benchmark, method: Method, evaluator: Evaluator, results: Results
) -> dict[str, Observer]:
    """Create the observers that a config enables, by the last part of the config key in lower case."""
    if cfg.EVAL.ACCURACY and "EVAL.ACCURACY" not in OBSERVERS:
        raise InputError("EVAL.ACCURACY: lreid.classification measures it; import this package before the run")
    return {
        key.rpartition(".")[2].lower(): importlib.import_module(module).create(
            cfg, benchmark, method, evaluator, results
        )
        for key, module in OBSERVERS.items()
        if dict(leaves(cfg))[key]
    }


def test_image_options(cfg: Config) -> dict[str, Any]:
    """Return the options for reading and caching test images, and the batch size of their forward passes."""
    return {
        "height": cfg.INPUT.HEIGHT,
        "width": cfg.INPUT.WIDTH,
        "cache_gib": cfg.DATA.CACHE_GIB,
        "skip_bad": cfg.DATA.SKIP_BAD_IMAGES,
        "batch_size": cfg.EVAL.BATCH_SIZE,
    }


def command_of(cfg: Config, *, before: Path | None = None) -> str:
    """Build the command that trains a config.

    Args:
        cfg: the resolved config.
        before: the checkpoint from which a run on custom images fine-tunes.
    """
    values = dict(leaves(cfg))
    words = ["lreid", "train"]
    if before is not None:
        words += [cfg.BENCHMARK.TRAIN[0].partition(":")[2], "--from", str(before)]
    for plugin in cfg.IMPORTS:
        words += ["--import", plugin]
    for file in _files(cfg):
        words += ["--config", str(file.relative_to(CONFIGS.parent))]
    # The method ignores these keys, and the command line would refuse them.
    ignored = "BATCH." if method_class(cfg.METHOD.NAME).batches == "episodes" else "EPISODE."
    elsewhere = ["DATA.ROOT"] * (KEYS["DATA.ROOT"].default != cfg.DATA.ROOT)
    for key in ("SEED", *elsewhere, *changed_by(cfg)):
        if not key.startswith(ignored):
            words += [key, str(values[key])]
    return shlex.join(words)


def changed_by(cfg: Config) -> dict[str, Any]:
    """Map each key that a config changes to its value in the files of benchmark and method, None if not there.

    The seed, options of other methods, and keys that only affect where and how often a run writes are left out.
    """
    base = load_run_config(_files(cfg))
    own, values = dict(leaves(cfg)).keys() - {"SEED", *FREE_KEYS}, dict(leaves(base))
    return {key: values.get(key) for key in differing_keys(cfg, base) if key in own}


def _files(cfg: Config) -> list[Path]:
    """List lreid's config files for a config's benchmark and method."""
    named = (CONFIGS / "benchmarks" / f"{cfg.BENCHMARK.NAME}.yaml", CONFIGS / "methods" / f"{method_title(cfg)}.yaml")
    return [file for file in named if file.exists()]
