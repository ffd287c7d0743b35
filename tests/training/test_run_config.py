"""The recorded command, config changes and commit of a run."""

import shlex
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from lreid.build import resolved
from lreid.config import CONFIGS, differing_keys, load_config
from lreid.training import run_config
from lreid.training.run_config import changed_by, command_of, commit


def test_changed_keys_map_to_the_values_of_the_files() -> None:
    files = [CONFIGS / "benchmarks" / "synthetic-10.yaml", CONFIGS / "methods" / "dwpp.yaml"]
    assert changed_by(load_config(files, ["SEED", "3", "DATA.WORKERS", "2"])) == {}
    changed = changed_by(load_config(files, ["TRAIN.EPOCHS", "7", "METHOD.TEMPERATURE", "2.5", "METHOD.NAME", "dwpp"]))
    base = resolved(load_config(files))
    assert changed == {"TRAIN.EPOCHS": base.TRAIN.EPOCHS, "METHOD.TEMPERATURE": base.METHOD.TEMPERATURE}


def test_commit_of_a_source_tree_includes_local_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_config, "__file__", str(tmp_path / "lreid" / "training" / "run_config.py"))
    assert commit() is None
    (tmp_path / "file").write_text("1")

    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=b"]
        return subprocess.run(["git", *who, *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    git("init", "-q")
    assert commit() is None  # nothing is committed
    git("add", "file")
    git("commit", "-qm", "one", "--no-verify")
    head = git("rev-parse", "HEAD")
    assert commit() == head[:12]
    (tmp_path / "file").write_text("2")
    assert commit() == f"{head[:12]}, with changes"


@pytest.mark.parametrize(
    ("files", "overrides", "begin"),
    [
        ([], ["SEED", "3"], "--config configs/benchmarks/synthetic-10.yaml --config configs/methods/dwopp.yaml SEED 3"),
        (
            ["benchmarks/synthetic-domains", "methods/dwpp"],
            ["TRAIN.EPOCHS", "7", "METHOD.TEMPERATURE", "2.5", "BENCHMARK.TRAIN", "['synthetic:plaza','csv:a b.csv']"],
            "--config configs/benchmarks/synthetic-domains.yaml --config configs/methods/dwpp.yaml SEED 0",
        ),
        (
            ["methods/joint"],
            ["BENCHMARK.NAME", "mine", "DATA.ROOT", "/a b"],
            "--config configs/methods/joint.yaml SEED 0 DATA.ROOT '/a b'",
        ),
    ],
)
def test_recorded_command_reproduces_the_config(files: list[str], overrides: list[str], begin: str) -> None:
    cfg = load_config([CONFIGS / f"{file}.yaml" for file in files], overrides)
    command = command_of(cfg)
    assert command.startswith(f"lreid train {begin}")
    words = shlex.split(command)[2:]
    named = [word for option, word in pairwise(words) if option == "--config"]
    pairs = words[2 * len(named) :]
    again = load_config([CONFIGS.parent / file for file in named], pairs)
    assert differing_keys(resolved(again), resolved(cfg)) == []
    assert again.DATA.ROOT == cfg.DATA.ROOT
