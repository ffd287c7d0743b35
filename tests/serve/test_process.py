"""``lreid serve`` as a process: many clients, tokens, signals, and invalid options."""

import fcntl
import io
import json
import re
import resource
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from packaging_files import dockerfile_steps
from PIL import Image
from processes import on_hangup

from lreid.apps.cli import run_command
from lreid.gallery import Gallery

pytest.importorskip("fastapi", reason="needs lreid[serve]")
httpx = pytest.importorskip("httpx2")
pytestmark = pytest.mark.slow
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, and pipes of a chosen size")

Serve = Callable[..., tuple[subprocess.Popen, str]]


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The error line of a command that cannot start."""

    def run(*words: object) -> str:
        capsys.readouterr()
        assert run_command("serve", [str(word) for word in words]) == 2
        line = capsys.readouterr().err
        assert line.count("\n") == 1
        return line

    return run


def test_answered_changes_of_200_clients_are_kept(
    gallery: Path, queries: list[Path], serve: Serve, tmp_path: Path
) -> None:
    before = {*Gallery.load(gallery).labels().paths}
    process, address = serve(gallery, "--rate", "1000")
    # PNG ignores the bytes after its end.
    contents = [queries[0].read_bytes() + number.to_bytes(4, "big") for number in range(200)]
    clients = httpx.Client(timeout=300, limits=httpx.Limits(max_connections=None))
    with clients, ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(lambda each: clients.post(f"{address}images?identity=crowd", content=each), contents))
    statuses = Counter(each.status_code for each in answers)
    assert statuses.keys() <= {200, 429} and statuses[200] >= 64
    added = {each.json()["path"] for each in answers if each.status_code == 200}
    assert len(added) == statuses[200]
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert {*Gallery.load(gallery).labels().paths} == before | added
    assert {str(each) for each in (tmp_path / "people.gallery.images").iterdir()} == added
    assert sorted(each.name for each in tmp_path.iterdir()) == ["people.gallery", "people.gallery.images"]


def test_server_with_token_survives_garbage_and_stops_after_its_answers(
    gallery: Path,
    queries: list[Path],
    serve: Serve,
    refusal: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    repository: Path,
) -> None:
    """The container serves like this, and its health check succeeds only while the server runs."""
    assert "LREID_TOKEN" in refusal(gallery, "--host", "0.0.0.0", "--port", "0")
    for unusable in ("short", "long-enough-but-ä", "a-token-of-a-file\n", " a-token-of-the-test"):
        with monkeypatch.context() as patch:
            patch.setenv("LREID_TOKEN", unusable)
            assert "LREID_TOKEN" in refusal(gallery, "--host", "203.0.113.1")  # no address of this machine
    token = "a-token-of-the-test"
    process, address = serve(gallery, "--host", "0.0.0.0", LREID_TOKEN=token)
    address = address.replace("0.0.0.0", "127.0.0.1")
    assert httpx.get(f"{address}info").status_code == 401
    entry = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{address}info", headers=entry).status_code == 200
    port = port_of(address)
    for garbage in (
        b"\x16\x03\x01\x02",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\n" * 900,
    ):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(garbage)
    assert httpx.get(f"{address}health").json() == {"status": "ok"} and process.poll() is None
    _, code = json.loads(dict(dockerfile_steps(repository))["HEALTHCHECK"].partition("CMD")[2])[1:]
    check = [sys.executable, "-c", code.replace("http://127.0.0.1:8000/", address)]
    assert subprocess.run(check, capture_output=True).returncode == 0

    def add(number: int) -> httpx.Response:
        content = queries[0].read_bytes() + bytes([number])
        return httpx.post(f"{address}images", content=content, headers=entry, timeout=300)

    count = len(Gallery.load(gallery))
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(add, number) for number in range(8)]
        next(each for each in waiting if each.result().status_code == 200)
        process.send_signal(signal.SIGINT)
        done = 0
        for each in waiting:
            with suppress(httpx.TransportError):  # the request arrived after the signal
                done += each.result().status_code == 200
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and output.endswith("stopped\n")
    assert all("Invalid HTTP request" in line for line in errors.splitlines())
    assert len(Gallery.load(gallery)) == count + done
    assert subprocess.run(check, capture_output=True).returncode != 0


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2].rstrip("/"))


@on_linux
def test_idle_connections_and_large_images_take_little(gallery: Path, serve: Serve) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with on_hangup(signal.SIG_DFL):  # the tests themselves may run under nohup
            process, address = serve(gallery)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with ExitStack() as idle:
        for number in range(400):
            client = idle.enter_context(socket.create_connection(("127.0.0.1", port_of(address))))
            with suppress(ConnectionError):  # the server has closed it
                client.sendall(b"GET /health HTTP/1.1\r\n" * (number % 2))
        assert httpx.get(f"{address}health", timeout=60).status_code == 200

    def peak() -> int:
        """Peak memory of the server in MB."""
        return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) >> 10

    large = io.BytesIO()
    Image.new("RGB", (4000, 4000)).save(large, "PNG")
    path = httpx.post(f"{address}images", content=large.getvalue(), timeout=300).json()["path"]
    before = peak()
    with ThreadPoolExecutor(4) as pool:
        gets = [pool.submit(httpx.get, f"{address}images", params={"path": path}, timeout=300) for _ in range(4)]
        assert [each.result().status_code for each in gets] == [200] * 4
    assert peak() - before < 150
    process.send_signal(signal.SIGHUP)
    output, errors = process.communicate(timeout=60)
    *scenes, last = output.splitlines()  # the large image looks like a whole scene
    assert (process.returncode, len(scenes), last, errors) == (0, 1, "stopped", "")


@on_linux
def test_output_that_nobody_reads_does_not_block(gallery: Path, serve: Serve) -> None:
    with on_hangup(signal.SIG_IGN):  # as under nohup
        process, address = serve(gallery)
    for stream in (process.stdout, process.stderr):
        fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, 4096)
    for _ in range(300):
        with socket.create_connection(("127.0.0.1", port_of(address)), timeout=60) as client:
            client.sendall(b"\x16\x03\x01\x02\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 400")
    process.send_signal(signal.SIGHUP)
    assert httpx.get(f"{address}health", timeout=60).status_code == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_invalid_options_are_refused_in_one_line(gallery: Path, tmp_path: Path, refusal: Callable[..., str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert str(port) in refusal(gallery, "--port", port)
    assert "70000" in refusal(gallery, "--port", "70000")
    assert "none.gallery" in refusal(tmp_path / "none.gallery", "--port", "0")
    assert "milvus" in refusal("milvus:people.db", "--port", "0")
    assert "--rate" in refusal(gallery, "--rate", "nan")
