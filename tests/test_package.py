"""lreid as it is installed: from a wheel of the source distribution, used in an empty folder outside the repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoints import write_world
from tiny import TINY

import lreid

pytestmark = pytest.mark.slow
MODEL = "zoo:dwopp-synthetic-10"
ARGUMENTS = [
    str(part) for pair in (TINY | {"TRAIN.EPOCHS": 1, "BENCHMARK.TASKS_PER_DATASET": 1}).items() for part in pair
]


def call(*command: object, cwd: Path, **environment: str) -> str:
    """What a command prints; it must succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package, beside the packages of this environment."""
    top = tmp_path_factory.mktemp("package")
    source = top / "source"
    source.mkdir()
    repository = Path(lreid.__file__).parents[1]
    for name in ("lreid", "configs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(repository / name, source / name, symlinks=True, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(repository / name, source)
    call(sys.executable, "setup.py", "-q", "sdist", cwd=source)
    (archive,) = (source / "dist").glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    call(*pip, "--target", top / "site", archive, cwd=top)
    return top / "site"


@pytest.fixture
def installed(site: Path, tmp_path: Path) -> Callable[..., str]:
    """What the installed command prints in an empty folder."""

    def run(*words: object) -> str:
        return call(site / "bin" / "lreid", *words, cwd=tmp_path, PYTHONPATH=str(site))

    return run


def test_files_that_are_no_code_come_along(site: Path) -> None:
    package = Path(lreid.__file__).parent
    others = {file.relative_to(package) for file in package.rglob("*") if file.is_file() and file.suffix != ".pyc"}
    others |= {file.relative_to(package) for file in (package / "configs").rglob("*.yaml")}  # behind a link
    assert len(others) > 200
    assert all((site / "lreid" / file).read_bytes() == (package / file).read_bytes() for file in others)
    assert not (site / "lreid" / "configs").is_symlink()


def test_training_testing_and_reporting(installed: Callable[..., str], site: Path, tmp_path: Path) -> None:
    config = ["--config", "configs/methods/dmml_ft.yaml"]  # that of the package
    installed("train", *config, "--out", "one", *ARGUMENTS)
    assert json.loads((tmp_path / "one" / "results.json").read_text())["method"] == "dmml_ft"
    assert "plaza" in installed("test", "--checkpoint", "one")
    assert "dmml_ft" in installed("report", "one")
    weights = Path(installed("zoo", "download", MODEL).strip())
    assert weights.parent == site / "lreid" / "weights"
    assert MODEL.removeprefix("zoo:") in installed("zoo", "list")


def test_a_sweep_trains_with_the_installed_package(installed: Callable[..., str], tmp_path: Path) -> None:
    if sys.version_info >= (3, 11):  # before, a package in the current folder comes first
        (tmp_path / "lreid").mkdir()
        (tmp_path / "lreid" / "__init__.py").write_text("raise SystemExit('not this one')")
    table = installed("sweep", "--methods", "dmml_ft", "joint", "--seeds", "0", "--out", "swept", *ARGUMENTS)
    assert "dmml_ft" in table and "joint" in table


def test_a_gallery_is_built_and_searched(installed: Callable[..., str], tmp_path: Path) -> None:
    write_world(tmp_path, identities=2, images=3)
    assert installed("search", "build", "people.gallery", "g", "--checkpoint", MODEL).startswith("people.gallery: ")
    assert "nearest: " in installed("search", "query", "people.gallery", "q")
    assert (tmp_path / "matches" / "matches.html").exists()
