"""What is read may be anything."""

import errno
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from lreid.config import load_config
from lreid.data.datasets import load_datasets
from lreid.data.images import read_image
from lreid.data.prepare import unpack
from lreid.data.schemes import Sources
from lreid.data.tracker_boxes import read_tracks
from lreid.data.transforms import load_pipeline
from lreid.errors import InputError
from lreid.gallery import Gallery
from lreid.loading import load_model
from lreid.models.state_dicts import read_state_dict
from lreid.results import read as read_results
from lreid.utils.reading import read_json, read_tensors
from lreid.zoo.card import read_card


@pytest.mark.parametrize("text", ['{"seed": 1, "seed": 1}', '[{"a": {"seed": 1, "b": 2, "seed": 3}}]'])
def test_a_key_that_stands_twice_in_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "twice.json").write_text(text)
    with pytest.raises(ValueError, match=r"\bseed\b"):
        read_json(tmp_path / "twice.json")
    (tmp_path / "twice.json").write_text('[{"seed": 1, "a": {"seed": 2}}, {"seed": 3}]')
    assert read_json(tmp_path / "twice.json")[0]["a"] == {"seed": 2}


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
def test_a_file_that_may_not_be_read_is_not_called_damaged(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    (tmp_path / name).touch()
    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr("io.open", refuse)
    with pytest.raises(InputError, match=rf"{name}: cannot be read \(Permission denied\); correct its permissions$"):
        READERS[name](tmp_path / name)


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    def late(*_: object) -> None:
        raise TimeoutError

    fifo, device, there = tmp_path / name, tmp_path / "device" / name, tmp_path / "socket" / name
    os.mkfifo(fifo)
    for link in (device, there):
        link.parent.mkdir()
    device.symlink_to("/dev/zero")
    before = signal.signal(signal.SIGALRM, late)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{tmp_path}/s")
            there.symlink_to(tmp_path / "s")
            for path in (fifo, device, there):
                signal.alarm(10)
                with pytest.raises(InputError, match="a FIFO|a device|a socket"):
                    READERS[name](path)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
