"""Calls that change a disk, counted, so that the n-th of them fails or is the last one of its process."""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMED = ("open", "link", "replace", "rename", "unlink", "rmdir", "listdir", "scandir", "mkdir")  # of os, path first
OPENED = ("fsync", "fchmod", "fchown")  # which take a file that is open
BUFFER = 1 << 16  # bytes that files collect before they are written


@dataclass
class DiskFaults:
    """Lets one call below a folder fail.

    Attributes:
        root: calls on other files are not counted; of those on open files all are.
        number: which call, from 0; None counts only.
        fault: "kill" ends the process by SIGKILL; "EIO" fails this call; "ENOSPC" this one and all later ones that need
            space. What is written at this moment is written by half; what is closed is closed.
        calls: names of the calls so far.
        failed: names of those that failed.
    """

    root: Path
    number: int | None = None
    fault: str = "EIO"
    calls: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def patched(self) -> Iterator[DiskFaults]:
        """Counts calls, and lets them fail, until the block ends."""
        plain_open = builtins.open

        def counted_open(file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
            if isinstance(file, int) or not self._counts(file):
                return plain_open(file, mode, *args, **more)
            if "opener" not in more:  # which opens by os.open
                self._step("open", creates="r" not in mode)
            if set("wax+").isdisjoint(mode):
                return plain_open(file, mode, *args, **more)
            return self._file(plain_open(file, mode, *args, **more), mode)

        with pytest.MonkeyPatch.context() as patch:
            for name in NAMED:
                patch.setattr(os, name, self._counted(name, getattr(os, name)))
            for name in OPENED:
                patch.setattr(os, name, self._counted(name, getattr(os, name), always=True))
            for where in (builtins, io):
                patch.setattr(where, "open", counted_open)
            patch.setattr(os, "close", self._counted_close(os.close))
            self._count_faiss(patch)
            yield self

    def _counts(self, path: Any) -> bool:
        try:
            return os.path.abspath(os.fsdecode(path)).startswith(str(self.root))
        except TypeError:
            return False

    def _counted(self, name: str, original: Callable[..., Any], always: bool = False) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if always or (args and self._counts(args[0])):
                self._step(name, creates=name == "mkdir" or (name == "open" and bool(args[1] & os.O_CREAT)))
            return original(*args, **more)

        return call

    def _counted_close(self, original: Callable[[int], None]) -> Callable[[int], None]:
        def close(descriptor: int) -> None:
            link = f"/proc/self/fd/{descriptor}"
            if os.path.islink(link) and self._counts(os.readlink(link)):
                self._step("close", lambda: original(descriptor))  # one that fails has closed it, too
            original(descriptor)

        return close

    def _step(self, name: str, half: Callable[[], Any] | None = None, *, creates: bool = False) -> None:
        number = len(self.calls)
        self.calls.append(name)
        later = self.fault == "ENOSPC" and self.number is not None and number > self.number and creates
        if number != self.number and not later:
            return
        self.failed.append(name)
        if half is not None:
            half()
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        code = getattr(errno, self.fault)
        raise OSError(code, os.strerror(code))

    def _file(self, file: Any, mode: str) -> Any:
        """The same file, of which every write is counted."""
        faults = self

        class Counted(io.FileIO):
            def write(self, data: Any) -> int:
                view = memoryview(data).cast("B")
                faults._step("write", lambda: super(Counted, self).write(view[: len(view) // 2]), creates=True)
                return super().write(view)

            def close(self) -> None:
                try:
                    if not self.closed:
                        faults._step("close")
                finally:
                    super().close()

        raw = Counted(os.dup(file.fileno()), mode.replace("b", "").replace("t", "").replace("x", "w"))
        raw.name = file.name
        if "a" not in mode:
            raw.seek(file.tell())
        encoding = getattr(file, "encoding", None)
        file.close()
        binary = io.BufferedRandom(raw, BUFFER) if "+" in mode else io.BufferedWriter(raw, BUFFER)
        return binary if "b" in mode else io.TextIOWrapper(binary, encoding=encoding)

    def _count_faiss(self, patch: pytest.MonkeyPatch) -> None:
        """It writes by itself, and reports failures as errors of another kind."""
        try:
            import faiss
        except ImportError:
            return
        write = faiss.write_index

        def counted(index: Any, target: Any) -> None:
            def half() -> None:
                write(index, target)
                if isinstance(target, str):
                    os.truncate(target, os.path.getsize(target) // 2)

            try:
                self._step("write", half, creates=True)
            except OSError as error:
                raise RuntimeError(f"Error: write error: {error.strerror}") from None
            write(index, target)

        patch.setattr(faiss, "write_index", counted)
