"""Functions run by forked processes: they start at once, and can be killed."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def start(function: Callable[[], Any], **environment: str) -> int:
    """Forks a process that calls a function and ends with its return value as exit status; gives its number."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.environ.update(environment)
        torch.set_num_threads(1)  # threads do not live through a fork
        status = function() or 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)  # neither pytest nor anything else of this process may go on in the child


def wait(pid: int, seconds: float = 120) -> int:
    """The exit status of a process, or minus the signal that ended it; it is killed when its time is up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise TimeoutError(f"process {pid} took more than {seconds} s")


def together(count: int, function: Callable[[], Any], folder: Path) -> list[Any]:
    """What a function returns in each of several processes that find each other as those of torchrun do."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def work() -> None:
        result = pickle.dumps(function())
        (folder / f"rank{os.environ['RANK']}.pkl").write_bytes(result)

    common = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    pids = [start(work, RANK=str(rank), LOCAL_RANK=str(rank), **common) for rank in range(count)]
    assert [wait(pid) for pid in pids] == [0] * count
    return [pickle.loads((folder / f"rank{rank}.pkl").read_bytes()) for rank in range(count)]
