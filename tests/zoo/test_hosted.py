"""Checkpoints that third parties host, and their errors."""

import dataclasses
import hashlib
import logging
import re
import time
from pathlib import Path
from unittest import mock

import gdown
import pytest
import torch
from torch import nn

from lreid.errors import InputError
from lreid.zoo import Published, find, published, weights_file
from lreid.zoo.catalogue import describe
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


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """The folder with the files of the authors."""
    (tmp_path / "served").mkdir()
    return tmp_path / "served"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LREID_ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LREID_ZOO_MIRROR", raising=False)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return tmp_path / "cache"


def entry_at(served: Path, name: str, **keys: object) -> Published:
    return dataclasses.replace(ENTRY, url=(served / name).as_uri(), **keys)


def write_state(file: Path, seed: int = 0) -> str:
    """Write a state dict to a file, and return its SHA-256."""
    torch.manual_seed(seed)
    torch.save(nn.Linear(2, 2).state_dict(), file)
    return hashlib.sha256(file.read_bytes()).hexdigest()


def failure(entry: Published) -> str:
    with pytest.raises(InputError) as caught:
        weights_file(entry)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_entry_has_a_valid_name_addresses_and_hash() -> None:
    for name, entry in published().items():
        assert find(name) is entry and re.fullmatch("[a-z0-9][a-z0-9_-]*", name)
        assert len(entry.sha256) in (0, 8, 64) and re.fullmatch("[0-9a-f]*", entry.sha256), name
        for address in (entry.url, *entry.mirrors, entry.source):
            assert address.startswith("https://") and not set("{} ") & set(address), name
        in_name = re.search(r"-([0-9a-f]{8})\.pth$", entry.url)
        assert in_name is None or entry.sha256.startswith(in_name[1]), name
    addresses = [entry.url for entry in published().values()]
    assert len(set(addresses)) == len(addresses) > 60


def test_an_unpublished_hash_is_recorded_and_a_change_refused(
    served: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    digest = write_state(served / "w.pth")
    entry = entry_at(served, "w.pth")
    with caplog.at_level(logging.WARNING, logger="lreid"):
        assert weights_file(entry) == cache / "made.pth"
        assert weights_file(entry) == cache / "made.pth"
    (message,) = caplog.messages
    assert message.endswith(digest)
    write_state(cache / "made.pth", seed=1)
    assert failure(entry).startswith(f"{cache}/made.pth: is not the file of zoo:made")
    (cache / "made.pth").unlink()
    write_state(served / "w.pth", seed=1)
    assert "SHA-256 differs" in failure(entry)
    write_state(served / "w.pth")
    assert weights_file(entry).read_bytes() == (served / "w.pth").read_bytes()


def test_the_beginning_of_a_hash_is_checked_and_the_rest_recorded(served: Path, cache: Path) -> None:
    digest = write_state(served / "w.pth")
    assert "SHA-256 differs" in failure(entry_at(served, "w.pth", sha256="0" * 8))
    assert not (cache / "made.pth").exists()
    weights_file(entry_at(served, "w.pth", sha256=digest[:8]))
    assert (cache / "made.pth.sha256").read_text() == f"{digest}\n"


def test_a_published_hash_is_not_recorded(served: Path, cache: Path) -> None:
    weights_file(entry_at(served, "w.pth", sha256=write_state(served / "w.pth")))
    assert [each.name for each in cache.iterdir()] == ["made.pth"]


def test_a_copied_file_needs_no_network(cache: Path) -> None:
    cache.mkdir()
    digest = write_state(cache / "made.pth")
    assert weights_file(dataclasses.replace(ENTRY, url="http://127.0.0.1:9/never-asked")) == cache / "made.pth"
    assert (cache / "made.pth.sha256").read_text() == f"{digest}\n"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("login.html", b"<html>log in first</html>", "web page"),
        ("w.pth", b"an archive of something else", "cannot be loaded as tensors"),
        ("w.pth", b"", "cannot be loaded as tensors"),
        ("gone.pth", None, "Errno 2"),
    ],
)
def test_an_address_that_returns_something_else(
    served: Path, cache: Path, name: str, content: bytes | None, reason: str
) -> None:
    entry = entry_at(served, name)
    if content is not None:
        (served / name).write_bytes(content)
    message = failure(entry)
    assert reason in message and entry.url in message
    assert not (cache / "made.pth").exists() and not (cache / "made.pth.sha256").exists()


def test_a_file_without_named_tensors_is_refused_with_the_page_of_its_authors(served: Path) -> None:
    torch.save({"epoch": 3}, served / "w.pth")
    message = failure(entry_at(served, "w.pth"))
    assert "no named tensors" in message and message.endswith("http://127.0.0.1/page")


def test_gdown_downloads_from_google_drive(served: Path) -> None:
    write_state(served / "w.pth")
    content = (served / "w.pth").read_bytes()
    entry = dataclasses.replace(ENTRY, url="https://drive.google.com/uc?id=1")
    denied = gdown.exceptions.FileURLRetrievalError("Failed to retrieve file url:\n\n\tToo many users\n")
    with mock.patch("gdown.download", autospec=True, side_effect=denied):
        assert f"({entry.url}: Too many users)" in failure(entry)
    with mock.patch("gdown.download", autospec=True, side_effect=lambda url, file, **_: file.write(content)) as fetch:
        assert weights_file(entry).read_bytes() == content and fetch.call_args[0][0] == entry.url


def test_cards_of_models_that_start_from_imagenet_have_its_terms() -> None:
    assert IMAGENET_TERMS not in describe(find("dwopp-synthetic-10"))
    for name in ("people", "vehicles", "osnet_x1_0-msmt17"):
        assert IMAGENET_TERMS in describe(find(name)), name
