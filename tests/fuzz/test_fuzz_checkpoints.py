"""Damaged, foreign and malicious checkpoints."""

import io
import pickle
import shutil
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from fuzzing import assert_refused, file_hashes

from lreid.training.trainer import Trainer

pytestmark = pytest.mark.fuzz


class Evil:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path, call: Callable = open) -> None:
        self.marker, self.call = marker, call

    def __reduce__(self) -> tuple:
        return self.call, (str(self.marker), "w") if self.call is open else (f"open({str(self.marker)!r}, 'w')",)


def assert_test_refuses(world: Path, file: Path) -> None:
    """Assert that ``lreid test`` refuses a checkpoint and writes nothing."""
    before = file_hashes(world)
    folders = ("--query", world / "q", "--gallery", world / "g", "--out", file.parent / "out")
    assert_refused("test", "--checkpoint", file, *folders, named=file)
    assert file_hashes(world) == before
    assert not (file.parent / "out").exists()


def replace_part(source: Path, file: Path, name: str, content: bytes, kind: int = zipfile.ZIP_STORED) -> None:
    """Copy a checkpoint and replace the content of one part, with a correct checksum."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(file, "w", kind) as new:
        for part in old.namelist():
            new.writestr(part, content if part.endswith(name) else old.read(part))


@pytest.mark.parametrize("call", [open, eval], ids=lambda call: call.__name__)
def test_code_in_a_checkpoint_is_not_run(call: Callable, world: Path, tmp_path: Path) -> None:
    file, marker = tmp_path / "evil.pt", tmp_path / "made"
    evil = torch.load(world / "model.pt", weights_only=True) | {"random": Evil(marker, call)}
    pickled = io.BytesIO()
    pickle.dump(evil["random"], pickled, protocol=2)
    for write in (
        lambda: torch.save(evil, file),
        lambda: torch.save(evil, file, _use_new_zipfile_serialization=False),
        lambda: file.write_bytes(pickle.dumps(evil["random"])),
        lambda: replace_part(world / "model.pt", file, "data.pkl", pickled.getvalue()),
        lambda: replace_part(world / "model.pt", file, "data.pkl", b"\x80\x02" + b"(" * 100_000),
        lambda: replace_part(world / "model.pt", file, "data.pkl", b"\x80\x02\x8b\xff\xff\xff\x7f"),  # 2 GiB of text
        lambda: replace_part(world / "model.pt", file, "/1", b"short"),
        lambda: replace_part(world / "model.pt", file, "none", b"", zipfile.ZIP_DEFLATED),
        lambda: file.write_bytes(b""),
        lambda: file.write_bytes(b"PK\x05\x06" + bytes(18)),
        lambda: file.write_bytes(b"\x80\x02]q\x00."),
    ):
        write()
        assert_test_refuses(world, file)
    assert not marker.exists()


Weights = dict[str, torch.Tensor]
TAMPERED: dict[str, Callable[[Weights, str], Any]] = {  # of all weights and the name of the first ones
    "no tensor": lambda model, name: model | {name: 1.0},
    "shape": lambda model, name: model | {name: torch.zeros(1)},
    "nan": lambda model, name: model | {name: torch.full_like(model[name], float("nan"))},
    "sparse": lambda model, name: model | {name: model[name].to_sparse()},
    "meta": lambda model, name: model | {name: model[name].to("meta")},
    "complex": lambda model, name: model | {name: model[name].cfloat()},
    "number as key": lambda model, name: model | {1: model[name]},
    "missing": lambda model, name: {key: model[key] for key in model if key != name},
    "list": lambda model, name: list(model),
    "empty": lambda model, name: {},
}


@pytest.mark.parametrize("change", TAMPERED)
def test_tampered_weights_are_refused(change: str, world: Path, tmp_path: Path) -> None:
    state = torch.load(world / "model.pt", weights_only=True)
    torch.save(state | {"model": TAMPERED[change](state["model"], next(iter(state["model"])))}, tmp_path / "a.pt")
    assert_test_refuses(world, tmp_path / "a.pt")


@pytest.mark.parametrize("config", [None, 1, "", "[]", "a: &a [*a]", "_BASE_: /etc/passwd", "!!python/name:os.system"])
def test_invalid_configs_are_refused(config: Any, world: Path, tmp_path: Path) -> None:
    state = torch.load(world / "model.pt", weights_only=True)
    torch.save(state | {"config": config}, tmp_path / "a.pt")
    assert_test_refuses(world, tmp_path / "a.pt")
    del state["config"]
    torch.save(state, tmp_path / "a.pt")
    assert_test_refuses(world, tmp_path / "a.pt")


@pytest.fixture
def run(broken_run: Path, tmp_path: Path) -> Path:
    """A copy of a run with ``last.pt`` alone, so that no other checkpoint can replace it."""
    shutil.copytree(broken_run, tmp_path / "run")
    for name in ("task-01.pt", "previous.pt"):
        (tmp_path / "run" / "checkpoints" / name).unlink()
    return tmp_path / "run"


def assert_resume_refused(out: Path, *, stop: bool = True) -> None:
    """Assert that a run is not resumed (with ``stop``, before its first step) and its checkpoints stay unchanged."""
    before = file_hashes(out / "checkpoints")
    with mock.patch.object(Trainer, "run", lambda self: None) if stop else nullcontext():
        assert_refused("train", "--resume", "--out", out, named=out / "checkpoints")
    assert file_hashes(out / "checkpoints") == before


def changed(part: str, **values: Any) -> Callable[[dict[str, Any]], None]:
    """A function that changes values of one part of a checkpoint."""
    return lambda state: state[part].update(values)


PARTS = ("position", "results", "random", "format", "updates", "method")
# Changes of a checkpoint that show before the first step.
CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    **{f"no {part}": lambda state, part=part: state.pop(part) for part in PARTS},
    **{f"{part} of text": lambda state, part=part: state.update({part: "x"}) for part in PARTS},
    **{f"position {key} {value}": changed("position", **{key: value})
       for key, value in (("task", 7), ("task", -1), ("epoch", -1), ("task", 0), ("task", True))},
    "no mAP": changed("results", mAP=[]),
    "short state of torch": changed("random", torch=torch.zeros(3, dtype=torch.uint8)),
    "floats of torch": changed("random", torch=torch.zeros(5056)),
    "short state of numpy": changed("random", numpy=["MT19937", torch.zeros(9, dtype=torch.int64), 0, 0, 0.0]),
    "position of numpy": changed("random", numpy=["MT19937", torch.zeros(624, dtype=torch.int64), 10**6, 0, 0.0]),
    "short state of Python": changed("random", python=[3, [0] * 5, None]),
    "position of Python": changed("random", python=[3, [0] * 624 + [10**6], None]),
}  # fmt: skip
# Faults that only the method, the optimiser and the position in the task show.
MISFITS: dict[str, Callable[[dict[str, Any]], None]] = {
    "no teacher": lambda state: state["method"].pop("teacher"),
    "another teacher": lambda state: state["method"].update(teacher={"a": torch.zeros(1)}),
    "no optimiser": lambda state: state["updates"].pop("optimizer"),
    "no moments": lambda state: state["updates"]["optimizer"].update(state=3),
    "moments of another shape": lambda state: moments(state).update(exp_avg=torch.zeros(2)),
    "moments of another kind": lambda state: moments(state).update(exp_avg="x"),
    "sums": lambda state: state["observers"]["history"].update(sums=[1]),
    "epoch": lambda state: state["position"].update(epoch=9),
    "step": lambda state: state["position"].update(step=9),
    "observers": lambda state: state.update(observers=3),
    "history": lambda state: state.update(observers={"history": [1]}),
}


def moments(state: dict[str, Any]) -> dict[str, Any]:
    return state["updates"]["optimizer"]["state"][0]


@pytest.mark.parametrize("change", [*CHANGES, *MISFITS])
def test_checkpoint_of_another_run_is_refused(change: str, run: Path) -> None:
    last = run / "checkpoints" / "last.pt"
    state = torch.load(last, weights_only=True)
    (CHANGES | MISFITS)[change](state)
    torch.save(state, last)
    assert_resume_refused(run, stop=change in CHANGES)
