"""What a disk may hold after a power cut: of what was not synchronised any part is lost, in any order."""

import itertools
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Event = tuple[str, tuple[Any, ...]]
_recorders: list[Callable[[str, tuple[Any, ...]], None]] = []
_hooked: list[bool] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    for recorder in _recorders:
        recorder(event, args)


class Disk:
    """A folder whose operations are recorded, and the states that a power cut may leave it in.

    Names are kept when their folder was synchronised, contents when their file was; with the name of a folder that was
    made goes all that is in it. A name that points to a file whose
    content was not shows an empty one.

    Args:
        folder: what is in it and below it is on the disk already.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = [path for path in folder.rglob("*") if path.is_file()]
        self.start = {str(path): number for number, path in enumerate(files)}  # file numbers by name
        self.contents: dict[int, bytes] = {number: path.read_bytes() for number, path in enumerate(files)}
        self.new_number = itertools.count(len(files))
        self.now = dict(self.start)
        self.log: list[tuple[str, Any, Any]] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        if not _hooked:
            _hooked.append(True)
            sys.addaudithook(_hook)
        sync = os.fsync
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda file: (sync(file), self._synchronised(file)))
            _recorders.append(self._event)
            try:
                yield
            finally:
                _recorders.remove(self._event)

    def states(self, upto: int | None = None) -> Iterator[dict[str, bytes]]:
        """Contents by name, as any power cut after the first ``upto`` operations may leave them."""
        log = self.log[:upto]
        synced = {folder: place for place, (kind, folder, _) in enumerate(log) if kind == "folder"}
        contents = {number: b"" for _, _, number in log if isinstance(number, int)} | self.contents
        contents |= {number: content for kind, number, content in log if kind == "file"}
        kinds = ("name", "rename", "unlink", "mkdir")
        names = [(place, each) for place, each in enumerate(log) if each[0] in kinds]
        pending = [place for place, (_, name, _) in names if place > synced.get(os.path.dirname(self._first(name)), -1)]
        for lost in itertools.chain.from_iterable(
            itertools.combinations(pending, count) for count in range(len(pending) + 1)
        ):
            there = dict(self.start)
            gone = tuple(f"{name}/" for place, (kind, name, _) in names if kind == "mkdir" and place in lost)
            for place, (kind, name, number) in names:
                if place in lost or kind == "mkdir":
                    continue
                if kind == "name":
                    there[name] = number
                elif kind == "unlink":
                    there.pop(name, None)
                else:
                    there.pop(name[0], None)
                    there[name[1]] = number
            yield {name: contents[number] for name, number in there.items() if not name.startswith(gone)}

    def every_state(self) -> Iterator[tuple[bool, dict[str, bytes]]]:
        """Of cuts at every moment; and whether all operations were over by then."""
        for upto in range(len(self.log) + 1):
            for state in self.states(upto):
                yield upto == len(self.log), state

    def restore(self, state: dict[str, bytes], into: Path) -> None:
        """Writes a state into another folder."""
        for name, content in state.items():
            path = into / Path(name).relative_to(self.folder)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    @staticmethod
    def _first(name: str | tuple[str, str]) -> str:
        return name if isinstance(name, str) else name[0]

    def _event(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in ("open", "os.rename", "os.link", "os.remove", "os.mkdir") or isinstance(args[0], int):
            return
        name = os.fspath(args[0])
        if not str(name).startswith(str(self.folder)):
            return
        if event == "open" and args[2] & os.O_CREAT and name not in self.now:
            self.now[name] = next(self.new_number)
            self.log.append(("name", name, self.now[name]))
        elif event == "os.rename" and name in self.now:
            target = os.fspath(args[1])
            self.now[target] = self.now.pop(name)
            self.log.append(("rename", (name, target), self.now[target]))
        elif event == "os.link" and os.fspath(args[1]) not in self.now:
            self.now[os.fspath(args[1])] = self.now[name]
            self.log.append(("name", os.fspath(args[1]), self.now[name]))
        elif event == "os.mkdir" and os.path.isdir(os.path.dirname(name)) and not os.path.exists(name):
            self.log.append(("mkdir", str(name), None))
        elif event == "os.remove" and name in self.now:
            del self.now[name]
            self.log.append(("unlink", name, None))

    def _synchronised(self, file: int) -> None:
        name = os.readlink(f"/proc/self/fd/{file}")
        if stat.S_ISDIR(os.fstat(file).st_mode):
            self.log.append(("folder", name, None))
        elif name in self.now:
            self.log.append(("file", self.now[name], Path(name).read_bytes()))
