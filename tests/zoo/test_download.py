"""Downloads from a server that cuts, corrupts and stalls: the right file or none, and one line that says why."""

import hashlib
import os
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lreid.errors import InputError
from lreid.zoo import download
from lreid.zoo.download import Download

CONTENT = random.Random(0).randbytes(200_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HALF = len(CONTENT) // 2
STALLED = 2.0  # seconds: a server on this machine that is busy, not stalled, answers before


class Server:
    """Answers each request by the next word of ``script``, and rightly when that is at its end.

    A number is the byte after which the answer is cut off. ``starts`` are the bytes that requests began with.
    """

    def __init__(self) -> None:
        self.script: list[str | int] = []
        self.starts: list[int] = []
        self.length: str | None = None  # that is sent in place of the right one
        self.closing = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = self.headers["Range"]
                start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
                server.starts.append(start)
                server.answer(self, server.script.pop(0) if server.script else "right", start)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/mine.safetensors"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler, word: str | int, start: int) -> None:
        if word in ("404", "416", "500"):
            request.send_error(int(word))
            return
        if word == "no answer":
            return
        if word in ("from the start", "a page"):
            start = 0
        body = b"<html>log in first</html>" if word == "a page" else CONTENT[start:]
        if word == "corrupt":
            body = body[:-1] + bytes([body[-1] ^ 1])
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        if word != "no length":
            request.send_header("Content-Length", str(len(body)) if self.length is None else self.length)
        request.end_headers()
        if word in ("no length", "stall"):
            body = body[: len(body) // 2]
        elif isinstance(word, int):
            body = body[: max(word - start, 0)]
        request.wfile.write(body)
        if word == "stall":
            request.wfile.flush()
            self.closing.wait()

    def close(self) -> None:
        self.closing.set()
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "mine.safetensors"


def fetch(file: Path, *addresses: str, attempts: int = 3, timeout: float = 60.0) -> None:
    Download(timeout=timeout, attempts=attempts, pause=0)(addresses, file, sha256=SHA256, size=len(CONTENT))


def refused(file: Path, *addresses: str, **options: float) -> str:
    """The one line of a download that fails; nothing is there under the file's name."""
    with pytest.raises(InputError) as caught:
        fetch(file, *addresses, **options)
    assert "\n" not in str(caught.value) and not file.exists()
    return str(caught.value)


def test_a_file_is_downloaded_once(server: Server, file: Path) -> None:
    fetch(file, server.url)
    fetch(file, server.url)
    assert file.read_bytes() == CONTENT and server.starts == [0]
    assert [each.name for each in file.parent.iterdir()] == [file.name]
    assert file.stat().st_mode & 0o444 == 0o444 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize(
    ("script", "starts"),
    [
        ([HALF], [0, HALF]),
        ([HALF, HALF + 7], [0, HALF, HALF + 7]),
        (["no length"], [0, HALF]),
        pytest.param(["stall"], [0, HALF], marks=pytest.mark.slow),
        ([HALF, "from the start"], [0, HALF]),  # no Range at this server
        ([0, "no answer"], [0, 0, 0]),
        (["500", "500"], [0, 0, 0]),
        (["corrupt"], [0, 0]),
        ([HALF, "corrupt"], [0, HALF, 0]),
    ],
)
def test_what_breaks_off_goes_on_and_what_is_wrong_starts_over(
    server: Server, file: Path, script: list[str | int], starts: list[int]
) -> None:
    server.script = list(script)
    fetch(file, server.url, timeout=STALLED if "stall" in script else 60.0)
    assert file.read_bytes() == CONTENT and server.starts == starts


@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, len(CONTENT) - 1), max_size=4))
def test_any_cuts_end_with_the_right_file(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    server, file = Server(), tmp_path_factory.mktemp("cache") / "mine"
    try:
        server.script = list(cuts)
        fetch(file, server.url, attempts=len(cuts) + 1)
        assert file.read_bytes() == CONTENT and server.starts == sorted(server.starts)
    finally:
        server.close()


def test_a_later_call_goes_on(server: Server, file: Path) -> None:
    server.script = [HALF]
    assert f"stopped after {HALF} of {len(CONTENT)} bytes" in refused(file, server.url, attempts=1)
    fetch(file, server.url)
    assert file.read_bytes() == CONTENT and server.starts == [0, HALF]


@pytest.mark.parametrize("size", [1, HALF, len(CONTENT), len(CONTENT) + 1])
def test_leavings_of_another_file_do_no_harm(server: Server, file: Path, size: int) -> None:
    file.parent.mkdir()
    file.with_name(f"{file.name}.part").write_bytes(b"x" * size)
    fetch(file, server.url)
    assert file.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("script", "requests", "reason"),
    [
        (["404"], 1, "404 Not Found"),
        (["500"] * 3, 3, "500 Internal Server Error"),
        (["corrupt"] * 3, 3, "its SHA-256 differs from the expected one"),
        (["a page"], 1, f"returns 25 bytes, not {len(CONTENT)}: another file"),
        pytest.param(["stall"] * 3, 3, "stalled", marks=pytest.mark.slow),
        (["no answer"] * 3, 3, "Remote end closed connection without response"),
    ],
)
def test_one_line_says_what_an_address_did(
    server: Server, file: Path, script: list[str], requests: int, reason: str
) -> None:
    server.script = list(script)
    told = refused(file, server.url, timeout=STALLED if "stall" in script else 60.0)
    assert told.startswith(f"mine.safetensors: cannot be downloaded ({server.url}: {reason}); repeat the")
    assert told.endswith(f"or put the file at {file}") and len(server.starts) == requests


