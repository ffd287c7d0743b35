"""A CUDA device on a machine without one, to find tensors on the wrong device and waits of the host.

Torch's CUDA tensors, streams, pinned memory, allocator, autocast and scaler of gradients are the real ones, on a
runtime whose device memory is that of the host (``runtime.c``). :class:`SimulatedCUDA` computes every operator of such
tensors on CPU tensors in the same memory, so that all numbers are those of the CPU to the last bit. It raises
:class:`WrongDevice` where operands lie on different devices in a way that a CUDA kernel refuses, and notes where the
host would wait for the device. What it cannot show: speed, races between streams, the rounding of CUDA's kernels.

A process has to be started with the environment of :func:`environment`.
"""

import ctypes
import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

HERE = Path(__file__).resolve().parent
# The headers of the wheel lack one file, whose macros a C compiler does not need.
WORDS = ("__host__", "__device__", "__device_builtin__", "__cudart_builtin__", "CUDARTAPI")
WORDS += ("__device_builtin_texture_type__", "__device_builtin_surface_type__")
ALIGNED = "(n)=__attribute__((aligned(n)))"

# The driver stages up to this many bytes of pageable memory before a call returns; for more, the host may wait for the
# device ("Asynchronous Concurrent Execution" in the CUDA C++ Programming Guide).
STAGED = 64 << 10
# These operators allocate memory or read only metadata, so they need no kernel.
NATIVE = {
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "set_"),
    *("is_pinned", "_pin_memory", "record_stream", "lift_fresh", "_unsafe_view", "is_same_size"),
}
# The host needs the result of these operators, or its size.
ANSWERS = {"_local_scalar_dense", "nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "bincount", "equal"}
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}
# Besides pointwise operators, these accept a single number on the host.
WITH_HOST_NUMBER = {"masked_fill", "masked_fill_", "where", "fill_", "lerp", "lerp_"}


class WrongDevice(RuntimeError):
    """Operands that a CUDA kernel would refuse."""


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process with a simulated device, whose runtime is compiled into a folder.

    Raises:
        LookupError: the device cannot be simulated here; the message says why.
    """
    if torch.version.cuda is None or not torch.version.cuda.startswith("13."):
        raise LookupError(f"torch was built for CUDA {torch.version.cuda}, and what is simulated is CUDA 13")
    headers = Path(torch.__file__).parents[1] / "nvidia" / "cu13" / "include"
    if not (headers / "cuda_runtime_api.h").exists():
        raise LookupError("the headers of CUDA are not there")
    (folder / "crt").mkdir(exist_ok=True)
    (folder / "crt" / "host_defines.h").touch()
    library = folder / "libcuda.so.1"
    defined = [f"-D{word}=" for word in WORDS] + [f"-D{word}{ALIGNED}" for word in ("__align__", "__builtin_align__")]
    command = ["cc", "-shared", "-fPIC", "-O1", "-w", f"-I{folder}", f"-I{headers}", *defined]
    command += ["-Wl,-soname,libcuda.so.1", "-o", str(library), str(HERE / "runtime.c")]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise LookupError("there is no compiler of C") from None
    return dict(os.environ, LD_PRELOAD=str(library))


class Operator(NamedTuple):
    """Facts about an operator, whose schema takes longer to read than a small tensor to compute.

    Attributes:
        composite: whether it consists of other operators.
        view: whether its result shares the memory of an argument.
        pointwise: whether it works on each number by itself.
        arguments: names of the arguments.
        written: per result, the argument that is written to and given back; None for a new tensor.
    """

    name: str
    composite: bool
    view: bool
    pointwise: bool
    arguments: list[str]
    written: list[str | None]


@functools.cache
def _operator(func: Any) -> Operator:
    schema, kernel = func._schema, "CompositeImplicitAutograd"
    composite = func._can_decompose() and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), kernel)
    aliases = [each.alias_info for each in schema.returns]
    view = any(alias is not None and not alias.is_write for alias in aliases)
    targets = {
        name: each.name
        for each in schema.arguments
        if each.alias_info is not None
        for name in each.alias_info.before_set
    }
    written = [alias and targets.get(next(iter(alias.before_set), "")) for alias in aliases]
    arguments = [each.name for each in schema.arguments]
    pointwise = torch.Tag.pointwise in func.tags
    return Operator(schema.name.removeprefix("aten::"), composite, view, pointwise, arguments, written)


class SimulatedCUDA(TorchDispatchMode):
    """Computes what is on CUDA devices, see the head of this file.

    Attributes:
        waits: of the host for the device so far: what for, and the line of lreid.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.backends.cudnn.enabled = False  # its operators are not simulated
        self.waits: list[str] = []
        runtime = ctypes.CDLL(None)
        self._in_runtime = ctypes.c_long.in_dll(runtime, "simulated_waits")
        self._launches = ctypes.c_long.in_dll(runtime, "simulated_launches")
        self._seen = self._in_runtime.value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = _tensors_in((args, [*kwargs.values()]))
        wanted = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
        if not any(each.is_cuda for each in tensors) and (wanted is None or wanted.type != "cuda"):
            return func(*args, **kwargs)
        operator = _operator(func)
        name = operator.name
        self._note_runtime(name)
        if operator.composite:  # in inference mode these come whole
            with self:
                return func.decompose(*args, **kwargs)
        if name in NATIVE or operator.view:
            launches = self._launches.value
            result = func(*args, **kwargs)
            assert self._launches.value == launches, f"{name} is no operator without a kernel"
            return result
        if name == "_to_copy":
            return self._copied(args[0], kwargs)
        if name == "copy_":
            self._note_copy(args[1], args[0].device, (*args, False)[2] or kwargs.get("non_blocking", False))
            _on_host(args[0]).copy_(_on_host(args[1]))
            return args[0]
        self._check(operator, args, tensors)
        self._note(name, args, tensors)
        return _computed(func, operator, args, kwargs, wanted)

    def _copied(self, source: Tensor, options: dict[str, Any]) -> Tensor:
        target = torch.device(options.pop("device", None) or source.device)
        non_blocking = options.pop("non_blocking", False)
        options.pop("pin_memory", None)
        self._note_copy(source, target, non_blocking)
        copy = torch.ops.aten._to_copy.default(_on_host(source), **options)
        return _on_device(copy) if target.type == "cuda" else copy

    # ------------------------------------------------------------ waits

    def _wait(self, what: str) -> None:
        self.waits.append(f"{what} @ {_place()}")

    def _note_runtime(self, name: str) -> None:
        """Count waits in the C++ code of torch, such as those of ``torch.tensor(…, device="cuda")``."""
        for _ in range(self._in_runtime.value - self._seen):
            self._wait(f"before {name}")
        self._seen = self._in_runtime.value

    def _note_copy(self, source: Tensor, target: torch.device, non_blocking: bool) -> None:
        if source.device.type == target.type:
            return
        size = source.numel() * source.element_size()
        staged = size <= STAGED or source.is_pinned()
        if target.type == "cpu" or not non_blocking or not staged:
            self._wait(f"copy of {tuple(source.shape)} to {target.type}")

    def _note(self, name: str, args: Any, tensors: list[Tensor]) -> None:
        if name in ANSWERS or (name == "repeat_interleave" and isinstance(args[0], Tensor)):
            self._wait(name)
        elif name in INDEXED:
            masks = [each for each in args[1] if each is not None and each.dtype == torch.bool]
            if masks or any(each is not None and not each.is_cuda for each in args[1]):
                self._wait("index by a mask" if masks else "index by a CPU tensor")
        elif name == "isin" and len(tensors) == 2 and tensors[1].numel() >= 10 * tensors[0].numel() ** 0.145:
            self._wait("isin by sorting")

    # ------------------------------------------------------------ devices

    def _check(self, operator: Operator, args: Any, tensors: list[Tensor]) -> None:
        host, name = [each for each in tensors if not each.is_cuda], operator.name
        if name in INDEXED:  # an index on the host causes a wait, but is valid
            host = [each for each in (args[0], *args[2:3]) if not each.is_cuda and each.ndim]
        elif operator.pointwise or name in WITH_HOST_NUMBER:
            host = [each for each in host if each.ndim]
        if host and len(host) < len(tensors):
            shapes = ", ".join(f"{tuple(each.shape)} {each.device.type}" for each in tensors)
            raise WrongDevice(f"{_place()}: {name} of {shapes}")


