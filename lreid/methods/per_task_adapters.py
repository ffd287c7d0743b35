"""One adapter per task on a frozen transformer, chosen for each image by the statistics of features."""

from typing import Any

from lreid.data.records import Task
from lreid.methods.bot_ft import TaskHeadFineTuning
from lreid.models.adapters.bank import ROWS
from lreid.models.embedder import Embedder


class PerTaskAdapters(TaskHeadFineTuning):
    """The idea of AdalReID and DASA: every domain trains its own adapter, so that no adapter forgets.

    This is the smallest form of the idea, not the code of either. ``MODEL.ADAPTER`` is trained with the losses of BoT,
    with a neck and a classifier that are discarded after the task. Of each task the network keeps the adapter and the
    mean and variance of each feature of the frozen network over the task's images; it keeps no images and no
    identities. At test time each image takes the adapter of the likeliest task
    (:class:`~lreid.models.adapters.bank.AdapterBank`).
    ``tools/adapter_choice.py`` measures what wrong choices cost.
    """

    finishing = "storing the adapter"
    neck = False

    def __init__(self, model: Embedder, **bot: Any) -> None:
        super().__init__(model, **bot)
        self.bank = model.store_adapters()
        self.right = 0.0

    def begin_task(self, task: Task) -> None:
        """Begins an adapter and a head for the identities of the task."""
        super().begin_task(task)
        self.bank.restart()

    def finish_task(self, task: Task) -> None:
        """Stores the adapter, and the statistics of the task's features without an adapter."""
        self.bank.use = -1
        try:
            features = self.features_of(task) / self.model.scale  # (n, dim)
        finally:
            self.bank.use = None
        self.bank.add(features)
        chosen = self.bank.choose(features.to(self.bank.means))
        self.right = (chosen == len(self.bank) - 1).float().mean().item()

    def finishing_images(self, task: Task) -> int:
        """Each image once."""
        return len(task.records)

    def figures(self) -> dict[str, float]:
        """The share of the last task's training images that choose its adapter, as ``own_adapter``."""
        return super().figures() | {"own_adapter": self.right}

    def stored(self, identities: int) -> dict[str, int]:
        """As in the base class; per domain the adapter and the statistics of its features."""
        nbytes = sum(getattr(self.bank, name).nbytes for name in ROWS)
        return super().stored(identities) | {"domain": nbytes // max(len(self.bank), 1)}

    def state_dict(self) -> dict[str, Any]:
        """The state of the base class, and the share of :meth:`figures`."""
        return super().state_dict() | {"right": self.right}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state of :meth:`state_dict`."""
        super().load_state_dict(state)
        self.right = state["right"]
