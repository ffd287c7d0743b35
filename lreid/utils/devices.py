"""Choose the device and the arithmetic of computations, and measure the memory of this process."""

import ctypes
import os
import platform
import resource
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from lreid.errors import ArgumentError, raise_if_out_of_memory
from lreid.utils.rules import device_fault

Precision: TypeAlias = torch.dtype | Literal["tf32"] | None  # None: fp32
PRECISIONS: dict[str, Precision] = {"fp32": None, "tf32": "tf32", "bf16": torch.bfloat16, "fp16": torch.float16}
# Parameters of mallopt(3), from glibc's malloc.h.
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX = -1, -2, -3, -4
ALL = 2**31 - 1  # bytes: malloc keeps all freed memory
_heap_bytes = 0  # bytes that malloc keeps, as set by keep_freed_memory

# Environment variables of ATen, oneDNN and MKL that select the CPU instructions.
INSTRUCTION_LIMITS = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_CBWR",
)


def pick_device(name: str) -> torch.device:
    """Return the device of this name; ``auto`` means the first GPU, or the CPU if there is no GPU.

    Raises:
        ArgumentError: the device does not exist or cannot be used.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if fault := device_fault(name):
        raise ArgumentError("device", f"is {name!r}; {fault}")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # fails if the device cannot be used, or is ``meta``
    except (RuntimeError, AssertionError) as error:
        raise_if_out_of_memory(error, "device")
        reason = str(error).splitlines()[0]
        raise ArgumentError("device", f"is {name!r}, which cannot be used ({reason}); use auto or cpu") from None
    return device


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device, without waiting until a copy to a GPU is finished."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)  # without pinned memory, the host would wait
    return tensor.to(device)


@contextmanager
def computing(*, rounded: bool, deterministic: bool) -> Iterator[None]:
    """Set torch's rounding and determinism within a context, and restore the previous settings afterwards.

    Args:
        rounded: whether GPUs may round the factors of float32 products to TF32, except within
            :func:`full_precision`. If ``rounded`` is False, all factors keep float32 precision. (By
            default, torch rounds the factors of convolutions on GPUs.)
        deterministic: whether to use only deterministic algorithms on GPUs, even slow ones.
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS requires this, and reads it at its start
    if deterministic != before[0]:  # even a call that changes nothing imports torch's compiler, for 1 to 2 seconds
        torch.use_deterministic_algorithms(deterministic)
    try:
        with tf32() if rounded else full_precision():
            yield
    finally:
        if deterministic != before[0]:
            torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]


def full_precision() -> AbstractContextManager[None]:
    """Within a context, compute matrix products and convolutions with full float32 precision.

    The context overrides torch's settings (``torch.set_float32_matmul_precision``, ``allow_tf32``, ``fp32_precision``)
    and restores them afterwards.
    """
    return _set("ieee")


def tf32() -> AbstractContextManager[None]:
    """Within a context, let GPUs round the factors of products to TF32, which has 10 instead of 23 fraction bits."""
    return _set("tf32")


@contextmanager
def _set(precision: str) -> Iterator[None]:
    settings = _settings(precision)
    before = [getattr(place, name) for place, name, _ in settings]
    for place, name, value in settings:
        setattr(place, name, value)
    try:
        yield
    finally:
        for (place, name, _), value in zip(settings, before, strict=True):
            setattr(place, name, value)


def _settings(precision: str) -> list[tuple[Any, str, str | bool]]:
    """List torch's settings for a precision on GPU and CPU, as triples (object, attribute, value)."""
    cuda: Any = torch.backends.cuda
    cudnn: Any = torch.backends.cudnn
    mkldnn: Any = torch.backends.mkldnn
    if hasattr(cuda.matmul, "fp32_precision"):  # torch 2.9
        places: list[Any] = [cuda.matmul, cudnn.conv, mkldnn.matmul, mkldnn.conv]
        return [(place, "fp32_precision", precision) for place in places]
    return [(place, "allow_tf32", precision == "tf32") for place in (cuda.matmul, cudnn)]


def keep_freed_memory(most: int = ALL) -> bool:
    """Make malloc of glibc keep freed memory, to use it again.

    By default, malloc returns freed blocks above 32 MiB and free memory at the end of the heap to the operating system.
    Every training step and every forward pass allocates and frees all activations. Without this function, the system
    maps the memory of the activations again, page by page, in every pass. For a ResNet-50 with 48 images per batch,
    mapping memory takes a third of the time of training, and a tenth of the time of feature extraction.

    Args:
        most: number of free bytes at the end of the heap that the process keeps. With :data:`ALL`, the process never
            returns memory. A call with a smaller value than an earlier call has no effect.

    Returns:
        Whether the process uses glibc.
    """
    global _heap_bytes
    if platform.libc_ver()[0] != "glibc":
        return False
    if most > _heap_bytes:
        _heap_bytes = most
        blocks = [(MMAP_MAX, 0), (TOP_PAD, 256 << 20)] if most == ALL else [(MMAP_THRESHOLD, 32 << 20)]
        mallopt = ctypes.CDLL(None).mallopt
        for name, value in [*blocks, (TRIM_THRESHOLD, most)]:
            mallopt(name, value)
    return True


def arithmetic(device: torch.device) -> dict[str, str]:
    """Describe the hardware and settings that influence rounding, without library versions.

    Returns:
        A dictionary with ``processor`` (its name), ``threads`` (number of torch's threads), ``instructions`` (CPU
        instructions that torch uses), ``instruction_limits`` (see below), ``processes`` (number of processes of
        torchrun) and ``device`` (``cpu`` or the name of the GPU). ``instruction_limits`` lists the environment
        variables that restrict CPU instructions, as ``NAME=VALUE`` separated by commas, or is ``none``.
    """
    limits = [f"{name}={os.environ[name]}" for name in INSTRUCTION_LIMITS if name in os.environ]
    return {
        "processor": cpu_name(),
        "threads": str(torch.get_num_threads()),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "instruction_limits": ", ".join(limits) or "none",
        "processes": os.environ.get("WORLD_SIZE", "1"),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }


def cpu_name() -> str:
    """Return the model name of the processor, or its architecture where Linux does not give the name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def peak_memory_mib(device: torch.device) -> int:
    """Return the peak memory of this process in MiB: GPU memory if ``device`` is a GPU, otherwise host memory."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in KiB; on macOS in bytes
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10))


def has_instructions(device: torch.device, precision: str) -> bool:
    """Whether a device has instructions for a precision, which is a key of ``PRECISIONS``.

    Without such instructions, torch emulates half precision, which is much slower, and computes TF32 as float32.
    """
    if precision == "fp32":
        return True
    if precision == "tf32":
        return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cuda":
        return precision == "fp16" or torch.cuda.is_bf16_supported(including_emulation=False)
    has_mkldnn = torch.backends.mkldnn.is_available()  # the library that computes convolutions on CPUs
    return has_mkldnn and bool(getattr(torch.ops.mkldnn, f"_is_mkldnn_{precision}_supported")())
