"""The cache on disk: the same images, no decoding twice, seen changes, and nothing left of a task."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import signal
from pathlib import Path

import filelock
import numpy as np
import pytest
from PIL import Image

from lreid.data import disk_cache, images
from lreid.data.disk_cache import DiskCache
from lreid.data.images import Images, read_image
from lreid.data.records import Record
from lreid.errors import InputError

SIZE = {"height": 16, "width": 8}
GIB = 5 * 16 * 8 * 3 / 2**30  # of the five images


@pytest.fixture
def records(tmp_path: Path) -> list[Record]:
    for i in range(5):
        save(tmp_path / f"{i}.png", i)
    return [Record(str(tmp_path / f"{i}.png"), i, 0) for i in range(5)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "deep"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are decoded."""
    paths: list[str] = []
    decode = images.decode
    monkeypatch.setattr(images, "decode", lambda path: paths.append(path) or decode(path))
    return paths


def save(path: Path, seed: int) -> None:
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (24, 12, 3), dtype=np.uint8)).save(path)


def load(records: list[Record], folder: Path, *, keep: bool = False, gib: float = 1.0, **options: bool) -> Images:
    return Images(records, **SIZE, cache_gib=0.0, disk=DiskCache(folder, gib, keep), **options)


def assert_same(loaded: Images) -> None:
    for record, image in zip(loaded.records, loaded, strict=True):
        np.testing.assert_array_equal(image, read_image(record.path, **SIZE))


@pytest.mark.parametrize("keep", [False, True])
def test_images_are_those_of_the_files_in_order(records: list[Record], folder: Path, keep: bool) -> None:
    for _ in range(2):
        loaded = load(records, folder, keep=keep)
        assert loaded.records == tuple(records) and loaded.skipped == [] and loaded.cached_gib == 0.0
        assert loaded[1:4].shape == (3, 16, 8, 3) and type(loaded[0]) is np.ndarray
        assert_same(loaded)
        with pytest.raises(ValueError, match="read-only"):
            loaded[0][:] = 0


def test_file_names_need_be_no_text(tmp_path: Path, folder: Path, read: list[str]) -> None:
    path = tmp_path / "caf\udce9.png"
    save(path, 0)
    for _ in range(2):
        assert_same(load([Record(str(path), 0, 0)], folder, keep=True))
    assert len(os.listdir(folder)) == 1 and len(read) == 3  # once for the cache, twice to compare


def test_a_task_is_decoded_once_and_leaves_no_file(records: list[Record], folder: Path, read: list[str]) -> None:
    loaded = load(records, folder)
    assert len(read) == 5 and os.listdir(folder) == []
    assert loaded[2].tobytes() == loaded[2].tobytes() and len(read) == 5
    assert_same(load(records, folder))


def test_a_killed_process_leaves_no_file(records: list[Record], folder: Path) -> None:
    def held_when_killed() -> None:
        loaded = load(records, folder)
        os.kill(os.getpid() if len(loaded) == 5 else 0, signal.SIGKILL)

    child = multiprocessing.get_context("fork").Process(target=held_when_killed)
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert os.listdir(folder) == []


def test_kept_images_are_not_decoded_again(records: list[Record], folder: Path, read: list[str]) -> None:
    load(records, folder, keep=True)
    again = load(records, folder, keep=True)
    assert len(read) == 5 and len(os.listdir(folder)) == 1
    assert_same(again)
    assert_same(load(records[:3], folder, keep=True))  # other records are other files
    assert Images(records, height=32, width=8, cache_gib=0.0, disk=DiskCache(folder, 1.0, True))[4].shape[0] == 32
    assert len(os.listdir(folder)) == 3


@pytest.mark.parametrize("change", ["content", "time", "size"])
def test_a_changed_file_is_seen(records: list[Record], folder: Path, read: list[str], change: str) -> None:
    load(records, folder, keep=True)
    path, before = Path(records[3].path), os.stat(records[3].path)
    if change == "content":
        save(path, 99)
    elif change == "time":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1000))
    else:
        with open(path, "ab") as file:
            file.write(b"more")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    read.clear()
    loaded = load(records, folder, keep=True)
    assert len(read) == 5
    assert_same(loaded)


@pytest.mark.parametrize("keep", [False, True])
def test_bad_files_stop_or_are_left_out(records: list[Record], folder: Path, keep: bool, read: list[str]) -> None:
    Path(records[2].path).write_bytes(b"no picture")
    for _ in range(2):
        loaded = load(records, folder, keep=keep, skip_bad=True)
        assert loaded.skipped == [records[2].path] and loaded.records == (*records[:2], *records[3:])
        assert_same(loaded)
    with pytest.raises(InputError, match=r"2\.png"):  # also where a run that skipped it left its file
        load(records, folder, keep=keep)
    for record in records:
        Path(record.path).write_bytes(b"")
    with pytest.raises(InputError, match=r"none of the 5 images"):
        load(records, folder, keep=keep, skip_bad=True)
    assert [name for name in os.listdir(folder) if not name.endswith(".images")] == []


