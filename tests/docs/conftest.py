"""The pages, and a way to call a tool as they tell people to."""

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
def typed(run_tool: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What ``python tools/NAME …`` prints."""

    def call(tool: str, *arguments: str) -> str:
        capsys.readouterr()
        status = run_tool(tool.removeprefix("tools/"), *arguments)
        said = capsys.readouterr()
        assert status == 0, said.err
        return said.out

    return call
