"""Build objects from a config; their classes accept plain arguments and never a config."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from lreid.config import leaves, method_options
from lreid.config_keys import Config
from lreid.data.datasets import Sources
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
            cut=Cut(
                tasks_per_dataset=bench.TASKS_PER_DATASET,
                pool=bench.POOL,
                identities=bench.IDENTITIES,
                order=bench.ORDER,
                order_seed=bench.ORDER_SEED,
                scenario=bench.SCENARIO,
                groups=bench.GROUPS,
                group_by=bench.GROUP_BY,
            ),
            sources=sources_of(cfg),
        )


def sources_of(cfg: Config) -> Sources:
    """Return a config's settings for reading data sets."""
    return Sources(
        root=cfg.DATA.ROOT,
        cameras=cfg.BENCHMARK.CAMERAS,
        split_seed=cfg.BENCHMARK.SPLIT_SEED,
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
        folder: folder in which ``EVAL.CROSS_MODEL`` stores the gallery features after every task.
    """
    evaluation, size = cfg.EVAL, test_image_options(cfg)
    batch_size, stored = size.pop("batch_size"), None
    if evaluation.CROSS_MODEL and folder is not None:
        from lreid.evaluation.gallery_features import GalleryFeatures

        stored = GalleryFeatures(folder)
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