def test_no_network(server: Server, file: Path) -> None:
    server.close()
    assert f"({server.url}: [Errno" in refused(file, server.url)


@pytest.mark.parametrize(
    "address", ["http://[::1/x", "http://host:port/x", "http://a..b/x", "http://h/ü", "http://h/a b"]
)
def test_a_malformed_address_is_told_once(file: Path, address: str) -> None:
    told = refused(file, address)
    assert f"({address}: not an address (" in told and "SHA-256" not in told


def test_the_next_address_takes_over_where_one_fails(server: Server, file: Path, tmp_path: Path) -> None:
    (tmp_path / "mirror").write_bytes(CONTENT)
    mirror = (tmp_path / "mirror").as_uri()
    server.script = [HALF, "404"]
    fetch(file, server.url, mirror)
    assert file.read_bytes() == CONTENT and len(server.starts) == 2
    file.unlink()
    fetch(file, f"{mirror}-gone", server.url)
    assert file.read_bytes() == CONTENT


def test_all_addresses_are_told(server: Server, file: Path, tmp_path: Path) -> None:
    server.script = ["404"]
    gone = (tmp_path / "gone").as_uri()
    told = refused(file, server.url, gone, attempts=1)
    assert f"({server.url}: 404 Not Found; {gone}: " in told


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk(server: Server, file: Path) -> None:
    file.parent.mkdir()
    file.with_name(f"{file.name}.part").symlink_to("/dev/full")
    told = refused(file, server.url)
    assert told.startswith(f"{file}: cannot be written (No space left on device); free some space")
    assert len(server.starts) == 1


def test_a_cache_that_cannot_be_written_to(server: Server, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    told = refused(tmp_path / "taken" / "mine", server.url)
    assert "cannot be written (" in told and told.endswith("set another folder by LREID_ZOO_CACHE")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_cache(server: Server, file: Path) -> None:
    fetch(file, server.url)
    file.parent.chmod(0o555)
    try:
        fetch(file, server.url)  # what is there is enough
        assert "cannot be written (" in refused(file.with_name("other"), server.url)
    finally:
        file.parent.chmod(0o755)


def test_another_file_of_this_name_is_neither_replaced_nor_deleted(server: Server, file: Path) -> None:
    file.parent.mkdir()
    for content in (CONTENT[:-1] + b"?", b"notes"):
        file.write_bytes(content)
        with pytest.raises(InputError, match=f"^{file}: "):
            fetch(file, server.url)
        assert file.read_bytes() == content and server.starts == []


@pytest.mark.parametrize("length", ["abc", "9" * 5000, "-5", "1e3", "", "²", str(1 << 62)])
@pytest.mark.parametrize("size", [0, len(CONTENT)])
def test_a_length_that_is_no_number_of_bytes_is_told(server: Server, file: Path, length: str, size: int) -> None:
    server.length = length
    with pytest.raises(InputError, match=f"^{file.name}: cannot be downloaded") as caught:
        Download(attempts=2, pause=0)([server.url], file, sha256=SHA256, size=size)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500 and not file.exists()
    assert not file.with_name(f"{file.name}.part").exists()


@pytest.mark.parametrize("word", ["no length", "right"])
def test_a_download_of_unknown_size_is_bounded(
    server: Server, file: Path, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "MOST", 70_000)
    server.script = [word]
    with pytest.raises(InputError, match="more than 70,000 bytes"):
        Download(attempts=3, pause=0)([server.url], file, sha256="", size=0)
    assert os.listdir(file.parent) == [] and server.starts == [0]
    fetch(file, server.url)  # its size is known
    assert file.read_bytes() == CONTENT


def test_two_at_a_time_download_once(server: Server, file: Path) -> None:
    threads = [threading.Thread(target=fetch, args=(file, server.url)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert file.read_bytes() == CONTENT and server.starts == [0]


def test_an_address_needs_a_scheme(file: Path) -> None:
    assert refused(file, "my/mirror/x").startswith("my/mirror/x: not an address; it must begin with http://")
