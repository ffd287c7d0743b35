"""Choose the device to compute on, and measure the memory that a process takes."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from lreid.errors import ArgumentError, refuse_out_of_memory
from lreid.float32 import full_precision, tf32

# Precisions of networks by name, as torch calls them.
PRECISIONS: dict[str, torch.dtype | Literal["tf32"] | None] = {
    "fp32": None,
    "tf32": "tf32",
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
# Of mallopt(3), by glibc's malloc.h.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4

# Environment variables that choose among the instructions of a processor, of ATen, oneDNN and MKL.
INSTRUCTION_LIMITS = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_CBWR",
)


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
        refuse_out_of_memory(error, "device")
        reason = str(error).splitlines()[0]
        raise ArgumentError("device", f"is {name!r}, which cannot be used ({reason}); use auto or cpu") from None
    return device


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; the host does not wait until a GPU has it."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)  # of memory that is not pinned it would wait
    return tensor.to(device)


@contextmanager
def computing(*, rounded: bool, deterministic: bool) -> Iterator[None]:
    """Settings of torch's arithmetic within a block; they are restored afterwards.

    Args:
        rounded: let GPUs round products of float32 to TF32. Where float32 is asked for they do not, see
            :func:`lreid.float32.full_precision`; by torch's default they do in convolutions.
        deterministic: have GPUs give the same result every time, where that takes more time, too.
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # which cuBLAS asks for, and reads when it starts
    torch.use_deterministic_algorithms(deterministic)
    try:
        with tf32() if rounded else full_precision():
            yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]


def keep_freed_memory() -> bool:
    """Tells glibc's malloc to use freed memory again.

    By default it maps every block above 32 MiB separately and returns it when it is freed. A training step frees and
    allocates all activations, so each step would fault its memory in again, page by page: with a ResNet-50 and 48
    images a step, that is a third of the time. In return the process keeps the most memory that it has ever used.

    Returns:
        Whether there is a glibc to set.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all([mallopt(MMAP_MAX, 0), mallopt(TRIM_THRESHOLD, 2**31 - 1), mallopt(TOP_PAD, 256 << 20)])


def arithmetic(device: torch.device) -> dict[str, str]:
    """Everything that decides rounding besides the versions of libraries, by name.

    Returns:
        ``threads`` of torch, ``instructions`` of the processor that torch uses, ``instruction_limits`` of environment
        variables (``none``, or ``NAME=VALUE`` with commas), ``processes`` of torchrun, and ``device``: ``cpu`` or the
        name of the GPU.
    """
    limits = [f"{name}={os.environ[name]}" for name in INSTRUCTION_LIMITS if name in os.environ]
    return {
        "threads": str(torch.get_num_threads()),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "instruction_limits": ", ".join(limits) or "none",
        "processes": os.environ.get("WORLD_SIZE", "1"),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }


def peak_memory_mib(device: torch.device) -> int:
    """The most memory that this process has held so far, in MiB: on the GPU where it works on one."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB, on macOS bytes
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10))


def has_instructions(device: torch.device, precision: str) -> bool:
    """Whether a device computes in one of ``PRECISIONS`` by itself.

    Else half precision is emulated, many times slower; of TF32 it takes no notice and computes in float32.
    """
    if precision == "fp32":
        return True
    if precision == "tf32":
        return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cuda":
        return precision == "fp16" or torch.cuda.is_bf16_supported(including_emulation=False)
    has_mkldnn = torch.backends.mkldnn.is_available()  # what convolutions on processors are computed by
    return has_mkldnn and bool(getattr(torch.ops.mkldnn, f"_is_mkldnn_{precision}_supported")())
