"""Train in several processes, each of which computes the features of a part of every batch.

    python -m torch.distributed.run --standalone --local_addr 127.0.0.1 --nproc_per_node 2 tools/train.py

All processes run the same program with the same seed and compute the loss of the whole batch. Only the forward and
backward passes of the network are divided among them. Process r of N computes the features of the batch rows r, r + N,
r + 2 N …, and then all processes exchange their features. Episodes, memories and losses are therefore the same as in a
single process. Methods need no special code, and a run may resume with another number of processes. In each process,
features of other processes have no gradient; after ``backward``, gradients are averaged over all processes. BatchNorm
computes its statistics over all processes.

DistributedDataParallel of torch averages gradients too, but expects one call of the network per step. Methods in lreid
call their network several times per step, and also call copies without gradients. lreid therefore averages all
gradients itself after the backward pass.
"""

import os
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.modules.batchnorm import _BatchNorm

from lreid.errors import ArgumentError, InputError
from lreid.models.embedder import Embedder
from lreid.utils.extras import Extra

Computed = TypeVar("Computed")

WAIT = timedelta(hours=2)  # maximum time that processes wait for the first one, which evaluates


def take_gpu(name: str) -> None:
    """Assign a separate GPU to each process of ``torchrun``; without ``torchrun`` or a GPU, do nothing.

    Call this function before any other use of a device, because every process would otherwise use memory of the first
    GPU.
    """
    if not _is_one_of_several() or name == "cpu" or not torch.cuda.is_available():
        return
    if name.startswith("cuda:"):
        raise ArgumentError("device", f"is {name}, but torchrun gives each process its own GPU; use cuda")
    local, count = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
    if local >= count:
        raise ArgumentError(
            "device",
            f"is {name}, but torchrun has started {os.environ.get('LOCAL_WORLD_SIZE', local + 1)} processes on a "
            f"machine with {count} GPU{'s' * (count != 1)}; lower --nproc_per_node, or use cpu",
        )
    torch.cuda.set_device(local)


def join(device: torch.device) -> None:
    """Connect to the other processes of ``torchrun``; without ``torchrun``, do nothing."""
    if not _is_one_of_several() or dist.is_initialized():
        return
    on_gpu = device.type == "cuda"
    try:
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            timeout=WAIT,
            device_id=torch.device("cuda", torch.cuda.current_device()) if on_gpu else None,
        )
    except (RuntimeError, ValueError, KeyError) as error:
        raise InputError(
            f"the processes of torchrun cannot connect ({str(error).splitlines()[0]}); on one machine start "
            "them with --standalone --local_addr 127.0.0.1"
        ) from None


