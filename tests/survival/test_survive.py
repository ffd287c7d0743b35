"""The short form of `make survive`."""

from pathlib import Path

import pytest
import survive
import torch
from chains import chain, config_of, titles
from commands import Counts, Trial, World, commands
from inputs import read_any
from races import race

from lreid.build import method_of

pytestmark = pytest.mark.slow

COMMANDS = ("build", "add", "remove", "calibrate", "query", "reindex", "rollback", "migrate", "publish", "download")
COMMANDS += ("rename", "undo", "reindex-map", "check", "report", "train", "serve-add", "serve-remove", "serve-undo")
COMMANDS += ("link-first", "link-add", "link-merge", "link-undo", "link-remove")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    torch.set_num_threads(1)
    return World.make(tmp_path_factory.mktemp("world"))


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LREID_ZOO_CACHE", "cache")  # in the current folder of each command
    torch.set_num_threads(1)


def nothing_wrong(counts: Counts) -> None:
    assert not counts.faults and not any(counts.numbers[each] for each in survive.WRONG), counts.faults[:3]


@pytest.mark.parametrize("name", COMMANDS)
def test_killed_or_failing_command_leaves_the_old_or_the_new_state(world: World, tmp_path: Path, name: str) -> None:
    trial = Trial(name, commands(world)[name], tmp_path / "trial")
    counts = trial.run(step=max(1, len(trial.calls) // 3))
    nothing_wrong(counts)
    assert counts.numbers["kills"] >= 3 and counts.numbers["failures"] >= 3
    assert "close" in trial.calls and trial.strangers


@pytest.mark.parametrize("title", ["er_ace", "drift of dwopp", "accuracy"])
def test_killed_and_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, title: str) -> None:
    nothing_wrong(chain(title, tmp_path, kills=3))


def test_every_method_accepts_its_network(tmp_path: Path) -> None:
    for title in titles():
        method_of(config_of(title, tmp_path / title), torch.device("cpu"), pretrained=False)


@pytest.mark.fuzz
def test_any_input_is_read_or_refused(world: World, tmp_path: Path) -> None:
    nothing_wrong(read_any(world, tmp_path / "inputs", 1500))


def test_concurrent_processes_succeed_or_are_refused(world: World, tmp_path: Path) -> None:
    nothing_wrong(race(world, tmp_path / "races", 1))


def test_every_writing_command_is_tested(world: World) -> None:
    assert set(commands(world)) == set(COMMANDS)
