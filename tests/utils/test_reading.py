"""Untrusted files: duplicate keys, devices, permissions, code, and tensors larger than their file."""

import errno
import os
import pickle
import re
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from lreid.checkpoint import load_checkpoint
from lreid.config import load_config
from lreid.data.datasets import Sources, load_datasets
from lreid.data.images import read_image
from lreid.data.prepare import unpack
from lreid.data.tracker_boxes import read_tracks
from lreid.data.transforms import load_pipeline
from lreid.errors import InputError
from lreid.gallery import Gallery
from lreid.loading import load_model
from lreid.models.state_dicts import read_state_dict
from lreid.results import read as read_results
from lreid.utils.reading import misfit, parse_yaml, read_json, read_tensors
from lreid.zoo.card import read_card


@pytest.mark.parametrize("text", ['{"seed": 1, "seed": 1}', '[{"a": {"seed": 1, "b": 2, "seed": 3}}]'])
def test_duplicate_key_in_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "twice.json").write_text(text)
    with pytest.raises(ValueError, match=r"\bseed\b"):
        read_json(tmp_path / "twice.json")
    (tmp_path / "twice.json").write_text('[{"seed": 1, "a": {"seed": 2}}, {"seed": 3}]')
    assert read_json(tmp_path / "twice.json")[0]["a"] == {"seed": 2}


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3", "c:\n- {a: 1,\n   a: 2}", "yes: 1\n2: 3\ntrue: 1"])
def test_duplicate_key_in_yaml_is_refused_with_both_lines(text: str) -> None:
    with pytest.raises(ValueError, match=r"line [12] .* line 3"):
        parse_yaml(text)
    assert parse_yaml("a: {b: 1}\nb: [{b: 1}, {b: 1}]") == {"a": {"b": 1}, "b": [{"b": 1}, {"b": 1}]}


def test_aliases_in_yaml_are_refused_by_default() -> None:
    text = "a: &a {b: 1}\nc: {<<: *a}"
    with pytest.raises(ValueError, match="line 2"):
        parse_yaml(text)
    assert parse_yaml(text, aliases=True) == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"a": 1, "b": [0.5]}, None),
        ({"a": 1, "c": "text"}, None),
        ({"a": True}, "a is True, not int"),
        ({"a": "x" * 3}, "a is 'xxx', not int"),
        ({}, "it has no a"),
        ([], "it is a list, not a mapping"),
        ({"a": 1, "b": {}}, "b is a dict, not a list"),
        ({"a": 1, "b": [1, None]}, "b.1 is a NoneType, not int or float"),
        ({"a": 1, "d": {"e": 1}}, "d.e is unknown; it may have the keys f"),
        ({1: 1}, "it has keys that are not text"),
    ],
)
def test_misfit_names_the_place_and_the_fault(value: object, fault: str | None) -> None:
    form = {"a": int, "b?": [(int, float)], "c?": object, "d?": {"f?": int, str: None}}
    assert misfit(value, form) == fault


READERS: dict[str, Callable[[Path], object]] = {
    "a.pt": read_tensors,
    "b.pt": load_model,
    "c.safetensors": read_state_dict,
    "c.onnx": load_model,
    "c.gallery": Gallery.load,
    "c.csv": lambda path: load_datasets(f"csv:{path}", Sources(path.parent)),
    "c.yaml": lambda path: load_config([path]),
    "d.yaml": load_pipeline,
    "results.json": read_results,
    "card.json": read_card,
    "c.jpg": read_image,
    "c.zip": lambda path: unpack(path, path.parent / "out"),
    "c.txt": read_tracks,
}


