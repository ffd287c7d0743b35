"""Folders and files get their names when they are complete, and take no one else's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lreid.data.writing import folder_at_once, write_file
from lreid.errors import InputError


def test_what_an_attempt_that_was_killed_has_left_is_resumed_or_deleted(tmp_path: Path) -> None:
    for empty in (False, True):
        out = tmp_path / f"{empty}"
        with pytest.raises(KeyboardInterrupt), folder_at_once(out, empty=empty) as folder:
            (folder / "a" / "b").mkdir(parents=True)
            (folder / "a" / "b" / "old.png").touch()
            (folder / ".half.png.part").touch()
            raise KeyboardInterrupt
        with folder_at_once(out, empty=empty) as folder:
            (folder / "new.png").touch()
        assert sorted(path.name for path in out.rglob("*.*")) == ["new.png"] + ["old.png"] * (not empty)
        assert not out.with_name(f"{empty}.unfinished").exists()
        with folder_at_once(out, empty=empty) as folder:
            assert folder is None


def test_a_folder_of_the_user_that_is_called_unfinished_is_not_deleted(tmp_path: Path) -> None:
    notes = tmp_path / "out.unfinished" / "novel" / "chapter.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("of ten years")
    with (
        pytest.raises(InputError, match="out.unfinished: was not made by lreid"),
        folder_at_once(tmp_path / "out", empty=True),
    ):
        pass
    assert notes.read_text() == "of ten years" and os.listdir(tmp_path) == ["out.unfinished"]


def test_an_image_takes_the_place_of_no_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(InputError, match="a.png: is not a regular file"):
        write_file(tmp_path / "a.png", lambda file: file.write(b"image"))
    assert (tmp_path / "a.png").is_fifo() and os.listdir(tmp_path) == ["a.png"]
