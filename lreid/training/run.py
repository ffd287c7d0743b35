"""Train a run from a config into a run folder."""

from __future__ import annotations

import logging
import platform
import random
import re
import subprocess
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

from lreid.build import (
    benchmark_of,
    changed_by,
    class_of,
    command_of,
    evaluator_of,
    initial_model_of,
    learned,
    load_run_config,
    method_of,
    observers_of,
    resolved,
)
from lreid.checkpoint import checkpoints_of, fitting, load_checkpoint, load_model_state, load_newest, set_random_state
from lreid.config import (
    ARGUMENTS,
    Source,
    check_values,
    config_from_text,
    differing_keys,
    leaves,
    method_title,
    recorded_config,
)
from lreid.config_keys import FREE_KEYS, Config
from lreid.data.records import Benchmark
from lreid.data.samplers import Sampler
from lreid.data.tasks import content_fingerprint, protocol_fingerprint
from lreid.errors import InputError, counted, naming_keys, raise_if_out_of_memory, short_reason
from lreid.evaluation.evaluator import Evaluator
from lreid.evaluation.observer import Observer
from lreid.methods import Method, register
from lreid.results import Results, resumed_results, start_results
from lreid.training import distributed
from lreid.training.batches import Batching
from lreid.training.run_folder import RunFolder
from lreid.training.signals import StopSignals
from lreid.training.trainer import Trainer
from lreid.training.updates import NotFinite, register_optimizer
from lreid.utils.devices import arithmetic, computing, has_instructions, keep_freed_memory, pick_device
from lreid.utils.extras import import_plugins, installed_version
from lreid.utils.files import require_own
from lreid.utils.reading import read_text

logger = logging.getLogger("lreid")
OF_BATCHES = {  # config keys of sampler arguments, for naming_keys
    "segment": "STREAM.SEGMENT",
    "correlation": "STREAM.CORRELATION",
    "num_support": "EPISODE.SUPPORT",
    "num_query": "EPISODE.QUERY",
}
LOST_CONNECTION = re.compile(
    r"gloo.*(Connection|Timed out|closed|reset)|Connection (closed|reset) by peer|NCCL.*remote", re.DOTALL
)


@naming_keys(**ARGUMENTS, segment="STREAM.SEGMENT")
def train(
    cfg: Config | Source,
    out: str | Path | None = None,
    *,
    method: str | type[Method] | None = None,
    optimizer: str | Callable[..., Optimizer] | None = None,
    sampler: Callable[..., Sampler] | None = None,
    resume: bool = False,
    observers: Mapping[str, Observer] = MappingProxyType({}),
    before: Path | None = None,
    command: str = "",
) -> Results:
    """Train the method of a config on its benchmark and write a run folder.

    Args:
        cfg: config from :func:`~lreid.build.load_run_config` or :func:`~lreid.config.load_config`; or a config file, or
            a dictionary of config keys and values.
        out: the run folder; the default is ``runs/BENCHMARK-METHOD-seedN``. Without ``resume``, the folder must not
            contain a run.
        method, optimizer: values of ``METHOD.NAME`` and ``TRAIN.OPTIMIZER``; or your class, which is registered
            under its own name (:func:`lreid.methods.register`,
            :func:`lreid.training.updates.register_optimizer`). To resume the run, pass the class again.
        sampler: function that creates the sampler of a task's batches. Its arguments are those of
            :meth:`lreid.training.batches.Batching.sampler`, and it returns a :class:`lreid.data.samplers.Sampler`.
        resume: continue from the newest checkpoint in ``out``; without a checkpoint, start a new run.
        observers: additional observers by name; a checkpoint stores each observer's state under its name. The command
            ``lreid train`` passes a :class:`~lreid.report.page.ReportObserver`, which writes the report.
        before: checkpoint of a finished task of another run, from which this run fine-tunes. If ``out`` already has a
            checkpoint, ``before`` is ignored. The config keys ``BENCHMARK.LEARNED`` and
            ``BENCHMARK.LEARNED_IDENTITIES`` describe the training data of that run.
        command: the command that the user typed, for the report; if it is empty, the report builds a command from all
            changed keys.

    Returns:
        The content of ``results.json``.

    Raises:
        InputError: the config, the data or the folder is invalid; the message is one line that says what to do.
    """
    cfg = _chosen(cfg, method, optimizer)
    out = run_folder_for(cfg, resume=resume) if out is None else Path(out)
    distributed.take_gpu(cfg.DEVICE)
    distributed.join(pick_device(cfg.DEVICE))
    keep_freed_memory()
    try:
        cfg = resolved(cfg)
        check_values(cfg)
        # The folder is locked before its state is read, so that the second of two runs sees the first.
        how = {"rounded": cfg.TRAIN.PRECISION == "tf32", "deterministic": cfg.TRAIN.DETERMINISTIC}
        with StopSignals() as stop, RunFolder(out, writes=distributed.rank() == 0) as folder, computing(**how):
            return _train(cfg, folder, resume, observers, stop, before, command, sampler)
    except (MemoryError, OSError, RuntimeError) as error:
        _refuse(cfg, error)
        raise
    finally:
        distributed.leave()


