"""Write and read checkpoints, from which runs can resume.

A checkpoint is a dict of tensors and plain values:

    format      1
    model       state dict of the network
    method      state of the method, for instance its teacher
    updates     optimiser and gradient scaler within a task, None between tasks
    observers   data that each observer has collected within the task, by name: sums of loss terms, curves of drift
    position    {"task": index of the current task, "epoch": number of its finished epochs, "step": number of
                finished batches of the next epoch}
    random      states of the generators of torch, numpy and Python, and of the GPU if one is used
    config      the resolved config, YAML
    results     the content of results.json so far

A checkpoint contains neither the learning rate nor the order of images, because position and seed determine both.
"""

import logging
import random
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lreid.errors import InputError, OutOfMemory, UnknownFormat
from lreid.results import RESULTS_SCHEMA
from lreid.results import fault as fault_in_results
from lreid.utils.files import list_folder, write_atomically
from lreid.utils.reading import misfit, raise_if_unreadable, read_tensors, require_not_newer

logger = logging.getLogger("lreid")

CHECKPOINT_FORMAT = 1
CURRENT = "last.pt"  # checkpoint of the current task; finished tasks have task-01.pt, task-02.pt …
PREVIOUS = "previous.pt"  # the last.pt that was replaced

# What a checkpoint must contain to resume a run, in the notation of lreid.utils.reading.misfit.
CHECKPOINT_FORM = {
    "method": dict,
    "updates": (dict, type(None)),
    "observers": {str: dict},
    "position": {"task": int, "epoch": int, "step": int},
    "random": dict,
    "results": {},
}

# The types that torch.load reads without running code; their subclasses, such as np.float64, are other types.
CONTAINERS = (dict, OrderedDict, list, tuple, set, torch.Size)
VALUES = (bool, int, float, str, type(None))


def save_checkpoint(path: Path, state: dict[str, Any], *, previous: Path | None = None) -> None:
    """Write a checkpoint atomically; rename an existing file to ``previous``, or delete it with ``previous=None``.

    Raises:
        InputError: the checkpoint cannot be written, or has a value that :func:`load_checkpoint` would refuse; an
            existing checkpoint at ``path`` is unchanged.
    """
    state = {"format": CHECKPOINT_FORMAT, "random": random_state(), **state}
    for name, value in _parts(state):
        if not (isinstance(value, torch.Tensor) or type(value) in (*CONTAINERS, *VALUES)):
            raise InputError(
                f"{path}: {name} is of the type {type(value).__name__}, which a checkpoint cannot hold; make it a "
                "tensor, a number or text, or lists and dicts of these"
            )
    write_atomically(path, lambda file: torch.save(state, file), previous=previous, private=True)


