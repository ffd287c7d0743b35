"""The check of the English finds what it should, and nothing else."""

import runpy
from pathlib import Path

import pytest

FAR = " ".join(["word"] * 41) + "."


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("Cameras are told by the file names.", [1]),
        ("One fact.\n\n* A folder a person\n* finds\n  again", [3, 4]),
        (f"Short. {FAR}", [1]),
        (f"| cell | {FAR} |", []),  # a row is no sentence
        ("| a row | goes on with it |", [1]),
        ("`anew` and [a link](anew.md)", []),
        ("```\nanew\n```\nanew", [4]),
        ("<!-- table -->\nanew\n<!-- end table -->\n\nanew", [5]),
        ("<!-- english: a quotation -->\nanew\n\nanew", [4]),
        ("Do:\n\n    lreid train anew\n\nDone.", []),
        ("Clear words, which say what lreid does.", []),
    ],
)
def test_lines_with_faults(repository: Path, text: str, lines: list[int]) -> None:
    faults = runpy.run_path(str(repository / "tools" / "check_english.py"))["faults"]
    assert [line for line, _ in faults(text)] == lines


def test_docstrings_are_read(repository: Path, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('"""Fine."""\n\n\ndef f():\n    """Drawn anew.\n\n    Args:\n        x: told by y\n    """\n')
    check = runpy.run_path(str(repository / "tools" / "check_english.py"))
    found = [first + line - 1 for first, text in check["texts"](file) for line, _ in check["faults"](text)]
    assert found == [5, 8]


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("found = 1\nscores = found", [1]),
        ("def _told(known):\n    self.kept = [x for some in known]", [1, 1, 2, 2]),
        ("class Matches:\n    known: list\n    def scores(self):\n        return self.known", []),
    ],
)
def test_vague_names(repository: Path, code: str, lines: list[int]) -> None:
    check = runpy.run_path(str(repository / "tools" / "check_english.py"))
    assert sorted(line for line, _ in check["vague_names"](code)) == lines
