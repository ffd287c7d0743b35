"""The counter of lines separates code, docstrings, comments and blanks."""

import runpy
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "count_lines.py"

SOURCE = '''"""A module.

Two paragraphs and a blank line: docstrings keep their blanks.
"""

import os  # code with a comment

# a comment
TEXT = """a text
that is a value
"""


def function():
    """One line."""
    "a second text that stands alone"
    return (
        os.name
    )
'''


def test_every_line_has_one_kind() -> None:
    count = runpy.run_path(str(TOOL))["count"]
    assert count(SOURCE) == Counter(code=8, docstring=6, comment=1, blank=4)
    assert count("") == Counter()


def test_rows_add_up_and_too_many_lines_fail(
    tmp_path: Path, run_tool: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("lreid/a.py", "lreid/losses/b.py", "tests/test_c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(SOURCE)
    assert run_tool("count_lines.py", "--root", str(tmp_path), "--most", "16") == 0
    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()[1:]}
    assert rows["all"] == ["2", "16", "12", "2", "8", "38"]
    assert rows["lreid"] == rows["losses"] == ["1", "8", "6", "1", "4", "19"]
    assert rows["tests:"][0] == "19"
    assert run_tool("count_lines.py", "--root", str(tmp_path), "--most", "15") == 1
