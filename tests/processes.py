"""Run functions in forked processes, start Python, and wait for processes and conditions."""

import faulthandler
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

PATIENCE = 900.0  # seconds after which a process hangs for certain, however busy the machine is


@contextmanager
def on_hangup(action: signal.Handlers) -> Iterator[None]:
    """Set what SIGHUP does in this process, whose tests may run under nohup, and in processes that it starts."""
    before = signal.signal(signal.SIGHUP, action)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def fork_process(function: Callable[[], Any], **environment: str) -> int:
    """Fork a process that calls a function and exits with its return value; return the process number."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        faulthandler.dump_traceback_later(PATIENCE / 2, exit=True)  # shows where a hanging process waits
        os.environ.update(environment)
        torch.set_num_threads(1)  # threads do not live through a fork
        status = function() or 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)  # without this, pytest would continue in the child


def start_python(program: str, *arguments: str) -> subprocess.Popen:
    """Start Python with a program and the module path of this process; its output is not buffered."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-u", "-c", program, *arguments],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait until a condition holds, or raise TimeoutError after so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds} s in vain")
        time.sleep(0.01)


def wait_for_exit(pid: int, seconds: float = PATIENCE) -> int:
    """Return the exit status of a process, or minus the signal that ended it; kill it when its time is up."""
    ended: list[int] = []

    def has_ended() -> bool:
        done, status = os.waitpid(pid, os.WNOHANG)
        ended.extend([os.waitstatus_to_exitcode(status)] if done else [])
        return bool(done)

    try:
        wait_until(has_ended, seconds)
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    return ended[0]


def fork_ranks(count: int, function: Callable[[], Any]) -> list[int]:
    """Fork processes with the environment variables of torchrun; return their numbers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [fork_process(function, RANK=str(rank), LOCAL_RANK=str(rank), **common) for rank in range(count)]


def run_ranks(count: int, function: Callable[[], Any], folder: Path) -> list[Any]:
    """Call a function in several processes that find each other like those of torchrun; return the results."""
    ended = [folder / f"rank{rank}.ended" for rank in range(count)]
    for file in ended:
        file.unlink(missing_ok=True)

    def work() -> None:
        rank = int(os.environ["RANK"])
        try:
            result = pickle.dumps(function())
            (folder / f"rank{rank}.pkl").write_bytes(result)
        finally:
            ended[rank].touch()
        wait_until(lambda: all(file.exists() for file in ended), 60)  # others may still look for this one

    pids = fork_ranks(count, work)
    assert [wait_for_exit(pid) for pid in pids] == [0] * count
    return [pickle.loads((folder / f"rank{rank}.pkl").read_bytes()) for rank in range(count)]
