"""lreid as it is installed: from a wheel of the source distribution, used in an empty folder outside the repository."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging_files import dockerfile_copies
from tiny import ONE_TASK, TINY, as_arguments

import lreid

pytestmark = pytest.mark.slow
REPOSITORY = Path(lreid.__file__).parents[1]
MODEL = "zoo:dwopp-synthetic-10"


def call(*command: object, cwd: Path, **environment: str) -> str:
    """What a command prints; it must succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made of the source distribution of what the Dockerfile copies, so that whatever they lack is missed."""
    top = tmp_path_factory.mktemp("package")
    source = top / "source"
    source.mkdir()
    for name, target in dockerfile_copies(REPOSITORY).items():
        if (REPOSITORY / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(REPOSITORY / name, source / target, symlinks=True, ignore=ignored)
        else:
            shutil.copy(REPOSITORY / name, source / target)
    call(sys.executable, "setup.py", "-q", "sdist", "--formats", "tar", cwd=source)
    (archive,) = (source / "dist").glob("*.tar")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    call(*pip, "--wheel-dir", top, archive, cwd=top)
    (made,) = top.glob("lreid-*.whl")
    return made


def brought(own: metadata.Distribution, extras: set[str]) -> set[Path]:
    """Files in this environment of what ``pip install lreid[EXTRAS]`` installs in addition."""
    waiting, seen, found = [(own, extras)], set(), set()
    while waiting:
        package, chosen = waiting.pop()
        for text in package.requires or ():
            wanted = Requirement(text)
            asked = wanted.marker is None or any(wanted.marker.evaluate({"extra": each}) for each in {"", *chosen})
            if not asked or (key := f"{wanted.name}{sorted(wanted.extras)}") in seen:
                continue
            seen.add(key)
            other = own if wanted.name == "lreid" else metadata.distribution(wanted.name)
            waiting.append((other, wanted.extras))
            if other is own:  # an extra that names another one
                continue
            tops = {file.parts[0] for file in other.files or ()} - {"..", "__pycache__"}
            found |= {Path(str(other.locate_file(top))) for top in tops}
    return found


QUICKSTART = (REPOSITORY / "docs" / "tutorials" / "quickstart.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def packages(wheel: Path) -> Path:
    """Those of a new environment: what the wheel asks for are links to this one's, and there are no others."""
    top = wheel.parent / "fresh"
    venv.create(top, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", top / "bin" / "python", "install", "--quiet", "--no-deps"]
    call(*pip, "--no-compile", wheel, cwd=wheel.parent)
    packages = top / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (own,) = metadata.distributions(name="lreid", path=[str(packages)])
    extras = set(re.search(r"whl\)\[([\w,]+)\]", QUICKSTART)[1].split(","))
    if any(each.name == "faiss-gpu" for each in metadata.distributions()):  # the other build of the same module
        extras = extras - {"cpu"} | {"gpu"}
    for package in brought(own, extras):
        if package.exists() and not (packages / package.name).exists():
            (packages / package.name).symlink_to(package)
    return packages


def installed(packages: Path, program: str, *words: object, cwd: Path) -> str:
    """What a program of the new environment prints."""
    return call(packages.parents[2] / "bin" / program, *words, cwd=cwd, PYTHONPATH="")


# Commands of lreid one after the other, whose process loads torch once; and what each prints.
TYPED = """
import contextlib, io, json, logging, sys
from lreid.apps.cli import run_command

outputs = []
for command, *words in json.loads(sys.argv[1]):
    logging.root.handlers.clear()  # they write to what took the output of the command before
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run_command(command, words) == 0, (command, words)
    outputs.append(out.getvalue())
print(json.dumps(outputs))
"""


def typed(packages: Path, *commands: list[str], cwd: Path) -> list[str]:
    """What each command of lreid prints in the new environment."""
    printed = installed(packages, "python", "-I", "-c", TYPED, json.dumps(commands), cwd=cwd)
    return json.loads(printed)


@pytest.fixture(scope="module")
def visited(packages: Path) -> tuple[Path, list[str]]:
    """A folder in which somebody typed what the quickstart says and more, and what each command printed."""
    top = packages.parents[3]
    code = re.search(r"```python\n(.*?)```", QUICKSTART, re.S)[1]
    (top / "take.py").write_text(f"{code}\nimport lreid\nprint(lreid.__file__)\n", encoding="utf-8")
    place = installed(packages, "python", "take.py", cwd=top).strip()
    assert Path(place).is_relative_to(packages)
    if sys.version_info >= (3, 11):  # before, a package in the current folder comes first
        (top / "lreid").mkdir()
        (top / "lreid" / "__init__.py").write_text("raise SystemExit('not this one')")
    assert installed(packages, "lreid", "--version", cwd=top).strip() == f"lreid {lreid.__version__}"
    config = ["--config", "configs/benchmarks/synthetic-10.yaml"]  # that of the package
    train = ["train", *config, "--method", "dmml_ft", "--out", "tiny", *as_arguments(TINY, ONE_TASK)]
    blocks = re.findall(r"^```(?:python)?\n(.*?)^```$", QUICKSTART, re.S | re.M)
    commands = [line.split() for line in re.findall(r"^lreid (.*)$", "".join(blocks), re.M)]
    commands = [[*words, *["--epochs", "1"] * (words[0] == "train")] for words in commands]  # trained briefly
    commands += [["test", "--checkpoint", "tiny"], ["report", "tiny"], ["zoo", "download", MODEL]]
    return top, typed(packages, train, *commands, cwd=top)


def test_wheel_contains_data_files(packages: Path) -> None:
    package = Path(lreid.__file__).parent
    others = {file.relative_to(package) for file in package.rglob("*") if file.is_file() and file.suffix != ".pyc"}
    others |= {file.relative_to(package) for file in (package / "configs").rglob("*.yaml")}  # behind a link
    restricted = {file for file in others if file.match("weights/research/*.safetensors")}
    others -= restricted
    assert len(others) > 200 and restricted
    assert not any((packages / "lreid" / file).exists() for file in restricted)
    assert all((packages / "lreid" / file).read_bytes() == (package / file).read_bytes() for file in others)
    assert not (packages / "lreid" / "configs").is_symlink()


CLIENT = """
import lreid
model = lreid.load_model("zoo:people")
reveal_type(model.similarity(model.encode(["a.jpg"]), "b.jpg"))
for match in lreid.Gallery("people.gallery").search("b.jpg", threshold=0.5):
    reveal_type(match.score)
lreid.compare("a.jpg", "b.jpg", modle="zoo:people")
"""


def test_types_reach_users(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text(CLIENT, encoding="utf-8")
    options = ["--python-executable", packages.parents[2] / "bin" / "python", "--ignore-missing-imports"]
    words = [sys.executable, "-m", "mypy", "--config-file", os.devnull, *options, "client.py"]
    environment = os.environ | {"PYTHONPATH": ""}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    lines = done.stdout.splitlines()
    similarity, score = (line for line in lines if "Revealed type" in line)
    (fault,) = (line for line in lines if "error" in line and line.startswith("client.py"))
    assert "ndarray" in similarity and 'float"' in score and "Any]" not in score
    assert fault.startswith("client.py:7: ") and "modle" in fault


def test_training_testing_and_reporting(packages: Path, visited: tuple[Path, list[str]]) -> None:
    folder, (*_, tested, reported, downloaded) = visited
    assert json.loads((folder / "tiny" / "results.json").read_text())["method"] == "dmml_ft"
    assert "plaza" in tested and "dmml_ft" in reported
    assert Path(downloaded.strip()).parent == packages / "lreid" / "weights"


DETACHED = """
import json, sys
import torch, lreid
from lreid.methods.dmml_ft import DMMLFineTuning

class Detached(DMMLFineTuning):
    def loss(self, batch):
        return {name: term.detach() for name, term in super().loss(batch).items()}

try:
    lreid.train(json.loads(sys.argv[1]), "detached", method=Detached, optimizer=torch.optim.RAdam)
except lreid.errors.InputError as error:
    print(error)
"""


def test_a_plugin_outside_the_package(packages: Path, tmp_path: Path) -> None:
    """Trained, in the process of a sweep, resumed, tested and reported with the example of the docs."""
    shutil.copy(REPOSITORY / "examples" / "own_plugin.py", tmp_path / "mine.py")
    own = {"MODEL.BACKBONE": "patches", "TRAIN.OPTIMIZER": "sign", "TRAIN.LOGGERS": "['lines']"}
    keys = as_arguments(TINY, ONE_TASK, own, {"TRAIN.EMA": 0.5, "TRAIN.CLIP_NORM": 1.0})
    options = ["--import", "mine", "--methods", "near", "--seeds", "0", "--out", "runs"]
    installed(packages, "lreid", "sweep", *options, *keys, cwd=tmp_path)
    run = tmp_path / "runs" / "near-seed0"
    results = json.loads((run / "results.json").read_text())
    assert results["method"] == "near" and 0 < results["mrr"][0][0] <= 100
    assert "IMPORTS:\n- mine\n" in (run / "config.yaml").read_text() and "seen_mrr" in (run / "lines.txt").read_text()
    words = ["--import", "mine.py"]
    tested, reported, per_set, resumed = typed(
        packages,
        ["test", *words, "--checkpoint", str(run)],
        ["report", *words, str(run), "--format", "csv"],
        ["report", *words, str(run), "--per-set"],
        ["train", *words, "--resume", "--out", str(run)],
        cwd=tmp_path,
    )
    assert f" {results['mrr'][0][0]:.1f} " in tested and "seen_mrr" in reported and "done" in resumed
    assert f"{results['mAP'][0][0]:.1f}" in per_set and f"{results['rank1'][0][0]:.1f}" in per_set
    fault = installed(packages, "python", "-c", DETACHED, json.dumps(TINY | ONE_TASK), cwd=tmp_path)
    assert "Detached.loss" in fault and "term dmml" in fault


def test_quickstart_works_in_a_new_environment(visited: tuple[Path, list[str]]) -> None:
    folder, (_, models, built, described, answered, trained, built_again, *_) = visited
    listed = "24 images of 12 identities (person-0, person-10, person-15 …), cameras unknown"
    assert "zoo:people" in models and "zoo:people" in described
    assert (built, built_again) == (f"people.gallery: {listed}\n", f"shop.gallery: {listed}\n")
    answers = json.loads((folder / "matches" / "matches.json").read_text())["queries"]
    right = sum(each["identity"] == Path(each["image"]).parent.name for each in answers)
    assert right >= 9 and f"{right} of 12 queries" in answered  # one by chance
    html = (folder / "matches" / "matches.html").read_text()
    assert html.count("<img") >= 24 and not re.findall(r"(?:src|href)=\"http", html)
    assert "zoo:people," in trained
    run = json.loads((folder / "runs" / "shop" / "results.json").read_text())
    assert run["method"] == "retrace" and run["mAP"][0][0] > 0
