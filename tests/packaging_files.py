"""The arguments of setup.py and the steps of the Dockerfile."""

import runpy
from pathlib import Path
from typing import Any
from unittest import mock

from packaging.requirements import Requirement


def setup_keywords(repository: Path) -> dict[str, Any]:
    """The arguments of ``setup``."""
    with mock.patch("setuptools.setup") as setup:
        runpy.run_path(str(repository / "setup.py"))
    return setup.call_args.kwargs


def extras_of(repository: Path) -> dict[str, list[str]]:
    """Names of the packages of every extra, including those of other extras of lreid."""
    required = setup_keywords(repository)["extras_require"]

    def packages(extra: str) -> list[str]:
        names: list[str] = []
        for each in map(Requirement, required[extra]):
            names += [name for more in each.extras for name in packages(more)] if each.name == "lreid" else [each.name]
        return names

    return {extra: packages(extra) for extra in required}


def dockerfile_steps(repository: Path) -> list[tuple[str, str]]:
    """Instructions of the Dockerfile and their arguments."""
    text = (repository / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


def dockerfile_copies(repository: Path) -> dict[str, str]:
    """Paths that the Dockerfile copies from the checkout, and their targets in the image."""
    lines = [words.split() for step, words in dockerfile_steps(repository) if step == "COPY"]
    return {name: target for *sources, target in lines for name in sources}
