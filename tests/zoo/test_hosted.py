"""Checkpoints that others host: files of their layout, from a server on this machine, and what can be wrong."""

import dataclasses
import functools
import hashlib
import logging
import re
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from torch import nn

from lreid.errors import InputError
from lreid.zoo import Published, find, published, weights_file
from lreid.zoo import download as downloading
from lreid.zoo.catalogue import describe
from lreid.zoo.download import Download
from lreid.zoo.hosted import IMAGENET_TERMS

ENTRY = Published(
    name="made",
    family="tests",
    about="A made file",
    url="",
    backbone="small",
    feature="256 numbers",
    data="nothing",
    licence="MIT",
    source="http://127.0.0.1/page",
)
ONCE = Download(attempts=1, pause=0)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    """A folder that a server gives out; its address is in ``address``."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    (tmp_path / "address").write_text(f"http://127.0.0.1:{server.server_port}/")
    yield folder
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where downloads are kept."""
    monkeypatch.setenv("LREID_ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LREID_ZOO_MIRROR", raising=False)
    return tmp_path / "cache"


def entry_at(served: Path, name: str, **keys: object) -> Published:
    return dataclasses.replace(ENTRY, url=(served.parent / "address").read_text() + name, **keys)


def made(file: Path, seed: int = 0) -> str:
    """A state dict in a file, and its SHA-256."""
    torch.manual_seed(seed)
    torch.save(nn.Linear(2, 2).state_dict(), file)
    return hashlib.sha256(file.read_bytes()).hexdigest()


def refused(entry: Published) -> str:
    with pytest.raises(InputError) as caught:
        weights_file(entry, download=ONCE)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_told_of_each_is_whole() -> None:
    for name, entry in published().items():
        assert find(name) is entry and re.fullmatch("[a-z0-9][a-z0-9_-]*", name)
        assert len(entry.sha256) in (0, 8, 64) and re.fullmatch("[0-9a-f]*", entry.sha256), name
        for address in (entry.url, *entry.mirrors, entry.source):
            assert address.startswith("https://") and not set("{} ") & set(address), name
        # What the file is called agrees with what is known of its hash.
        told = re.search(r"-([0-9a-f]{8})\.pth$", entry.url)
        assert told is None or entry.sha256.startswith(told[1]), name
    addresses = [entry.url for entry in published().values()]
    assert len(set(addresses)) == len(addresses) > 60


def test_a_hash_that_nobody_tells_is_remembered_and_a_change_refused(
    served: Path, kept: Path, caplog: pytest.LogCaptureFixture
) -> None:
    digest = made(served / "w.pth")
    entry = entry_at(served, "w.pth")
    with caplog.at_level(logging.WARNING, logger="lreid"):
        assert weights_file(entry) == kept / "made.pth"
        assert weights_file(entry) == kept / "made.pth"
    (told,) = caplog.messages
    assert told.endswith(f"is not published; lreid recorded the SHA-256 of this download: {digest}")
    made(kept / "made.pth", seed=1)
    assert refused(entry).startswith(f"{kept}/made.pth: is not the file of zoo:made (its SHA-256 begins with ")
    (kept / "made.pth").unlink()
    made(served / "w.pth", seed=1)  # their author has put another file there
    assert "its SHA-256 differs from the expected one" in refused(entry)
    made(served / "w.pth")
    assert weights_file(entry).read_bytes() == (served / "w.pth").read_bytes()


def test_the_beginning_of_a_hash_is_checked_and_the_rest_remembered(served: Path, kept: Path) -> None:
    digest = made(served / "w.pth")
    assert "its SHA-256 differs from the expected one" in refused(entry_at(served, "w.pth", sha256="0" * 8))
    assert not (kept / "made.pth").exists()
    weights_file(entry_at(served, "w.pth", sha256=digest[:8]))
    assert (kept / "made.pth.sha256").read_text() == f"{digest}\n"


