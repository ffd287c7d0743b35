"""Draw the values of config keys for the runs of a sweep by random or TPE search, within a budget of images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from lreid.apps.sweep_runs import PlannedRun, small_method
from lreid.build import benchmark_of, learned
from lreid.config_keys import Config
from lreid.data.datasets import DEV
from lreid.errors import InputError, counted, naming_keys
from lreid.results import read as read_results
from lreid.training.run import OF_BATCHES, batching_of
from lreid.utils.extras import Extra

optuna = Extra("optuna", "search")


def search(
    kind: str,
    budget: int,
    vary: Mapping[str, Sequence[str]],
    plan: Callable[..., list[PlannedRun]],
    train: Callable[[Sequence[PlannedRun]], tuple[str, Mapping[str, str]]],
    seed: int,
) -> list[PlannedRun]:
    """Draw trials until the next one would exceed the budget.

    Args:
        kind: ``random``, whose runs are not trained here, or ``tpe`` (tree-structured Parzen estimator; Bergstra et
            al., NeurIPS 2011), which trains each trial and draws the next one by the mean seen mAP of those before.
        budget: maximum number of training images of all runs, see :func:`images_of`.
        vary: values by key; one value ``LOW..HIGH`` is a range.
        plan: function that plans the runs of a trial; its argument ``vary`` has one value per key.
        train: function that trains runs, such as :func:`~lreid.apps.sweep_runs.sweep`; for ``tpe`` only.
        seed: seed of the draws.

    Returns:
        The runs of all trials, each once.

    Raises:
        InputError: optuna is not installed, a run does not train on development splits only, a range is wrong, or the
            budget is too small for one trial.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}[kind](seed=seed)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    runs: dict[Path, PlannedRun] = {}
    while True:
        trial = study.ask()
        planned = plan(vary={key: [_drawn(trial, key, values)] for key, values in vary.items()})
        images = sum(images_of(run.cfg) for run in planned)
        if not 0 < images <= budget:
            break
        budget -= images
        runs |= {run.folder: run for run in planned}  # few values may be drawn again
        if kind == "tpe":
            failed = train(planned)[1]
            # A failed run scores 0. optuna ignores trials without a score, so it would draw values that fail again.
            scored = [run.folder for run in planned if str(run.folder) not in failed]
            study.tell(trial, sum(read_results(each)["summary"]["seen_mAP"] or 0 for each in scored) / len(planned))
    if not runs:
        raise InputError(f"--images is {budget}, but a trial needs {counted(images, 'image')}; give at least these")
    return list(runs.values())


def images_of(cfg: Config) -> int:
    """Count the images of all training batches of a run, without exemplars; require development splits."""
    for name in cfg.BENCHMARK.TRAIN:
        if not name.startswith(DEV):
            raise InputError(f"BENCHMARK.TRAIN: {name} is no development split; search on {DEV}{name}")
    method, batching = small_method(cfg), batching_of(cfg, torch.device("cpu"))
    count = 0
    with naming_keys("EPISODE" if method.batches == "episodes" else "BATCH", **OF_BATCHES):
        for task in learned(cfg, benchmark_of(cfg)).tasks:
            sampler: Any = batching.sampler(method, task, task.records)
            count += batching.epochs_of(task.index) * sampler.batches_per_epoch * sampler.images_per_batch
    return count


def _drawn(trial: Any, key: str, values: Sequence[str]) -> str:
    """Draw a value of a key: one of several, or a number of a range, log-uniformly if the range is above 0."""
    low, dots, high = values[0].partition("..")
    if len(values) > 1 or not dots:
        return str(trial.suggest_categorical(key, values))
    try:
        if low.isdecimal() and high.isdecimal():
            return str(trial.suggest_int(key, int(low), int(high), log=int(low) > 0))
        return f"{trial.suggest_float(key, float(low), float(high), log=float(low) > 0):.4g}"
    except (ValueError, OverflowError):
        raise InputError(f"--vary {key}: {values[0]} is no range of two numbers, the lower one first") from None
