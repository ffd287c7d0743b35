"""Images, CSV files and archives of any kind."""

import io
import os
import random
import struct
import subprocess
import tarfile
import zipfile
import zlib
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from fuzzing import assert_refused, corrupted_bytes, file_hashes, fuzz
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tiny import as_arguments

pytestmark = pytest.mark.fuzz

PIXELS = np.random.default_rng(0).integers(0, 256, (24, 12, 3), np.uint8)


def encoded(form: str, image: Image.Image | None = None, **options: object) -> bytes:
    file = io.BytesIO()
    (image or Image.fromarray(PIXELS)).save(file, form, **options)
    return file.getvalue()


WHOLE = {"a.png": encoded("PNG"), "a.webp": encoded("WEBP")}


def png(width: int, height: int, data: bytes = b"") -> bytes:
    """A PNG whose header states this size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


HARMFUL = {
    "empty.jpg": b"",
    "pickle.png": b"\x80\x04K\x01.",
    "none.png": png(0, 0),
    "bomb.png": png(60_000, 60_000),
    "most.png": png(2**31 - 1, 2**31 - 1),
    "lacking.png": png(100, 100),
    "eps.jpg": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    "bomb.ppm": b"P6 99999999 99999999 255\n",
    "negative.bmp": b"BM" + bytes(16) + b"\xff" * 40,
    "tiff.tif": b"II*\0\xff\xff\xff\xff",
    "cut.webp": WHOLE["a.webp"][:30],
    "float.tif": encoded("TIFF", Image.fromarray(PIXELS[..., 0].astype(np.float32))),
}


def searched(world: Path, folder: Path, name: str, content: bytes) -> None:
    """Assert that ``lreid test`` refuses a file among the queries, and name it."""
    query, gallery = folder / "q" / "1" / name, folder / "g" / "1" / "a.webp"
    for file, inside in ((query, content), (gallery, WHOLE["a.webp"])):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(inside)
    folders = ("--query", folder / "q", "--gallery", folder / "g", "--out", folder / "out")
    assert_refused("test", "--checkpoint", world / "model.pt", *folders, named=query)
    assert not (folder / "out").exists()


@pytest.mark.parametrize("name", HARMFUL)
def test_file_that_is_no_image_is_named(name: str, world: Path, tmp_path: Path) -> None:
    with mock.patch.object(subprocess, "Popen", side_effect=AssertionError("a program was started")):
        searched(world, tmp_path, name, HARMFUL[name])


HEAD = "path,pid,camid,split\n"
LINES = "a.png,1,1,train\nb.png,1,2,train\nc.png,2,1,query\nd.png,2,2,gallery\n"


@pytest.fixture
def four_images(tmp_path: Path) -> Path:
    """A folder with the four images of ``LINES``."""
    for name in "abcd":
        (tmp_path / f"{name}.png").write_bytes(WHOLE["a.png"])
    return tmp_path


@pytest.mark.parametrize(
    "content",
    [
        HEAD + 'a.png,"1,1,train\n',
        HEAD + "a\0.png,1,1,train\n",
        HEAD + "\0" * 99,
        (HEAD + LINES).encode("utf-16"),
        HEAD.encode() + b"\xe9.png,1,1,train\n",
        HEAD + "a" * 200_000 + ",1,1,train\n",
        HEAD + LINES + "e\0.png,3,1,train\n",
        HEAD + LINES + "e" * 5000 + ".png,3,1,train\n",
        HEAD + "a" * 5000 + ".png,3,1,train\n",
        HEAD + LINES + "x/../../x.png,3,1,train\n",
        HEAD + LINES + "e\n.png,3,1,train\n",
    ],
    ids=range(11),
)
def test_hostile_lists_are_refused(content: bytes | str, four_images: Path) -> None:
    file = four_images / "index.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert_refused("data", "check", f"csv:{file}", named="index")


def test_impossible_path_is_named_in_training(four_images: Path) -> None:
    (four_images / "index.csv").write_text(HEAD + LINES + "e\0.png,1,1,train\n")
    keys = {"BENCHMARK.TRAIN": f"['csv:{four_images / 'index.csv'}']", "BENCHMARK.TASKS_PER_DATASET": 1}
    keys |= {"EPISODE.IDENTITIES": 1, "EPISODE.SUPPORT": 2}
    assert_refused("train", "--out", four_images / "out", *as_arguments(keys), named="e .png")


def zipped(names: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name, content in names.items():
            archive.writestr(name, content)
    return file.getvalue()


def tarred(mode: str, *members: tuple[str, bytes, str]) -> bytes:
    """A tar file of members ``(name, type, target of the link)``."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            archive.addfile(member, io.BytesIO(b""))
    return file.getvalue()


ARCHIVES = [
    zipped({"../out.txt": b"x"}),
    tarred("w", ("a", tarfile.SYMTYPE, ".."), ("a/out.txt", tarfile.REGTYPE, "")),
    zipped({"a": b"x", "a/b": b"x"}),
    zipped({f"campus/{number}.png": WHOLE["a.png"] for number in range(4)}),
    tarred("w:gz", ("campus/1.png", tarfile.REGTYPE, "")),
    tarred("w:xz", ("campus/1.png", tarfile.REGTYPE, "")),
    tarred("w:bz2", ("campus/1.png", tarfile.REGTYPE, "")),
]


def unpacked(folder: Path, content: bytes) -> None:
    """Has an archive unpacked, and asserts that nothing lies outside the folder of the data set."""
    archive = folder / "a.zip"
    archive.write_bytes(content)
    assert_refused("data", "prepare", "cuhk01", "--root", folder / "root", "--archive", archive)
    assert {path.name for path in folder.iterdir()} <= {"a.zip", "root"}
    assert all(path.startswith(str(folder / "root" / "cuhk01") + os.sep) for path in file_hashes(folder / "root"))
    assert not any(path.is_symlink() for path in folder.rglob("*"))


@fuzz(40)
@given(rng=st.randoms(use_true_random=False))
def test_damaged_or_hostile_archives_write_nothing_elsewhere(rng: random.Random, tmp_path: Path) -> None:
    unpacked(tmp_path, corrupted_bytes(rng.choice(ARCHIVES), rng))
