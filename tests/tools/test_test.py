"""The command lines of testing and searching, end to end, and one line for bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoints import write_checkpoint, write_images

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


def test_build_and_query(repository: Path, world: Path) -> None:
    built = run(repository, world, "search.py", "build", "my.gallery", "g", "--checkpoint", "model.pt")
    assert built.returncode == 0 and built.stdout == "my.gallery: 9 images, 4 identities\n", built.stderr
    done = run(repository, world, "search.py", "query", "my.gallery", "q", "--top", "2")
    assert done.returncode == 0 and done.stdout.count("nearest: ") == 8, done.stderr
    assert (world / "matches" / "matches.html").exists()
    done = run(repository, world, "search.py", "query", "my.gallery", "model.pt", "--out", "bad")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and not (world / "bad").exists()
    assert done.stderr.startswith("search.py: model.pt: image cannot be decoded")


def test_bad_arguments_end_with_one_line_and_status_2(repository: Path, world: Path) -> None:
    done = run(repository, world, "test.py", "--checkpoint", "model.pt", "--query", "q")
    assert done.returncode == 2
    assert done.stderr == "test.py: --query and --gallery go together; give both\n"
