"""GEM: change the gradient of new images where it would increase the loss of the stored images of any past task."""

from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from lreid.methods.a_gem import AGEM
from lreid.methods.base import Batch, Embedder, Rule
from lreid.utils.devices import to_device

RIDGE = 1e-3  # added to the diagonal of the quadratic program, as in the official code


class GEM(AGEM):
    """Gradient episodic memory (Lopez-Paz and Ranzato, NeurIPS 2017, Equations 8 to 12).

    Let g be the gradient of the incoming batch and g_k the gradient of all stored images of past task k. If g opposes
    any g_k (g·g_k < 0), the step is g + sum_k v_k g_k, where v minimises ``|g + sum_k v_k g_k|^2`` and every v_k is at
    least ``margin``. This step is the gradient of a weighted sum of losses, which lreid minimises, as in
    :class:`AGEM`. GEM is a baseline in the tables of ER-ACE, Co²L and CCLIS.

    GEM's official code stores the last images of every task. lreid fills the memory by reservoir sampling, as ER-ACE's
    paper does for all baselines. Every step processes the entire memory of past tasks, as the official code does.
    """

    unused: ClassVar[tuple[str, ...]] = ("replay", "replay_weight", "task_free")

    def __init__(
        self,
        model: Embedder,
        *,
        margin: Annotated[float, Rule("lowest weight of each past task in a changed gradient", least=0)] = 0.5,
        **er: Any,
    ) -> None:
        super().__init__(model, **er)
        self.margin = margin

    def extras(self, batch: Batch, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the first class of the current task for each image, which identifies its task."""
        return {"tasks": np.full(len(rows), self.task_classes[0], np.float64)}

    def replay_terms(self, count: int, incoming: Tensor) -> dict[str, Tensor]:
        """Compute the weighted sum of the losses of past tasks; ``count`` has no effect."""
        stored = self.memory.extras.get("tasks", np.empty(0))  # (M,)
        tasks = [np.flatnonzero(stored == each) for each in np.unique(stored[stored != self.task_classes[0]])]
        losses = [self.replay_loss(self.read(rows)) for rows in tasks if len(rows) > self.needs_pairs]
        if not losses:
            return {}
        new, old = self.gradient(incoming), torch.stack([self.gradient(loss) for loss in losses])  # (P,), (T, P)
        products = torch.cat([old @ new[:, None], old @ old.T], 1).cpu().numpy()  # (T, 1 + T)
        weights = torch.from_numpy(smallest_weights(products[:, 1:], products[:, 0], self.margin))  # (T,)
        weights = to_device(weights, old.device)
        return {"replay": (weights * torch.stack(losses)).sum().to(incoming.dtype)}


def smallest_weights(gram: np.ndarray, products: np.ndarray, margin: float) -> np.ndarray:
    """Solve GEM's quadratic program by coordinate descent, which converges because its matrix is positive definite.

    Args:
        gram: inner products (T, T) of the gradients of past tasks.
        products: inner products (T,) of these gradients with the gradient of the incoming batch.
        margin: lowest weight.

    Returns:
        Weights (T,), all 0 if no product is below 0.
    """
    weights = np.zeros(len(gram))
    if (products >= 0).all():
        return weights
    matrix = gram + RIDGE * np.eye(len(gram))
    for _ in range(1000):
        before = weights.copy()
        for k in range(len(weights)):
            weights[k] = max(margin, weights[k] - (matrix[k] @ weights + products[k]) / matrix[k, k])
        if np.allclose(weights, before, rtol=1e-9, atol=1e-12):
            break
    return weights
