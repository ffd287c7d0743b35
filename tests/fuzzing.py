"""What the fuzz tests share: ways to spoil a file or a value, and what a tool must do with it."""

import contextlib
import copy
import hashlib
import io
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

TOOLS = Path(__file__).resolve().parents[1] / "tools"

# LREID_FUZZ_EXAMPLES=3000 pytest tests/fuzz looks longer, at other examples.
EXAMPLES = int(os.environ.get("LREID_FUZZ_EXAMPLES", "0"))
CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


def fuzz(examples: int) -> settings:
    """So many examples, the same ones in every run of the suite."""
    return settings(
        max_examples=EXAMPLES or examples,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        suppress_health_check=CHECKS,
    )


HOSTILE = [
    None,
    True,
    -1,
    0,
    10**30,
    -0.5,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\n\x1b[31m",
    "\0",
    "../../x",
    "<script>",
    [],
    [None],
    [[]],
    [1, "a"],
    {},
    {"a": None},
    {"": {}},
]


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """The paths of all values within lists and dicts."""
    yield path
    if isinstance(value, (dict, list)):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(each, (*path, key))


@st.composite
def spoilt(draw: st.DrawFn, value: Any) -> Any:
    """Plain data of which one value is hostile or gone."""
    path = draw(st.sampled_from(list(places(value))))
    other = draw(st.sampled_from([*HOSTILE, "gone"]))
    if not path:
        return None if other == "gone" else copy.deepcopy(other)
    whole = inner = copy.deepcopy(value)
    for key in path[:-1]:
        inner = inner[key]
    if other == "gone":
        del inner[path[-1]]
    else:
        inner[path[-1]] = copy.deepcopy(other)
    return whole


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """A file that was cut short, of which bits were flipped, or a part moved or blanked."""
    kind = draw(st.sampled_from(["cut", "flip", "blank", "move", "repeat"]))
    size = len(content)
    # The ends hold headers and directories, so they are looked at more often than their share.
    near = st.integers(0, min(200, size - 1))
    place = draw(st.one_of(st.integers(0, size - 1), near, near.map(lambda at: size - 1 - at)))
    if kind == "cut":
        return content[:place]
    if kind == "flip":
        spoilt = bytearray(content)
        for at in [place, *draw(st.lists(st.integers(0, size - 1), max_size=4))]:
            spoilt[at] ^= 1 << draw(st.integers(0, 7))
        return bytes(spoilt)
    end = min(size, place + draw(st.integers(1, 64)))
    if kind == "blank":
        return content[:place] + bytes(end - place) + content[end:]
    if kind == "move":
        return content[end:] + content[place:end]
    return content[:end] + content[place:]


def run(name: str, *arguments: str | Path) -> tuple[int, str]:
    """Runs a tool within this process: exit status, and what it wrote to standard error."""
    err = io.StringIO()
    with (
        mock.patch.object(sys, "argv", [name, *map(str, arguments)]),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        runpy.run_path(str(TOOLS / name), run_name="__main__")
    return end.value.code, err.getvalue()


def refused(name: str, *arguments: str | Path, named: str | Path = "", maybe: bool = False) -> str:
    """Asserts that a tool ends with status 2 and one line that names the culprit; ``maybe`` it need not."""
    status, err = run(name, *arguments)
    if maybe and status == 0:
        return ""
    assert status == 2, err
    assert err.startswith(f"{name}: ") and err.count("\n") == 1 and err[:-1].isprintable(), err
    assert str(named) in err, err
    return err


def state_of(folder: Path) -> dict[str, str]:
    """The hash of every file in a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock")
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