def test_a_whole_hash_needs_no_memory(served: Path, kept: Path) -> None:
    size = made(served / "w.pth") and (served / "w.pth").stat().st_size
    weights_file(entry_at(served, "w.pth", sha256=made(served / "w.pth"), bytes=size))
    assert [each.name for each in kept.iterdir()] == ["made.pth"]


def test_a_file_put_by_hand_needs_no_network(kept: Path) -> None:
    kept.mkdir()
    digest = made(kept / "made.pth")
    assert weights_file(dataclasses.replace(ENTRY, url="http://127.0.0.1:9/never-asked")) == kept / "made.pth"
    assert (kept / "made.pth.sha256").read_text() == f"{digest}\n"


def test_without_a_network_what_to_fetch_and_where_to_put_it_is_told(kept: Path) -> None:
    told = refused(dataclasses.replace(ENTRY, url="http://127.0.0.1:9/w.pth"))
    assert "(http://127.0.0.1:9/w.pth: " in told and told.endswith(f"or put the file at {kept}/made.pth")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("login.html", b"<html>log in first</html>", "returns a web page instead of the file: it requires a login"),
        ("w.pth", b"an archive of something else", "cannot be loaded as tensors"),
        ("w.pth", b"", "cannot be loaded as tensors"),
        ("gone.pth", None, "404"),
    ],
)
@pytest.mark.parametrize("drive", [False, True])
def test_an_address_that_gives_something_else(
    served: Path,
    kept: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    content: bytes | None,
    reason: str,
    drive: bool,
) -> None:
    entry = entry_at(served, name)
    if drive:
        monkeypatch.setattr(downloading, "DRIVE", entry.url[:20])
    if content is not None:
        (served / name).write_bytes(content)
    told = refused(entry)
    assert reason in told and entry.url in told
    assert not (kept / "made.pth").exists() and not (kept / "made.pth.sha256").exists()


def test_a_file_without_tensors_by_name_is_told_with_the_page_of_its_authors(served: Path) -> None:
    torch.save({"epoch": 3}, served / "w.pth")
    told = refused(entry_at(served, "w.pth"))
    assert "contains no named tensors" in told and told.endswith("http://127.0.0.1/page")


def test_a_drive_is_asked_by_gdown(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gdown

    asked: list[str] = []
    real = gdown.download

    def watched(url: str, *arguments: object, **options: object) -> object:
        asked.append(url)
        return real(url, *arguments, **options)

    monkeypatch.setattr(gdown, "download", watched)
    made(served / "w.pth")
    entry = entry_at(served, "w.pth")
    monkeypatch.setattr(downloading, "DRIVE", entry.url[:20])
    assert weights_file(entry).read_bytes() == (served / "w.pth").read_bytes() and asked == [entry.url]


def test_the_pages_of_a_drive_that_refuses(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gdown

    def denied(*_: object, **__: object) -> None:
        raise gdown.exceptions.FileURLRetrievalError("Failed to retrieve file url:\n\n\tToo many users\n")

    monkeypatch.setattr(gdown, "download", denied)
    entry = entry_at(served, "w.pth")
    monkeypatch.setattr(downloading, "DRIVE", entry.url[:20])
    assert f"({entry.url}: Too many users)" in refused(entry)


def test_the_mirror_is_asked_first(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(served / "made.pth")
    monkeypatch.setenv("LREID_ZOO_MIRROR", (served.parent / "address").read_text())
    entry = dataclasses.replace(ENTRY, url="http://127.0.0.1:9/w.pth")
    assert weights_file(entry).read_bytes() == (served / "made.pth").read_bytes()


def test_cards_tell_the_terms_of_imagenet_where_they_start_from_it() -> None:
    card = find("dwopp-synthetic-10")
    assert IMAGENET_TERMS not in describe(card)
    for name in ("people", "vehicles", "osnet_x1_0-msmt17"):
        assert IMAGENET_TERMS in describe(find(name)), name
