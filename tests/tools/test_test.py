"""The command line of testing, end to end, and one line for bad input."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest


def test_two_folders_with_overrides_behind_the_checkpoint(
    tool: Callable[..., int], world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--checkpoint model.pt EVAL.AP trapezoidal --query q --gallery g --out out EVAL.FLIP True"
    assert tool("test.py", *words.split()) == 0
    said = capsys.readouterr().out
    results = json.loads((world / "out" / "test.json").read_text())
    assert results["ap"] == "trapezoidal" and list(results["checkpoints"]) == ["model"]
    assert "trapezoidal AP" in said and f"{results['rows'][0]['mAP']:.1f}" in said
    assert (world / "out" / "ranked.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["test.py", "--checkpoint", "model.pt", "--query", "q"], "--query and --gallery need each other; give both"),
        (
            ["test.py", "--checkpoint", "model.pt", "--query", "q", "--gallery", "g", "--csv", "x.csv"],
            "--csv and --query exclude each other; give only one of the two",
        ),
        (
            ["test.py", "--checkpoint", "EVAL.AP", "trapezoidal"],
            "--checkpoint: is missing; pass a file, a run folder or zoo:NAME",
        ),
    ],
)
def test_bad_arguments(
    tool: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert tool(*arguments) == 2
    text = capsys.readouterr().err
    assert text.startswith(f"{arguments[0]}: {message}") and text.count("\n") == 1
