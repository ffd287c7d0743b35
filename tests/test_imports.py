"""Imports go one way, so that losses and retrieval can be taken out and used alone."""

import ast
import json
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
from example_results import make_results

import lreid
import lreid.gallery
from lreid.link.record import LinkRecord

PACKAGE = Path(__file__).parents[1] / "lreid"

FOUNDATION = {"errors", "utils"}  # every room may import these

# What each room, and each file at the root, may import of the project besides itself and the foundation. The core comes
# first, in the order in which data passes through it.
CORE: dict[str, set[str]] = {
    "errors": set(),
    "utils": set(),
    "config_keys": set(),
    "config": {"config_keys"},
    "losses": set(),
    "retrieval": set(),
    "results": set(),
    "data": set(),
    "memory": {"data"},
    "models": {"data"},
    "methods": {"data", "losses", "memory", "models", "retrieval"},
    "evaluation": {"data", "models", "results", "retrieval"},
    "checkpoint": {"results"},
    "loading": {"checkpoint", "config", "config_keys", "data", "models", "zoo"},
    "build": {"config", "config_keys", "data", "evaluation", "loading", "methods", "models", "results", "retrieval"},
    "training": {
        *("build", "checkpoint", "config", "config_keys", "data", "evaluation", "memory", "methods", "models"),
        "results",
    },
}
PERIPHERY: dict[str, set[str]] = {
    "zoo": {"models"},
    "report": {"evaluation", "results"},
    "export": {"config", "loading", "models", "zoo"},
    "classification": {"build", "config_keys", "data", "evaluation", "results", "retrieval", "training"},
    "gallery": {"data", "loading", "models", "report", "retrieval", "zoo"},
    "link": {"data", "gallery", "loading", "models", "report", "retrieval"},
    "serve": {"data", "gallery", "models", "report"},
}
ALLOWED = CORE | PERIPHERY
EVERYTHING = {"__init__", "__main__", "apps"}  # the entry points
NETWORK = {"lreid.zoo.download", "lreid.zoo.hub", "lreid.zoo.hosted"}  # the part of the zoo that the core never imports
MODULE = re.compile(r"lreid(\.\w+)+\.?")


def test_every_room_has_its_rule() -> None:
    names = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert names == ALLOWED.keys() | (EVERYTHING & names)


def test_the_root_has_at_most_eight_modules() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 8


@cache
def imported(file: Path) -> set[str]:
    """Full names of what a file imports: at its top, inside functions, for type checkers, or by a text.

    A text that begins with the name of a module counts as an import of this module, because ``import_module`` gets it.
    """
    tree = ast.parse(file.read_text())
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{file}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE.fullmatch(node.value):
            names |= {node.value.rstrip(".")} if module_of(node.value) else set()
    return names


@cache
def modules() -> dict[str, Path]:
    """All modules of the package by full name."""
    return {".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts): file for file in PACKAGE.rglob("*.py")}


@cache
def public_names() -> dict[str, str]:
    """The modules of the public names of all packages, which stand in ``__init__.pyi``."""
    homes = {}
    for stub in PACKAGE.rglob("__init__.pyi"):
        package = ".".join(stub.parent.relative_to(PACKAGE.parent).parts)
        for node in ast.parse(stub.read_text()).body:
            if isinstance(node, ast.ImportFrom):
                homes |= {f"{package}.{alias.name}": f"{package}.{node.module}" for alias in node.names}
    return homes


def module_of(name: str) -> str | None:
    """The module that an imported name belongs to, or None for names of other packages."""
    name = public_names().get(name, name)
    while name.startswith("lreid."):
        for module in (name, f"{name}.__init__"):
            if module in modules():
                return module
        name = name.rpartition(".")[0]
    return None


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_rooms_import_only_what_they_may(room: str) -> None:
    for file in [*PACKAGE.glob(f"{room}.py"), *PACKAGE.glob(f"{room}/**/*.py")]:
        names = {name for name in imported(file) if name.startswith("lreid.")}
        foreign = {name.split(".")[1] for name in names} - ALLOWED[room] - {room} - FOUNDATION - {"__version__"}
        assert not foreign, f"{file.relative_to(PACKAGE.parent)} imports {', '.join(sorted(foreign))}"


@pytest.mark.parametrize("room", sorted(CORE))
def test_the_core_knows_nothing_of_the_periphery(room: str) -> None:
    assert not CORE[room] & PERIPHERY.keys() - {"zoo"}
    for file in [*PACKAGE.glob(f"{room}.py"), *PACKAGE.glob(f"{room}/**/*.py")]:
        assert not {module_of(name) for name in imported(file)} & NETWORK, file


def test_no_modules_import_each_other_in_a_circle() -> None:
    arrows = {name: {module_of(each) for each in imported(file)} & modules().keys() for name, file in modules().items()}
    graph = TopologicalSorter({name: targets - {name} for name, targets in arrows.items()})
    try:
        graph.prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_no_public_name_hides_a_module() -> None:
    """Otherwise ``import lreid.a.b`` gives a function."""
    assert len(public_names()) > 100
    assert not {name for name in public_names() if name in modules() or f"{name}.__init__" in modules()}


def test_loading_a_model_brings_no_more_than_it_needs() -> None:
    code = "import sys, lreid; lreid.load_model('zoo:dwopp-synthetic-10'); print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, text=True, capture_output=True, check=True)
    loaded = set(done.stdout.split())
    assert "lreid.models.embedder" in loaded
    rooms = {name.split(".")[1] for name in loaded if name.startswith("lreid.")}
    assert rooms <= FOUNDATION | ALLOWED["loading"] | {"loading", "results"}
    heavy = {"matplotlib", "albumentations", "faiss", "pymilvus", "tensorboard", "torchreid", "peft", "open_clip"}
    assert not heavy & {name.split(".")[0] for name in loaded}


def test_training_loads_the_report_when_a_run_writes_it() -> None:
    code = "import sys, lreid.training.run; print(*sys.modules)"
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
    record = LinkRecord()
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
        assert top <= {"__future__", "collections", "importlib", "lazy_loader", "math", "typing", "torch", "lreid"}, (
            file
        )
        assert "lreid.utils.files" not in imported(file)
