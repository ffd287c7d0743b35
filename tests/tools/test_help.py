"""What a tool takes is told at once."""

import subprocess
import sys
from pathlib import Path


def test_help_of_every_tool_answers_without_torch(repository: Path) -> None:
    code = """
import contextlib, pathlib, runpy, sys
for tool in sorted(pathlib.Path("tools").glob("*.py")):
    sys.argv = [str(tool), "--help"]
    with contextlib.suppress(SystemExit):
        runpy.run_path(str(tool), run_name="__main__")
    heavy = {"torch", "numpy", "matplotlib", "torchvision"} & set(sys.modules)
    assert not heavy, f"{tool} loads {heavy}"
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=repository, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: ") == len(list((repository / "tools").glob("*.py"))) > 10
