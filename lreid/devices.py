"""Choose the device to compute on, and measure the memory that a process takes."""

from __future__ import annotations

import ctypes
import platform
import resource
import sys

import torch
from torch import Tensor

from lreid.errors import ArgumentError

# Of mallopt(3), by glibc's malloc.h.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4


def pick_device(name: str) -> torch.device:
    """A device by name; ``auto`` is the first GPU where there is one.

    Raises:
        ArgumentError: no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # ``meta`` has no numbers
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ArgumentError("device", f"is {name!r}, which cannot be used ({reason}); use auto or cpu") from None
    return device


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; the host does not wait until a GPU has it."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)  # of memory that is not pinned it would wait
    return tensor.to(device)


def keep_freed_memory() -> bool:
    """Tells glibc's malloc to use freed memory again.

    By default it maps every block above 32 MiB anew and gives it back when it is freed. A training step frees and
    allocates all activations, so each step would fault its memory in again, page by page: with a ResNet-50 and 48
    images a step, that is a third of the time. In return the process keeps the most memory that it has ever used.

    Returns:
        Whether there is a glibc to be told.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all([mallopt(MMAP_MAX, 0), mallopt(TRIM_THRESHOLD, 2**31 - 1), mallopt(TOP_PAD, 256 << 20)])


def peak_memory_mib(device: torch.device) -> int:
    """The most memory that this process has held so far, in MiB: on the GPU where it works on one."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB, on macOS bytes
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10))
