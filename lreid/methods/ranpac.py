"""RanPAC: random projections of frozen features, decorrelated by their second moments; no gradient steps."""

from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from lreid.methods.base import Embedder, Rule
from lreid.methods.simple_cil import SimpleCIL
from lreid.models.transforms import RandomProjection

RIDGES = [10.0**power for power in range(-8, 9)]
FITTED = 0.8  # share of a task's images that are fitted; the other images choose the ridge


class RanPAC(SimpleCIL):
    """RanPAC: random projections and pre-trained models (McDonnell et al., NeurIPS 2023), for retrieval.

    Let ``h = max(x W, 0)`` be the projected features. ``G`` is the sum of ``h^T h`` over all images so far. ``Q`` is
    the sum of ``h^T y`` over all images so far, where ``y`` is the one-hot class. The class scores are ``h (G + r I)^-1
    Q``. Retrieval compares the transformed features ``h (G + r I)^(-1/2)``. The dot product of two transformed features
    contains ``(G + r I)^-1``, the same matrix as the class scores.

    The ridge parameter ``r`` is the power of ten with the smallest squared error on a fifth of the last task's images.
    RanPAC's official code uses the last fifth in the order of its data loader; lreid uses a random fifth. The memory of
    the method grows with the square of ``width``.
    """

    saves: ClassVar = {"gram": "domain", "products": "template", "ridge": "", "generator": ""}

    def __init__(
        self,
        model: Embedder,
        *,
        width: Annotated[int, Rule("length of the projected features, 10000 in the paper", least=1)] = 2000,
        ridge: Annotated[float, Rule("ridge parameter r; 0 means that it is chosen after each task", least=0)] = 0.0,
    ) -> None:
        super().__init__(model)
        self.given_ridge = self.ridge = ridge
        self.transform = RandomProjection(model.dim, width).to(model.mean.device)
        model.neck, model.dim = self.transform, width
        self.gram = torch.zeros(width, width, dtype=torch.float64)
        self.products = torch.zeros(0, width, dtype=torch.float64)  # (classes, width), Q transposed

    def learn(self, features: Tensor, labels: Tensor) -> None:
        """Add the second moments of a task's features to the sum over all tasks, and update the decorrelation."""
        projected = self.transform.expand(features)  # (n, width)
        classes = max(len(self.products), int(labels.max()) + 1)
        self.gram += projected.T @ projected
        room = self.products.new_zeros(classes, projected.shape[1])
        room[: len(self.products)] = self.products
        self.products = room.index_add_(0, labels, projected)
        self.ridge = self.given_ridge or self.chosen_ridge(projected, F.one_hot(labels, classes).double())
        values, vectors = torch.linalg.eigh(self.gram)
        self.transform.matrix.copy_(vectors @ ((values.clamp(min=0) + self.ridge).rsqrt()[:, None] * vectors.T))

    def chosen_ridge(self, projected: Tensor, targets: Tensor) -> float:
        """Choose the ridge parameter with the smallest squared error on a random fifth of the images.

        Args:
            projected: (n, width) projected features.
            targets: (n, classes) one-hot classes.
        """
        order = torch.randperm(len(projected), generator=self.generator)
        fitted, held = order.split([int(FITTED * len(order)), len(order) - int(FITTED * len(order))])
        values, vectors = torch.linalg.eigh(projected[fitted].T @ projected[fitted])
        rotated = vectors.T @ (projected[fitted].T @ targets[fitted])
        seen = projected[held] @ vectors
        errors = [
            ((seen / (values.clamp(min=0) + ridge)) @ rotated - targets[held]).square().mean() for ridge in RIDGES
        ]
        return RIDGES[int(torch.stack(errors).argmin())]

    def class_scores(self, features: Tensor) -> Tensor:
        """Compute the ridge regression scores (n, classes) of all classes for transformed features (n, width)."""
        return features @ self.transform.matrix @ self.products.to(features).T

    def figures(self) -> dict[str, float]:
        """Return the ridge parameter of the last task."""
        return super().figures() | {"ridge": self.ridge}
