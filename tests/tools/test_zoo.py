"""The command line of the zoo, and its models in the other tools."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from zoo_entries import write_entry

from lreid.zoo import cards, find, published
from lreid.zoo.catalogue import markdown_page

NAME = "dwopp-synthetic-10"


def test_list_show_download_and_page(
    tool: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool("zoo.py", "list") == 0
    assert NAME in capsys.readouterr().out
    for subject, first, absent in (("people", "people", "vehicles"), ("vehicles", "vehicles", "people")):
        assert tool("zoo.py", "list", "--for", subject, "--license", "permissive") == 0
        names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()]
        assert names[2] == first and absent not in names
        assert not set(names) & published().keys()  # all were trained on images for research only
    assert tool("zoo.py", "list", "--for", "vehicles") == 0
    assert {"fastreid-sbs-r50-ibn-veri"} <= {line.split()[0] for line in capsys.readouterr().out.splitlines() if line}
    assert tool("zoo.py", "show", f"zoo:{NAME}") == 0
    assert find(NAME).sha256 in capsys.readouterr().out
    assert tool("zoo.py", "download", NAME) == 0
    assert Path(capsys.readouterr().out.strip()) == find(NAME).file.with_suffix(".safetensors")
    assert tool("zoo.py", "page", "--out", str(tmp_path / "zoo.md")) == 0
    assert (tmp_path / "zoo.md").read_text(encoding="utf-8") == markdown_page(cards(), list(published().values()))


def test_testing_and_searching_with_a_name(
    tool: Callable[..., int], world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LREID_ZOO_CARDS", str(tmp_path))
    write_entry(tmp_path, "mine")
    assert tool("test.py", "--checkpoint", "zoo:mine", "--query", "q", "--gallery", "g") == 0
    results = json.loads((world / "mine-test" / f"{world.name}-g" / "test.json").read_text())
    assert results["checkpoints"] == {"zoo:mine": "zoo:mine"}

    gallery = str(tmp_path / "people.gallery")
    assert tool("search.py", "build", gallery, "g", "--checkpoint", "zoo:mine") == 0
    picture = str(next((world / "q").iterdir()))
    assert tool("search.py", "query", gallery, picture, "--out", str(tmp_path / "matches")) == 0
    assert json.loads((tmp_path / "matches" / "matches.json").read_text())["queries"][0]["matches"]
