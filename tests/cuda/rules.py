"""Faults and waits that the simulated device detects, and calls that it accepts."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from simulated import STAGED, SimulatedCUDA, WrongDevice

CUDA = torch.device("cuda")


def main(device: SimulatedCUDA) -> None:
    def waits(work: Callable[[], Any]) -> int:
        before = len(device.waits)
        work()
        torch.empty(1, device=CUDA)  # waits in C++ are counted at the next operator
        return len(device.waits) - before

    x = torch.randn(4, 3, device=CUDA, requires_grad=True)
    weight = torch.randn(3, 5, device=CUDA, requires_grad=True)
    mask = x[:, 0] > 0
    y = torch.relu(x @ weight)
    assert waits(lambda: y.sum().backward()) == 0
    expected = x.detach().cpu().T @ (y.detach().cpu() > 0).float()
    assert weight.grad is not None and weight.grad.is_cuda and torch.equal(weight.grad.cpu(), expected)
    with torch.autocast("cuda", torch.float16):
        assert (x @ weight).dtype == torch.float16

    # Operands on different devices.
    here, rows = torch.ones(4, 3), torch.zeros(4, 1, dtype=torch.int64)
    for work in (
        lambda: x + here,
        lambda: torch.cat([x, here]),
        lambda: x.gather(1, rows),
        lambda: here[rows.to(CUDA)[:, 0]],
        lambda: x.detach().numpy(),
        lambda: torch.nn.functional.cross_entropy(x, rows[:, 0]),
    ):
        with pytest.raises((WrongDevice, RuntimeError, TypeError)):
            work()
    assert (x * torch.tensor(2.0)).is_cuda and x[rows[:, 0]].is_cuda

    # Waits of the host.
    small, large = torch.empty(STAGED // 4), torch.empty(STAGED // 4 + 1)
    for number, work in (
        (1, lambda: x.sum().item()),
        (1, lambda: x.detach().cpu()),
        (1, lambda: x[mask]),
        (1, lambda: x[rows[:, 0]]),
        (1, lambda: mask.nonzero()),
        (1, lambda: small.to(CUDA)),
        (1, lambda: torch.tensor([1.0, 2.0], device=CUDA)),
        (1, lambda: bool(mask.any())),
        (1, lambda: large.to(CUDA, non_blocking=True)),
        (0, lambda: small.to(CUDA, non_blocking=True)),
        (0, lambda: large.pin_memory().to(CUDA, non_blocking=True)),
        (0, lambda: x.masked_fill(mask[:, None], 0).sort(0)),
        (0, lambda: torch.full((3,), 2.0, device=CUDA).repeat_interleave(2)),
    ):
        assert waits(work) == number, (number, device.waits[-3:])


if __name__ == "__main__":
    with SimulatedCUDA() as device:
        main(device)
