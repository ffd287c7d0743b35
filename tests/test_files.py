"""Files are whole or not there, and hold no code."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path
from typing import BinaryIO

import pytest
import torch

from lreid.errors import InputError
from lreid.files import read_tensors, write_atomically, write_text


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    write_text(tmp_path / "new" / "a.txt", "one")
    write_text(tmp_path / "new" / "a.txt", "two")
    assert (tmp_path / "new" / "a.txt").read_text() == "two"
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["a.txt"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    def half_of_it(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_text(tmp_path / "a.txt", "old")
    with pytest.raises(InputError, match=r"a.txt: cannot be written .*No space left.* --resume"):
        write_atomically(tmp_path / "a.txt", half_of_it)
    assert (tmp_path / "a.txt").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1  # no temporary file stays


def test_a_write_that_torch_breaks_off_tells_the_space_left(tmp_path: Path) -> None:
    def broken(file: BinaryIO) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:671]")

    with pytest.raises(InputError, match=r"a.pt: cannot be written \(the write broke off; \d+ MiB are free"):
        write_atomically(tmp_path / "a.pt", broken)


class Evil:
    """Would make a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return (open, (str(self.path), "w"))


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "evil.pt").write_bytes(pickle.dumps({"model": Evil(tmp_path / "made")}))
    with pytest.raises(InputError, match="evil.pt: cannot be loaded as tensors"):
        read_tensors(tmp_path / "evil.pt")
    torch.save({"model": Evil(tmp_path / "made")}, tmp_path / "evil.pt")
    with pytest.raises(InputError, match="evil.pt: cannot be loaded as tensors"):
        read_tensors(tmp_path / "evil.pt")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("length", [0, 1, 100, 1000])
def test_a_file_cut_short_is_named(tmp_path: Path, length: int) -> None:
    path = tmp_path / "short.pt"
    torch.save({"a": torch.zeros(1000)}, path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InputError, match="short.pt: cannot be loaded") as error:
        read_tensors(path)
    assert "\n" not in str(error.value)


def test_missing_and_foreign_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gone.pt: no such file"):
        read_tensors(tmp_path / "gone.pt")
    with pytest.raises(InputError, match="is a folder"):
        read_tensors(tmp_path)
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(InputError, match="holds a list"):
        read_tensors(tmp_path / "list.pt")
