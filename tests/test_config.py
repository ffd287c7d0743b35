"""Merging, overriding and checking of configs."""

import re
from pathlib import Path

import pytest

from lreid.config import (
    check_values,
    config_from_text,
    differing_keys,
    find_config,
    layers,
    leaves,
    load_config,
    method_options,
    method_title,
    without_folders,
)
from lreid.config_keys import KEYS, Config
from lreid.errors import InputError
from lreid.methods import build_method, method_class, method_defaults
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
        if cfg.METHOD.NAME == "pad":  # needs a transformer; its own tests build it
            assert method_options(cfg).keys() <= method_defaults(method_class(cfg.METHOD.NAME)).keys()
        else:
            build_method(cfg.METHOD.NAME, Embedder("small", height=64, width=32), **method_options(cfg))
    if file.parent.name == "benchmarks":
        assert file.stem == cfg.BENCHMARK.NAME


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_every_header_names_the_paper_and_the_command(file: Path, repository: Path) -> None:
    header = re.match(r"(?:#.*\n)+", file.read_text(encoding="utf-8"))[0]
    (command,) = re.findall(r"^#   (python tools/train.py.*(?:\\\n#.*)*)$", header, re.M)
    named = [repository / each for each in re.findall(r"configs/[\w/-]+\.yaml", command)]
    assert all(each.exists() for each in named)
    # The one is the default, the other needs its recipe.
    assert file in named or file.relative_to(repository / "configs").as_posix() in (
        "benchmarks/synthetic-10.yaml",
        "methods/contrast_scoring.yaml",
    )
    if file.parent.name != "benchmarks":
        assert re.search(r"\b20[012]\d\b|Data Selection\"|DASA", header)  # year, or title where no year is known


@pytest.mark.parametrize(
    "file", [file for file in CONFIGS if file.parent.name == "methods"], ids=lambda file: file.stem
)
def test_method_file_sets_only_changed_keys(file: Path) -> None:
    (_, keys), _ = layers([file])
    defaults = method_defaults(method_class(keys.pop("METHOD.NAME")))
    known = {name: key.default for name, key in KEYS.items()}
    known |= {f"METHOD.{name.upper()}": default for name, default in defaults.items()}
    assert all(value != known[name] for name, value in keys.items())


def test_defaults_equal_the_built_in_benchmark() -> None:
    assert differing_keys(load_config(["benchmarks/synthetic-10", "methods/dwopp"]), Config()) == []


@pytest.mark.parametrize(
    "name", ["configs/benchmarks/vehicles.yaml", "benchmarks/vehicles", "vehicles", "vehicles.yaml"]
)
def test_built_in_configs_are_found_by_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_config([name]).BENCHMARK.NAME == "vehicles"
    Path("mine.yaml").write_text(f"_BASE_: {name}")
    assert load_config(["mine.yaml"]).BENCHMARK.NAME == "vehicles"
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text("SEED: 3")  # a file here comes before
    assert load_config([name]).SEED == 3
    (tmp_path / "elsewhere" / "vehicles").mkdir(parents=True)  # a folder does not
    assert find_config("vehicles", tmp_path / "elsewhere").name == "vehicles.yaml"


def test_paths_in_a_file_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.json", "w.pt", "x.csv", "x#y.csv"):
        (tmp_path / "exp" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "exp" / name).touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "exp" / "a.yaml").write_text(
        "INPUT: {PIPELINE: a.json}\nMODEL: {WEIGHTS: w.pt}\nBENCHMARK:\n"
        "  TRAIN: ['csv:x.csv', 'csv:x.csv#street', 'csv:x#y.csv', 'folder:../data', market1501, 'csv:gone.csv']\n"
    )
    (tmp_path / "top.yaml").write_text("_BASE_: exp/a.yaml")
    (tmp_path / "b.yaml").write_text("INPUT: {PIPELINE: exp/a.json}")
    monkeypatch.chdir(tmp_path)
    for file in ("exp/a.yaml", "top.yaml"):
        cfg = load_config([file])
        found = [*cfg.INPUT.PIPELINE, cfg.MODEL.WEIGHTS, *cfg.BENCHMARK.TRAIN]
        exp = tmp_path / "exp"
        assert found[:2] == [f"{exp}/a.json", f"{exp}/w.pt"]
        assert found[2:5] == [f"csv:{exp}/x.csv", f"csv:{exp}/x.csv#street", f"csv:{exp}/x#y.csv"]
        assert found[5:] == [f"folder:{tmp_path}/data", "market1501", "csv:gone.csv"]
    Path("exp", "config.yaml").write_text(load_config(["top.yaml"]).dump())
    monkeypatch.chdir("/")
    saved = tmp_path / "exp" / "config.yaml"
    assert differing_keys(load_config([saved]), load_config([tmp_path / "top.yaml"])) == []


