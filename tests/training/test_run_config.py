"""Keys that a method ignores, and the recorded command, config changes and commit of a run."""

import itertools
import shlex
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from lreid.build import changed_by, command_of, load_run_config, resolved
from lreid.config import CONFIGS, differing_keys, load_config
from lreid.errors import InputError
from lreid.training import run
from lreid.training.run import commit


def test_changed_keys_map_to_the_values_of_the_files() -> None:
    files = [CONFIGS / "benchmarks" / "synthetic-10.yaml", CONFIGS / "methods" / "dwpp.yaml"]
    assert changed_by(load_config(files, ["SEED", "3", "DATA.WORKERS", "2"])) == {}
    changed = changed_by(load_config(files, ["TRAIN.EPOCHS", "7", "METHOD.TEMPERATURE", "2.5", "METHOD.NAME", "dwpp"]))
    base = resolved(load_config(files))
    assert changed == {"TRAIN.EPOCHS": base.TRAIN.EPOCHS, "METHOD.TEMPERATURE": base.METHOD.TEMPERATURE}


def test_commit_of_a_source_tree_includes_local_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "__file__", str(tmp_path / "lreid" / "training" / "run.py"))
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


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ("METHOD.NAME bot_ft EPISODE.QUERY 2", "EPISODE.QUERY is ignored by bot_ft, .* P x K"),
        ("METHOD.NAME contrast_scoring EPISODE.QUERY 2", "EPISODE.QUERY is ignored .* stream"),
        ("METHOD.NAME dwopp BATCH.IMAGES 5", "BATCH.IMAGES is ignored by dwopp, .* episodes"),
        ("METHOD.NAME er STREAM.ITERATIONS 3", "STREAM.ITERATIONS is ignored by er, .* STREAM.SEGMENT"),
        ("METHOD.NAME icarl METHOD.TEMPERATURE 3", "METHOD.TEMPERATURE is ignored by icarl"),
        ("METHOD.NAME co2l EVAL.PROBE_INPUT augmented", "EVAL.PROBE_INPUT is ignored by co2l, .* EVAL.ACCURACY"),
        ("METHOD.NAME decoupled METHOD.PROB_FLOOR 0", "METHOD.PROB_FLOOR is ignored by decoupled"),
    ],
)
def test_ignored_keys_are_refused(overrides: str, reason: str, tmp_path: Path) -> None:
    """On the command line, in a file, and in a file without a method, which the command line names."""
    words, tree = overrides.split(), {}
    with pytest.raises(InputError, match=f"^command line: {reason}"):
        load_run_config(overrides=words)
    for key, value in zip(words[::2], words[1::2], strict=True):
        section, _, option = key.partition(".")
        tree.setdefault(section, {})[option] = value
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(tree))
    with pytest.raises(InputError, match=f"^{file}: {reason}"):
        load_run_config([file])
    if tree.pop("METHOD").keys() == {"NAME"}:
        file.write_text(yaml.safe_dump(tree))
        with pytest.raises(InputError, match=f"^{file}: {reason}"):
            load_run_config([file], words[:2])


def test_key_that_a_stream_ignores_is_refused_on_the_command_line() -> None:
    with pytest.raises(InputError, match="^command line: BATCH.IMAGES is ignored by er, .* stream"):
        load_run_config(overrides=["METHOD.NAME", "er", "STREAM.SEGMENT", "10", "BATCH.IMAGES", "4"])


@pytest.mark.parametrize(
    "overrides",
    [
        "METHOD.NAME bot_ft EPISODE.QUERY 2 BATCH.IMAGES 4",  # meant for methods of either kind
        "METHOD.NAME bot_ft BATCH.IMAGES 4",
        "METHOD.NAME contrast_scoring EPISODE.QUERY 2 BATCH.IMAGES 4 STREAM.ITERATIONS 2",
        "METHOD.NAME er STREAM.SEGMENT 10 STREAM.ITERATIONS 3",
        "EPISODE.QUERY 2",
    ],
)
def test_keys_that_a_method_reads_are_accepted(overrides: str) -> None:
    load_run_config(overrides=overrides.split())


@pytest.mark.slow
def test_files_may_have_keys_of_other_methods(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    for content in (
        "METHOD: {NAME: dwopp, PROB_FLOOR: 0.1}\nEPISODE: {QUERY: 2}",
        "EPISODE: {QUERY: 2}\nBATCH: {IMAGES: 4}\nMETHOD: {PROB_FLOOR: 0.1}",
    ):
        file.write_text(content)
        load_run_config([file], ["METHOD.NAME", "bot_ft"])
    for benchmark, recipe, method in itertools.product(
        ("omniglot", "market1501-10", "split-folder"), ("dmml", "bot", "aka"), ("dwopp", "icarl", "co2l")
    ):
        load_run_config([benchmark], ["METHOD.NAME", method, "METHOD.RECIPE", recipe])
        load_run_config([f"recipes/{recipe}"], ["METHOD.NAME", method])


def test_method_after_a_joint_file_needs_the_key_joint(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("METHOD: {NAME: joint}\n")
    (tmp_path / "run.yaml").write_text(load_config(["methods/bot_joint"]).dump())
    for joint in ("methods/joint", tmp_path / "mine.yaml", tmp_path / "run.yaml"):
        with pytest.raises(InputError, match=f"{Path(joint).stem}.yaml, .* BENCHMARK.JOINT False"):
            load_run_config([joint], ["METHOD.NAME", "dwopp"])
        for value in (False, True):
            keys = ["METHOD.NAME", "dwopp", "BENCHMARK.JOINT", str(value)]
            assert load_run_config([joint], keys).BENCHMARK.JOINT is value
        assert load_run_config([joint], ["SEED", "1"]).BENCHMARK.JOINT
        assert load_run_config([joint], ["METHOD.NAME", "lstkc_joint"]).BENCHMARK.JOINT  # says it itself
    (tmp_path / "all.yaml").write_text("BENCHMARK: {JOINT: True}\n")  # meant for any method
    assert load_run_config([tmp_path / "all.yaml"], ["METHOD.NAME", "dwopp"]).BENCHMARK.JOINT


def test_saved_config_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(load_run_config(["methods/icarl", "recipes/dmml"]).dump())
    assert load_run_config([tmp_path / "config.yaml"]).EPISODE.SUPPORT == 5
