"""Files are written completely or not at all."""

import errno
import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from power_cuts import Disk
from processes import start_python

from lreid.errors import InputError, NotConfirmed
from lreid.utils.files import (
    files_below,
    folder_at_once,
    leftovers,
    list_folder,
    lock_open_file,
    only_one_process,
    remove_leftovers,
    require_writable,
    write_atomically,
    write_file,
    write_text,
)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    def write_half(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_text(tmp_path / "a.txt", "old")
    with pytest.raises(InputError, match=r"a.txt: .*No space left"):
        write_atomically(tmp_path / "a.txt", write_half)
    assert (tmp_path / "a.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]  # no temporary file stays


def test_write_that_fails_in_torch_reports_the_free_space(tmp_path: Path) -> None:
    def fail_in_torch(file: BinaryIO) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:671]")

    with pytest.raises(InputError, match=r"a.pt: .*\d+ MiB"):
        write_atomically(tmp_path / "a.pt", fail_in_torch)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_umask_sets_the_mode_of_a_new_file(tmp_path: Path, umask: None) -> None:
    write_text(tmp_path / "open", "a")
    write_atomically(tmp_path / "private", lambda file: file.write(b"a"), private=True)
    assert (mode(tmp_path / "open"), mode(tmp_path / "private")) == (0o640, 0o600)


def test_replaced_file_keeps_mode_and_owner(tmp_path: Path, umask: None) -> None:
    file, owner = tmp_path / "a", (12345, 23456) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    for wanted in (0o600, 0o664):
        write_text(file, "old")
        file.chmod(wanted)
        os.chown(file, *owner)
        for private in (False, True):
            write_atomically(file, lambda file: file.write(b"new"), private=private)
            assert mode(file) == wanted and (file.stat().st_uid, file.stat().st_gid) == owner


def test_unwritable_path_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    require_writable(tmp_path / "new/folder/file")
    require_writable(tmp_path / "file")
    with pytest.raises(InputError, match=r"file/below/x: .*/file is a file"):
        require_writable(tmp_path / "file/below/x")
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may write everywhere
    with pytest.raises(InputError, match=rf"x: .* {tmp_path} is not"):
        require_writable(tmp_path / "new/x")
    assert not (tmp_path / "new").exists()


def test_target_of_a_symbolic_link_is_written(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far/real")
    for text in ("made", "replaced"):
        write_text(tmp_path / "link", text)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "far" / "real").read_text() == text
    assert os.listdir(tmp_path / "far") == ["real"]


def test_only_regular_files_are_written_or_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets must be short
    Path("folder").mkdir()
    os.mkfifo("pipe")
    Path("link").symlink_to("/dev/null")
    Path("last.pt").write_text("old")
    writers: list[Callable[[Path], None]] = [
        require_writable,
        lambda path: write_text(path, "text"),
        lambda path: write_file(path, lambda file: file.write(b"image")),
    ]
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket")
        kinds = {name: os.lstat(name).st_mode for name in ("folder", "link", "pipe", "socket")}
        for name in kinds:
            for write in writers:
                with pytest.raises(InputError, match=f"^{name}: is not a regular file"):
                    write(Path(name))
            with pytest.raises(InputError, match=f"^{name}: is not a regular file"):
                write_atomically("last.pt", lambda file: file.write(b"new"), previous=Path(name))
        assert kinds == {name: os.lstat(name).st_mode for name in kinds}
    assert Path("last.pt").read_text() == "old" and sorted(os.listdir()) == sorted([*kinds, "last.pt"])


def test_page_that_cannot_be_read_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = '<meta name="generator" content="lreid">'
    write_text(tmp_path / "a.html", page)

    def fail(path: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error")  # of a read, so without the name of the file

    with monkeypatch.context() as patch, pytest.raises(InputError, match=r"a\.html"):
        patch.setattr(Path, "read_bytes", fail)
        write_text(tmp_path / "a.html", page + "new")
    assert (tmp_path / "a.html").read_text() == page


def test_unreadable_folder_is_not_treated_as_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "a" / "b.txt", "text")
    assert list_folder(tmp_path / "a", "*.txt") == files_below(tmp_path) == [tmp_path / "a" / "b.txt"]
    assert list_folder(tmp_path / "a", "*.pt") == list_folder(tmp_path / "gone") == files_below(tmp_path / "gone") == []
    for number in (errno.EACCES, errno.EIO):
        with monkeypatch.context() as patch:
            for name in ("listdir", "scandir"):
                patch.setattr(os, name, failing(number))
            for read in (list_folder, files_below, leftovers):
                with pytest.raises(InputError, match=f"{tmp_path}: cannot be listed"):
                    read(tmp_path)
            write_text(tmp_path / "a" / "b.txt", os.strerror(number))  # writing needs no list
        assert (tmp_path / "a" / "b.txt").read_text() == os.strerror(number)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EBADF])
