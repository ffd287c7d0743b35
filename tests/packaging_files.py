"""The settings of pyproject.toml and the steps of the Dockerfile."""

from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from setuptools.config.pyprojecttoml import read_configuration


def project_of(repository: Path) -> dict[str, Any]:
    """The table ``project`` as setuptools reads it, with the version."""
    project: dict[str, Any] = read_configuration(repository / "pyproject.toml")["project"]
    return project


def extras_of(repository: Path) -> dict[str, list[str]]:
    """Names of the packages of every extra, including those of other extras of lreid."""
    required = project_of(repository)["optional-dependencies"]

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
