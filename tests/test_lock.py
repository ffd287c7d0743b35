"""The versions that CI installs: one for every package that setup.py asks for, and one that it allows."""

from __future__ import annotations

import ast
from pathlib import Path

from packaging.requirements import Requirement


def asked_for(setup: str) -> list[Requirement]:
    """What setup.py installs, its extras included; of the two builds of faiss the one for any machine."""
    (call,) = (
        node for node in ast.walk(ast.parse(setup)) if isinstance(node, ast.Call) and ast.unparse(node.func) == "setup"
    )
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    extras = ast.literal_eval(keywords["extras_require"])
    texts = [*ast.literal_eval(keywords["install_requires"]), *(text for name in extras for text in extras[name])]
    return [each for each in map(Requirement, texts) if each.name != "faiss-gpu"]


def test_every_package_has_a_version_that_setup_allows(repository: Path) -> None:
    lines = (repository / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    versions = {name.lower().replace("_", "-"): version for name, version in pinned.items()}
    for wanted in asked_for((repository / "setup.py").read_text(encoding="utf-8")):
        version = versions.get(wanted.name.lower().replace("_", "-"))
        assert version and wanted.specifier.contains(version), f"{wanted}: run make lock"
    assert not [line for line in lines if "nvidia" in line or " @ " in line or "+" in line]
