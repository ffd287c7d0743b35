"""One checkpoint format: everything that a run needs to go on.

A checkpoint is a dict of tensors and plain values:

    format      1
    model       state dict of the network
    method      what the method remembers, for instance its teacher
    updates     optimiser, scaler of gradients and sums of loss terms within a task, None between tasks
    position    {"task": index of the task at hand, "epoch": its epochs that are done, "step": batches of the next
                epoch that are done}
    random      states of the generators of torch, numpy and Python
    config      the resolved config, YAML
    results     the content of results.json so far

The learning rate and the order of images follow from the position and the seed, so they are not stored.
"""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lreid.errors import InputError
from lreid.files import read_tensors, write_atomically

logger = logging.getLogger("lreid")

FORMAT = 1
CURRENT = "last.pt"  # the task at hand; the ones that are over are task-01.pt, task-02.pt …
PREVIOUS = "previous.pt"  # what last.pt was before


def save_checkpoint(path: Path, state: dict[str, Any], *, previous: Path | None = None) -> None:
    """Writes a checkpoint atomically; what it replaces stays under the name ``previous``.

    Raises:
        InputError: it cannot be written; the one before stays.
    """
    state = {"format": FORMAT, "random": random_state(), **state}
    write_atomically(path, lambda file: torch.save(state, file), previous=previous)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Reads a checkpoint on the CPU.

    Raises:
        InputError: it is missing, damaged, or no checkpoint of lreid.
    """
    state = read_tensors(path)
    if state.get("format") != FORMAT or "model" not in state:
        raise InputError(
            f"{path}: not a checkpoint of lreid (format {FORMAT}); use one that tools/train.py wrote"
        )
    return state


def checkpoints_of(folder: Path) -> list[Path]:
    """The checkpoints of a run, the one to go on from first."""
    current = [folder / name for name in (CURRENT, PREVIOUS) if (folder / name).exists()]
    tasks = sorted(folder.glob("task-*.pt"), key=lambda path: int(path.stem.removeprefix("task-")))
    return current + tasks[::-1]


def load_newest(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint of a run that is whole, with its path; None where the run has none yet.

    Raises:
        InputError: there are some, but not one is whole.
    """
    faults = []
    for path in checkpoints_of(folder):
        try:
            checkpoint = load_checkpoint(path)
        except InputError as fault:
            faults.append(fault)
            continue
        for fault in faults:
            logger.warning("%s; the checkpoint before it is used", fault)
        return path, checkpoint
    if faults:
        raise InputError(f"{faults[0]}; no other checkpoint is whole, so start anew with another --out")
    return None


def load_model_state(model: torch.nn.Module, state: dict[str, torch.Tensor], path: Path) -> None:
    """Puts the tensors of a checkpoint into a network.

    Raises:
        InputError: the checkpoint is of another architecture.
    """
    wanted = model.state_dict()
    misfits = [key for key in wanted.keys() & state.keys() if wanted[key].shape != state[key].shape]
    if misfits or wanted.keys() != state.keys():
        example = sorted(misfits or wanted.keys() ^ state.keys())[0]
        raise InputError(
            f"{path}: is of another architecture than MODEL.BACKBONE {getattr(model, 'name', '')} "
            f"(it differs in {example}); set MODEL.BACKBONE to what it was trained with"
        )
    model.load_state_dict(state)


def random_state() -> dict[str, Any]:
    """States of the global generators of torch, numpy and Python, as tensors and plain values."""
    name, keys, position, has_gauss, gauss = np.random.get_state()
    version, words, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "numpy": [name, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, gauss],
        "python": [version, list(words), gauss_next],
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Puts back what :func:`random_state` gave."""
    torch.set_rng_state(state["torch"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    version, words, gauss_next = state["python"]
    random.setstate((version, tuple(words), gauss_next))
