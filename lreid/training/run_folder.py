"""The run folder: checkpoints, results and log."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import filelock

from lreid.checkpoint import CURRENT, PREVIOUS, save_checkpoint
from lreid.errors import InputError
from lreid.utils.files import lock, make_folder, remove_leftovers, write_text

if TYPE_CHECKING:
    from lreid.training.loggers import Logger

logger = logging.getLogger("lreid")


def is_busy(path: Path) -> bool:
    """Whether a process currently uses a run folder."""
    with suppress(OSError):
        if (path / ".lock").exists():
            try:
                lock(path / ".lock").release()
            except filelock.Timeout:
                return True
    return False


class RunFolder(AbstractContextManager["RunFolder"]):
    """The folder of a run: ``config.yaml``, ``results.json``, ``log.txt``, ``checkpoints/``, curve and report.

    Creating this object locks the folder for one run until :meth:`close` is called. If the folder is renamed, deleted
    or replaced during the run, every method that writes raises InputError.

    Args:
        path: path of the folder. The folder is created if it does not exist, and deleted at the end if nothing was
            written to it.
        writes: whether this process writes files. If several processes train together, only the first one writes.
    """

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self.path, self.checkpoints, self.writes = path, path / "checkpoints", writes
        self.config = ""  # config as YAML, also for checkpoints
        self.loggers: list[Logger] = []
        self.handler: logging.Handler | None = None  # writes log.txt
        if not writes:
            logger.setLevel(logging.WARNING)
            return
        with self._folder_errors():
            make_folder(self.checkpoints)
        try:
            self.lock = lock(path / ".lock")
            self.locked = os.stat(path / ".lock")  # stays open, so that no other file gets its inode number
        except filelock.Timeout:
            raise InputError(f"{path}: another run uses this folder; wait, or choose another --out") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be locked ({error.strerror}); choose an --out on another disk") from None
        for folder in (path, self.checkpoints):
            remove_leftovers(folder)

    def begin(
        self, config: str, *, loggers: Collection[str] = (), keys: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Write the config, and start to log to ``log.txt``.

        Args:
            config: the config as YAML.
            loggers: keys of :data:`lreid.training.loggers.LOGGERS`, for loggers that also receive the metrics.
            keys: config values by key, which are sent to the loggers.
        """
        self.config = config
        if not self.may_write():
            return
        write_text(self.path / "config.yaml", config)
        with self._folder_errors():
            self.handler = logging.FileHandler(self.path / "log.txt", encoding="utf-8", errors="backslashreplace")
            if loggers:
                from lreid.training.loggers import LOGGERS

                self.loggers = [LOGGERS[name](self.path, keys) for name in dict.fromkeys(loggers)]
        self.handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
        logger.addHandler(self.handler)

    def close(self) -> None:
        """Close the log and unlock the folder."""
        for each in self.loggers:
            each.close()
        if self.handler is not None:
            logger.removeHandler(self.handler)
            with suppress(OSError):  # a full disk is reported when a file is saved
                self.handler.close()
        if not self.writes:
            return
        with suppress(OSError, InputError):  # raised if the folder has other files, or is another folder
            if self.may_write() and not (self.path / "config.yaml").exists():
                (self.path / ".lock").unlink()
                self.checkpoints.rmdir()
                self.path.rmdir()
        with suppress(OSError):  # the system releases the lock at the end of the process
            self.lock.release()

    def __exit__(self, *_: object) -> None:
        self.close()

    def may_write(self) -> bool:
        """Whether this process writes files; call this before every file, because users may move the folder."""
        if not self.writes:
            return False
        with suppress(OSError):
            if os.path.samestat(os.stat(self.path / ".lock"), self.locked):
                return True
        raise InputError(
            f"{self.path}: was renamed, deleted or replaced during the run, so no more is saved; "
            "move it back, then continue with --resume"
        )

    @contextmanager
    def _folder_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written to ({error.strerror}); choose another --out") from None

    def save_current(self, state: dict[str, Any]) -> None:
        """Save a checkpoint within a task; the previous checkpoint is kept until the task is finished."""
        if self.may_write():
            save_checkpoint(self.checkpoints / CURRENT, state, previous=self.checkpoints / PREVIOUS)

    def save_task(self, index: int, state: dict[str, Any]) -> None:
        """Save the checkpoint of a finished task; ``index`` counts tasks from 0, but file names count from 1."""
        if self.may_write():
            save_checkpoint(self.checkpoints / f"task-{index + 1:02d}.pt", state)
            for name in (CURRENT, PREVIOUS):
                with suppress(OSError):  # a harmless file: resuming from it would give the same results
                    (self.checkpoints / name).unlink(missing_ok=True)

    def list_images(self, paths: Sequence[str]) -> Path:
        """Write the paths of images whose loss is not finite to a file, and return the path of this file."""
        path = self.path / "not_finite.txt"
        if self.may_write():
            write_text(path, "\n".join(paths) + "\n")
        return path

    def log(self, values: Mapping[str, float], step: int, axis: str) -> None:
        """Send values to the loggers (:meth:`lreid.training.loggers.Logger.scalars`)."""
        for each in self.loggers:
            each.scalars(values, step, axis)
