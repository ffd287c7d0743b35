"""What setup.py tells setuptools, and the Dockerfile Docker."""

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
    """Names of the packages of every extra, those of the extras that it names included."""
    told = {
        extra: list(map(Requirement, texts)) for extra, texts in setup_keywords(repository)["extras_require"].items()
    }

    def packages(extra: str) -> list[str]:
        own = [each.name for each in told[extra] if each.name != "lreid"]
        others = [
            name for each in told[extra] if each.name == "lreid" for more in each.extras for name in packages(more)
        ]
        return own + others

    return {extra: packages(extra) for extra in told}


def dockerfile_steps(repository: Path) -> list[tuple[str, str]]:
    """Instructions of the Dockerfile with their arguments, a line each."""
    text = (repository / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


def dockerfile_copies(repository: Path) -> dict[str, str]:
    """What the Dockerfile copies from the checkout, and where it lies in the image."""
    lines = [words.split() for step, words in dockerfile_steps(repository) if step == "COPY"]
    return {name: target for *sources, target in lines for name in sources}
