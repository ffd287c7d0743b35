"""The descriptions of keys and options; keys that a method ignores are refused."""

import itertools
from pathlib import Path

import pytest
import yaml

from lreid.apps.options import keys_page, options_text
from lreid.config import load_config
from lreid.errors import InputError
from lreid.methods import method_class, method_defaults, method_names, method_rules
from lreid.training.run_config import load_run_config


def test_options_text_has_defaults_and_meanings() -> None:
    text = options_text("dwopp").splitlines()
    row = text.index("METHOD.TEMPERATURE  1.0  (float > 0)")
    assert text[row + 1].strip() == method_rules(method_class("dwpp"))["temperature"].about
    assert any("configs/recipes/bot.yaml" in line for line in options_text("lwf_plus").splitlines())
    assert max(map(len, text)) <= 120


@pytest.mark.parametrize("name", method_names())
def test_every_option_has_a_meaning(name: str) -> None:
    cls = method_class(name)
    options = method_defaults(cls)
    assert set(cls.unused) <= set(options) == set(method_rules(cls))
    keys = [line.split()[0] for line in options_text(name).splitlines() if line.startswith("METHOD.")]
    assert keys == [f"METHOD.{each.upper()}" for each in options if each not in cls.unused]


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ("METHOD.NAME bot_ft EPISODE.QUERY 2", "EPISODE.QUERY is ignored by bot_ft, which trains on P x K images"),
        ("METHOD.NAME contrast_scoring EPISODE.QUERY 2", "which trains on a stream"),
        ("BATCH.IMAGES 5", "BATCH.IMAGES is ignored by dwopp, which trains on episodes"),
        ("METHOD.NAME er STREAM.ITERATIONS 3", "STREAM.ITERATIONS is ignored by er, .* STREAM.SEGMENT is above 0"),
        ("METHOD.NAME icarl METHOD.TEMPERATURE 3", "METHOD.TEMPERATURE is ignored by icarl, .* does not use it"),
        ("METHOD.NAME decoupled METHOD.PROB_FLOOR 0", "METHOD.PROB_FLOOR is ignored by decoupled"),
    ],
)
def test_ignored_keys_are_refused(overrides: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^command line: .*{reason}"):
        load_run_config(overrides=overrides.split())
    words = ["METHOD.NAME", "dwopp", *overrides.split()]  # a later name wins
    tree: dict[str, dict[str, str]] = {}
    for key, value in zip(words[::2], words[1::2], strict=True):
        group, _, name = key.partition(".")
        tree.setdefault(group, {})[name] = value
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(tree))
    with pytest.raises(InputError, match=f"^{file}: .*{reason}"):
        load_run_config([file])
    method = tree["METHOD"].pop("NAME")
    if not tree.pop("METHOD"):  # a file of no method, which the command line names
        file.write_text(yaml.safe_dump(tree))
        with pytest.raises(InputError, match=f"^{file}: .*{reason}"):
            load_run_config([file], ["METHOD.NAME", method])


def test_ignored_key_on_the_command_line_is_refused() -> None:
    with pytest.raises(InputError, match="^command line: BATCH.IMAGES is ignored by er, which trains on a stream"):
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
    (tmp_path / "method.yaml").write_text("METHOD: {NAME: dwopp, PROB_FLOOR: 0.1}\nEPISODE: {QUERY: 2}")
    load_run_config([tmp_path / "method.yaml"], ["METHOD.NAME", "bot_ft"])
    (tmp_path / "both.yaml").write_text("EPISODE: {QUERY: 2}\nBATCH: {IMAGES: 4}\nMETHOD: {PROB_FLOOR: 0.1}")
    load_run_config([tmp_path / "both.yaml"], ["METHOD.NAME", "bot_ft"])
    for benchmark, recipe, method in itertools.product(
        ("omniglot", "market1501-10", "split-folder"), ("dmml", "bot", "aka"), ("dwopp", "icarl", "co2l")
    ):
        load_run_config([benchmark], ["METHOD.NAME", method, "METHOD.RECIPE", recipe])
        load_run_config([f"recipes/{recipe}"], ["METHOD.NAME", method])


def test_method_after_a_joint_file_needs_the_key_joint(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("METHOD: {NAME: joint}\n")
    (tmp_path / "run.yaml").write_text(load_config(["methods/bot_joint"]).dump())
    for joint in ("methods/joint", tmp_path / "mine.yaml", tmp_path / "run.yaml"):
        message = f"^command line: METHOD.NAME dwopp comes after \\S*{Path(joint).stem}.yaml, .* BENCHMARK.JOINT False"
        with pytest.raises(InputError, match=message):
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


def test_page_of_keys_is_up_to_date(repository: Path) -> None:
    page = (repository / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    assert page == keys_page(), "python -m lreid.apps.options > docs/reference/configuration.md"
    assert "| `TRAIN.END_FACTOR` | `0.005` | float | > 0, ≤ 1 |" in page
