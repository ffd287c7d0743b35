"""The door of training: from a config and a folder to a finished run."""

from __future__ import annotations

import logging
import platform
import random
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from yacs.config import CfgNode

from lreid.checkpoint import checkpoints_of, fitting, load_model_state, load_newest, set_random_state
from lreid.config import check_values, config_from_text, differing_keys, leaves, method_options, method_title
from lreid.data.disk_cache import DiskCache
from lreid.data.fingerprint import protocol_fingerprint
from lreid.data.records import Benchmark
from lreid.data.tasks import build_benchmark, merge_tasks
from lreid.errors import InputError, naming_keys
from lreid.evaluation import AccuracyEvaluator, Evaluator
from lreid.methods import Method, build_method, method_class, method_defaults
from lreid.models import Embedder
from lreid.models.precision import has_instructions, set_precision
from lreid.training import distributed
from lreid.training.allocator import keep_freed_memory
from lreid.training.run_folder import RunFolder
from lreid.training.signals import StopSignals
from lreid.training.trainer import Trainer

logger = logging.getLogger("lreid")

# Where and how often a run works may change when it is taken up again, what it computes may not.
FREE_KEYS = (
    "DEVICE",
    "DATA.ROOT",
    "DATA.CACHE_GIB",
    "DATA.CACHE_DIR",
    "DATA.CACHE_DIR_GIB",
    "DATA.WORKERS",
    "TRAIN.CHECKPOINT_MINUTES",
    "TRAIN.CHECKPOINT_STEPS",
    "TRAIN.TENSORBOARD",
)


def train(cfg: CfgNode, out: Path, *, resume: bool = False) -> dict[str, Any]:
    """Trains the method of a config on its benchmark and writes a run folder.

    Args:
        cfg: the resolved config.
        out: the run folder. It must not hold a run yet, unless ``resume``.
        resume: go on from the newest checkpoint in ``out``; start where there is none.

    Returns:
        The content of ``results.json``.

    Raises:
        InputError: the config, the data or the folder does not fit; one line says what to do.
    """
    distributed.join(pick_device(cfg.DEVICE))
    keep_freed_memory()
    try:
        with StopSignals() as stop:
            return _train(cfg, out, resume, stop)
    finally:
        distributed.leave()


def _train(cfg: CfgNode, out: Path, resume: bool, stop: StopSignals) -> dict[str, Any]:
    if checkpoints_of(out / "checkpoints") and not resume:
        raise InputError(f"{out}: already holds a run; add --resume to go on with it, or choose another --out")
    cfg = with_method_defaults(cfg)
    check_values(cfg)
    start = load_newest(out / "checkpoints")
    if start is not None:
        _check_same_config(cfg, start[1]["config"], start[0])

    random.seed(cfg.SEED)
    np.random.seed(cfg.SEED)
    torch.manual_seed(cfg.SEED)
    device = pick_device(cfg.DEVICE)
    benchmark = benchmark_of(cfg)
    protocol = protocol_fingerprint(benchmark)
    if cfg.BENCHMARK.JOINT:
        benchmark = merge_tasks(benchmark)
    method = method_of(cfg, device, pretrained=start is None)
    evaluator = evaluator_of(cfg, benchmark)
    accuracy = accuracy_evaluator_of(cfg, benchmark) if cfg.EVAL.ACCURACY else None
    results = new_results(cfg, benchmark, protocol, method, evaluator)
    if start is not None:
        path, checkpoint = start
        load_model_state(method.model, checkpoint["model"], path)
        with fitting(path):
            method.load_state_dict(checkpoint["method"])
        set_random_state(checkpoint["random"])
        results |= checkpoint["results"]

    folder = RunFolder(out, tensorboard=cfg.TRAIN.TENSORBOARD, writes=distributed.rank() == 0)
    try:
        with folder.log(logger):
            folder.write_config(cfg.dump())
            trainer = Trainer(method, benchmark, evaluator, folder, results, cfg, device, accuracy, stop)
            if start is not None:
                with fitting(path):
                    trainer.resume(checkpoint)
                logger.info("going on from %s", path)
            _announce(cfg, benchmark, results, device, out)
            trainer.run()
            logger.info("done: %s", out / "report.html")
    finally:
        folder.close()
    return results


def run_folder_for(cfg: CfgNode, *, resume: bool) -> Path:
    """``runs/BENCHMARK-METHOD-seedN``, with ``-2``, ``-3`` … behind it where that is taken.

    To ``resume``, the last one that is there.
    """
    first = Path("runs") / f"{cfg.BENCHMARK.NAME}-{method_title(cfg)}-seed{cfg.SEED}"
    folder, number = first, 2
    taken = None
    while folder.exists():
        taken, folder, number = folder, first.with_name(f"{first.name}-{number}"), number + 1
    return taken if resume and taken is not None else folder