def test_file_system_without_locks(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".a.0123abcd.lreid").write_text("perhaps being written")
    monkeypatch.setattr(fcntl, "flock", failing(number))
    with only_one_process(tmp_path):
        write_text(tmp_path / "a", "new")
    assert lock_open_file(0) and (tmp_path / "a").read_text() == "new" and len(leftovers(tmp_path)) == 1
    monkeypatch.setattr(fcntl, "flock", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        lock_open_file(0)


WRITE = """
import sys
from lreid.utils.files import write_atomically

def wait(file):
    file.write(b"half")
    file.flush()
    print("half")
    sys.stdin.readline()

write_atomically(sys.argv[1], wait)
print("whole")
"""


@pytest.mark.slow
def test_temporary_files_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    dead, alive = (start_python(WRITE, str(tmp_path / "a")) for _ in range(2))
    for process in (dead, alive):
        assert process.stdout.readline() == "half\n"
    assert len(leftovers(tmp_path)) == len(leftovers(tmp_path, "a")) == 2 and not leftovers(tmp_path, "b")
    dead.kill()
    dead.wait()
    (tmp_path / ".a.0123abcd.lreid.txt").write_text("somebody else's")
    write_text(tmp_path / "b", "of another file")
    assert len(leftovers(tmp_path)) == 2
    write_text(tmp_path / "a", "mine")
    remove_leftovers(tmp_path)
    assert len(leftovers(tmp_path)) == 1
    assert alive.communicate("continue\n")[0] == "whole\n" and alive.returncode == 0
    assert sorted(os.listdir(tmp_path)) == [".a.0123abcd.lreid.txt", "a", "b"]
    assert (tmp_path / "a").read_text() == "half"


def failing(number: int):
    def fail(*_args: object, **_more: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_rename_that_the_disk_does_not_confirm_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, synced = os.fsync, []

    def fail_at_the_folder(file: int) -> None:
        synced.append(file)
        if len(synced) == 2:
            failing(errno.EIO)()
        sync(file)

    monkeypatch.setattr(os, "fsync", fail_at_the_folder)
    with pytest.raises(NotConfirmed, match="a: done, but .*Input/output error"):
        write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "new"


def test_power_cut_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    for number, (name, old) in enumerate([("a", "old"), ("new", None), ("runs/new/a", None)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        if old is not None:
            write_text(folder / name, old)
        disk = Disk(folder)
        with disk.recording():
            write_text(folder / name, "new" * 1000)
            write_text(folder / name, "newer" * 1000)
        seen = set()
        for over, state in disk.every_state():  # over: the call has returned
            content = state.get(str(folder / name))
            seen.add(content and content.decode())
            assert not over or content == b"newer" * 1000
        assert seen == {old, "new" * 1000, "newer" * 1000}


def test_power_cut_leaves_a_checkpoint_and_the_previous_one(tmp_path: Path) -> None:
    last, previous = tmp_path / "last.pt", tmp_path / "previous.pt"
    last.write_bytes(b"1")
    previous.write_bytes(b"0")
    disk = Disk(tmp_path)
    with disk.recording():
        write_atomically(last, lambda file: file.write(b"2"), previous=previous)
    for over, state in disk.every_state():
        pair = tuple(state.get(str(path)) for path in (last, previous))
        assert pair == (b"2", b"1") if over else pair in [(b"1", b"0"), (None, b"1"), (b"2", b"0"), (b"2", b"1")]


@pytest.mark.parametrize("resume", [False, True])
def test_interrupted_folder_is_resumed_or_deleted(tmp_path: Path, resume: bool) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt), folder_at_once(out, resume=resume) as folder:
        (folder / "a" / "b").mkdir(parents=True)
        (folder / "a" / "b" / "old.png").touch()
        (folder / "a" / ".half.png.0123abcd.lreid").touch()
        raise KeyboardInterrupt
    assert not out.exists()
    with folder_at_once(out, resume=resume) as folder:
        (folder / "new.png").touch()
    assert sorted(path.name for path in out.rglob("*.*")) == ["new.png"] + ["old.png"] * resume
    assert os.listdir(tmp_path) == ["out"]
    with folder_at_once(out, resume=resume) as folder:
        assert folder is None
