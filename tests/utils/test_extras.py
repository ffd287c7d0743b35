"""Optional packages are loaded at their first use; errors name the extra to install."""

import ast
import copy
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging_files import extras_of, project_of

from lreid.config import load_config
from lreid.errors import InputError
from lreid.utils import extras
from lreid.utils.extras import Extra, import_plugins

OPTIONAL = {"albumentations", "cv2", "faiss", "gdown", "h5py", "moderngl", "onnx", "onnxruntime", "onnxscript"}
OPTIONAL |= {"optuna", "pymilvus", "scipy", "six", "tensorboard", "timm", "torchreid"}


def test_module_is_loaded_at_its_first_use() -> None:
    code = """
import sys
from lreid.utils.extras import Extra
module = Extra("colorsys", "render")
assert "colorsys" not in sys.modules
assert module.rgb_to_hsv(1, 0, 0) == (0, 1, 1) and module.load() is sys.modules["colorsys"]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_error_about_a_missing_module_names_the_extra() -> None:
    missing = Extra("no_such_package.inside", "render")
    copy.deepcopy(missing)
    for use in (missing.load, lambda: missing.anything):
        with pytest.raises(InputError, match=r"^no_such_package.inside .*pip install 'lreid\[render\]'$"):
            use()
    with pytest.raises(AttributeError):
        Extra("math", "render").no_such_function  # noqa: B018


def test_package_that_fails_to_import_gives_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "without_cuda.py").write_text("raise RuntimeError('libcublas is missing')\n")  # like faiss-gpu
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="^without_cuda .*libcublas is missing.$"):
        Extra("without_cuda", "gpu").load()


def test_every_extra_in_the_code_is_an_extra_of_setup(repository: Path) -> None:
    known = extras_of(repository)
    asked = {
        (call.args[0].value if isinstance(call.args[0], ast.Constant) else None, call.args[1].value)
        for file in (repository / "lreid").rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "Extra" and isinstance(call.args[1], ast.Constant)
    }
    assert len(asked) > 8
    assert {extra for _, extra in asked} <= known.keys(), asked
    assert set(known["train"]) >= {"torchreid", "albumentations", "opencv-python-headless", "tensorboard", "scipy"}


def test_optional_packages_are_imported_by_extra_only(repository: Path) -> None:
    for file in (repository / "lreid").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & OPTIONAL, file


@pytest.mark.slow
def test_models_load_and_features_are_ranked_without_optional_packages() -> None:
    code = f"""
import sys
sys.modules.update(dict.fromkeys({OPTIONAL | {"matplotlib"}!r}))
import numpy as np
import lreid
import lreid.build, lreid.gallery, lreid.methods, lreid.training.run
from lreid.data.synthetic import draw
from lreid.errors import InputError
assert "torchvision" not in sys.modules  # it takes two seconds, and networks of one's own do without
model = lreid.load_model("zoo:dwopp-synthetic-10")
features = model.extract(np.random.default_rng(0).integers(0, 256, (6, 64, 32, 3), np.uint8))
ids, cams = [0, 0, 1, 1, 2, 2], [0, 1] * 3
assert lreid.evaluate(features, features, ids, ids, cams, cams).num_valid == 6
build = lreid.Gallery.build
for use in (lambda: build(features, list("abcdef"), ids, model="m"), lambda: draw("synthetic:plaza/0/17/2/5")):
    try:
        use()
    except InputError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    faiss, opencv = done.stdout.splitlines()
    assert "'lreid[cpu]'" in faiss and "'lreid[opencv]'" in opencv


@pytest.mark.parametrize(
    ("system", "machine", "build"),
    [("linux", "x86_64", "faiss-gpu"), ("linux", "aarch64", "faiss-cpu"), ("darwin", "arm64", "faiss-cpu")],
)
def test_extra_gpu_installs_the_build_that_exists(system: str, machine: str, build: str, repository: Path) -> None:
    wanted = [Requirement(text) for text in project_of(repository)["optional-dependencies"]["gpu"]]
    here = {"sys_platform": system, "platform_machine": machine}
    chosen = [each.name for each in wanted if each.marker is None or each.marker.evaluate(here)]
    assert [name for name in chosen if name != "lreid"] == [build]


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory for plug-ins, which are no modules of this process afterwards."""
    (tmp_path / "beside.py").write_text("COUNT = []")
    (tmp_path / "plugged.py").write_text("from beside import COUNT\nCOUNT.append(1)")
    monkeypatch.setattr(extras, "imported", {})
    monkeypatch.setattr("lreid.config.imported", extras.imported)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("beside", "plugged", "broken", "taken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["plugged", "./plugged.py", ""])
def test_a_plugin_is_imported_once_and_recorded(plugins: Path, name: str) -> None:
    if not name:  # an installed one
        (plugins / "mine-1.dist-info").mkdir()
        (plugins / "mine-1.dist-info" / "METADATA").write_text("Name: mine\nVersion: 1")
        (plugins / "mine-1.dist-info" / "entry_points.txt").write_text("[lreid.plugins]\nmine = plugged")
        sys.path.append(str(plugins))
    for _ in range(2):
        import_plugins([name] if name else [])
    assert sys.modules["beside"].COUNT == [1]
    path = str(plugins / "plugged.py")
    recorded = load_config()
    assert [path if name.endswith("py") else "plugged"] == recorded.IMPORTS
    (plugins / "config.yaml").write_text(recorded.dump())
    assert load_config([plugins / "config.yaml"]).IMPORTS == recorded.IMPORTS
    extras.imported.clear()
    with pytest.raises(InputError, match=f"--import {recorded.IMPORTS[0]}"):
        load_config([plugins / "config.yaml"])


@pytest.mark.parametrize(
    ("name", "code", "traces"),
    [
        ("broken.py", "import math\nmath.sqrt(-1)", 1),
        ("broken.py", "import no_such_module", 1),
        ("broken.py", "1 +", 1),
        ("taken.py", "from lreid.methods import register\nregister('dwopp')(object)", 0),
        ("json.py", "", 0),
        ("none.py", None, 0),
        ("no_such_module", None, 0),
    ],
)
def test_a_plugin_that_fails_is_one_line(
    plugins: Path, run_lreid: Callable[..., int], capsys: pytest.CaptureFixture[str], name: str, code: str, traces: int
) -> None:
    if code is not None:
        (plugins / name).write_text(code)
    for command in (["train"], ["sweep", "--out", "runs"], ["test"], ["report", "."]):
        sys.modules.pop("broken", None)
        assert run_lreid(*command, "--import", name) == 2
        errors = capsys.readouterr().err
        assert errors.count("Traceback") == traces and len(re.findall(f"^lreid .*--import {name}", errors, re.M)) == 1
        assert traces or len(errors.splitlines()) == 1
