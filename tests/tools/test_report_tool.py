"""The command line that compares runs."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoints import write_checkpoint


def test_what_runs_cost_is_shown_on_request(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = {
        "schema": 1, "method": "dwopp", "benchmark": "market", "seed": 0, "ap": "rectangular", "tasks": ["a"],
        "galleries": [], "mAP": [], "rank1": [], "summary": {}, "exemplars": 500,
    }  # fmt: skip
    for name, temperature in (("one", 1.0), ("two", 2.0)):
        (tmp_path / name).mkdir()
        results["config"] = {"METHOD.NAME": "dwopp", "METHOD.TEMPERATURE": temperature}
        (tmp_path / name / "results.json").write_text(json.dumps(results))
    tables = []
    for more in ([], ["--cost"]):
        folders = [str(tmp_path / name) for name in ("one", "two")]
        monkeypatch.setattr(sys, "argv", ["report.py", *folders, *more])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(repository / "tools" / "report.py"), run_name="__main__")
        assert end.value.code == 0
        tables.append(capsys.readouterr().out)
    assert "exemplars" not in tables[0] and "exemplars" in tables[1]
    assert all("dwopp, TEMPERATURE 1.0" in table and "dwopp, TEMPERATURE 2.0" in table for table in tables)
    assert (tmp_path / "one" / "report.html").exists()


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two run folders of a tiny benchmark, with a checkpoint each."""
    made = []
    for seed in (0, 1):
        folder = tmp_path / f"seed{seed}"
        write_checkpoint(folder / "checkpoints" / "task-01.pt", seed=seed)
        results = {
            "schema": 1, "method": "dwopp", "benchmark": "tiny", "seed": seed, "ap": "rectangular", "tasks": ["a"],
            "galleries": [{"name": "plaza", "kind": "seen", "first_task": 0}], "mAP": [[10.0 + seed]],
            "rank1": [[20.0]], "summary": {"seen_mAP": 10.0 + seed},
        }  # fmt: skip
        (folder / "results.json").write_text(json.dumps(results))
        made.append(folder)
    return made


def test_one_page_about_many_runs(tool: Callable[..., int], folders: list[Path], tmp_path: Path) -> None:
    assert tool("report.py", *map(str, folders), "--html", str(tmp_path / "all.html")) == 0
    page = (tmp_path / "all.html").read_text()
    assert "2 runs, 2 seeds (0, 1)" in page and "10.5 ± 0.7" in page and "<img" not in page
    assert all("<b>1" in (folder / "report.html").read_text() for folder in folders)


def test_pictures_are_of_the_first_seed(
    tool: Callable[..., int], folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool("report.py", str(folders[0]), "--pictures", "--blur") == 0
    alone = (folders[0] / "report.html").read_text()
    assert alone.count("<h2>Ranked matches, plaza</h2>") == 1 and ".ranking {" in alone
    assert tool("report.py", *map(str, folders), "--pictures", "--html", str(tmp_path / "all.html")) == 0
    assert (tmp_path / "all.html").read_text().count("<h2>Ranked matches, plaza</h2>") == 1
    capsys.readouterr()
    assert tool("report.py", *map(str, folders), "--pictures") == 2
    assert "add --html FILE" in capsys.readouterr().err
    assert tool("report.py", str(folders[0]), "--blur") == 2
    assert "add --pictures" in capsys.readouterr().err