def _chosen(cfg: Config | Source, method: str | type[Method] | None, optimizer: Any) -> Config:
    """Return the config of a run with the method and the optimiser that the caller chose."""
    import_plugins()
    names = {}
    for key, value, add in (("METHOD.NAME", method, register), ("TRAIN.OPTIMIZER", optimizer, register_optimizer)):
        if value is not None:
            names[key] = value if isinstance(value, str) else add(value.__name__)(value).__name__
    if isinstance(cfg, Mapping):
        return cfg if isinstance(cfg, Config) and not names else load_run_config([dict(leaves(dict(cfg))) | names])
    return load_run_config([cfg], [*chain(*names.items())])


def _refuse(cfg: Config, error: Exception) -> None:
    """Raise an InputError with advice if memory, determinism, a compiler or another process caused ``error``."""
    raise_if_out_of_memory(
        error,
        remedy=f"lower {_batch_key(cfg)} (TRAIN.ACCUMULATE adds up batches), INPUT.HEIGHT and INPUT.WIDTH, "
        "EVAL.BATCH_SIZE, DATA.WORKERS or DATA.CACHE_GIB, or set TRAIN.PRECISION bf16",
    )
    if cfg.TRAIN.DETERMINISTIC and "deterministic" in str(error):
        raise InputError(f"TRAIN.DETERMINISTIC: {str(error).partition('. ')[0]}; set it to False") from None
    if cfg.TRAIN.COMPILE and type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        raise InputError(f"TRAIN.COMPILE: torch.compile does not work here ({short_reason(error)}); set it to False")
    if distributed.world() > 1 and LOST_CONNECTION.search(str(error)):
        raise InputError(
            "another process of this run has died; read its message, then start all processes again with --resume"
        ) from None


def _batch_key(cfg: Config) -> str:
    """The config key that sets the size of a batch."""
    if class_of(cfg).batches == "episodes":
        return "EPISODE.IDENTITIES"
    return "STREAM.SEGMENT" if cfg.STREAM.SEGMENT else "BATCH.IDENTITIES"


