"""The loss history: the mean of each loss term at several points of each task."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from lreid.data.loaders import Batch
from lreid.data.records import Task
from lreid.evaluation.observer import Observer
from lreid.results import Results

POINTS = 50  # number of entries per task


class History(Observer):
    """Record the mean of each loss term since the previous entry of the history."""

    def __init__(self, results: Results, log: Callable[[dict[str, float], int], None], epochs: Sequence[int]) -> None:
        self.results, self.log, self.epochs = results, log, epochs
        self.task = 0
        self.sums: dict[str, Tensor] = {}  # on the device, because a copy to the CPU would wait for the device
        self.updates = 0  # number of updates in the sums

    def before_task(self, task: Task) -> None:
        """Reset the sums to zero."""
        self.task, self.sums, self.updates = task.index, {}, 0

    def after_loss(self, batch: Batch, terms: dict[str, Tensor], loss: Tensor, batches: int) -> None:
        """Add the terms of a batch to the sums."""
        for name, term in terms.items():
            self.sums[name] = self.sums.get(name, 0) + term.detach() / batches

    def after_step(self) -> None:
        """Count one update of the network."""
        self.updates += 1

    def after_epoch(self, epoch: int, epochs: int, rate: float) -> None:
        """Add an entry with the mean loss terms since the previous entry; a task has a limited number of entries."""
        if epoch % max(1, epochs // POINTS) and epoch != epochs:
            return
        means = {name: total.item() / self.updates for name, total in self.sums.items()}
        self.sums, self.updates = {}, 0
        entry = {"task": self.task, "epoch": epoch, "lr": rate, **means}
        self.results["loss_history"].append(entry)
        self.log(entry, sum(self.epochs[: self.task]) + epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the sums of the loss terms since the previous entry."""
        return {"task": self.task, "sums": self.sums, "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        self.task, self.sums, self.updates = state["task"], dict(state["sums"]), state["updates"]
