"""The command ``lreid report``."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from example_files import write_checkpoint


def test_option_cost_adds_columns(
    run_lreid: Callable[..., int], results: Callable[..., dict], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, temperature in (("one", 1.0), ("two", 2.0)):
        (tmp_path / name).mkdir()
        run = results(config={"METHOD.NAME": "dwopp", "METHOD.TEMPERATURE": temperature})
        (tmp_path / name / "results.json").write_text(json.dumps(run))
    tables = []
    for more in ([], ["--cost"]):
        assert run_lreid("report", str(tmp_path / "one"), str(tmp_path / "two"), *more) == 0
        tables.append(capsys.readouterr().out)
    assert "exemplars" not in tables[0] and "exemplars" in tables[1]
    assert all("dwopp, TEMPERATURE 1.0" in table and "dwopp, TEMPERATURE 2.0" in table for table in tables)
    assert (tmp_path / "one" / "report.html").exists()


@pytest.fixture
def folders(results: Callable[..., dict], tmp_path: Path) -> list[Path]:
    """Two run folders of a tiny benchmark, with a checkpoint each."""
    made = []
    for seed in (0, 1):
        folder = tmp_path / f"seed{seed}"
        write_checkpoint(folder / "checkpoints" / "task-01.pt", seed=seed)
        figures = {"mAP": [[10.0 + seed]], "rank1": [[20.0]], "summary": {"seen_mAP": 10.0 + seed}}
        run = results(seed=seed, benchmark="tiny", tasks=["a"], seen=("plaza",), unseen=(), rows=1, **figures)
        (folder / "results.json").write_text(json.dumps(run))
        made.append(folder)
    return made


def test_option_html_writes_one_page_about_all_runs(
    run_lreid: Callable[..., int], folders: list[Path], tmp_path: Path
) -> None:
    assert run_lreid("report", *map(str, folders), "--html", str(tmp_path / "all.html")) == 0
    page = (tmp_path / "all.html").read_text()
    assert "2 runs, 2 seeds (0, 1)" in page and "10.5 ± 0.7" in page and "<img" not in page
    assert all("<b>1" in (folder / "report.html").read_text() for folder in folders)


def test_run_with_several_paths_counts_once(
    run_lreid: Callable[..., int], folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = folders
    (one.parent / "link").symlink_to(one)
    same = [one, one / "results.json", one.parent / "link", one / ".." / one.name]
    assert run_lreid("report", *map(str, [*same, two]), "--format", "csv") == 0
    assert "tiny,dwopp,rectangular,1,2,10.5000,0.7071," in capsys.readouterr().out
    assert run_lreid("report", *map(str, same), "--format", "csv") == 0
    assert "tiny,dwopp,rectangular,1,1,10.0000,," in capsys.readouterr().out


def test_two_runs_with_one_seed_are_refused(
    run_lreid: Callable[..., int], folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = tmp_path / "seed0-2"
    again.mkdir()
    (again / "results.json").write_text((folders[0] / "results.json").read_text())
    named = [*map(str, folders), str(again)]
    for more in ((), ("--each", "--html", str(tmp_path / "all.html"))):
        assert run_lreid("report", *named, *more) == 2
        printed = capsys.readouterr()
        assert f"{again}: has the same seed" in printed.err and str(folders[0]) in printed.err
        assert not printed.out and not list(tmp_path.glob("**/*.html"))
    assert run_lreid("report", *named, "--each", "--format", "csv") == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split(",")[4:6] for line in lines] == [["0", "1"], ["1", "1"], ["0", "1"]]


def test_paths_without_results_are_skipped(
    run_lreid: Callable[..., int], folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "table.md").write_text("of a sweep")
    (tmp_path / "broken-off").mkdir()
    others = [str(tmp_path / "table.md"), str(tmp_path / "broken-off")]
    assert run_lreid("report", str(folders[0]), *others) == 0
    assert ", ".join(others) in capsys.readouterr().err
    assert run_lreid("report", *others) == 2
    assert "table.md: contains no results.json" in capsys.readouterr().err
    assert run_lreid("report", str(folders[0]), str(tmp_path / "gone")) == 2
    assert "gone: no such file" in capsys.readouterr().err
    assert run_lreid("report", str(folders[0]), "--html", str(tmp_path)) == 2
    assert f"{tmp_path}: " in capsys.readouterr().err


@pytest.mark.slow
def test_images_show_the_first_seed(
    run_lreid: Callable[..., int], folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_lreid("report", str(folders[0]), "--images", "--blur") == 0
    alone = (folders[0] / "report.html").read_text()
    assert alone.count("<h2>Ranked matches, plaza</h2>") == 1 and ".ranking {" in alone
    capsys.readouterr()
    assert run_lreid("report", *map(str, folders)) == 0  # what `lreid train` on your images or --images wrote stays
    assert (folders[0] / "report.html").read_text() == alone and (folders[1] / "report.html").exists()
    assert f"{folders[0]}; pass --images" in capsys.readouterr().err
    assert run_lreid("report", *map(str, folders), "--images", "--html", str(tmp_path / "all.html")) == 0
    assert (tmp_path / "all.html").read_text().count("<h2>Ranked matches, plaza</h2>") == 1
    capsys.readouterr()
    assert run_lreid("report", *map(str, folders), "--images") == 2
    assert "add --html FILE" in capsys.readouterr().err
    assert run_lreid("report", str(folders[0]), "--blur") == 2
    assert "add --images" in capsys.readouterr().err
