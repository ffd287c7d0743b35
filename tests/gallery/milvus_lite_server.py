"""Milvus Lite for tests: its server in a process of its own."""

import itertools
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

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


def require_milvus() -> None:
    """Skips the test without Milvus Lite; and pymilvus shall not wait half a second for each empty index."""
    pytest.importorskip("pymilvus", reason="galleries in Milvus need lreid[milvus]")
    pytest.importorskip("milvus_lite", reason="the tests need Milvus Lite")
    from pymilvus.client import grpc_handler

    clock = {name: getattr(time, name) for name in dir(time) if not name.startswith("_")}
    grpc_handler.time = SimpleNamespace(**clock | {"sleep": lambda seconds: time.sleep(min(seconds, 0.01))})


@contextmanager
def killed_at(number: int) -> Iterator[None]:
    """Let a request to Milvus (counted from 0) and all later ones fail, because a killed process does not clean up."""
    from lreid.gallery import milvus_client

    original, numbers = milvus_client.Connection.__call__, itertools.count()

    def call(*args: Any, **options: Any) -> Any:
        if next(numbers) >= number:
            raise KeyboardInterrupt
        return original(*args, **options)

    with mock.patch.object(milvus_client.Connection, "__call__", call):
        yield
