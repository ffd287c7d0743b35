"""The folder of a run and the files in it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from lreid.files import write_atomically, write_text
from lreid.report import learning_curve, task_table, write_report

logger = logging.getLogger("lreid")


class RunFolder:
    """``config.yaml``, ``results.json``, ``log.txt``, ``checkpoints/``, ``learning_curve.png``, ``report.html``.

    Args:
        path: made where it does not exist.
        tensorboard: write TensorBoard scalars into it as well.
    """

    def __init__(self, path: Path, *, tensorboard: bool = False) -> None:
        self.path, self.checkpoints = path, path / "checkpoints"
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        self.writer = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(path / "tensorboard"))

    def task_checkpoint(self, index: int) -> Path:
        """The checkpoint of a finished task, its index from 0 and its name from 1."""
        return self.checkpoints / f"task-{index + 1:02d}.pt"

    def write_results(self, results: dict[str, Any]) -> None:
        write_text(self.path / "results.json", json.dumps(results) + "\n")

    def report_task(self, results: dict[str, Any]) -> None:
        """Prints the table of the tasks so far and renews picture and report."""
        logger.info("\n%s\n", task_table(results))
        figure = learning_curve([results])
        write_atomically(
            self.path / "learning_curve.png", lambda file: figure.savefig(file, format="png", dpi=120)
        )
        write_report(self.path)
        if self.writer is not None:
            step = len(results["mAP"])
            for name, value in results["summary"].items():
                if value is not None:
                    self.writer.add_scalar(f"summary/{name}", value, step)
            self.writer.flush()

    def log_scalars(self, entry: dict[str, float], step: int) -> None:
        """Loss terms and learning rate of an epoch, for TensorBoard."""
        if self.writer is not None:
            for name in entry.keys() - {"task", "epoch"}:
                self.writer.add_scalar(f"train/{name}", entry[name], step)
