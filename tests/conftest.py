"""Fixtures and settings of all tests."""

import os
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from cached_reads import cache_reads_and_drawings
from example_results import results, run_folder  # noqa: F401 (fixtures)
from hypothesis import settings
from markupsafe import Markup
from PIL import Image

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the networks of the tests are tiny

# Without bytecode, every process that a test starts would compile torch again, which takes longer than most tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

settings.register_profile("untimed", deadline=None)  # tests may be slow on a busy machine
settings.load_profile("untimed")

REPOSITORY = Path(__file__).resolve().parents[1]
MakeImages = Callable[[Path, Iterable[str]], None]


@pytest.fixture
def repository() -> Path:
    """The top of the source tree."""
    return REPOSITORY


@pytest.fixture
def run_tool(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run a tool within this process, which saves the time to import torch, and return its exit status."""

    def call(name: str, *arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(REPOSITORY / "tools" / name), run_name="__main__")
        return end.value.code

    return call


@pytest.fixture
def run_lreid() -> Callable[..., int]:
    """Run a command of lreid within this process, and return its exit status."""
    from lreid.apps.cli import run_command

    def call(command: str, *words: str) -> int:
        try:
            return run_command(command, words, prog=f"lreid {command}")
        except SystemExit as end:
            return end.code

    return call


@pytest.fixture
def make_images() -> MakeImages:
    """Create a folder and write one small image for every name into it."""

    def make(folder: Path, names: Iterable[str]) -> None:
        for name in names:
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 8), (200, 100, 50)).save(file)

    return make


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compute a first gradient, because torch forbids forked processes if torch.export comes before it."""
    if session.config.getoption("numprocesses", None):
        return  # this process only starts others
    import torch  # now that it sees OMP_NUM_THREADS

    torch.ones((), requires_grad=True).backward()


class EmptyFigure:
    def savefig(self, file: BinaryIO, **options: Any) -> None:
        file.write(b"\x89PNG")


@pytest.fixture(scope="session", autouse=True)
def _no_slow_side_work() -> Iterator[None]:
    """Draw no charts, do not wait for disks, and read configs and synthetic images once."""
    from lreid.report import plots, sections

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "learning_curve", lambda results: EmptyFigure())
        patch.setattr(sections, "line_chart", lambda lines, title, axis: Markup("<svg></svg>"))
        patch.setattr(os, "fsync", os.fstat)  # like fsync, fstat fails for a closed file
        cache_reads_and_drawings(patch)
        yield


@pytest.fixture
def real_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Render charts in pages, which other tests replace by empty ones."""
    from lreid.report import plots, sections

    monkeypatch.setattr(sections, "line_chart", plots.line_chart)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the files of the slowest tests, so that no process is still busy with them at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path.name != "test_on_cuda.py", item.path not in slow))


@pytest.fixture(autouse=True)
def _same_threads() -> Iterator[None]:
    """Restore the number of threads, which changes the last bits of sums."""
    import torch

    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