def _parts(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of everything in nested containers, also of keys, such as ``method.means``."""
    yield name, value
    if isinstance(value, CONTAINERS):
        keys, values = (value, value.values()) if isinstance(value, dict) else (range(len(value)), value)
        for key, each in zip((*keys, *keys), (*keys, *values), strict=True):
            yield from _parts(each, f"{name}.{key}".lstrip("."))


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Load a checkpoint to the CPU.

    Raises:
        UnknownFormat: another version of lreid wrote the file.
        InputError: the file is missing, damaged, or not a checkpoint of lreid.
    """
    state = read_tensors(path)
    version = state.get("format", CHECKPOINT_FORMAT)
    if version != CHECKPOINT_FORMAT:  # the file may be intact, so a run must not resume from an older one
        raise UnknownFormat(f"{path}: has format {version}, not {CHECKPOINT_FORMAT}; use the version that wrote it")
    if fault := misfit(state, {"format": int, "model": dict, "config?": str}):
        raise InputError(f"{path}: {fault}; use a checkpoint that lreid train wrote")
    return state


def checkpoints_of(folder: Path) -> list[Path]:
    """List the checkpoints of a run, newest first; the list is empty if the folder does not exist."""
    files = list_folder(folder, "*.pt")
    current = [path for path in (folder / CURRENT, folder / PREVIOUS) if path in files]
    return current + list(task_checkpoints(folder).values())[::-1]


def task_checkpoints(folder: Path) -> dict[int, Path]:
    """Map the number of each finished task (from 1) to its checkpoint, and ignore files with other names."""
    numbered = ((path.stem.removeprefix("task-"), path) for path in list_folder(folder, "task-*.pt"))
    return dict(sorted((int(number), path) for number, path in numbered if number.isdecimal()))


def load_newest(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Load the newest undamaged checkpoint of a run, and return it with its path; None if there is no checkpoint.

    Raises:
        UnknownFormat: another version of lreid wrote one of the checkpoints.
        InputError: the run has checkpoints, but all of them are damaged.
    """
    faults = []
    for path in checkpoints_of(folder):
        try:
            checkpoint = load_checkpoint(path)
            _require_whole(checkpoint, path)
        except (UnknownFormat, OutOfMemory):  # this file may be intact, and resuming from another would overwrite it
            raise
        except InputError as fault:
            faults.append(fault)
            continue
        for fault in faults:
            logger.warning("%s; using the previous checkpoint", fault)
        return path, checkpoint
    if faults:
        raise InputError(f"{faults[0]}; no other checkpoint is intact; start again with a different --out")
    return None


def _require_whole(state: dict[str, Any], path: Path) -> None:
    """Check that a run can resume from a checkpoint; only the state of the method is not checked."""
    fault = misfit(state, CHECKPOINT_FORM | {"config": str})
    if fault is None:
        require_not_newer(path, state["results"].get("schema"), RESULTS_SCHEMA, f"not of schema {RESULTS_SCHEMA}")
        fault = fault_in_results(state["results"])
    if fault is None:
        done, at = len(state["results"]["mAP"]), state["position"]
        if at["task"] != done or min(at.values()) < 0:
            fault = f"position is {at}, with {done} tasks in the results"
    if fault:
        raise InputError(f"{path}: the run cannot resume from it, because {fault}")
    now = random_state()
    try:
        with fitting(path):
            set_random_state(state["random"])
    finally:
        set_random_state(now)


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Add the path of the checkpoint to errors that occur while objects load parts of it."""
    try:
        yield
    except Exception as error:  # a damaged part may have any value and so may cause any exception
        raise_if_unreadable(error, path)
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise InputError(
            f"{path}: its parts do not fit together ({reason}); delete this file to resume from the previous checkpoint"
        ) from None


def load_model_state(model: torch.nn.Module, state: dict[str, torch.Tensor], path: Path) -> None:
    """Load the tensors of a checkpoint into a network.

    Raises:
        InputError: the checkpoint is of another architecture, or is damaged.
    """
    wanted = model.state_dict()
    faulty = [key for key, value in state.items() if not _is_plain(value)]
    if faulty:
        raise InputError(f"{path}: {faulty[0]} is not a tensor of finite numbers; use a different checkpoint")
    misfits = [key for key in wanted.keys() & state.keys() if wanted[key].shape != state[key].shape]
    if misfits or wanted.keys() != state.keys():
        example = sorted(misfits or wanted.keys() ^ state.keys(), key=str)[0]
        raise InputError(
            f"{path}: has a different architecture than backbone={getattr(model, 'name', '')!r} with "
            f"adapter={getattr(model, 'adapter', 'none')!r} (it differs in {example}); set the backbone and the "
            "adapter with which it was trained"
        )
    model.load_state_dict(state)


def _is_plain(value: Any) -> bool:
    """Whether a value is a dense tensor on the CPU that contains only real, finite numbers."""
    return (
        isinstance(value, torch.Tensor)
        and value.device.type == "cpu"
        and value.layout == torch.strided
        and not (value.is_quantized or value.is_complex())
        and bool(value.isfinite().all())
    )


def random_state() -> dict[str, Any]:
    """Return the states of the random number generators of torch, numpy, Python and the GPU, as plain values."""
    numpy_state: Any = np.random.get_state()  # noqa: NPY002  a tuple, because the global generator is a Mersenne Twister
    name, keys, position, has_gauss, gauss = numpy_state
    version, words, gauss_next = random.getstate()
    of_gpu = {"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_initialized() else {}
    return of_gpu | {
        "torch": torch.get_rng_state(),
        "numpy": [name, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, gauss],
        "python": [version, list(words), gauss_next],
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Restore the states that :func:`random_state` returned."""
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_initialized():  # a run may resume on a different machine
        torch.cuda.set_rng_state(state["cuda"])
    name, keys, *rest = state["numpy"]
    if not 0 <= rest[0] <= len(keys):
        raise ValueError(f"position {rest[0]} of numpy's generator")
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    version, words, gauss_next = state["python"]
    random.setstate((version, tuple(words), gauss_next))
