import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from lreid.data import prepare as module
from lreid.data.datasets import spec_of
from lreid.data.prepare import prepare, unpack
from lreid.errors import InputError

FILES = {"set/a.txt": b"first", "set/deep/b.txt": b"second", "set/empty.txt": b""}


def write_zip(file, content=FILES):
    with zipfile.ZipFile(file, "w") as archive:
        archive.mkdir("set")
        for name, data in content.items():
            archive.writestr(name, data)
    return file


def write_tar(file, content=FILES):
    with tarfile.open(file, "w:gz") as archive:
        for name, data in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file


WRITERS = {"a.zip": write_zip, "a.tgz": write_tar}


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_backslashes_of_windows_separate_folders(tmp_path):
    unpack(write_zip(tmp_path / "a.zip", {"set\\deep\\b.txt": b"second"}), tmp_path / "out")
    assert content(tmp_path / "out") == {"set/deep/b.txt": b"second"}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("evil", ["../evil.txt", "/tmp/evil.txt", "set/../../evil.txt", "..\\evil.txt", "C:\\evil.txt"])
def test_members_outside_the_folder_are_refused_before_anything_is_written(tmp_path, name, evil):
    archive = WRITERS[name](tmp_path / name, FILES | {evil: b"evil"})
    with pytest.raises(InputError, match="evil.txt"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "evil.txt").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_tars_are_refused(tmp_path, kind):
    archive = write_tar(tmp_path / "a.tgz")
    with tarfile.open(tmp_path / "b.tar", "w") as bad:
        bad.add(archive, "set/a.tgz")
        info = tarfile.TarInfo("set/link")
        info.type, info.linkname = kind, "/etc"
        bad.addfile(info)
    with pytest.raises(InputError, match="'set/link'"):
        unpack(tmp_path / "b.tar", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_links_in_zips_are_refused(tmp_path):
    info = zipfile.ZipInfo("set/link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, "/etc")
    with pytest.raises(InputError, match="'set/link'"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


def test_links_out_of_the_target_folder_are_not_followed(tmp_path):
    """Links that the user made below the folder are the user's; the archive brings none."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    unpack(write_zip(tmp_path / "a.zip"), tmp_path / "out")
    assert content(tmp_path / "disk") == FILES


@pytest.mark.parametrize("name", WRITERS)
def test_interrupted_conversion_resumes(tmp_path, name):
    archive = WRITERS[name](tmp_path / name)
    out = tmp_path / "out"
    unpack(archive, out)
    (out / "set/deep/b.txt").write_bytes(b"sec")  # half
    os.utime(out / "set/a.txt", ns=(1, 1))
    unpack(archive, out)
    assert content(out) == FILES
    assert (out / "set/a.txt").stat().st_mtime_ns == 1  # not written twice


def test_stopping_leaves_no_half_file_under_its_name(tmp_path, monkeypatch):
    def half(source, target):
        target.write(source.read(2))
        raise KeyboardInterrupt

    monkeypatch.setattr(module.shutil, "copyfileobj", half)
    with pytest.raises(KeyboardInterrupt):
        unpack(write_zip(tmp_path / "a.zip"), tmp_path / "out")
    assert content(tmp_path / "out") == {}


@pytest.mark.parametrize("name", WRITERS)
def test_damaged_archives_are_named(tmp_path, name):
    archive = WRITERS[name](tmp_path / name, {"set/a.bin": os.urandom(5000)})
    data = bytearray(archive.read_bytes())
    data[2000:2100] = bytes(100)
    archive.write_bytes(bytes(data) if name == "a.zip" else bytes(data[:2500]))
    with pytest.raises(InputError, match=f"{name}: cannot be unpacked"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists() or content(tmp_path / "out") == {}


def test_file_that_is_not_an_archive_raises_an_error(tmp_path):
    (tmp_path / "a.rar").write_bytes(b"Rar!")
    for name, fault in (("a.rar", "cannot be unpacked"), ("none.zip", "no such"), (".", "folder")):
        with pytest.raises(InputError, match=f"{name}.*{fault}"):
            unpack(tmp_path / name, tmp_path / "out")


def png():
    file = io.BytesIO()
    Image.new("RGB", (2, 4)).save(file, "PNG")
    return file.getvalue()


def test_prepare_finds_the_archive_in_the_folder_of_the_data_set(tmp_path):
    names = [f"campus/{pid:04d}{image:03d}.png" for pid in (1, 2) for image in (1, 2, 3, 4)]
    (tmp_path / "cuhk01").mkdir()
    write_zip(tmp_path / "cuhk01/CUHK01.zip", dict.fromkeys(names, png()))
    prepare("cuhk01", tmp_path)
    assert len(spec_of("cuhk01").load(tmp_path).train) == 4
    (tmp_path / "cuhk01/CUHK01.zip").write_bytes(b"no longer needed")
    prepare("cuhk01", tmp_path)  # nothing to do


def test_missing_archive_is_named(tmp_path):
    for name, fault in (("viper", f"{tmp_path}/viper "), ("nothing", "nearest name")):
        with pytest.raises(InputError, match=f"{name}: .*{fault}"):
            prepare(name, tmp_path)