def test_other_paths_are_relative_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "a.yaml").write_text("INPUT: {PIPELINE: here.json}\nMODEL: {WEIGHTS: none}\n")
    (tmp_path / "here.json").touch()
    monkeypatch.chdir(tmp_path)
    assert load_config(["exp/a.yaml"]).INPUT.PIPELINE == ["here.json"]  # found from the working directory
    assert load_config([], ["INPUT.PIPELINE", "here.json"]).INPUT.PIPELINE == ["here.json"]
    assert load_config(["exp/a.yaml"]).MODEL.WEIGHTS == "none"


@pytest.mark.parametrize(
    ("value", "published"),
    [
        ("own:/home/anna/shop", "own:shop"),
        ("own:shop/", "own:shop"),
        ("csv:../anna/index.csv#north", "csv:index.csv#north"),
        ("rotated:30:folder:/home/anna/digits", "rotated:30:folder:digits"),
        ("market1501", "market1501"),
        ("synthetic:plaza", "synthetic:plaza"),
    ],
)
def test_published_config_has_no_private_folders(value: str, published: str) -> None:
    mine = {"MODEL.WEIGHTS": "/home/anna/net.pt", "INPUT.PIPELINE": "anna/own.yaml", "BENCHMARK.UNSEEN": [value]}
    cfg = load_config([mine | {"BENCHMARK.TRAIN": [value, "own:/home/anna/a"]}])
    others = without_folders(cfg)
    assert [published, "own:a"] == others.BENCHMARK.TRAIN and [published] == others.BENCHMARK.UNSEEN
    assert (others.MODEL.WEIGHTS, others.INPUT.PIPELINE) == ("net.pt", ["own.yaml"])
    assert "anna" not in others.dump() and cfg.MODEL.WEIGHTS == "/home/anna/net.pt"


@pytest.mark.parametrize("weights", ["none", "imagenet", "zoo:people-small", "package:lpips"])
def test_names_are_not_treated_as_paths(weights: str) -> None:
    for cfg in (
        load_config([], ["MODEL.WEIGHTS", weights, "INPUT.PIPELINE", "configs/augmentations/simclr.yaml"]),
        load_config(["benchmarks/rendered-people"]),
    ):
        assert differing_keys(cfg, without_folders(cfg)) == []


def test_built_in_files_have_portable_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("recipes/contrast_scoring", repository / "configs" / "recipes" / "contrast_scoring.yaml"):
        (name,) = load_config([file]).INPUT.PIPELINE
        assert name == "configs/augmentations/simclr.yaml"
    assert find_config(name).samefile(repository / name)