def with_method_defaults(cfg: CfgNode) -> CfgNode:
    """The config with every option of its method written out."""
    cfg = cfg.clone()
    cfg.defrost()
    with naming_keys("METHOD", name="METHOD.NAME"):
        defaults = method_defaults(method_class(cfg.METHOD.NAME))
    for option, default in defaults.items():
        cfg.METHOD.setdefault(option.upper(), default)
    cfg.freeze()
    return cfg


def benchmark_of(cfg: CfgNode) -> Benchmark:
    """The benchmark that a config describes."""
    bench = cfg.BENCHMARK
    with naming_keys("BENCHMARK", **{key.lower(): f"SYNTHETIC.{key}" for key in cfg.SYNTHETIC}):
        return build_benchmark(
            bench.NAME,
            train=bench.TRAIN,
            unseen=bench.UNSEEN,
            root=cfg.DATA.ROOT,
            tasks_per_dataset=bench.TASKS_PER_DATASET,
            pool=bench.POOL,
            identities=bench.IDENTITIES,
            order=bench.ORDER,
            order_seed=bench.ORDER_SEED,
            unseen_galleries=bench.UNSEEN_GALLERIES,
            splits=bench.SPLITS,
            split_seed=bench.SPLIT_SEED,
            cameras=bench.CAMERAS,
            synthetic={key.lower(): value for key, value in cfg.SYNTHETIC.items()},
        )


def model_of(cfg: CfgNode, *, pretrained: bool) -> Embedder:
    """The network that a config describes, with the weights it names or, if not ``pretrained``, random ones."""
    with naming_keys("MODEL"):
        return Embedder(
            cfg.MODEL.BACKBONE,
            cfg.MODEL.WEIGHTS if pretrained else "none",
            height=cfg.INPUT.HEIGHT,
            width=cfg.INPUT.WIDTH,
            mean=cfg.INPUT.MEAN,
            std=cfg.INPUT.STD,
            neck=method_class(cfg.METHOD.NAME).neck,
        )


def method_of(cfg: CfgNode, device: torch.device, *, pretrained: bool) -> Method:
    """The method that a config describes, with its network, on a device.

    Raises:
        InputError: the method cannot be trained by several processes, and there are several.
    """
    cls = method_class(cfg.METHOD.NAME)
    if distributed.world() > 1 and not cls.divisible:
        raise InputError(
            f"METHOD.NAME: {cfg.METHOD.NAME} looks at gradients by itself, so one process alone can train it; "
            "start it without torchrun"
        )
    model = model_of(cfg, pretrained=pretrained).to(device).to(memory_format=torch.channels_last)
    set_precision(model, cfg.TRAIN.PRECISION, cfg.TRAIN.TEACHER_PRECISION)
    distributed.divide(model)
    with naming_keys("METHOD", name="METHOD.NAME"):
        return build_method(cfg.METHOD.NAME, model, **method_options(cfg))


def evaluator_of(cfg: CfgNode, benchmark: Benchmark) -> Evaluator:
    """The evaluator that a config describes, over the test sets of a benchmark."""
    return Evaluator(
        benchmark.tests,
        height=cfg.INPUT.HEIGHT,
        width=cfg.INPUT.WIDTH,
        cache_gib=cfg.DATA.CACHE_GIB,
        disk=DiskCache(cfg.DATA.CACHE_DIR, cfg.DATA.CACHE_DIR_GIB, keep=True),
        skip_bad=cfg.DATA.SKIP_BAD_IMAGES,
        metric=cfg.EVAL.METRIC,
        ap=cfg.EVAL.AP,
        camera_filter=cfg.EVAL.CAMERA_FILTER,
        flip=cfg.EVAL.FLIP,
        batch_size=cfg.EVAL.BATCH_SIZE,
    )


def accuracy_evaluator_of(cfg: CfgNode, benchmark: Benchmark) -> AccuracyEvaluator:
    """The evaluator of classification that a config describes, over the held-out images of a benchmark's tasks."""
    return AccuracyEvaluator(
        benchmark.tasks,
        height=cfg.INPUT.HEIGHT,
        width=cfg.INPUT.WIDTH,
        cache_gib=cfg.DATA.CACHE_GIB,
        disk=DiskCache(cfg.DATA.CACHE_DIR, cfg.DATA.CACHE_DIR_GIB, keep=True),
        skip_bad=cfg.DATA.SKIP_BAD_IMAGES,
        batch_size=cfg.EVAL.BATCH_SIZE,
        seed=cfg.SEED,
    )


