"""The pages, and a function that runs a command of a page."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def pages(repository: Path) -> dict[str, str]:
    """Text by path in the repository, of all pages but those made of docstrings."""
    files = [file for folder in (".", "datasets", "examples") for file in (repository / folder).glob("*.md")]
    files += [file for file in (repository / "docs").rglob("*.md") if file.parent.name != "api"]
    return {file.relative_to(repository).as_posix(): file.read_text(encoding="utf-8") for file in files}


@pytest.fixture
def typed(
    run_tool: Callable[..., int], run_lreid: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Return what ``tools/NAME …`` or ``lreid NAME …`` prints."""

    def call(tool: str, *arguments: str) -> str:
        capsys.readouterr()
        run = run_lreid if tool.startswith("lreid ") else run_tool
        status = run(tool.removeprefix("lreid ").removeprefix("tools/"), *arguments)
        printed = capsys.readouterr()
        assert not status, printed.err
        return printed.out

    return call
