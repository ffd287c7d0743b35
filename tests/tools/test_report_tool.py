"""The command line that compares runs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from example_files import write_checkpoint


def test_what_runs_cost_is_shown_on_request(
    tool: Callable[..., int], results: Callable[..., dict], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, temperature in (("one", 1.0), ("two", 2.0)):
        (tmp_path / name).mkdir()
        run = results(config={"METHOD.NAME": "dwopp", "METHOD.TEMPERATURE": temperature})
        (tmp_path / name / "results.json").write_text(json.dumps(run))
    tables = []
    for more in ([], ["--cost"]):
        assert tool("report.py", str(tmp_path / "one"), str(tmp_path / "two"), *more) == 0
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


def test_one_page_about_many_runs(tool: Callable[..., int], folders: list[Path], tmp_path: Path) -> None:
    assert tool("report.py", *map(str, folders), "--html", str(tmp_path / "all.html")) == 0
    page = (tmp_path / "all.html").read_text()
    assert "2 runs, 2 seeds (0, 1)" in page and "10.5 ± 0.7" in page and "<img" not in page
    assert all("<b>1" in (folder / "report.html").read_text() for folder in folders)


def test_a_run_counts_once_however_it_is_named(
    tool: Callable[..., int], folders: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = folders
    (one.parent / "link").symlink_to(one)
    same = [one, one / "results.json", one.parent / "link", one / ".." / one.name]
    assert tool("report.py", *map(str, [*same, two]), "--format", "csv") == 0
    assert "tiny,dwopp,rectangular,1,2,10.5000,0.7071," in capsys.readouterr().out
    assert tool("report.py", *map(str, same), "--format", "csv") == 0
    assert "tiny,dwopp,rectangular,1,1,10.0000,," in capsys.readouterr().out


def test_a_second_run_of_a_seed_is_refused(
    tool: Callable[..., int], folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = tmp_path / "seed0-2"
    again.mkdir()
    (again / "results.json").write_text((folders[0] / "results.json").read_text())
    named = [*map(str, folders), str(again)]
    for more in ((), ("--each", "--html", str(tmp_path / "all.html"))):
        assert tool("report.py", *named, *more) == 2
        told = capsys.readouterr()
        assert told.err == (
            f"report.py: {again}: has the same seed and config as {folders[0]}, so the two count as one run; "
            "pass only one of the two\n"
        )
        assert not told.out and not list(tmp_path.glob("**/*.html"))
    assert tool("report.py", *named, "--each", "--format", "csv") == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split(",")[4:6] for line in lines] == [["0", "1"], ["1", "1"], ["0", "1"]]


def test_what_is_no_run_is_told(
    tool: Callable[..., int], folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "table.md").write_text("of a sweep")
    (tmp_path / "broken-off").mkdir()
    others = [str(tmp_path / "table.md"), str(tmp_path / "broken-off")]
    assert tool("report.py", str(folders[0]), *others) == 0
    assert capsys.readouterr().err == f"skipped, because there is no results.json: {', '.join(others)}\n"
    assert tool("report.py", *others) == 2
    assert "table.md: contains no results.json; pass the folder of a run" in capsys.readouterr().err
    assert tool("report.py", str(folders[0]), str(tmp_path / "gone")) == 2
    assert "gone: no such file or folder; name the folder of a run" in capsys.readouterr().err
    assert tool("report.py", str(folders[0]), "--html", str(tmp_path)) == 2
    assert f"{tmp_path}: is not a regular file" in capsys.readouterr().err


@pytest.mark.slow
def test_images_are_of_the_first_seed(
    tool: Callable[..., int], folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool("report.py", str(folders[0]), "--images", "--blur") == 0
    alone = (folders[0] / "report.html").read_text()
    assert alone.count("<h2>Ranked matches, plaza</h2>") == 1 and ".ranking {" in alone
    capsys.readouterr()
    assert tool("report.py", *map(str, folders)) == 0  # what `lreid train` on your images or --images wrote stays
    assert (folders[0] / "report.html").read_text() == alone and (folders[1] / "report.html").exists()
    assert f"stay as they are: {folders[0]}; pass --images" in capsys.readouterr().err
    assert tool("report.py", *map(str, folders), "--images", "--html", str(tmp_path / "all.html")) == 0
    assert (tmp_path / "all.html").read_text().count("<h2>Ranked matches, plaza</h2>") == 1
    capsys.readouterr()
    assert tool("report.py", *map(str, folders), "--images") == 2
    assert "add --html FILE" in capsys.readouterr().err
    assert tool("report.py", str(folders[0]), "--blur") == 2
    assert "add --images" in capsys.readouterr().err
