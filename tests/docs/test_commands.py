"""What the pages tell people to type works: commands with their options, the quickstart, and Python."""

import argparse
import json
import re
import shlex
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lreid.apps.cli import run_command
from lreid.apps.train import add_arguments, short_keys
from lreid.build import load_run_config
from lreid.config import check_values

COMMAND = re.compile(r"(tools/\w+\.py|\blreid (?:train|test|search|report|sweep|data|zoo|export)\b)([^`\n#…]*)")
WITH_COMMANDS = ("lreid search", "lreid zoo", "lreid data", "tools/bench_train.py")


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Tools and commands of lreid with their arguments, wherever a page has them; a backslash continues a line."""
    found = COMMAND.findall(re.sub(r"\\\n\s*", "", text))
    return [(name, shlex.split(rest.replace("'", " "))) for name, rest in found if "--" in rest]


def test_commands_are_recognised() -> None:
    page = "`python tools/test.py --rerank`, `lreid data check --root there`, lreid sweeps --no; lreid train is all"
    assert commands(page) == [("tools/test.py", ["--rerank"]), ("lreid data", ["check", "--root", "there"])]


def blocks(page: str, language: str) -> list[str]:
    """Code blocks of a page."""
    return [code for name, code in re.findall(r"^```(\w*)\n(.*?)^```$", page, re.S | re.M) if name == language]


def test_every_option_exists(pages: dict[str, str], typed: Callable[..., str]) -> None:
    options_of: dict[tuple[str, ...], set[str]] = {}
    for text in pages.values():
        for tool, words in commands(text):
            asked = (tool, words[0]) if tool in WITH_COMMANDS and re.fullmatch("[a-z-]+", words[0]) else (tool,)
            options_of.setdefault(asked, set()).update(word for word in words if re.fullmatch("--[a-z-]+", word))
    assert len(options_of) > 10
    unknown = {
        asked: options - set(re.findall(r"--[a-z-]+", typed(*asked, "--help"))) for asked, options in options_of.items()
    }
    assert not {asked: options for asked, options in unknown.items() if options}


@pytest.mark.slow
def test_every_sweep_and_training_of_the_pages_can_start(
    repository: Path, pages: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Their keys exist, have allowed values and are not ignored; those of a sweep for each of its methods."""
    monkeypatch.chdir(repository)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    found = {"sweep": 0, "train": 0}
    for name, text in pages.items():
        if not name.startswith(("docs/results/", "docs/explanation/papers", "docs/how-to/common-problems")):
            continue
        code = "\n".join(blocks(text, "")).replace("\\\n", "")
        for command, rest in re.findall("^lreid (sweep|train) (.*)$", code, re.M):
            words = shlex.split(re.sub(r"MODEL.WEIGHTS runs/\S+", "", rest))  # a checkpoint of an earlier command
            found[command] += 1
            if command == "sweep":
                assert run_command("sweep", [*words, "--dry-run"]) == 0, (rest, capfd.readouterr().err)
            elif not name.startswith("docs/results/"):
                args = parser.parse_intermixed_args(words)
                check_values(load_run_config(args.config, [*args.overrides, *short_keys(args)]))
    assert found["sweep"] > 40 and found["train"] > 3, found


def test_every_config_file_exists(repository: Path, pages: dict[str, str]) -> None:
    files = set(re.findall(r"\bconfigs/[\w/.-]+\.yaml", "\n".join(pages.values())))
    assert len(files) > 8
    missing = {file for file in files if not (repository / file).exists()}
    assert {Path(file).stem for file in missing} <= {"stay_near", "NAME", "B", "M"}  # whatever the reader calls it


def test_quickstart_and_readme_have_the_same_commands(pages: dict[str, str]) -> None:
    """tests/test_package.py types them."""
    (four,) = (block for block in blocks(pages["docs/tutorials/quickstart.md"], "") if "zoo list" in block)
    assert len(four.splitlines()) == 4 and four in blocks(pages["README.md"], "")


@pytest.mark.slow
def test_steps_for_custom_data_run(
    pages: dict[str, str], typed: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty people, of whom every second one is trained on: four in each of five tasks."""
    steps = pages["docs/tutorials/custom-data.md"].split("## With your own list")[1].split("\n## ")[0]
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    rows = ["path,pid,split"]
    for person in range(40):
        folder = Path("shop", f"person-{person:02d}")
        folder.mkdir(parents=True)
        for shot in range(3):
            pixels = generator.integers(0, 256, (8, 4, 3), np.uint8)
            Image.fromarray(pixels).resize((16, 32)).save(folder / f"{shot:04d}.jpg")
            split = "train" if person % 2 == 0 else "query" if shot == 0 else "gallery"
            rows.append(f"person-{person:02d}/{shot:04d}.jpg,person-{person:02d},{split}")
    Path("shop", "shop.csv").write_text("\n".join(rows), encoding="utf-8")
    (block,) = blocks(steps, "")
    checking, training = (line.split()[1:] for line in block.replace("\\\n", "").splitlines())
    assert "20 / 60" in typed("lreid data", *checking[1:])
    typed("lreid train", *training[1:], "TRAIN.EPOCHS", "1", "INPUT.HEIGHT", "32", "INPUT.WIDTH", "16")
    assert len(json.loads(Path("runs/shop/results.json").read_text())["tasks"]) == 5
    assert Path("runs/shop/report.html").exists()
    (own,) = re.findall(r"^    _BASE_.*\n(?:    \w.*\n)+", steps, re.M)
    Path("shop.yaml").write_text(textwrap.dedent(own), encoding="utf-8")
    for method in ("dwopp", "lwf"):
        cfg = load_run_config(["shop.yaml"], ["METHOD.NAME", method])
        check_values(cfg)
        assert (cfg.MODEL.BACKBONE, cfg.BENCHMARK.TASKS_PER_DATASET) == ("resnet50", 5)


@pytest.mark.parametrize("page", ["docs/reference/metrics.md", "docs/reference/protocol.md"])
def test_python_of_the_pages_runs(pages: dict[str, str], page: str) -> None:
    found = blocks(pages[page], "python")
    assert found
    for block in found:
        assert "assert" in block
        exec(compile(block, page, "exec"), {})