def _train(
    cfg: Config,
    folder: RunFolder,
    resume: bool,
    observers: Mapping[str, Observer],
    stop: StopSignals,
    before: Path | None,
    command: str,
    sampler: Callable[..., Sampler] | None,
) -> Results:
    start = _newest(cfg, folder, resume, before)
    _seed_all(cfg.SEED)
    device = pick_device(cfg.DEVICE)
    benchmark = benchmark_of(cfg)
    protocol = protocol_fingerprint(benchmark)
    benchmark = learned(cfg, benchmark)
    method = method_of(cfg, device, pretrained=start is None and before is None)
    _divide(cfg, method)
    if cfg.TRAIN.COMPILE:
        method.model.backbone.compile()
    # cuDNN's benchmark mode tries several algorithms for every new input shape. Benchmark mode is off if shapes vary,
    # and if runs must be deterministic, because algorithms round differently.
    torch.backends.cudnn.benchmark = not (cfg.TRAIN.DETERMINISTIC or cfg.STREAM.SEGMENT or method.memory.of_stream)
    evaluator = evaluator_of(cfg, benchmark, method.model.dim, folder.path / "galleries")
    results = new_results(cfg, benchmark, protocol, evaluator, before)
    results["exemplars"] = method.exemplars
    results["command"] = command or results["command"]
    differences = ""
    if start is not None:
        path, checkpoint = start
        results, differences = _resumed(results, path, checkpoint)
        load_model_state(method.model, checkpoint["model"], path)
        _take(method, checkpoint["method"], path)
        set_random_state(checkpoint["random"])
    elif before is not None:
        _inherit(method, cfg, before)

    measuring = observers_of(cfg, benchmark, method, evaluator, results)
    with naming_keys("EPISODE" if method.batches == "episodes" else "BATCH", **OF_BATCHES):
        batching = batching_of(cfg, device, sampler)  # here: a wrong pipeline is refused before config.yaml is written
        keys = {"SEED": cfg.SEED, **recorded_config(dict(leaves(cfg)))}
        folder.begin(cfg.dump(), loggers=cfg.TRAIN.LOGGERS, keys=keys)
        trainer = Trainer(method, benchmark, evaluator, folder, results, batching=batching, stop=stop)
    trainer.unfused = cfg.EVAL.UNFUSED
    if cfg.EVAL.INITIAL and start is None and before is None:
        trainer.initial = initial_model_of(cfg, method)
    trainer.observers |= {**measuring, **observers}
    if start is not None:
        with fitting(path):
            trainer.resume(checkpoint)
        logger.info("resuming from %s", path)
        if differences and distributed.is_first():
            logger.warning("%s: was written with %s; later results may differ in their last bits", path, differences)
    _announce(cfg, benchmark, results, device, folder.path)
    try:
        if start is None and before is not None:
            trainer.inherit_task()
        trainer.run()
    except NotFinite as fault:
        raise _diverged(trainer, fault) from None
    logger.info("done: %s", folder.path)
    return results


def _seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  libraries use it
    torch.manual_seed(seed)


def _newest(cfg: Config, folder: RunFolder, resume: bool, before: Path | None) -> tuple[Path, dict[str, Any]] | None:
    """Load the checkpoint from which a run continues; return None for a new run."""
    if checkpoints_of(folder.checkpoints) and not resume:
        raise InputError(f"{folder.path}: already contains a run; add --resume to continue it, or choose another --out")
    start = load_newest(folder.checkpoints)
    if start is not None:
        if changed := changed_keys(cfg, start[1]["config"], start[0]):
            raise InputError(
                f"{start[0]}: was trained with another config: {', '.join(changed)} differ; "
                "resume with the same config (that of the run if you omit --config), or choose another --out"
            )
    elif cfg.BENCHMARK.LEARNED_IDENTITIES and before is None:
        raise InputError(f"{folder.path}: has no checkpoint yet; name the run that it fine-tunes from with --from")
    else:
        _require_unused(folder.path)
    return start


def _require_unused(folder: Path) -> None:
    """Refuse a folder with files that a new run would replace; after a run without checkpoints, allow a new start."""
    results, config = folder / "results.json", folder / "config.yaml"
    if results.exists():
        raise InputError(f"{results}: exists, but the run has no checkpoint to continue; choose a different --out")
    if config.exists():
        try:
            config_from_text(read_text(config), str(config))
        except (InputError, OSError, ValueError):
            raise InputError(f"{config}: is not the config of a run; choose a different --out") from None
    else:
        names = ("log.txt", "not_finite.txt", "report.html", "learning_curve.png", "galleries")
        require_own(*(folder / name for name in names))


