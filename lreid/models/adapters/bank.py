"""A frozen network with one adapter per task, which chooses an adapter for each image by its features."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

ROWS = ("values", "means", "variances")  # buffers with one row per task


class AdapterBank(nn.Module):
    """A network with the adapters of all finished tasks, and one adapter in training.

    In evaluation mode, the network first computes the features ``x`` of an image without any adapter. Then the network
    computes the final outputs with the adapter of the image's most likely task. The most likely task has the smallest
    ``sum_d (x_d - m_d)² / v_d + log v_d``, where ``m`` and ``v`` are its stored means and variances (a normal
    distribution per task). In training mode, and until the first task is stored, the network uses the adapter in
    training.

    Args:
        network: a backbone with an untrained adapter.
        pool: function that maps the backbone's outputs to features (B, dim).

    Attributes:
        values: (T, P) weights of each task's adapter.
        means, variances: (T, dim) mean and variance of each task's features without an adapter.
        use: adapter to use; None means that the features of each image choose its adapter. A task number, counted from
            0, selects this task's adapter for all images; -1 selects no adapter.
    """

    initial: Tensor  # (P,), values of the untrained adapter, which changes no feature
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

    @torch.no_grad()
    def restart(self) -> None:
        """Reset the adapter in training to its initial values, with which it does not change features."""
        for name, each in self._named(self.initial).items():
            self.network.get_parameter(name).copy_(each)

    def _named(self, values: Tensor) -> dict[str, Tensor]:
        shapes = [self.network.get_parameter(name).shape for name in self.trained]
        parts = values.split([shape.numel() for shape in shapes])
        return {name: part.view(shape) for name, part, shape in zip(self.trained, parts, shapes, strict=True)}

    def add(self, features: Tensor) -> None:
        """Store the trained adapter of a task, with statistics of the features (n, dim) without an adapter."""
        variance = features.var(0, correction=0)
        variance = variance + 1e-6 * variance.mean() + 1e-12
        for name, row in zip(ROWS, (self._current(), features.mean(0), variance), strict=True):
            rows: Tensor = getattr(self, name)
            setattr(self, name, torch.cat([rows, row.to(rows)[None]]))

    def choose(self, features: Tensor) -> Tensor:
        """Return the most likely task (B,) of images, given their features (B, dim) without an adapter."""
        distances = (features[:, None] - self.means).square() / self.variances + self.variances.log()  # (B, T, dim)
        return distances.sum(2).argmin(1)

    def forward(self, images: Tensor) -> Tensor:
        """Compute the outputs of the network for images (B, 3, H, W)."""
        if self.use is not None and not self.training:
            return self._by(self.initial if self.use < 0 else self.values[self.use], images)
        if self.training or not len(self):
            return self.network(images)
        chosen = self.choose(self.pool(self._by(self.initial, images)))  # (B,)
        if torch.compiler.is_compiling():  # an exported network computes the outputs of all adapters
            outputs = torch.stack([self._by(values, images) for values in self.values])
            return outputs[chosen, torch.arange(chosen.shape[0], device=chosen.device)]
        parts = [(chosen == task).nonzero()[:, 0] for task in range(len(self))]
        rows = [self._by(self.values[task], images[part]) for task, part in enumerate(parts) if len(part)]
        return torch.cat(rows)[torch.cat(parts).argsort()]

    def _by(self, values: Tensor, images: Tensor) -> Tensor:
        return functional_call(self.network, self._named(values), (images,))

    def make_room(self, state: Mapping[str, Tensor]) -> None:
        """Resize the buffers to one row per task in a state dict; call this before loading the state dict."""
        for name in ROWS:
            if (rows := state.get(f"backbone.{name}")) is not None:
                setattr(self, name, getattr(self, name).new_empty(len(rows), getattr(self, name).shape[1]))