def _on_host(tensor: Tensor) -> Tensor:
    """Return a CPU tensor in the same memory."""
    storage = tensor.untyped_storage()
    if not tensor.is_cuda:
        return tensor
    if not storage.nbytes():
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    bytes_ = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    empty = torch.empty(0, dtype=tensor.dtype)
    return empty.set_(bytes_, tensor.storage_offset(), tensor.shape, tensor.stride())


def _on_device(tensor: Tensor) -> Tensor:
    """Return a CUDA tensor with the same numbers."""
    placed = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")
    _on_host(placed).copy_(tensor)
    return placed


def _computed(func: Any, operator: Operator, args: Any, kwargs: dict[str, Any], wanted: torch.device | None) -> Any:
    """Compute an operator on the host, and return its result on the device; written arguments are returned as such."""
    here = {name: _changed(value, _on_host) for name, value in kwargs.items()}
    if wanted is not None:
        here["device"] = torch.device("cpu")
    here.pop("pin_memory", None)
    result = func(*_changed(args, _on_host), **here)
    if result is None or (wanted is not None and wanted.type == "cpu"):
        return result
    given = dict(zip(operator.arguments, args, strict=False)) | kwargs if any(operator.written) else {}
    single = len(operator.written) == 1
    placed = tuple(
        _changed(value, _on_device) if target is None else given.get(target)
        for target, value in zip(operator.written, [result] if single else result, strict=True)
    )
    return placed[0] if single else placed


def _tensors_in(values: Any) -> list[Tensor]:
    """Return all tensors in arguments, also in nested lists."""
    if isinstance(values, Tensor):
        return [values]
    return [each for value in values for each in _tensors_in(value)] if isinstance(values, (list, tuple)) else []


def _changed(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Apply a function to all tensors in a value."""
    if isinstance(value, Tensor):
        return change(value)
    return type(value)([_changed(each, change) for each in value]) if isinstance(value, (list, tuple)) else value


def _place() -> str:
    """Return the innermost line of lreid in the call stack."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        _, found, file = frame.f_code.co_filename.rpartition("/lreid/")
        if found and "site-packages" not in frame.f_code.co_filename:
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return "a thread of autograd"
