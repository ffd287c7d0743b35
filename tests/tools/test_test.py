"""The command lines of testing and searching, end to end, and one line for bad input."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoints import write_checkpoint, write_images

from lreid import search
from lreid.data.synthetic import load_synthetic


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    drawn = load_synthetic(
        "plaza", train_identities=1, test_identities=4, images_per_identity=4, distractors=1, seed=0
    )
    write_images(folder / "q", drawn.query)
    write_images(folder / "g", drawn.gallery)
    write_checkpoint(folder / "model.pt")
    return folder


def run(repository: Path, world: Path, tool: str, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(repository / "tools" / tool), *arguments]
    return subprocess.run(command, cwd=world, capture_output=True, text=True, timeout=120)


def test_two_folders_with_overrides_behind_the_checkpoint(repository: Path, world: Path) -> None:
    done = run(
        repository, world, "test.py", "--checkpoint", "model.pt", "EVAL.AP", "trapezoidal", "--query", "q",
        "--gallery", "g", "--out", "out", "EVAL.FLIP", "True",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = json.loads((world / "out" / "test.json").read_text())
    assert results["ap"] == "trapezoidal" and list(results["checkpoints"]) == ["model"]
    assert "trapezoidal AP" in done.stdout and f"{results['rows'][0]['mAP']:.1f}" in done.stdout
    assert (world / "out" / "ranked.html").exists()


def test_a_query_that_is_no_image_ends_with_one_line_and_status_2(repository: Path, world: Path) -> None:
    search.build(
        world / "my.gallery", world / "model.pt", search.list_images([world / "g"], ""), device="cpu"
    )
    done = run(repository, world, "search.py", "query", "my.gallery", "model.pt", "--out", "bad")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and not (world / "bad").exists()
    assert done.stderr.startswith("search.py: model.pt: image cannot be decoded")


@pytest.fixture
def tool(repository: Path, world: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs a tool within this process, which saves the seconds of importing torch again."""
    monkeypatch.chdir(world)

    def call(name: str, *arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(repository / "tools" / name), run_name="__main__")
        return end.value.code

    return call


def test_the_life_of_a_gallery(
    tool: Callable[..., int], world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: str) -> str:
        assert tool("search.py", *arguments) == 0
        return capsys.readouterr().out

    assert said("build", "life", "g", "--checkpoint", "model.pt") == "life: 9 images, 4 identities\n"
    assert said("add", "life", "g", "q") == "life: 8 images added, 9 were there already or skipped\n"
    assert said("remove", "life", "--identity", "2") == "life: 4 images removed\n"
    assert "13\n" in said("info", "life").splitlines(keepends=True)[0]
    assert said("calibrate", "life", "q", "--false-accept-rate", "0.5").startswith("life: threshold 0.")
    text = said("query", "life", "q", "--top", "2", "--out", "found")
    assert text.count(" for 50 % false accepts\n") == 8 and (world / "found" / "matches.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["test.py", "--checkpoint", "model.pt", "--query", "q"],
            "--query and --gallery go together; give both",
        ),
        (
            ["test.py", "--checkpoint", "model.pt", "--query", "q", "--gallery", "g", "--csv", "x.csv"],
            "--csv and --query are two ways to name images; give one of them",
        ),
        (["test.py", "--checkpoint", "model.pt", "EVAL.FLIP"], "EVAL.FLIP: a key without a value"),
        (["search.py", "info", "gone"], "gone: no such file; build a gallery first"),
        (["search.py", "query", "model.pt", "q"], "model.pt: not a gallery, or cut short"),
    ],
)
def test_bad_arguments(
    tool: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert tool(*arguments) == 2
    text = capsys.readouterr().err
    assert text.startswith(f"{arguments[0]}: {message}") and text.count("\n") == 1