def test_a_damaged_cache_is_not_used(records: list[Record], folder: Path, read: list[str]) -> None:
    load(records, folder, keep=True)
    (file,) = folder.iterdir()
    for content in (b"", file.read_bytes()[:-100]):
        file.write_bytes(content)
        read.clear()
        assert_same(load(records, folder, keep=True))
        assert len(read) == 5 + 5  # the second five by the comparison


@pytest.mark.parametrize("place", [0, 0.3, 0.99, -1, -5, -12, -50])
def test_noise_in_a_cache_is_never_used(
    records: list[Record], folder: Path, place: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Among the pixels of the first image and of the last, checksums, positions, and at the very end."""
    load(records, folder, keep=True)
    (file,) = folder.iterdir()
    content = bytearray(file.read_bytes())
    content[int(place * 5 * 16 * 8 * 3) if place >= 0 else place] ^= 1
    file.write_bytes(content)
    loaded = load(records, folder, keep=True)
    for _ in range(2):
        assert_same(loaded)
        np.testing.assert_array_equal(loaded[:], np.stack([read_image(record.path, **SIZE) for record in records]))
    assert [str(file) in line for line in caplog.messages] == [True]


@pytest.mark.parametrize("cut", [1, 4, 8, 12, 60, 64, 16 * 8 * 3 + 12, 5 * 16 * 8 * 3])
def test_a_cache_of_another_size_is_made_again(
    records: list[Record], folder: Path, cut: int, read: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    load(records, folder, keep=True)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    for content in (whole[:-cut], whole + whole[:cut]):
        file.write_bytes(content)
        read.clear()
        caplog.clear()
        load(records, folder, keep=True)
        assert len(read) == 5 and str(file) in caplog.text and file.read_bytes() == whole


def test_nobody_else_reads_the_images(records: list[Record], folder: Path) -> None:
    load(records, folder, keep=True)
    assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600]


@pytest.mark.parametrize("keep", [False, True])
def test_the_folder_is_bounded(
    records: list[Record], folder: Path, keep: bool, read: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "lreid"):
        loaded = load(records, folder, keep=keep, gib=GIB - 1e-9)
    assert "no room" in caplog.text and "allowed" in caplog.text and "\n" not in caplog.messages[0]
    assert read == [] and os.listdir(folder) == []
    assert_same(loaded)
    caplog.clear()
    load(records, folder, keep=True, gib=GIB)
    assert caplog.messages == []
    load(records[:1], folder, keep=keep, gib=GIB)  # it is full now
    assert "no room" in caplog.text


def test_too_small_a_disk_is_no_end(
    records: list[Record], folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    usage = disk_cache.shutil.disk_usage("/")._replace(free=5 * 16 * 8 * 3)
    monkeypatch.setattr(disk_cache.shutil, "disk_usage", lambda path: usage)
    assert_same(load(records, folder))
    assert "no room" in caplog.text


def test_a_disk_that_fills_up_is_told_in_one_line(
    records: list[Record], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk_cache.np, "ascontiguousarray", full)
    for keep in (False, True):
        with pytest.raises(InputError, match="cannot be written .*No space left on device") as error:
            load(records, folder, keep=keep)
        assert "\n" not in str(error.value)
        assert os.listdir(folder) == []


def test_a_folder_that_cannot_be_made(records: list[Record]) -> None:
    with pytest.raises(InputError, match=r"0\.png/cache: decoded images cannot be written .*in every epoch: folder=''"):
        load(records, Path(records[0].path) / "cache")


def test_what_a_killed_run_left_is_removed(records: list[Record], folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in (".a.images.0123abcd.lreid", ".b.images.0123abcd.lreid"):
        (folder / name).write_bytes(b"half")
    with open(folder / ".b.images.0123abcd.lreid", "r+b") as written:
        filelock.lock_descriptor(written.fileno())  # by a run that goes on
        load(records, folder)
    assert os.listdir(folder) == [".b.images.0123abcd.lreid"]


def test_files_that_another_run_removes_meanwhile_are_no_end(
    records: list[Record], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    glob = Path.glob

    def and_one_that_has_gone(folder: Path, pattern: str) -> list[Path]:
        return [folder / pattern.replace("*", "gone"), *glob(folder, pattern)]

    monkeypatch.setattr(Path, "glob", and_one_that_has_gone)
    assert_same(load(records, folder))


def test_what_an_older_version_decoded_is_not_used(
    records: list[Record], folder: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 1 cut grey values of 16 bits off and left pictures as the sensor lay."""
    sha256 = disk_cache.hashlib.sha256
    with monkeypatch.context() as older:
        older.setattr(disk_cache.hashlib, "sha256", lambda text: sha256(text.replace(b"2 ", b"1 ", 1)))
        load(records, folder, keep=True)
    load(records, folder, keep=True)
    assert len(read) == 5 + 5 and len(os.listdir(folder)) == 2


def test_small_lists_and_drawn_images_need_no_file(records: list[Record], folder: Path) -> None:
    Images(records, **SIZE, disk=DiskCache(folder, 1.0, True))
    assert not folder.exists()  # they fit in memory
    drawn = load([Record("synthetic:plaza/0/17/2/5", 0, 0)], folder, keep=True)
    assert drawn[0].shape == (16, 8, 3) and os.listdir(folder) == []
