"""The benchmark of loading runs on a few small images and prints what it says it does; nothing is timed here."""

import sys

import pytest

import bench_loading as bench

SMALL = {
    "HEIGHT": 32,
    "WIDTH": 16,
    "IDENTITIES": 2,
    "IMAGES_EACH": 3,
    "BATCH": 6,
    "OFFICIAL_WORKERS": 1,
    "TASK_EPOCHS": 1,
}


@pytest.mark.slow
def test_both_loaders_are_timed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in SMALL.items():
        monkeypatch.setattr(bench, name, value)
    monkeypatch.setattr(sys, "argv", ["bench_loading.py", "--rounds", "1", "--workers", "1"])
    bench.main(bench.parser().parse_args())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * (1 + 5) + 1 + 3
    for line in (lines[1], lines[7], lines[13]):
        assert line.split(",")[0].strip() in ("files", "files, 1 workers started every epoch") and " 1.0 x" in line
    assert [line.rpartition("target ")[2].split(" x")[0] for line in lines if "target" in line] == ["8", "8", "15"]
