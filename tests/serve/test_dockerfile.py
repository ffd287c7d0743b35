"""The steps of the Dockerfile as far as they can be followed without Docker, and hadolint's rules where it is there."""

from __future__ import annotations

import argparse
import fnmatch
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from setup_file import extras_of

from lreid.apps.arguments.serve import add_arguments

Serve = Callable[..., tuple[subprocess.Popen, str]]


def steps_of(repository: Path) -> list[tuple[str, str]]:
    """Instructions with their arguments, a line each."""
    text = (repository / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


def test_what_it_copies_is_there_makes_a_wheel_and_is_not_ignored(repository: Path, tmp_path: Path) -> None:
    shown = (repository / ".dockerignore").read_text(encoding="utf-8").split()
    for _, words in filter(lambda step: step[0] == "COPY", steps_of(repository)):
        *sources, target = words.split()
        for name in sources:
            assert f"!{name}" in shown and shown[0] == "*"
            if (repository / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(repository / name, tmp_path / target, symlinks=True, ignore=ignored)
            else:
                shutil.copy(repository / name, tmp_path / target)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        "made",
        ".",
    ]
    done = subprocess.run([*pip, "."], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "made").glob("*.whl")
    listed = subprocess.run([sys.executable, "-m", "zipfile", "-l", wheel], capture_output=True, text=True).stdout
    assert "lreid/serve/static/page.html" in listed and "lreid/configs/methods/dwopp.yaml" in listed


def test_it_installs_extras_that_exist_on_the_python_of_the_lock(repository: Path) -> None:
    steps = steps_of(repository)
    installs = [shlex.split(each.partition("&&")[0]) for kind, each in steps if kind == "RUN"]
    assert installs[0][-2:] == ["torch", "torchvision"] and "https://download.pytorch.org/whl/cpu" in installs[0]
    extras = installs[1][-1].removeprefix(".[").removesuffix("]").split(",")
    assert extras_of(repository).keys() >= {*extras} == {"cpu", "serve"}
    lock = (repository / "requirements.lock").read_text(encoding="utf-8")
    assert dict(steps)["FROM"].removeprefix("python:").removesuffix("-slim") in lock.splitlines()[0]
    assert all("requirements.lock" in each for each in installs)


def test_its_command_serves_others_and_its_user_is_not_root(repository: Path) -> None:
    steps = dict(steps_of(repository))
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    words = [*json.loads(steps["ENTRYPOINT"]), *json.loads(steps["CMD"])]
    args = parser.parse_args(words[2:])
    assert words[:2] == ["lreid", "serve"] and args.host == "0.0.0.0" and str(args.port) == steps["EXPOSE"]
    assert int(steps["USER"]) > 0


@pytest.mark.slow
def test_its_health_check_tells_a_server_from_none(repository: Path, gallery: Path, serve: Serve) -> None:
    pytest.importorskip("fastapi", reason="needs lreid[serve]")
    _, code = json.loads(dict(steps_of(repository))["HEALTHCHECK"].partition("CMD")[2])[1:]
    process, address = serve(gallery)
    check = [sys.executable, "-c", code.replace("http://127.0.0.1:8000/", address)]
    assert subprocess.run(check, capture_output=True).returncode == 0
    process.kill()
    process.wait()
    assert subprocess.run(check, capture_output=True).returncode != 0


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="needs hadolint")
def test_hadolint_finds_nothing(repository: Path) -> None:
    done = subprocess.run(["hadolint", "Dockerfile"], cwd=repository, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_nothing_else_of_the_checkout_is_sent_to_docker(repository: Path) -> None:
    patterns = (repository / ".dockerignore").read_text(encoding="utf-8").split()
    for name in (".git", ".venv", "runs", "datasets", "tests"):
        assert [each for each in patterns if fnmatch.fnmatch(name, each.lstrip("!"))] == ["*"]
