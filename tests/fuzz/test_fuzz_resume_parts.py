"""Checkpoints whose method, optimiser or position do not fit the run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from fuzzing import refused, state_of

pytestmark = pytest.mark.fuzz


def hostile(state: dict[str, Any], change: str) -> None:
    """Spoils what only the method, the optimiser and the position of the task at hand can tell."""
    moments = state["updates"]["optimizer"]["state"][0]
    match change:
        case "no teacher":
            del state["method"]["teacher"]
        case "another teacher":
            state["method"]["teacher"] = {"a": torch.zeros(1)}
        case "no optimiser":
            del state["updates"]["optimizer"]
        case "no moments":
            state["updates"]["optimizer"]["state"] = 3
        case "moments of another shape":
            moments["exp_avg"] = torch.zeros(2)
        case "moments of another kind":
            moments["exp_avg"] = "x"
        case "sums":
            state["observers"]["history"]["sums"] = [1]
        case "epoch":
            state["position"]["epoch"] = 9
        case "step":
            state["position"]["step"] = 9


@pytest.mark.parametrize(
    "change",
    [
        "no teacher",
        "another teacher",
        "no optimiser",
        "no moments",
        "moments of another shape",
        "moments of another kind",
        "sums",
        "epoch",
        "step",
    ],
)
def test_what_only_the_method_and_the_optimiser_can_tell(change: str, broken_run: Path, tmp_path: Path) -> None:
    shutil.copytree(broken_run, tmp_path / "run")
    last = tmp_path / "run" / "checkpoints" / "last.pt"
    state = torch.load(last, weights_only=True)
    hostile(state, change)
    torch.save(state, last)
    before = state_of(last.parent)
    refused("train.py", "--resume", "--out", tmp_path / "run", named=last.parent)
    assert state_of(last.parent) == before


@pytest.mark.parametrize("observers", [3, {"history": [1]}])
def test_what_observers_have_gathered_has_a_form(observers: Any, broken_run: Path, tmp_path: Path) -> None:
    """A checkpoint without it is not whole; here there is none before it."""
    shutil.copytree(broken_run, tmp_path / "run")
    last = tmp_path / "run" / "checkpoints" / "last.pt"
    for name in ("task-01.pt", "previous.pt"):
        last.with_name(name).unlink()
    torch.save(torch.load(last, weights_only=True) | {"observers": observers}, last)
    before = state_of(last.parent)
    refused("train.py", "--resume", "--out", tmp_path / "run", named=last.parent)
    assert state_of(last.parent) == before
