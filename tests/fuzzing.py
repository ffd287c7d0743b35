"""Helpers of the fuzz tests: corrupt files and values, and check the reaction of a command."""

import contextlib
import hashlib
import io
import os
import random
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings

from lreid.apps.cli import run_command

# LREID_FUZZ_EXAMPLES=3000 pytest tests/fuzz looks longer, at other examples.
EXAMPLES = int(os.environ.get("LREID_FUZZ_EXAMPLES", "0"))
CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


def fuzz(examples: int) -> settings:
    """Settings for a number of examples, the same ones in every run."""
    return settings(
        max_examples=EXAMPLES or examples,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        suppress_health_check=CHECKS,
    )


HOSTILE: list[Any] = [None, True, -1, 0, 10**30, -0.5, float("nan"), float("inf"), "", "x", "\n\x1b[31m", "\0", "../x"]
HOSTILE += ["<script>", [], [None], [[]], [1, "a"], {}, {"a": None}, {"": {}}, "[" * 5000, 2**63, "9" * 5000]


def corrupted_value(value: Any, rng: random.Random) -> Any:
    """A copy of plain data in which one value is hostile or missing."""
    if not isinstance(value, (dict, list)) or not value or rng.random() < 0.08:
        return rng.choice(HOSTILE)
    places = list(value) if isinstance(value, dict) else list(range(len(value)))
    at, copied = rng.choice(places), value.copy()
    if rng.random() < 0.1:
        del copied[at]
    else:
        copied[at] = corrupted_value(value[at], rng)
    return copied


def corrupted_bytes(content: bytes, rng: random.Random) -> bytes:
    """Cut, flip, blank, move or repeat a part of the content, often near its ends."""
    size, kind = len(content), rng.choice(("cut", "flip", "flip", "blank", "move", "repeat"))
    near = rng.randrange(min(200, size))
    place = rng.choice((rng.randrange(size), near, size - 1 - near))
    end = min(size, place + rng.randint(1, 64))
    if kind == "cut":
        return content[:place]
    if kind == "flip":
        flipped = bytearray(content)
        for at in [place, *(rng.randrange(size) for _ in range(rng.randrange(4)))]:
            flipped[at] ^= 1 << rng.randrange(8)
        return bytes(flipped)
    if kind == "blank":
        return content[:place] + bytes(end - place) + content[end:]
    return content[end:] + content[place:end] if kind == "move" else content[:end] + content[place:]


def run(name: str, *arguments: str | Path) -> tuple[int, str]:
    """Run a command of lreid within this process; return its exit status and what it wrote to standard error."""
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        try:
            status = run_command(name, [*map(str, arguments)], prog=f"lreid {name}")
        except SystemExit as end:
            status = int(end.code or 0)
    return status, err.getvalue()


def assert_refused(name: str, *arguments: str | Path, named: str | Path = "", maybe: bool = False) -> str:
    """Asserts that a tool ends with status 2 and one line that names the culprit; ``maybe`` it need not."""
    status, err = run(name, *arguments)
    if maybe and status == 0:
        return ""
    assert status == 2, err
    assert err.startswith(f"lreid {name}: ") and err.count("\n") == 1 and err[:-1].isprintable(), err
    assert str(named) in err, err
    return err


def file_hashes(folder: Path) -> dict[str, str]:
    """The hash of every file in a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock")
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
