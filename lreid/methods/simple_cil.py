"""SimpleCIL: frozen features with class means as the classifier, a baseline without gradient steps."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lreid.losses._ops import class_means
from lreid.methods.base import Embedder, Task
from lreid.methods.start import Start


class SimpleCIL(Start):
    """Classify by the cosine to class means of frozen features (Zhou et al., IJCV 2024).

    The network does not change, so its retrieval results equal those of the initial model (method ``start``). Compared
    with the method ``start``, only the accuracy of the classifier differs. Subclasses transform the features with
    statistics of all images so far. SimpleCIL trains nothing; it extracts the features of each image once, at the end
    of the task.
    """

    finishing = "computing statistics"
    saves: ClassVar = {"means": "template", "counts": "template"}

    def __init__(self, model: Embedder) -> None:
        super().__init__(model)
        self.means = torch.empty(0, model.dim, dtype=torch.float64)  # (classes, dim), over all tasks
        self.counts = torch.empty(0, dtype=torch.float64)  # (classes,), number of images per class

    def finish_task(self, task: Task) -> None:
        """Extract the features of the task's images, and update the class statistics."""
        neck, self.model.neck = self.model.neck, nn.Identity()
        try:
            features = self.features_of(task).double()  # (n, dim), before the neck
        finally:
            self.model.neck = neck
        self.learn(features, torch.tensor([record.pid for record in task.records]))

    def learn(self, features: Tensor, labels: Tensor) -> None:
        """Update the class means with the images of a task; a class may already have images of earlier tasks.

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
        """Compute cosines (n, classes) between features (n, dim) and class means."""
        return F.normalize(features, dim=1) @ F.normalize(self.means, dim=1).to(features).T
