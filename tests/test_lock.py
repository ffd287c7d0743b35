"""requirements.lock has an allowed version of every package in pyproject.toml."""

from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging_files import project_of


def requirements_of(repository: Path) -> list[Requirement]:
    """All requirements of pyproject.toml except loggers, which no test needs, and faiss-gpu."""
    project = project_of(repository)
    texts = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    return [
        each for each in map(Requirement, texts) if each.name not in ("faiss-gpu", "lreid", "wandb", "mlflow-skinny")
    ]


def test_locked_versions_satisfy_setup(repository: Path) -> None:
    lines = (repository / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    versions = {name.lower().replace("_", "-"): version for name, version in pinned.items()}
    for wanted in requirements_of(repository):
        version = versions.get(wanted.name.lower().replace("_", "-"))
        assert version and wanted.specifier.contains(version), f"{wanted}: run make lock"
    assert not [line for line in lines if "nvidia" in line or " @ " in line or "+" in line]