def _resumed(results: Results, path: Path, checkpoint: dict[str, Any]) -> tuple[Results, str]:
    """Return the results so far and a text about changed library versions; a finished run keeps its old versions."""
    current, results = results["versions"], resumed_results(results, checkpoint["results"], path)
    if len(results["mAP"]) == len(results["tasks"]):
        return results, ""
    differences, results["versions"] = changed_versions(results["versions"], current), current
    return results, differences


def _take(method: Method, state: dict[str, Any], path: Path) -> None:
    """Restore the state of a method from the checkpoint at ``path``."""
    with fitting(path):
        try:
            method.load_state_dict(state)
        except KeyError as error:
            raise InputError(
                f"{path}: does not contain {error.args[0]}, which the method needs to resume; another method or "
                f"version wrote it, so start again with another --out (from its network: MODEL.WEIGHTS {path})"
            ) from None


def _inherit(method: Method, cfg: Config, before: Path) -> None:
    """Load the network of another run and, if both runs have the same method, the state of the method.

    The method of this run decides whether its network has a BatchNorm neck. If the other network has no neck but this
    method needs one, a new neck is created. If only the other network has a neck, that neck is not loaded.
    """
    checkpoint = load_checkpoint(before)
    neck = {name: value for name, value in method.model.state_dict().items() if name.startswith("neck.")}
    state = {name: value for name, value in checkpoint["model"].items() if name in neck or not name.startswith("neck.")}
    load_model_state(method.model, neck | state, before)
    old = config_from_text(checkpoint["config"], str(before)).METHOD.NAME
    if old == cfg.METHOD.NAME:
        _take(method, checkpoint["method"], before)
    elif method.needs_past:
        raise InputError(
            f"METHOD.NAME: {cfg.METHOD.NAME} needs state that {before}, a checkpoint of {old}, does not contain; "
            f"continue with {old}, or with dwopp or retrace, which need only the network"
        )
    elif method.keeps_teacher:
        method.teacher = method.frozen_network()


def batching_of(cfg: Config, device: torch.device, sampler: Callable[..., Sampler] | None = None) -> Batching:
    """Create the batch options of a config for a device; ``sampler`` creates the samplers instead of the config."""
    return Batching(device, cfg.SEED, cfg.TRAIN, cfg.DATA, cfg.INPUT, cfg.EPISODE, cfg.BATCH, cfg.STREAM, sampler)


def run_folder_for(cfg: Config, *, resume: bool) -> Path:
    """Choose the folder ``runs/BENCHMARK-METHOD-seedN``, with ``-2``, ``-3`` … appended if it already exists.

    With ``resume``, return the last run folder of this name that exists.
    """
    first = Path("runs") / f"{cfg.BENCHMARK.NAME}-{method_title(cfg)}-seed{cfg.SEED}"
    folder, number = first, 2
    taken = None
    while folder.exists():
        taken, folder, number = folder, first.with_name(f"{first.name}-{number}"), number + 1
    return taken if resume and taken is not None else folder


