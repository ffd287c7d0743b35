"""The versions that CI installs: one for every package that setup.py asks for, and one that it allows."""

from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging_files import setup_keywords


def asked_for(repository: Path) -> list[Requirement]:
    """What setup.py installs, its extras included, but for the loggers that no test needs; faiss for any machine."""
    keywords = setup_keywords(repository)
    texts = [*keywords["install_requires"], *chain(*keywords["extras_require"].values())]
    return [
        each for each in map(Requirement, texts) if each.name not in ("faiss-gpu", "lreid", "wandb", "mlflow-skinny")
    ]


def test_every_package_has_a_version_that_setup_allows(repository: Path) -> None:
    lines = (repository / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    versions = {name.lower().replace("_", "-"): version for name, version in pinned.items()}
    for wanted in asked_for(repository):
        version = versions.get(wanted.name.lower().replace("_", "-"))
        assert version and wanted.specifier.contains(version), f"{wanted}: run make lock"
    assert not [line for line in lines if "nvidia" in line or " @ " in line or "+" in line]
