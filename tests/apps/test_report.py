"""The command ``lreid report``."""

import json
from pathlib import Path

import pytest
from example_files import write_checkpoint


def test_option_cost_adds_columns(lreid, results, tmp_path: Path) -> None:
    for name, temperature in (("one", 1.0), ("two", 2.0)):
        (tmp_path / name).mkdir()
        run = results(config={"METHOD.NAME": "dwopp", "METHOD.TEMPERATURE": temperature})
        (tmp_path / name / "results.json").write_text(json.dumps(run))
    plain, costs = (lreid("report", tmp_path / "one", tmp_path / "two", *more) for more in ([], ["--cost"]))
    assert plain.status == costs.status == 0
    assert "exemplars" not in plain.out and "exemplars" in costs.out
    for table in (plain.out, costs.out):
        assert "dwopp, TEMPERATURE 1.0" in table and "dwopp, TEMPERATURE 2.0" in table
    assert (tmp_path / "one" / "report.html").exists()


@pytest.fixture
def folders(results, tmp_path: Path) -> list[Path]:
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


def test_option_html_writes_one_page_about_all_runs(lreid, folders: list[Path], tmp_path: Path) -> None:
    assert lreid("report", *folders, "--html", tmp_path / "all.html").status == 0
    page = (tmp_path / "all.html").read_text()
    assert "2 runs, 2 seeds (0, 1)" in page and "10.5 ± 0.7" in page and "<img" not in page
    assert all("<b>1" in (folder / "report.html").read_text() for folder in folders)


def test_run_with_several_paths_counts_once(lreid, folders: list[Path]) -> None:
    one, two = folders
    (one.parent / "link").symlink_to(one)
    same = [one, one / "results.json", one.parent / "link", one / ".." / one.name]
    assert "tiny,dwopp,rectangular,1,2,10.5000,0.7071," in lreid("report", *same, two, "--format", "csv").out
    assert "tiny,dwopp,rectangular,1,1,10.0000,," in lreid("report", *same, "--format", "csv").out


def test_two_runs_with_one_seed_are_refused(lreid, folders: list[Path], tmp_path: Path) -> None:
    again = tmp_path / "seed0-2"
    again.mkdir()
    (again / "results.json").write_text((folders[0] / "results.json").read_text())
    for more in ((), ("--each", "--html", tmp_path / "all.html")):
        status, out, err = lreid("report", *folders, again, *more)
        assert (status, out) == (2, "") and f"{again}: " in err and str(folders[0]) in err
        assert not list(tmp_path.glob("**/*.html"))
    lines = lreid("report", *folders, again, "--each", "--format", "csv").out.splitlines()[1:]
    assert [line.split(",")[4:6] for line in lines] == [["0", "1"], ["1", "1"], ["0", "1"]]


def test_paths_without_results_are_skipped(lreid, folders: list[Path], tmp_path: Path) -> None:
    (tmp_path / "table.md").write_text("of a sweep")
    (tmp_path / "broken-off").mkdir()
    others = [tmp_path / "table.md", tmp_path / "broken-off"]
    done = lreid("report", folders[0], *others)
    assert done.status == 0 and ", ".join(map(str, others)) in done.err
    for words, message in (
        (others, "table.md: contains no results.json"),
        ([folders[0], tmp_path / "gone"], "gone: no such file"),
        ([folders[0], "--html", tmp_path], f"{tmp_path}: "),
    ):
        status, _, err = lreid("report", *words)
        assert status == 2 and message in err


@pytest.mark.slow
def test_images_show_the_first_seed(lreid, folders: list[Path], tmp_path: Path) -> None:
    assert lreid("report", folders[0], "--images", "--blur").status == 0
    alone = (folders[0] / "report.html").read_text()
    assert alone.count("<h2>Ranked matches, plaza</h2>") == 1 and ".ranking {" in alone
    # A report with images, which `lreid train` writes for your images or with --images, stays.
    done = lreid("report", *folders)
    assert done.status == 0 and f"{folders[0]}; --images rewrites one" in done.err
    assert (folders[0] / "report.html").read_text() == alone and (folders[1] / "report.html").exists()
    assert lreid("report", *folders, "--images", "--html", tmp_path / "all.html").status == 0
    assert (tmp_path / "all.html").read_text().count("<h2>Ranked matches, plaza</h2>") == 1
    for words, remedy in (([*folders, "--images"], "add --html FILE"), ([folders[0], "--blur"], "add --images")):
        status, _, err = lreid("report", *words)
        assert status == 2 and remedy in err
