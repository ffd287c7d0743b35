"""The command line that compares runs."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest


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