@pytest.mark.parametrize("name", ["a.pt", "c.gallery", "c.csv", "c.yaml", "results.json"])
def test_file_without_read_permission_is_not_called_damaged(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    (tmp_path / name).touch()
    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr("io.open", refuse)
    with pytest.raises(InputError, match=f"{name}: .*Permission denied"):
        READERS[name](tmp_path / name)


@pytest.mark.parametrize("name", READERS)
def test_pipe_or_device_is_refused_without_waiting(tmp_path: Path, name: str) -> None:
    def time_out(*_: object) -> None:
        raise TimeoutError

    fifo, device = tmp_path / name, tmp_path / "device" / name
    os.mkfifo(fifo)
    device.parent.mkdir()
    device.symlink_to("/dev/zero")
    before = signal.signal(signal.SIGALRM, time_out)
    try:
        for path in (fifo, device):
            signal.alarm(10)
            with pytest.raises(InputError, match="pipe, a socket or a device"):
                READERS[name](path)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Evil:
    """Creates a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize(
    ("write", "named"),
    [
        (lambda path: torch.save(torch.nn.Linear(2, 2), path), "torch.nn.modules.linear.Linear"),
        (lambda path: torch.save({"best": np.float64(0.9)}, path), r"numpy\S+scalar"),
        (lambda path: path.write_bytes(pickle.dumps({"model": Evil(path)})), "something"),
    ],
    ids=["module", "scalar", "pickle"],
)
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_message_about_code_gives_no_advice_to_run_it(
    tmp_path: Path, write: Callable[[Path], None], named: str
) -> None:
    write(tmp_path / "odd.pt")
    with pytest.raises(InputError, match=f"odd.pt: .*contains {named} ") as error:
        read_tensors(tmp_path / "odd.pt")
    assert not re.search(r"weights.only|still be loaded|\n|\x1b", str(error.value), re.IGNORECASE)


@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")
def test_torchscript_archive_is_refused_with_the_remedy(tmp_path: Path) -> None:
    network, path = torch.nn.Linear(2, 2), tmp_path / "net.pt"
    torch.jit.save(torch.jit.trace(network, torch.ones(1, 2)), path)
    with pytest.raises(InputError, match=r"net.pt: .*TorchScript .*\.state_dict\(\)"):
        read_state_dict(path)
    torch.save(torch.jit.load(path).state_dict(), tmp_path / "weights.pt")  # the remedy
    assert torch.equal(read_state_dict(tmp_path / "weights.pt")["weight"], network.weight)


@pytest.mark.parametrize("names", [("state_dict", "state_dict_ema"), ("model", "model_ema"), ("model", "ema")])
def test_weights_beside_their_moving_average_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    network, average = (torch.nn.Linear(2, 2).state_dict() for _ in names)
    for other in (average, {"module": average}, {f"module.{key}": value for key, value in average.items()}):
        torch.save(dict(zip(names, (network, other), strict=True)), tmp_path / "two.pt")
        with pytest.raises(InputError, match=rf"two\.pt: .*{names[1]}"):
            read_state_dict(tmp_path / "two.pt")
    torch.save({names[0]: network, "optimizer": {"lr": torch.ones(1)}}, tmp_path / "one.pt")
    assert torch.equal(read_state_dict(tmp_path / "one.pt")["weight"], network["weight"])


def test_missing_truncated_and_foreign_files_are_named(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "list.pt")
    for length in (0, 1, 100, 1000):
        torch.save({"a": torch.zeros(1000)}, tmp_path / f"{length}.pt")
        os.truncate(tmp_path / f"{length}.pt", length)
    cut = [(f"{length}.pt", "cannot be loaded") for length in (0, 1, 100, 1000)]
    for name, fault in (*cut, ("gone.pt", "no such file"), (".", "is a folder"), ("list.pt", "contains a list")):
        with pytest.raises(InputError, match=f"{name}.*{fault}"):
            read_tensors(tmp_path / name)


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(4).expand(10**11, 4),
        torch.ones(5, dtype=torch.uint8).as_strided((10**6, 5), (0, 1)),
        torch.ones(4, device="meta"),
        torch.eye(4).to_sparse(),
    ],
)
def test_tensor_with_more_numbers_than_its_file_is_refused(tmp_path: Path, value: torch.Tensor) -> None:
    for content in ({"w": value}, {"format": 1, "model": {}, "method": {"memory": [(value,)]}}):
        torch.save(content, tmp_path / "a.pt")
        for read in (read_tensors, read_state_dict, lambda path: load_checkpoint(Path(path))):
            with pytest.raises(InputError, match="a.pt: "):
                read(tmp_path / "a.pt")


def test_views_and_shared_numbers_are_read(tmp_path: Path) -> None:
    whole = torch.arange(12.0)
    views = {"a": whole[2:5], "b": whole.view(3, 4).T, "c": whole, "d": whole[:1].expand(1, 1), "e": torch.empty(0, 9)}
    torch.save(views, tmp_path / "a.pt")
    assert all(value.equal(views[name]) for name, value in read_tensors(tmp_path / "a.pt").items())
