"""Checkpoints: the newest is found, another architecture refused, random states come back."""

import random
import signal
from collections import deque
from pathlib import Path

import numpy as np
import pytest
import torch
from example_files import touch

from lreid.checkpoint import (
    checkpoints_of,
    fitting,
    load_checkpoint,
    load_model_state,
    load_newest,
    random_state,
    save_checkpoint,
    set_random_state,
)
from lreid.errors import InputError, Stopped, UnknownFormat
from lreid.models import Embedder


def draw() -> list[float]:
    return [random.gauss(0, 1), random.random(), np.random.normal(), torch.rand(1).item()]  # noqa: NPY002


def test_random_states_survive_a_file(tmp_path: Path) -> None:
    draw()  # leaves a second gaussian waiting in two of the generators
    save_checkpoint(tmp_path / "a.pt", {"model": {}})
    expected = draw()
    draw()
    set_random_state(load_checkpoint(tmp_path / "a.pt")["random"])
    assert draw() == expected
    assert random_state()["torch"].dtype == torch.uint8


@pytest.mark.parametrize(
    "value", [np.zeros(2), np.float64(1), {np.int64(1): 0}, [deque()], (frozenset(),), object(), range(2)], ids=type
)
def test_value_that_cannot_be_loaded_is_refused_before_it_is_written(tmp_path: Path, value: object) -> None:
    plain = [{1: "a"}, {2}, set(), torch.Size([1]), None]
    save_checkpoint(tmp_path / "a.pt", {"model": {}, "method": {"plain": plain}})
    before = (tmp_path / "a.pt").read_bytes()
    load_checkpoint(tmp_path / "a.pt")
    with pytest.raises(InputError, match=r"a.pt: method\.means"):
        save_checkpoint(tmp_path / "a.pt", {"model": {}, "method": {"means": value}})
    assert (tmp_path / "a.pt").read_bytes() == before


def test_newest_checkpoint_is_that_of_the_current_task(tmp_path: Path) -> None:
    assert load_newest(tmp_path / "none") is None
    touch(tmp_path, "task-09.pt", "task-100.pt", "task-20.pt", "task-20-backup.pt", "task-best.pt")
    names = ["task-100.pt", "task-20.pt", "task-09.pt"]
    assert [path.name for path in checkpoints_of(tmp_path)] == names
    touch(tmp_path, "last.pt", "previous.pt")
    assert [path.name for path in checkpoints_of(tmp_path)] == ["last.pt", "previous.pt", *names]
    assert checkpoints_of(tmp_path / ("x" * 300)) == []


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    torch.save({"state_dict": {}}, tmp_path / "foreign.pt")
    with pytest.raises(InputError, match="foreign.pt: it has no format"):
        load_checkpoint(tmp_path / "foreign.pt")


def test_signal_while_reading_is_not_reported_as_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise Stopped(signal.SIGTERM)

    torch.save({"state_dict": {}}, tmp_path / "task-01.pt")
    monkeypatch.setattr(torch, "load", interrupted)
    with pytest.raises(Stopped):
        load_newest(tmp_path)
    with pytest.raises(Stopped), fitting(tmp_path):
        interrupted()


@pytest.mark.parametrize("newer", [{"format": 2}, {"format": 0}, {"format": "a"}, {"results": {"schema": 2}}])
@pytest.mark.parametrize("others", [[], ["previous.pt", "task-01.pt"]])
def test_checkpoint_of_an_unknown_format_is_refused(tmp_path: Path, newer: dict, others: list[str]) -> None:
    whole = {"method": {}, "updates": None, "position": {"task": 0, "epoch": 0, "step": 0}, "random": random_state()}
    whole |= {"observers": {}, "model": {}, "config": "", "results": {"schema": 1}}
    for name in others:
        save_checkpoint(tmp_path / name, whole)
    save_checkpoint(tmp_path / "last.pt", whole | newer)
    with pytest.raises(UnknownFormat, match="last.pt"):
        load_newest(tmp_path)
    (tmp_path / "last.pt").rename(tmp_path / "task-02.pt")  # behind a damaged one
    (tmp_path / "last.pt").write_bytes(b"damaged")
    with pytest.raises(UnknownFormat, match="task-02.pt"):
        load_newest(tmp_path)


def test_other_architecture_is_refused() -> None:
    small, resnet = Embedder("small"), Embedder("resnet18")
    with pytest.raises(InputError, match="task-01.pt: .*backbone='resnet18'"):
        load_model_state(resnet, small.state_dict(), Path("task-01.pt"))
    before = small.state_dict()["backbone.stem.0.weight"].clone()
    other = Embedder("small")
    load_model_state(other, small.state_dict(), Path("task-01.pt"))
    assert torch.equal(other.state_dict()["backbone.stem.0.weight"], before)
