"""One adapter per task on a frozen network; each image chooses one by the statistics of its task's features."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

ROWS = ("values", "means", "variances")  # buffers with one row per task


class AdapterBank(nn.Module):
    """A network whose adapter is trained by one task at a time, with the adapters of all finished tasks.

    In evaluation mode an image passes the network without an adapter first. Of its features ``x`` it takes the adapter
    of the task with the least ``sum_d (x_d - m_d)² / v_d + log v_d``: the likeliest of normal distributions with the
    stored means ``m`` and variances ``v``. In training mode, and before the first task is stored, the network uses the
    adapter in training.

    Args:
        network: a backbone with an adapter that was not trained yet.
        pool: features (B, dim) of the backbone's outputs.

    Attributes:
        values, means, variances: per task, the values of its adapter (T, P), and the mean and variance of the features
            that the network without an adapter gives to its images, (T, dim) each.
        use: None lets images choose; a number takes the adapter of that task, and -1 none, for all images.
    """

    initial: Tensor  # (P,), values of an adapter that changes nothing
    values: Tensor
    means: Tensor
    variances: Tensor

    def __init__(self, network: nn.Module, dim: int, pool: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.network, self.pool, self.dim = network, pool, dim
        self.use: int | None = None
        self.trained = [name for name, each in network.named_parameters() if each.requires_grad]
        self.register_buffer("initial", self._current().clone())
        self.register_buffer("values", self.initial.new_empty(0, len(self.initial)))
        for name in ROWS[1:]:
            self.register_buffer(name, self.initial.new_empty(0, dim))

    def __len__(self) -> int:
        return len(self.values)

    def _current(self) -> Tensor:
        return torch.cat([self.network.get_parameter(name).detach().flatten() for name in self.trained])

    def restart(self) -> None:
        """Begins an adapter that changes nothing."""
        self._take(self.initial)

    @torch.no_grad()
    def _take(self, values: Tensor) -> None:
        for name, each in self._named(values).items():
            self.network.get_parameter(name).copy_(each)

    def _named(self, values: Tensor) -> dict[str, Tensor]:
        shapes = [self.network.get_parameter(name).shape for name in self.trained]
        parts = values.split([shape.numel() for shape in shapes])
        return {name: part.view(shape) for name, part, shape in zip(self.trained, parts, shapes, strict=True)}

    def add(self, features: Tensor) -> None:
        """Stores the adapter of a task, with the statistics of its features (n, dim) without an adapter."""
        variance = features.var(0, correction=0)
        variance = variance + 1e-6 * variance.mean() + 1e-12
        for name, row in zip(ROWS, (self._current(), features.mean(0), variance), strict=True):
            rows: Tensor = getattr(self, name)
            setattr(self, name, torch.cat([rows, row.to(rows)[None]]))

    def choose(self, features: Tensor) -> Tensor:
        """The likeliest task of each row of features (B, dim) without an adapter: (B,) integers."""
        distances = (features[:, None] - self.means).square() / self.variances + self.variances.log()  # (B, T, dim)
        return distances.sum(2).argmin(1)

    def forward(self, images: Tensor) -> Tensor:
        """Outputs of the network for images (B, 3, H, W)."""
        if self.training or not len(self):
            return self.network(images)
        if self.use is not None:
            return self._by(self.initial if self.use < 0 else self.values[self.use], images)
        chosen = self.choose(self.pool(self._by(self.initial, images)))  # (B,)
        if torch.compiler.is_compiling():  # an exported network computes all
            outputs = torch.stack([self._by(values, images) for values in self.values])
            return outputs[chosen, torch.arange(chosen.shape[0], device=chosen.device)]
        parts = [(chosen == task).nonzero()[:, 0] for task in range(len(self))]
        rows = [self._by(self.values[task], images[part]) for task, part in enumerate(parts) if len(part)]
        return torch.cat(rows)[torch.cat(parts).argsort()]

    def _by(self, values: Tensor, images: Tensor) -> Tensor:
        return functional_call(self.network, self._named(values), (images,))

    def make_room(self, state: Mapping[str, Tensor]) -> None:
        """Gives the buffers as many rows as those of a model's state dict have, so that it can be loaded."""
        for name in ROWS:
            if (rows := state.get(f"backbone.{name}")) is not None:
                setattr(self, name, getattr(self, name).new_empty(len(rows), getattr(self, name).shape[1]))