def new_results(
    cfg: Config, benchmark: Benchmark, protocol: str, evaluator: Evaluator, before: Path | None = None
) -> Results:
    """Create the content of ``results.json`` before the first task."""
    packages = ("lreid", "torch", "torchvision", "numpy", "pillow", "albumentations", "faiss-cpu", "faiss-gpu")
    return start_results(
        method=method_title(cfg),
        benchmark=benchmark.name,
        protocol=protocol,
        content={
            "tasks": [content_fingerprint(task.records) for task in benchmark.tasks],
            "galleries": [content_fingerprint((*test.query, *test.gallery)) for test in benchmark.tests],
        },
        seed=cfg.SEED,
        config=recorded_config(dict(leaves(cfg))),
        command=command_of(cfg, before=before),
        changed=changed_by(cfg),
        ap=cfg.EVAL.AP,
        tasks=[task.name for task in benchmark.tasks],
        task_identities=[
            len(task.classes) if task.records else cfg.BENCHMARK.LEARNED_IDENTITIES for task in benchmark.tasks
        ],
        galleries=[
            {
                "name": test.name,
                "kind": test.kind,
                "first_task": test.first_task,
                **dict(zip(("queries", "gallery"), test.sizes, strict=True)),
            }
            for test in benchmark.tests
        ],
        identity_names={
            test.name: {str(pid): names[pid] for pid in sorted({record.pid for record in test.query}) if pid in names}
            for test in benchmark.tests
            if (names := test.names.identities)
        },
        skipped=evaluator.skipped,
        versions={"python": platform.python_version()}
        | ({"commit": source} if (source := commit()) else {})
        | {name: version for name in packages if (version := installed_version(name)) is not None}
        | arithmetic(pick_device(cfg.DEVICE)),
    )


def commit() -> str | None:
    """Return the git commit and whether files have changed since; None if lreid is an installed package."""
    tree = Path(__file__).parents[2]
    if not (tree / ".git").exists():
        return None
    describe = ["git", "-C", str(tree), "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=, with changes"]
    try:
        return subprocess.run(describe, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # git is missing, or the tree belongs to another user
        return None


def changed_versions(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Describe the differences between the ``versions`` of two results; without differences, the text is empty."""
    names = [name for name in before if name in now and before[name] != now[name]]
    return ", ".join(f"{name} {before[name]} (now {now[name]})" for name in names)


def changed_keys(cfg: Config, saved: str, path: Path) -> list[str]:
    """List the keys that affect results and have different values in ``cfg`` and in the saved config text of a run."""
    old = resolved(config_from_text(saved, str(path)))
    return [key for key in differing_keys(cfg, old) if key not in FREE_KEYS]


def _divide(cfg: Config, method: Method) -> None:
    """Divide every batch among the processes of a run."""
    if distributed.world() > 1 and not method.divisible:
        raise InputError(f"METHOD.NAME: {cfg.METHOD.NAME} computes gradients itself; start it without torchrun")
    distributed.divide(method.model)


def _diverged(trainer: Trainer, fault: NotFinite) -> InputError:
    """Create the error for a loss that is not finite, and write a file that lists the images of the batch."""
    at, folder = trainer.at, trainer.folder
    images = ""
    if fault.paths:
        images = f", computed from {fault.paths[0]} and others, listed in {folder.list_images(fault.paths)}"
    return InputError(
        f"the loss is not finite in epoch {at.epoch + 1}, step {at.step + 1} of task {at.task + 1} ({fault}{images}); "
        "lower TRAIN.LR and start again with another --out; "
        f"the checkpoints in {folder.checkpoints} were saved before it"
    )


def _announce(cfg: Config, benchmark: Benchmark, results: Results, device: torch.device, out: Path) -> None:
    identities = counted(sum(len(task.classes) for task in benchmark.tasks), "identity")
    images = counted(sum(len(task.records) for task in benchmark.tasks), "image")
    sizes = f"{counted(len(benchmark.tasks), 'task')}, {identities}, {images}"
    tests = ", ".join(test.name for test in benchmark.tests) or "nothing"
    line = "%s on %s, seed %d: %s; tested on %s; results in %s"
    logger.info(line, method_title(cfg), benchmark.name, cfg.SEED, sizes, tests, out)
    if results["skipped_images"]:
        logger.warning("skipped %s that cannot be read", counted(results["skipped_images"], "test image"))
    if not has_instructions(device, precision := cfg.TRAIN.PRECISION):
        slower = "computes in fp32" if precision == "tf32" else "is many times slower than in fp32"
        logger.warning("TRAIN.PRECISION %s: this device has no instructions for it and %s", precision, slower)