def pick_device(name: str) -> torch.device:
    """``auto`` is the first GPU where there is one.

    Raises:
        InputError: no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # ``meta`` has no numbers
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"DEVICE {name}: cannot be used ({str(error).splitlines()[0]}); use auto or cpu") from None
    return device


def new_results(
    cfg: CfgNode, benchmark: Benchmark, protocol: str, method: Method, evaluator: Evaluator
) -> dict[str, Any]:
    """The content of ``results.json`` before the first task."""
    packages = ("torch", "torchvision", "numpy", "albumentations", "faiss-cpu", "faiss-gpu")
    return {
        "schema": 1,
        "method": method_title(cfg),
        "benchmark": benchmark.name,
        "protocol": protocol,  # runs with another fingerprint are not to be compared with this one
        "seed": cfg.SEED,
        "config": recorded_config(dict(leaves(cfg))),
        "ap": cfg.EVAL.AP,
        "tasks": [task.name for task in benchmark.tasks],
        "galleries": [
            {
                "name": test.name,
                "kind": test.kind,
                "first_task": test.first_task,
                "queries": len(test.query),
                "gallery": len(test.gallery),
            }
            for test in benchmark.tests
        ],
        "mAP": [],
        "rank1": [],
        "rank5": [],
        "rank10": [],
        "identity_ap": {},
        "summary": {},
        "accuracy": {},  # of classification, with EVAL.ACCURACY: a matrix for each classifier
        "accuracy_summary": {},
        "alignment": [],  # after each task, by task: of held-out images with those in the memory
        "seconds": {"train": 0.0, "train_cpu": 0.0, "evaluate": 0.0},
        "peak_memory_mib": 0,
        "loss_history": [],
        "drift": [],  # of stored and of test images at task switches
        "gradient_norms": [],  # of stored and of incoming features there
        "teacher_divergence": {},  # by task: what TRAIN.TEACHER_PRECISION changes, KL in nats
        "exemplars": method.exemplars,
        "exemplar_bytes": 0,  # of their pixels, or of their paths
        "steps_trained": 0,
        "images_trained": 0,  # looked at by the method, an image as often as it was drawn
        "skipped": sorted(set(evaluator.skipped)),
        "skipped_images": len(set(evaluator.skipped)),
        "versions": {"python": platform.python_version(), "lreid": installed_version("lreid")}
        | {name: found for name in packages if (found := installed_version(name)) is not None},
    }


def installed_version(package: str) -> str | None:
    """Of a package; None where it is not installed, as lreid itself in its bare source tree."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def recorded_config(keys: dict[str, Any]) -> dict[str, Any]:
    """Of all keys those that tell runs apart: not the seed, nor where and how often a run works."""
    return {key: value for key, value in keys.items() if key not in ("SEED", *FREE_KEYS)}


def changed_keys(cfg: CfgNode, saved: str, path: Path) -> list[str]:
    """Keys in which the config that a run was made with, as text, differs from ``cfg`` in what is computed."""
    old = with_method_defaults(config_from_text(saved, str(path)))
    return [key for key in differing_keys(cfg, old) if key not in FREE_KEYS]


def _check_same_config(cfg: CfgNode, saved: str, path: Path) -> None:
    changed = changed_keys(cfg, saved, path)
    if changed:
        raise InputError(
            f"{path}: was made with another config: {', '.join(changed)} differ; "
            "resume with the same one (leave --config out to take that of the run), or choose another --out"
        )


def _announce(cfg: CfgNode, benchmark: Benchmark, results: dict[str, Any], device: torch.device, out: Path) -> None:
    images = sum(len(task.records) for task in benchmark.tasks)
    identities = sum(len(task.classes) for task in benchmark.tasks)
    logger.info(
        "%s on %s, seed %d: %d tasks, %d identities, %d images; tested on %s; results in %s",
        method_title(cfg),
        benchmark.name,
        cfg.SEED,
        len(benchmark.tasks),
        identities,
        images,
        ", ".join(test.name for test in benchmark.tests),
        out,
    )
    if results["skipped_images"]:
        logger.warning("skipped %d test images that cannot be read", results["skipped_images"])
    for key in ("PRECISION", "TEACHER_PRECISION"):
        if not has_instructions(device, cfg.TRAIN[key]):
            logger.warning(
                "TRAIN.%s %s: this device has no instructions for it and is many times slower than in fp32",
                key,
                cfg.TRAIN[key],
            )
