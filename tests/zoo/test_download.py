"""Downloads from a server that cuts, corrupts and stalls: the right file or none, and one line with the reason."""

import hashlib
import os
import random
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lreid.errors import InputError
from lreid.zoo import download as downloading
from lreid.zoo.download import ATTEMPTS, download

CONTENT = random.Random(0).randbytes(200_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HALF = len(CONTENT) // 2
NAME = "mine.safetensors"


class Server:
    """Answers each request by the next word of ``script``, and correctly when the script is at its end.

    A number is the byte after which the answer is cut off.
    """

    def __init__(self) -> None:
        self.script: list[str | int] = []
        self.requests = 0
        self.closing = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests += 1
                server.answer(self, server.script.pop(0) if server.script else "right")

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/{NAME}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler, word: str | int) -> None:
        if word in ("404", "500"):
            request.send_error(int(word))
            return
        if word == "no answer":
            return
        body = b"<html>log in first</html>" if word == "a page" else CONTENT
        if word == "corrupt":
            body = body[:-1] + bytes([body[-1] ^ 1])
        request.send_response(200)
        if word != "no length":
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if word == "stall":
            body = body[:HALF]
        elif isinstance(word, int):
            body = body[:word]
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


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the downloaded file, in a cache that does not exist yet; retries follow at once."""
    monkeypatch.setenv("LREID_ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LREID_ZOO_MIRROR", raising=False)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return tmp_path / "cache" / NAME


def fetch(*addresses: str, name: str = NAME) -> Path:
    return download(name, addresses, sha256=SHA256)


def failure(file: Path, *addresses: str) -> str:
    """The message of a download that fails and leaves no file."""
    with pytest.raises(InputError) as caught:
        fetch(*addresses, name=file.name)
    assert "\n" not in str(caught.value) and not file.exists()
    return str(caught.value)


def test_a_file_is_downloaded_once_and_everybody_can_read_it(server: Server, file: Path) -> None:
    assert fetch(server.url) == fetch(server.url) == file
    assert file.read_bytes() == CONTENT and server.requests == 1
    assert os.listdir(file.parent) == [file.name]
    assert file.stat().st_mode & 0o044 == 0o044


@pytest.mark.parametrize("word", [HALF, "no answer", "500", "corrupt", "a page", "stall", "no length"])
def test_failed_attempts_are_repeated(
    server: Server, file: Path, word: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloading, "TIMEOUT", 2 if word == "stall" else 30)
    server.script = [word]
    fetch(server.url)
    assert file.read_bytes() == CONTENT and server.requests == (1 if word == "no length" else 2)
    assert os.listdir(file.parent) == [file.name]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("404", "404 Client"),
        ("500", "500 Server Error"),
        ("corrupt", "SHA-256"),
        ("a page", "web page"),
        ("no answer", "Remote end closed connection"),
    ],
)
def test_one_line_names_the_address_and_the_reason(server: Server, file: Path, word: str, reason: str) -> None:
    server.script = [word] * ATTEMPTS
    message = failure(file, server.url)
    assert message.startswith(f"{NAME}: cannot be downloaded ({server.url}: ") and reason in message
    assert message.endswith(f"put the file at {file}") and server.requests == ATTEMPTS
    assert os.listdir(file.parent) == []


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/x", "http://[::1/x", "http://a..b/x", "my/mirror/x"])
def test_unreachable_and_malformed_addresses_are_named(file: Path, address: str) -> None:
    assert f"({address}: " in failure(file, address)


def test_the_next_address_is_used_after_a_failure(server: Server, file: Path, tmp_path: Path) -> None:
    missing = (tmp_path / "missing").as_uri()
    fetch(missing, server.url)
    assert file.read_bytes() == CONTENT
    file.unlink()
    server.script = ["404"] * ATTEMPTS
    message = failure(file, server.url, missing)
    assert f"({server.url}: 404" in message and f"; {missing}: [Errno 2]" in message


def test_a_cache_folder_that_is_a_file(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setenv("LREID_ZOO_CACHE", str(tmp_path / "taken"))
    message = failure(tmp_path / "taken" / NAME, server.url)
    assert "cannot be written (" in message and message.endswith("LREID_ZOO_CACHE")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_cache(server: Server, file: Path) -> None:
    fetch(server.url)
    file.parent.chmod(0o555)
    try:
        fetch(server.url)
        assert "cannot be written (" in failure(file.with_name("other"), server.url)
    finally:
        file.parent.chmod(0o755)


def test_a_different_file_of_this_name_is_neither_replaced_nor_deleted(server: Server, file: Path) -> None:
    file.parent.mkdir()
    for content in (CONTENT[:-1] + b"?", b"notes"):
        file.write_bytes(content)
        with pytest.raises(InputError, match=f"^{file}: "):
            fetch(server.url)
        assert file.read_bytes() == content and server.requests == 0


def test_simultaneous_calls_download_once(server: Server, file: Path) -> None:
    threads = [threading.Thread(target=fetch, args=(server.url,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert file.read_bytes() == CONTENT and server.requests == 1
