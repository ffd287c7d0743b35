"""Imports go one way, so that losses and retrieval can be taken out and used alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "lreid"

# What each room may import of the project, besides itself, errors and files.
ALLOWED: dict[str, set[str]] = {
    "losses": set(),
    "retrieval": set(),
    "gallery": {"retrieval"},
    "data": set(),
    "report": set(),
    "zoo": set(),
    "models": {"data", "zoo"},
    "memory": {"data"},
    "methods": {"data", "losses", "models", "memory"},
    "evaluation": {"data", "models", "retrieval"},
    "training": {"checkpoint", "config", "data", "evaluation", "methods", "models", "report"},
}


def imported(file: Path) -> set[str]:
    """Full names of the modules that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("room", ALLOWED)
def test_rooms_import_only_what_they_may(room: str) -> None:
    for file in (PACKAGE / room).rglob("*.py"):
        rooms = {name.split(".")[1] for name in imported(file) if name.startswith("lreid.")}
        foreign = rooms - ALLOWED[room] - {room, "errors", "files", "identities"}
        assert not foreign, f"{file.relative_to(PACKAGE.parent)} imports {', '.join(sorted(foreign))}"


def test_losses_need_torch_alone() -> None:
    for file in (PACKAGE / "losses").rglob("*.py"):
        top = {name.split(".")[0] for name in imported(file)}
        assert top <= {"__future__", "collections", "math", "typing", "torch", "lreid"}, file
        assert "lreid.files" not in imported(file)


def test_torchreid_and_faiss_are_loaded_on_demand() -> None:
    """Neither is needed to train, and both are heavy: no module imports them at its top."""
    for file in PACKAGE.rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            assert not any(name.split(".")[0] in ("torchreid", "faiss", "pymilvus") for name in names), file
