"""The steps of the Dockerfile, checked without Docker."""

import argparse
import fnmatch
import json
import shlex
from pathlib import Path

from packaging_files import dockerfile_copies, dockerfile_steps, extras_of

from lreid.apps.serve import add_arguments


def test_only_copied_files_are_sent_to_docker(repository: Path) -> None:
    shown = (repository / ".dockerignore").read_text(encoding="utf-8").split()
    assert shown[0] == "*" and {f"!{name}" for name in dockerfile_copies(repository)} <= {*shown}
    for name in (".git", ".venv", "runs", "datasets", "tests"):
        assert [each for each in shown if fnmatch.fnmatch(name, each.lstrip("!"))] == ["*"]


def test_installed_extras_exist_on_the_python_of_the_lock(repository: Path) -> None:
    steps = dockerfile_steps(repository)
    installs = [shlex.split(each.partition("&&")[0]) for kind, each in steps if kind == "RUN"]
    assert installs[0][-2:] == ["torch", "torchvision"] and "https://download.pytorch.org/whl/cpu" in installs[0]
    extras = installs[1][-1].removeprefix(".[").removesuffix("]").split(",")
    assert extras_of(repository).keys() >= {*extras} == {"cpu", "serve"}
    lock = (repository / "requirements.lock").read_text(encoding="utf-8")
    assert dict(steps)["FROM"].removeprefix("python:").removesuffix("-slim") in lock.splitlines()[0]
    assert all("requirements.lock" in each for each in installs)


def test_command_serves_other_machines_without_root(repository: Path) -> None:
    steps = dict(dockerfile_steps(repository))
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    words = [*json.loads(steps["ENTRYPOINT"]), *json.loads(steps["CMD"])]
    args = parser.parse_args(words[2:])
    assert words[:2] == ["lreid", "serve"] and args.host == "0.0.0.0" and str(args.port) == steps["EXPOSE"]
    assert int(steps["USER"]) > 0
