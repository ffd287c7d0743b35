"""Files are whole or not there."""

import errno
import fcntl
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import filelock
import pytest
from power_cuts import Disk
from processes import start_python

from lreid.errors import InputError
from lreid.utils.files import (
    files_below,
    folder_at_once,
    hold,
    leftovers,
    list_folder,
    lock,
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

    with pytest.raises(InputError, match=r"a.pt: cannot be written \(writing failed; \d+ MiB are free"):
        write_atomically(tmp_path / "a.pt", broken)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_umask_decides_who_reads_a_new_file(tmp_path: Path, umask: None) -> None:
    write_text(tmp_path / "open", "a")
    write_atomically(tmp_path / "private", lambda file: file.write(b"a"), private=True)
    assert (mode(tmp_path / "open"), mode(tmp_path / "private")) == (0o640, 0o600)
    os.umask(0o777)
    write_text(tmp_path / "closed", "a")
    assert mode(tmp_path / "closed") == 0


def test_a_file_that_is_replaced_keeps_mode_and_owner(tmp_path: Path, umask: None) -> None:
    file = tmp_path / "a"
    for wanted in (0o600, 0o664, 0o640):
        write_text(file, "old")
        file.chmod(wanted)
        if os.geteuid() == 0:
            os.chown(file, 12345, 23456)
        write_text(file, "new")
        write_atomically(file, lambda file: file.write(b"newer"), private=True)
        assert mode(file) == wanted and file.read_text() == "newer"
        if os.geteuid() == 0:
            assert (file.stat().st_uid, file.stat().st_gid) == (12345, 23456)


def test_what_cannot_be_written_is_told_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    require_writable(tmp_path / "new/folder/file")
    require_writable(tmp_path / "file")
    with pytest.raises(InputError, match=r"file/below/x: cannot be written, because .*/file is a file"):
        require_writable(tmp_path / "file/below/x")
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may write everywhere
    with pytest.raises(InputError, match=rf"x: cannot be written, because {tmp_path} is not"):
        require_writable(tmp_path / "new/x")
    assert not (tmp_path / "new").exists()


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far/real")
    for text in ("made", "replaced"):
        write_text(tmp_path / "link", text)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "far" / "real").read_text() == text
    assert os.listdir(tmp_path / "far") == ["real"]


@pytest.fixture
def device(tmp_path: Path) -> Path:
    """Like /dev/null, which a fault would take away from the whole machine."""
    try:
        os.mknod(tmp_path / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root can make devices")
    return tmp_path / "null"


def test_a_device_is_written_into_and_stays(tmp_path: Path, device: Path) -> None:
    (tmp_path / "link").symlink_to(device)
    before = device.lstat()
    for path in (device, tmp_path / "link"):
        require_writable(path)
        write_text(path, "text")
    (tmp_path / "last.pt").write_text("old")
    with pytest.raises(InputError, match="null: is not a regular file"):
        write_atomically(tmp_path / "last.pt", lambda file: file.write(b"new"), previous=device)
    assert (tmp_path / "last.pt").read_text() == "old" and device.lstat().st_rdev == before.st_rdev
    assert sorted(os.listdir(tmp_path)) == ["last.pt", "link", "null"]


def test_a_pipe_is_written_into_and_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    arrived: list[bytes] = []
    reader = threading.Thread(target=lambda: arrived.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_text(tmp_path / "pipe", "text" * 100_000)
    reader.join()
    assert arrived == [b"text" * 100_000] and (tmp_path / "pipe").is_fifo()


def test_a_socket_or_a_folder_is_neither_written_into_nor_replaced(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets must be short
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket")
        for name in ("socket", "folder"):
            for act in (require_writable, lambda path: write_text(path, "text")):
                with pytest.raises(InputError, match=f"^{name}: is not a regular file"):
                    act(name)
        assert Path("socket").is_socket() and sorted(os.listdir()) == ["folder", "socket"]


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_what_is_open_already_is_written_into(tmp_path: Path, name: str) -> None:
    """A file that the shell appends to keeps what was in it."""
    program = f"from lreid.utils.files import write_text; write_text({name!r}, 'text'); write_text({name!r}, ' twice')"
    assert start_python(program).communicate()[0] == "text twice"
    (tmp_path / "log").write_text("before, ")
    with open(tmp_path / "log", "a") as log:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-c", program], env=environment, stdout=log, check=True)
    assert (tmp_path / "log").read_text() == "before, text twice"


def test_what_cannot_be_listed_is_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "a" / "b.txt", "text")
    assert list_folder(tmp_path / "a", "*.txt") == files_below(tmp_path) == [tmp_path / "a" / "b.txt"]
    assert list_folder(tmp_path / "a", "*.pt") == list_folder(tmp_path / "gone") == files_below(tmp_path / "gone") == []
    for number in (errno.EACCES, errno.EIO):
        with monkeypatch.context() as patch:
            for name in ("listdir", "scandir"):
                patch.setattr(os, name, failing(number))
            for read in (list_folder, files_below, leftovers):
                with pytest.raises(InputError, match=rf"{tmp_path}: cannot be listed \("):
                    read(tmp_path)
            write_text(tmp_path / "a" / "b.txt", os.strerror(number))  # writing needs no list
        assert (tmp_path / "a" / "b.txt").read_text() == os.strerror(number)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EBADF])