def test_overrides_apply_after_files_after_bases(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("SEED: 1\nTRAIN: {EPOCHS: 5, LR: 1}\n")
    (tmp_path / "top.yaml").write_text("_BASE_: base.yaml\nTRAIN: {EPOCHS: 7, WEIGHT_DECAY: 1e-3}\n")
    cfg = load_config([tmp_path / "top.yaml"], ["INPUT.WIDTH", "48", "BENCHMARK.TRAIN", "['a','b']"])
    assert (cfg.SEED, cfg.TRAIN.EPOCHS, cfg.INPUT.WIDTH) == (1, 7, 48)
    assert cfg.TRAIN.LR == 1.0 and isinstance(cfg.TRAIN.LR, float)
    assert cfg.TRAIN.WEIGHT_DECAY == 1e-3  # a string to YAML
    assert cfg.BENCHMARK.TRAIN == ["a", "b"]


@pytest.mark.parametrize(
    ("method", "benchmark", "keys"),
    [
        ("methods/dwopp", "benchmarks/seq-cifar10", {"METHOD.NAME": "dwopp", "STREAM.SEGMENT": 512}),
        ("methods/lstkc_pp", "market1501-10", {"BATCH.IDENTITIES": 8, "BATCH.IMAGES": 8, "INPUT.HEIGHT": 256}),
        ("methods/dask", "lreid-order1", {"EVAL.METRIC": "euclidean", "BATCH.IDENTITIES": 32}),
        ("recipes/cclis", "seq-cifar10", {"METHOD.NAME": "cclis", "TRAIN.LR": 1.0, "EVAL.PROBE_LR": 0.5}),
        ("recipes/online", "synthetic-domains", {"TRAIN.EPOCHS": 1, "STREAM.SEGMENT": 10}),
        ("mine.yaml", "shop.yaml", {"TRAIN.EPOCHS": 7, "BATCH.IDENTITIES": 8, "METHOD.ALPHA": 0.5}),
    ],
)
def test_benchmark_files_apply_first_in_any_order(
    method: str, benchmark: str, keys: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("METHOD: {NAME: lstkc_pp, ALPHA: 0.5}\nTRAIN: {EPOCHS: 7}\n")
    Path("shop.yaml").write_text("BENCHMARK: {TRAIN: ['folder:shop']}\nBATCH: {IDENTITIES: 3}\nTRAIN: {EPOCHS: 2}\n")
    after, before = load_config([benchmark, method]), load_config([method, benchmark])
    assert differing_keys(after, before) == []
    assert {key: value for key, value in leaves(after) if key in keys} == keys


@pytest.mark.parametrize(
    ("one", "other", "overrides", "changed"),
    [
        ("TRAIN: {EPOCHS: 5, LR: 1.0}", "TRAIN: {EPOCHS: 7}", [], "TRAIN.EPOCHS"),
        ("TRAIN: {EPOCHS: 5}", "TRAIN: {EPOCHS: 7}", ["TRAIN.EPOCHS", "7"], None),
        ("TRAIN: {LR: 1.0e-3}", "TRAIN: {LR: 1e-3}", [], None),  # a number and a string to YAML
        ("TRAIN: {LR: 1}", "_BASE_: recipes/bot", [], "TRAIN.LR"),
        ("_BASE_: recipes/bot", "TRAIN: {LR: 1}", [], None),  # which the file inherits
        ("BATCH: {IDENTITIES: 5}", "METHOD: {NAME: lstkc_pp}", [], "BATCH.IDENTITIES"),  # as its file sets it
        ("METHOD: {TEMPERATURE: 3.0}", "METHOD: {NAME: dwpp}", [], "METHOD.TEMPERATURE"),  # dropped
        ("BENCHMARK: {TRAIN: [a]}\nMETHOD: {NAME: er}", "METHOD: {NAME: dwpp}", [], "METHOD.NAME"),
        ("BENCHMARK: {TRAIN: [a]}\nSEED: 1", "BENCHMARK: {TRAIN: [b]}\nSEED: 2", [], "SEED"),
    ],
)
def test_file_that_changes_keys_of_another_is_reported(
    one: str, other: str, overrides: list[str], changed: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = [tmp_path / "one.yaml", tmp_path / "other.yaml"]
    for file, text in zip(files, (one, other), strict=True):
        file.write_text(text)
    load_config(files, overrides)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (changed is not None)
    assert all(each in line for line in said for each in (str(files[0]), str(files[1]), str(changed)))
    if changed:
        load_config(files, [changed, "dwopp" if changed == "METHOD.NAME" else "3"])
        assert not any(changed in record.getMessage() for record in caplog.records[1:])


def test_two_methods_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("METHOD: {NAME: lwf}")
    for files in (["methods/dwopp", "methods/lstkc"], ["methods/er", "seq-cifar10", "recipes/cclis"]):
        for order in (files, files[::-1]):
            with pytest.raises(InputError) as error:
                load_config(order)
            assert all(f"{each}.yaml" in str(error.value) for each in (files[0], files[-1]))
            assert load_config(order, ["METHOD.NAME", "gdumb"]).METHOD.NAME == "gdumb"
    with pytest.raises(InputError):
        load_config([tmp_path / "mine.yaml", "methods/lstkc"])


def test_key_with_two_values_on_the_command_line_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    assert load_config([], ["SEED", "1", "TRAIN.LR", "1", "SEED", "1"]).SEED == 1 and not caplog.records
    assert load_config([], ["SEED", "1", "SEED", "2"]).SEED == 2
    config_from_text("SEED: 5", "config.yaml", ["SEED", "3", "SEED", "4"])
    assert ["SEED" in record.getMessage() for record in caplog.records] == [True, True]


@pytest.mark.parametrize(
    ("text", "first", "again"),
    [
        ("TRAIN: {LR: 1}\nSEED: 1\nTRAIN: {EPOCHS: 2}\n", 1, 3),
        ("_BASE_: market1501-10\nSEED: 1\n_BASE_: veri776-10\n", 1, 3),
        ("SEED: 1\nINPUT:\n  <<: {HEIGHT: 3,\n    HEIGHT: 4}\n", 3, 4),
    ],
)
def test_duplicate_key_is_refused_with_both_lines(text: str, first: int, again: int, tmp_path: Path) -> None:
    (tmp_path / "twice.yaml").write_text(text)
    (tmp_path / "top.yaml").write_text("_BASE_: twice.yaml")
    for file in ("twice.yaml", "top.yaml"):
        with pytest.raises(InputError, match=rf"twice.yaml: .*line {first} .*line {again}\b"):
            load_config([tmp_path / file])
    with pytest.raises(InputError, match=rf"config.yaml: .*line {first} .*line {again}\b"):
        config_from_text(text, "config.yaml")


def test_key_set_in_its_section_and_by_its_full_name_is_refused() -> None:
    with pytest.raises(InputError, match="config.yaml: TRAIN.LR"):
        config_from_text("TRAIN: {LR: 1}\nTRAIN.LR: 2\n", "config.yaml")


def test_new_method_name_drops_old_options(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("METHOD: {TEMPERATURE: 3.0, NAME: dwpp}\n")
    assert load_config([tmp_path / "a.yaml"]).METHOD.TEMPERATURE == 3.0
    assert "TEMPERATURE" not in load_config([tmp_path / "a.yaml"], ["METHOD.NAME", "joint"]).METHOD
    assert load_config([tmp_path / "a.yaml"], ["METHOD.NAME", "dwpp"]).METHOD.TEMPERATURE == 3.0


def test_method_files_are_known_by_name(repository: Path) -> None:
    file = repository / "configs" / "methods" / "lwf_plus.yaml"
    cfg = load_config([], ["METHOD.NAME", "lwf_plus", "METHOD.TEMPERATURE", "3.0"])
    assert (cfg.METHOD.NAME, method_title(cfg)) == ("lwf", "lwf_plus")
    assert differing_keys(cfg, load_config([file])) == ["METHOD.TEMPERATURE"]
    assert load_config([], ["METHOD.NAME", "joint"]).BENCHMARK.JOINT
    assert differing_keys(load_config([file], ["METHOD.NAME", "er"]), load_config([], ["METHOD.NAME", "er"])) == []


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["TRAIN.EPOCH", "3"], "TRAIN.EPOCH; .*TRAIN.EPOCHS"),
        (["EPOCHS", "3"], "EPOCHS"),
        (["TRAIN.DECAY_FACTOR", "0.3"], "TRAIN.DECAY_FACTOR; .*TRAIN.END_FACTOR"),
        (["TRAIN.EPOCHS", "many"], "TRAIN.EPOCHS .*int .*'many'"),
        (["TRAIN", "3"], "TRAIN is a group"),
        (["SEED"], "SEED: .*no value"),
        (["SEED.X", "1"], "SEED.X"),
    ],
)
def test_bad_overrides_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_config([], overrides)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not valid YAML"),
        ("\udcff", "bad.yaml: .*UTF-8"),
        ("- 1", "bad.yaml: .*list"),
        ("SEEED: 1", "unknown key SEEED; the nearest name is SEED"),
        ("_BASE_: bad.yaml", "extends itself"),
        ("_BASE_: gone.yaml", "bad.yaml: _BASE_: .*gone.yaml"),
        ("_BASE_: market1501-1", "nearest .*benchmarks/market1501-10$"),
        ("_BASE_: aka", "aka: .*methods/aka or recipes/aka"),
        ("_BASE_: .", "is a folder"),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.yaml").write_text(text, errors="surrogateescape")
    with pytest.raises(InputError, match=message):
        load_config([tmp_path / "bad.yaml"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["INPUT.PIPELINE", "[1]"], r"INPUT.PIPELINE is \[1\]"),
        (["DATA.WORKERS", "1000000"], "DATA.WORKERS is 1000000"),
        (["EVAL.AP", "round"], "EVAL.AP is 'round'"),
        (["INPUT.MEAN", "[1, 2]"], "INPUT.MEAN is "),
    ],
)
def test_values_out_of_range_are_refused(overrides: list[str], message: str) -> None:
    check_values(Config())
    with pytest.raises(InputError, match=message):
        check_values(load_config([], overrides))


def test_list_key_accepts_a_single_value(tmp_path: Path) -> None:
    assert load_config(overrides=["BENCHMARK.TRAIN", "csv:a.csv"]).BENCHMARK.TRAIN == ["csv:a.csv"]
    assert load_config(overrides=["TRAIN.MILESTONES", "40"]).TRAIN.MILESTONES == [40]
    (tmp_path / "one.yaml").write_text("BENCHMARK: {UNSEEN: viper}")
    assert load_config([tmp_path / "one.yaml"]).BENCHMARK.UNSEEN == ["viper"]
    with pytest.raises(InputError, match=r"INPUT.MEAN is \[0.5\]"):
        check_values(load_config(overrides=["INPUT.MEAN", "0.5"]))
