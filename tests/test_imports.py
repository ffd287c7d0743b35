"""Imports go one way, so that losses and retrieval can be taken out and used alone."""

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from made_results import make_results

import lreid
import lreid.gallery
from lreid.link.record import Record

PACKAGE = Path(__file__).parents[1] / "lreid"

# Anybody may import these.
FOUNDATION = {"errors", "extras", "files", "float32", "identities", "lazy", "reading", "rules", "tensors"}

# What each room, and each file beside the rooms, may import of the project besides itself and the foundation.
ALONE = {"config_keys", "devices", "losses", "results", "retrieval", "zoo"}
ALLOWED: dict[str, set[str]] = {name: set() for name in FOUNDATION | ALONE} | {
    "config": {"config_keys"},
    "data": {"devices"},
    "gallery": {"data", "loading", "models", "retrieval"},
    "models": {"data", "devices", "zoo"},
    "memory": {"data"},
    "methods": {"data", "devices", "losses", "models", "memory", "retrieval"},
    "evaluation": {"data", "models", "results", "retrieval"},
    "classification": {"data", "evaluation", "results", "retrieval"},
    "report": {"results"},
    "checkpoint": {"results"},
    "distributed": {"models"},
    "export": {"config", "models", "zoo"},
    "loading": {"checkpoint", "config", "devices", "export", "models", "zoo"},
    "build": {
        *("config", "config_keys", "data", "devices", "evaluation", "loading", "methods", "models", "results"),
        "retrieval",
    },
    "training": {
        *("build", "checkpoint", "config", "config_keys", "data", "devices", "distributed", "evaluation", "memory"),
        *("methods", "models", "report", "results"),
    },
    "link": {"data", "gallery", "loading", "models", "report", "retrieval", "search"},
    "serve": {"data", "gallery", "models", "report", "search"},
    "search": {"data", "devices", "gallery", "loading", "models", "report", "retrieval", "zoo"},
}
EVERYTHING = {"__init__", "__main__", "apps"}  # the doors


def test_every_room_has_its_rule() -> None:
    names = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert names == ALLOWED.keys() | (EVERYTHING & names)


@cache
def imported(file: Path) -> set[str]:
    """Full names of the modules that a file imports, and of what it imports from the top of the project."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names.add(node.module or "")
            names |= {f"lreid.{alias.name}" for alias in node.names if node.module == "lreid"}
    return names


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_rooms_import_only_what_they_may(room: str) -> None:
    for file in (PACKAGE / room).rglob("*.py") if (PACKAGE / room).is_dir() else [PACKAGE / f"{room}.py"]:
        rooms = {name.split(".")[1] for name in imported(file) if name.startswith("lreid.")}
        foreign = rooms - ALLOWED[room] - {room} - FOUNDATION
        assert not foreign, f"{file.relative_to(PACKAGE.parent)} imports {', '.join(sorted(foreign))}"


@pytest.mark.slow
def test_no_name_of_a_package_hides_a_module_of_it() -> None:
    """Otherwise ``import lreid.a.b`` gives a function."""
    for init in (*PACKAGE.rglob("__init__.py"), *PACKAGE.rglob("api.py")):
        here = ".".join(init.parent.relative_to(PACKAGE.parent).parts)
        imported = (node for node in ast.walk(ast.parse(init.read_text())) if isinstance(node, ast.ImportFrom))
        names = {alias.asname or alias.name for node in imported if node.module != here for alias in node.names}
        modules = {each.stem for each in init.parent.iterdir() if each.suffix == ".py" or each.is_dir()}
        assert not names & modules, init


def test_loading_a_model_brings_no_more_than_it_needs() -> None:
    """Nothing that trains, reports, augments or searches."""
    code = "import sys, lreid; lreid.load_model('zoo:dwopp-synthetic-10'); print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, text=True, capture_output=True, check=True)
    loaded = set(done.stdout.split())
    assert "lreid.models.embedder" in loaded
    rooms = {name.split(".")[1] for name in loaded if name.startswith("lreid.")}
    assert rooms <= FOUNDATION | ALLOWED["loading"] - {"export"} | {"config_keys", "data", "loading", "results"}
    heavy = {"matplotlib", "albumentations", "faiss", "pymilvus", "tensorboard", "torchreid", "peft", "open_clip"}
    assert not heavy & {name.split(".")[0] for name in loaded}


def test_training_loads_the_report_when_a_run_writes_it() -> None:
    code = "import sys, lreid.apps.train; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, text=True, capture_output=True, check=True)
    loaded = set(done.stdout.split())
    assert "lreid.training.run" in loaded and not {"lreid.report", "jinja2"} & loaded


OFFLINE = (
    "search info gallery",
    "search rollback gallery",
    "search migrate gallery copy",
    "link undo linked",
    "report run",
)


def test_what_needs_no_network_does_not_load_torch(tmp_path: Path) -> None:
    gallery = lreid.gallery.Gallery.build(np.eye(3, dtype=np.float32), ["a", "b", "c"], model="any")
    gallery.about.extras = {"checkpoint": np.array(["any.pt"]), "flip": np.array([False])}
    (tmp_path / "linked").mkdir()
    for name in ("gallery", "gallery.previous", "linked/people.gallery"):
        gallery.save(tmp_path / name)
    record = Record()
    record.remember("nothing")
    record.write(tmp_path / "linked")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "results.json").write_text(json.dumps(make_results(config={"METHOD.NAME": "dwopp"})))
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from lreid.apps.cli import run_command
for line in sys.argv[2:]:
    command, *words = line.split()
    assert run_command(command, words) == 0 and "torch" not in sys.modules, line
"""
    words = [sys.executable, "-c", code, str(PACKAGE.parent), *OFFLINE, "zoo download people"]
    subprocess.run(words, cwd=tmp_path, check=True)


def test_matplotlib_is_imported_when_the_first_chart_is_drawn() -> None:
    """Training reports at the end of a task; ``lreid report --images`` draws at once."""
    for file in PACKAGE.rglob("*.py"):
        top = ast.Module([node for node in ast.parse(file.read_text()).body if not isinstance(node, ast.If)], [])
        imports = [ast.unparse(node) for node in top.body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert file.name == "visual.py" or not [each for each in imports if "matplotlib" in each], file


def test_losses_need_torch_alone() -> None:
    for file in (PACKAGE / "losses").rglob("*.py"):
        top = {name.split(".")[0] for name in imported(file)}
        assert top <= {"__future__", "collections", "importlib", "math", "typing", "torch", "lreid"}, file
        assert "lreid.files" not in imported(file)
