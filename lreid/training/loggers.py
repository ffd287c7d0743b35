"""Loggers that receive metrics during a run: TensorBoard, Weights & Biases, MLflow (``TRAIN.LOGGERS``)."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from lreid.config_keys import LOGGERS
from lreid.utils.extras import Extra, Item, registrar
from lreid.utils.files import write_text
from lreid.utils.reading import read_text


class Logger(Protocol):
    """Interface of a logger, which receives metrics by name."""

    def scalars(self, values: Mapping[str, float], step: int, axis: str) -> None:
        """Log values by name.

        Args:
            values: values by name; names are ``train/NAME``, ``summary/NAME`` or ``test/TEST SET/METRIC``.
            step: number of the epoch or task, from 1.
            axis: what ``step`` counts: ``epoch`` (over all tasks) or ``task``.
        """

    def close(self) -> None:
        """Write remaining values and end the log."""


class TensorBoard:
    """Writes event files to ``tensorboard/`` in the run folder."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.writer = Extra("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder / "tensorboard"))

    def scalars(self, values: Mapping[str, float], step: int, axis: str) -> None:
        """See :meth:`Logger.scalars`."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        if axis == "task":
            self.writer.flush()

    def close(self) -> None:
        """Write the remaining events."""
        self.writer.close()


class WeightsAndBiases:
    """Logs to the project ``lreid`` at Weights & Biases; ``WANDB_MODE=offline`` logs to the run folder instead.

    The file ``wandb.txt`` in the run folder holds the id at Weights & Biases, so that a resumed run continues there.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        wandb = Extra("wandb", "wandb")
        if not (file := folder / "wandb.txt").exists():
            write_text(file, uuid4().hex)
        again = {"id": read_text(file).strip(), "resume": "allow"}
        self.run = wandb.init(project="lreid", name=folder.name, dir=str(folder), config=dict(config), **again)
        for axis, names in (("epoch", "train/*"), ("task", "summary/*"), ("task", "test/*")):
            self.run.define_metric(names, step_metric=axis)

    def scalars(self, values: Mapping[str, float], step: int, axis: str) -> None:
        """See :meth:`Logger.scalars`."""
        self.run.log({**values, axis: step})

    def close(self) -> None:
        """End the run at Weights & Biases."""
        self.run.finish()


class MLflow:
    """Logs to the experiment ``lreid`` at MLflow's ``MLFLOW_TRACKING_URI``."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.mlflow = Extra("mlflow", "mlflow")
        self.mlflow.set_experiment("lreid")
        self.mlflow.start_run(run_name=folder.name)
        self.mlflow.log_params(dict(config))

    def scalars(self, values: Mapping[str, float], step: int, axis: str) -> None:
        """See :meth:`Logger.scalars`."""
        self.mlflow.log_metrics(dict(values), step=step)

    def close(self) -> None:
        """End the run at MLflow."""
        self.mlflow.end_run()


LOGGERS.update(tensorboard=TensorBoard, wandb=WeightsAndBiases, mlflow=MLflow)


def register_logger(name: str) -> Callable[[Item], Item]:
    """Register a logger from outside lreid as a value of ``TRAIN.LOGGERS`` in this process.

    Returns:
        A decorator for a :class:`Logger` class, or for a function that returns a logger. The arguments are the run
        folder and the config values by key.

    Raises:
        ArgumentError: lreid or a plug-in already has a logger of this name.
    """
    return registrar(LOGGERS, name, "a logger")
