"""SimpleCIL: frozen features, and class means as the classifier; a control without gradients."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lreid.data.records import Task
from lreid.losses._ops import class_means
from lreid.methods.start import Start
from lreid.models.embedder import Embedder


class SimpleCIL(Start):
    """Class means of frozen features (Zhou et al., IJCV 2024), compared by cosine.

    The network is the initial one, so its retrieval equals that of ``start``; only the accuracy of its classifier
    differs. Subclasses transform the features by statistics of all images so far. Each task is passed once, after the
    batches, which are ignored.
    """

    finishing = "computing statistics"
    keeps: ClassVar = {"means": "template", "counts": "template"}

    def __init__(self, model: Embedder) -> None:
        super().__init__(model)
        self.means = torch.empty(0, model.dim, dtype=torch.float64)  # (classes, dim), over all tasks
        self.counts = torch.empty(0, dtype=torch.float64)  # (classes,), images of each

    def finish_task(self, task: Task) -> None:
        """Passes the images of the task once."""
        neck, self.model.neck = self.model.neck, nn.Identity()
        try:
            features = self.features_of(task).double()  # (n, dim), before the neck
        finally:
            self.model.neck = neck
        self.learn(features, torch.tensor([record.pid for record in task.records]))

    def finishing_images(self, task: Task) -> int:
        """Each image once."""
        return len(task.records)

    def learn(self, features: Tensor, labels: Tensor) -> None:
        """Adds a task to the means of its classes, which may have images of earlier tasks.

        Args:
            features: (n, dim) float64 on the CPU.
            labels: (n,) integers.
        """
        means, classes = class_means(features, labels)
        counts = torch.bincount(labels).double()
        new = max(len(counts) - len(self.counts), 0)
        self.means, self.counts = F.pad(self.means, (0, 0, 0, new)), F.pad(self.counts, (0, new))
        self.counts[classes] += counts[classes]
        share = (counts[classes] / self.counts[classes])[:, None]
        self.means[classes] += share * (means - self.means[classes])

    def class_scores(self, features: Tensor) -> Tensor:
        """Cosines to the class means, (n, classes)."""
        return F.normalize(features, dim=1) @ F.normalize(self.means, dim=1).to(features).T

    def state_dict(self) -> dict[str, Any]:
        """The class means and counts, in addition to the state of the base class."""
        return super().state_dict() | {"means": self.means, "counts": self.counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state of :meth:`state_dict`."""
        super().load_state_dict(state)
        self.means, self.counts = state["means"].cpu(), state["counts"].cpu()