def test_without_locks_files_are_written_and_nothing_is_taken_for_a_leftover(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".a.0123abcd.lreid").write_text("perhaps being written")
    monkeypatch.setattr(fcntl, "flock", failing(number))
    with only_one_process(tmp_path):
        write_text(tmp_path / "a", "new")
    assert hold(0) and (tmp_path / "a").read_text() == "new" and len(leftovers(tmp_path)) == 1
    monkeypatch.setattr(fcntl, "flock", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        hold(0)


def test_a_folder_that_took_the_place_of_another_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zoo").mkdir()

    def replaced(*_: object, **__: object) -> bool:
        (tmp_path / "zoo").rename(tmp_path / "old")
        (tmp_path / "zoo").mkdir()
        return True

    monkeypatch.setattr(filelock, "lock_descriptor", replaced)
    with pytest.raises(OSError, match="Stale"), only_one_process(tmp_path / "zoo"):
        pass


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
def test_what_a_killed_process_left_goes_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
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
    assert alive.communicate("go on\n")[0] == "whole\n" and alive.returncode == 0
    assert sorted(os.listdir(tmp_path)) == [".a.0123abcd.lreid.txt", "a", "b"]
    assert (tmp_path / "a").read_text() == "half"


@pytest.mark.slow
def test_a_lock_is_free_when_its_holder_dies_though_children_live_on(tmp_path: Path) -> None:
    program = """
import os, sys, time
from pathlib import Path
from lreid.utils.files import lock

held = lock(Path(sys.argv[1]))
if not os.fork():
    print("child", flush=True)
    sys.stdin.readline()
    os._exit(0)
time.sleep(600)
"""
    holder = start_python(program, str(tmp_path / ".lock"))
    assert holder.stdout.readline() == "child\n"
    with pytest.raises(filelock.Timeout):
        lock(tmp_path / ".lock")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    held = lock(tmp_path / ".lock")
    with pytest.raises(filelock.Timeout):
        lock(tmp_path / ".lock")
    held.release()
    lock(tmp_path / ".lock").release()
    holder.communicate("end\n")


def failing(number: int):
    def fail(*_args: object, **_more: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_folder_that_the_disk_does_not_confirm_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, synced = os.fsync, []

    def fail_at_the_folder(file: int) -> None:
        synced.append(file)
        if len(synced) == 2:
            failing(errno.EIO)()
        sync(file)

    monkeypatch.setattr(os, "fsync", fail_at_the_folder)
    with pytest.raises(InputError, match=r"a: done, but the disk does not confirm it \(Input/output error\)"):
        write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "new"


def test_a_power_cut_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    """When the call has returned, the new one; also in folders that were made for it."""
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
        for over, state in disk.every_state():
            content = state.get(str(folder / name))
            seen.add(content and content.decode())
            assert not over or content == b"newer" * 1000
        assert seen == {old, "new" * 1000, "newer" * 1000}


def test_a_power_cut_leaves_a_checkpoint_and_the_one_before(tmp_path: Path) -> None:
    last, previous = tmp_path / "last.pt", tmp_path / "previous.pt"
    last.write_bytes(b"1")
    previous.write_bytes(b"0")
    disk = Disk(tmp_path)
    with disk.recording():
        write_atomically(last, lambda file: file.write(b"2"), previous=previous)
    for over, state in disk.every_state():
        pair = tuple(state.get(str(path)) for path in (last, previous))
        assert pair == (b"2", b"1") if over else pair in [(b"1", b"0"), (None, b"1"), (b"2", b"0"), (b"2", b"1")]


def test_what_an_attempt_that_was_killed_has_left_is_resumed_or_deleted(tmp_path: Path) -> None:
    for empty in (False, True):
        out = tmp_path / f"{empty}"
        with pytest.raises(KeyboardInterrupt), folder_at_once(out, empty=empty) as folder:
            (folder / "a" / "b").mkdir(parents=True)
            (folder / "a" / "b" / "old.png").touch()
            (folder / ".half.png.0123abcd.lreid").touch()
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
        pytest.raises(InputError, match="out.unfinished: was not created by lreid"),
        folder_at_once(tmp_path / "out", empty=True),
    ):
        pass
    assert notes.read_text() == "of ten years" and os.listdir(tmp_path) == ["out.unfinished"]


def test_an_image_takes_the_place_of_no_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(InputError, match="a.png: is not a regular file"):
        write_file(tmp_path / "a.png", lambda file: file.write(b"image"))
    assert (tmp_path / "a.png").is_fifo() and os.listdir(tmp_path) == ["a.png"]
