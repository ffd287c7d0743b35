"""Merging, overriding and checking of configs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lreid.config import (
    check_values,
    config_from_text,
    default_config,
    differing_keys,
    load_config,
    method_options,
    method_title,
)
from lreid.errors import InputError
from lreid.methods import build_method
from lreid.models import Embedder

CONFIGS = sorted(
    file
    for folder in ("benchmarks", "methods", "recipes")
    for file in (Path(__file__).parents[1] / "configs" / folder).glob("*.yaml")
)


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_every_shipped_config_loads(file: Path) -> None:
    cfg = load_config([file])
    if file.parent.name == "methods":
        assert file.stem == method_title(cfg)
        build_method(cfg.METHOD.NAME, Embedder("small", height=64, width=32), **method_options(cfg))
    if file.parent.name == "benchmarks":
        assert file.stem == cfg.BENCHMARK.NAME


def test_the_defaults_are_the_built_in_benchmark(repository: Path) -> None:
    files = ["configs/benchmarks/synthetic-10.yaml", "configs/methods/dwopp.yaml"]
    cfg = load_config([repository / file for file in files])
    assert set(differing_keys(cfg, default_config())) <= {"METHOD.DISTILLATION_WEIGHT", "METHOD.TEMPERATURE"}


def test_base_then_file_then_override(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("SEED: 1\nTRAIN: {EPOCHS: 5, LR: 1}\n")
    (tmp_path / "top.yaml").write_text("_BASE_: base.yaml\nTRAIN: {EPOCHS: 7, WEIGHT_DECAY: 1e-3}\n")
    cfg = load_config([tmp_path / "top.yaml"], ["INPUT.WIDTH", "48", "BENCHMARK.TRAIN", "['a','b']"])
    assert (cfg.SEED, cfg.TRAIN.EPOCHS, cfg.INPUT.WIDTH) == (1, 7, 48)
    assert cfg.TRAIN.LR == 1.0 and isinstance(cfg.TRAIN.LR, float)
    assert cfg.TRAIN.WEIGHT_DECAY == 1e-3  # a string to YAML
    assert cfg.BENCHMARK.TRAIN == ["a", "b"]


def test_a_dump_reads_back_the_same() -> None:
    cfg = load_config([], ["METHOD.NAME", "dwpp", "METHOD.TEMPERATURE", "3.5"])
    assert differing_keys(cfg, config_from_text(cfg.dump(), "dump")) == []


def test_options_belong_to_the_method_named_before_them(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("METHOD: {TEMPERATURE: 3.0, NAME: dwpp}\n")
    assert load_config([tmp_path / "a.yaml"]).METHOD.TEMPERATURE == 3.0
    assert "TEMPERATURE" not in load_config([tmp_path / "a.yaml"], ["METHOD.NAME", "joint"]).METHOD
    assert load_config([tmp_path / "a.yaml"], ["METHOD.NAME", "dwpp"]).METHOD.TEMPERATURE == 3.0


def test_a_method_that_is_another_with_options_is_known_by_name(repository: Path) -> None:
    file = repository / "configs" / "methods" / "lwf_plus.yaml"
    cfg = load_config([], ["METHOD.NAME", "lwf_plus", "METHOD.TEMPERATURE", "3.0"])
    assert (cfg.METHOD.NAME, method_title(cfg)) == ("lwf", "lwf_plus")
    assert differing_keys(cfg, load_config([file])) == ["METHOD.TEMPERATURE"]
    assert load_config([], ["METHOD.NAME", "joint"]).BENCHMARK.JOINT
    assert differing_keys(load_config([file], ["METHOD.NAME", "er"]), load_config([], ["METHOD.NAME", "er"])) == []
    before = "METHOD: {NAME: bot_ft_plus, EXEMPLARS: 20}"  # of a run from when it was a method of its own
    assert config_from_text(before, "config.yaml").METHOD.EXEMPLARS == 20


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["TRAIN.EPOCH", "3"], r"unknown key TRAIN.EPOCH; the nearest known one is TRAIN.EPOCHS"),
        (["EPOCHS", "3"], r"unknown key EPOCHS"),
        (["TRAIN.EPOCHS", "many"], r"TRAIN.EPOCHS must be of type int .* got 'many'"),
        (["TRAIN", "3"], r"TRAIN is a group of keys"),
        (["SEED"], r"SEED: a key without a value"),
        (["SEED.X", "1"], r"unknown key SEED.X"),
    ],
)
def test_bad_overrides_are_named(overrides: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_config([], overrides)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not valid YAML"),
        ("- 1", "must hold KEY: value lines, not a list"),
        ("SEEED: 1", "unknown key SEEED; the nearest known one is SEED"),
        ("_BASE_: bad.yaml", "builds on itself"),
        ("_BASE_: gone.yaml", "gone.yaml: no such config file"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(InputError, match=message) as error:
        load_config([tmp_path / "bad.yaml"])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["TRAIN.EPOCHS", "0"], "TRAIN.EPOCHS is 0; it must be 1 or more"),
        (["TRAIN.LR", "0"], "TRAIN.LR is 0.0; it must be above 0"),
        (["INPUT.FLIP", "1.5"], "INPUT.FLIP is 1.5; it must be 1 or less"),
        (["EVAL.AP", "round"], "EVAL.AP is 'round'; it must be rectangular or trapezoidal"),
        (["INPUT.MEAN", "[1, 2]"], "INPUT.MEAN is .* three numbers"),
    ],
)
def test_values_out_of_range_are_named(overrides: list[str], message: str) -> None:
    check_values(default_config())
    with pytest.raises(InputError, match=message):
        check_values(load_config([], overrides))
