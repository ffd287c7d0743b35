"""Milvus Lite for tests: its server in a process of its own, and who can reach a port."""

import ipaddress
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest


class LiteServer:
    """``milvus-lite server`` in a process of its own, on the loopback."""

    def __init__(self, folder: Path):
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    @property
    def where(self) -> str:
        return f"milvus:http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = "from milvus_lite.cmdline import main; main()"
        options = ["server", "--data-dir", str(self.folder), "--host", "127.0.0.1", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert b"listening" in self.process.stdout.readline()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def listens_to_itself_only(process: int) -> bool:
    """Whether a process listens somewhere, and nowhere but on the loopback (Linux)."""
    addresses = _listening(process)
    return bool(addresses) and all((getattr(a, "ipv4_mapped", None) or a).is_loopback for a in addresses)


def _listening(process: int) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    inodes = set()
    for link in Path(f"/proc/{process}/fd").iterdir():
        try:
            inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(link)))
        except FileNotFoundError:
            continue
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        if (file := Path(f"/proc/{process}/net/{name}")).exists()
        for line in file.read_text().splitlines()[1:]
    ]
    found = [bytes.fromhex(line[1].split(":")[0]) for line in lines if line[3] == "0A" and line[9] in inodes]
    words = [[address[i : i + 4][::-1] for i in range(0, len(address), 4)] for address in found]
    return [ipaddress.ip_address(b"".join(each)) for each in words]


def require_milvus() -> None:
    """Skips the test without Milvus Lite; and pymilvus shall not wait half a second for each empty index."""
    pytest.importorskip("pymilvus", reason="galleries in Milvus need lreid[milvus]")
    pytest.importorskip("milvus_lite", reason="the tests need Milvus Lite")
    from pymilvus.client import grpc_handler

    clock = {name: getattr(time, name) for name in dir(time) if not name.startswith("_")}
    grpc_handler.time = SimpleNamespace(**clock | {"sleep": lambda seconds: time.sleep(min(seconds, 0.01))})