def leave() -> None:
    """End the connection between the processes, if :func:`join` made one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def is_first() -> bool:
    """Whether this process is the first; valid even before :func:`join` and after :func:`leave`."""
    return int(os.environ.get("RANK", 0)) == 0


def rank() -> int:
    """Return the number of this process; process 0 writes all files."""
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def own_rows() -> slice:
    """Return the slice of the rows of a batch whose features this process computes."""
    return slice(rank(), None, world())


def divide(model: Embedder) -> None:
    """Divide a model's images among the processes; the model and its copies still return features of all images."""
    if world() == 1:
        return
    model.backbone = _with_global_norms(model.backbone)
    model.register_forward_pre_hook(_take_share)
    model.register_forward_hook(_gather_features)
    model.maps = _divided_maps.__get__(model)  # type: ignore[method-assign]


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace each gradient by its mean over all processes."""
    if world() == 1:
        return
    gradients = [each.grad for each in parameters if each.grad is not None]
    flat = torch.cat([each.flatten() for each in gradients])
    dist.all_reduce(flat)
    flat /= world()
    for gradient, mean in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def in_first_process(compute: Callable[[], Computed]) -> Computed:
    """Call ``compute`` in the first process only, and return its result in every process."""
    if world() == 1:
        return compute()
    result: list[Any] = [compute() if rank() == 0 else None]
    dist.broadcast_object_list(result)
    return result[0]


def any_of(flag: bool) -> bool:
    """Whether a condition is true in any process."""
    if world() == 1:
        return flag
    count = torch.tensor(float(flag), device="cuda" if dist.get_backend() == "nccl" else "cpu")
    dist.all_reduce(count)
    return count.item() > 0


def _is_one_of_several() -> bool:
    return int(os.environ.get("WORLD_SIZE", 1)) > 1


def _take_share(model: Any, inputs: tuple[Tensor]) -> tuple[Tensor]:
    model.batch_size = len(inputs[0])  # Any, because in torch's type hints the attributes of a module are tensors
    return (_own_images(model, inputs[0]),)


def _gather_features(model: Any, inputs: tuple[Tensor], features: Tensor) -> Tensor:
    return _Gather.apply(features, model.batch_size)


def _divided_maps(model: Embedder, images: Tensor) -> Tensor:
    return _Gather.apply(type(model).maps(model, _own_images(model, images)), len(images))


def _own_images(model: Embedder, images: Tensor) -> Tensor:
    own = images[own_rows()]
    model.count(range(len(images) - len(own)))  # the images of the other processes are part of the same batch
    return own


class _Gather(torch.autograd.Function):
    """Gather about n / N rows from each of N processes into one tensor (n, …), in the order of the batch."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, count: int) -> Tensor:
        most = -(-count // world())
        # Padded, because all processes must send the same size.
        padded = torch.cat([own, own.new_zeros(most - len(own), *own.shape[1:])])
        parts = [torch.empty_like(padded) for _ in range(world())]
        dist.all_gather(parts, padded.contiguous())
        return torch.stack(parts, 1).flatten(0, 1)[:count]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # Multiply by N, because average_gradients divides the sum over the processes by N.
        return world() * gradient[own_rows()], None


def _with_global_norms(module: nn.Module) -> nn.Module:
    """Make the BatchNorm layers of a network compute statistics over the images of all processes."""
    if next(module.parameters()).is_cuda:
        if any(hasattr(each, "act") for each in module.modules() if isinstance(each, _BatchNorm)):  # timm's
            return Extra("timm.layers", "timm").convert_sync_batchnorm(module)
        return nn.SyncBatchNorm.convert_sync_batchnorm(module)
    norms: list[Any] = [each for each in module.modules() if isinstance(each, _BatchNorm)]
    for norm in norms:
        norm.forward = _global_norm.__get__(norm)  # torch's SyncBatchNorm supports only GPUs
    return module


def _global_norm(norm: _BatchNorm, inputs: Tensor) -> Tensor:
    """Compute a BatchNorm layer; in training mode, its statistics are over the images of all processes."""
    if not norm.training:
        return type(norm).forward(norm, inputs)
    batches, momentum = norm.num_batches_tracked, norm.momentum
    running_mean, running_var = norm.running_mean, norm.running_var  # (channels,)
    if batches is None or momentum is None or running_mean is None or running_var is None or not norm.affine:
        raise ArgumentError("backbone", "has a BatchNorm without weights or moving averages; train without torchrun")
    dims = [0, *range(2, inputs.ndim)]
    shape = [1, -1] + [1] * (inputs.ndim - 2)
    dtype, inputs = inputs.dtype, inputs.to(norm.weight.dtype)  # because sums in half precision are inexact
    count = all_reduce(torch.tensor(inputs.numel() / inputs.shape[1]))
    mean = all_reduce(inputs.sum(dims)) / count  # (channels,)
    centred = inputs - mean.view(shape)
    variance = all_reduce(centred.square().sum(dims)) / count  # (channels,)
    with torch.no_grad():
        batches += 1
        running_mean.lerp_(mean, momentum)
        running_var.lerp_(variance * count / (count - 1), momentum)
    scale = norm.weight * (variance + norm.eps).rsqrt()
    outputs = (centred * scale.view(shape) + norm.bias.view(shape)).to(dtype)
    activate: Any = getattr(norm, "act", nn.Identity())  # timm's BatchNorm layers also apply the activation
    return activate(outputs)
