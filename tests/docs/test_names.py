"""Names on the pages are names in the code: functions, tests, keys, methods, benchmarks; figures are those measured."""

import ast
import csv
import re
import runpy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from packaging_files import project_of

import lreid
from lreid import losses
from lreid.config import leaves
from lreid.config_keys import Config
from lreid.methods import method_class, method_defaults, method_names

PLANNED = {"METHOD.STRENGTH"}  # of the example on the page about methods of one's own


@cache
def defined(file: Path) -> set[str]:
    """Functions and classes at the top of a file."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def rows(page: str) -> list[list[str]]:
    """Cells of the tables of a page, without heads and rules."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_function_and_test_of_the_papers_exists(repository: Path, pages: dict[str, str]) -> None:
    named = set()
    for source, functions, tests in (row for row in rows(pages["docs/explanation/papers.md"]) if row[1] != "function"):
        for name in re.findall(r"`([^`]+)`", functions):
            module, function = name.rsplit(".", 1)
            assert function in defined(repository / "lreid" / f"{module.replace('.', '/')}.py"), (source, name)
            named.add(function)
        for name in re.findall(r"`([^`]+)`", tests):
            file, test = name.split("::")
            assert test in defined(repository / "tests" / file), (source, name)
        assert "`" in functions and "`" in tests, source
    assert set(losses.__all__) - named == {"SampledPairs"}  # what a function returns


def test_every_test_that_a_page_names_exists(repository: Path, pages: dict[str, str]) -> None:
    found = re.findall(r"`tests/([\w/]+\.py)(?:::(\w+))?`", "\n".join(pages.values()))
    assert len(found) > 8
    for file, test in found:
        if "stay_near" not in file:
            assert not test or test in defined(repository / "tests" / file), (file, test)


def test_every_key_that_a_page_names_exists(pages: dict[str, str]) -> None:
    options = {f"METHOD.{key.upper()}" for name in method_names() for key in method_defaults(method_class(name))}
    known = {key for key, _ in leaves(Config())} | options | PLANNED
    groups = "|".join({key.split(".")[0] for key in known if "." in key})
    for page, text in pages.items():
        assert not set(re.findall(rf"\b(?:{groups})\.[A-Z][A-Z_]+\b", text)) - known, page


def test_every_name_in_the_concepts_exists(repository: Path, pages: dict[str, str]) -> None:
    names = re.findall(r"`lreid\.([\w.]+)\.(\w+)`", pages["docs/explanation/concepts.md"])
    assert len(names) > 10
    for module, name in names:
        assert name in defined(repository / "lreid" / f"{module.replace('.', '/')}.py"), (module, name)


def test_every_generated_table_is_that_of_the_lists_of_runs(repository: Path, pages: dict[str, str]) -> None:
    script = runpy.run_path(str(repository / "docs" / "tables.py"))
    tables = script["definitions"]()
    for path in script["pages"]():
        name = path.relative_to(repository).as_posix()
        assert pages[name] == script["written"](pages[name]), f"{name}: run python docs/tables.py"
    marks = {
        (page, name) for page, text in pages.items() for name in re.findall(r"^<!-- ([a-z0-9-]+) -->$", text, re.M)
    }
    assert {(table["page"], name) for name, table in tables.items()} == marks


def test_a_table_has_the_mean_and_the_deviation_of_its_runs(repository: Path) -> None:
    """Computed here from the lists: of a method by three seeds, and of a difference paired by seed."""

    def seen(method: str) -> np.ndarray:
        with open(repository / "docs" / "results" / "synthetic-domains.csv", encoding="utf-8") as stream:
            return np.array([float(run["seen_mAP"]) for run in csv.DictReader(stream) if run["method"] == method])

    markdown = runpy.run_path(str(repository / "docs" / "tables.py"))["markdown"]
    found = seen("dmml_ird")
    assert f"| `dmml_ird` | 3 | {found.mean():.1f} ± {found.std(ddof=1):.1f} | " in markdown("synthetic-domains")
    found = found - seen("dmml_ft")  # both in the order of the seeds
    error = found.std(ddof=1) / np.sqrt(3)
    assert f"| `dmml_ird` - `dmml_ft` | 3 | {found.mean():+.1f} ± {error:.1f} | " in markdown("synthetic-domains-parts")


def prose(page: str) -> str:
    """A page without generated tables, code, and the targets of links."""
    page = re.sub(r"^<!-- ([a-z0-9-]+) -->$.*?^<!-- end \1 -->$", "", page, flags=re.M | re.S)
    return re.sub(r"^```.*?^```|`[^`]*`|\]\([^)]*\)", "", page, flags=re.M | re.S)


FIGURE = re.compile(r"\d ?±|[+-]?\d+\.\d|\d+ (?:mAP )?points?\b")


@pytest.mark.parametrize("figure", ["by 4.4", "76 ± 3", "13 points above it", "| 81 | 90.7 |"])
def test_measured_figures_are_recognised(figure: str) -> None:
    assert FIGURE.search(prose(f"It is {figure}.\n"))


def test_measured_figures_appear_only_in_generated_tables(pages: dict[str, str]) -> None:
    """So that each of them is that of a list of runs; papers' figures have a page of their own."""
    results = [page for page in pages if page.startswith("docs/results/") and page != "docs/results/published.md"]
    assert len(results) > 10
    for page in (*results, "docs/explanation/retrace.md", "REPRODUCIBILITY.md"):
        assert not FIGURE.findall(prose(pages[page])), page


def test_one_version(repository: Path, pages: dict[str, str]) -> None:
    version = lreid.__version__
    assert project_of(repository)["version"] == version
    (cited,) = re.findall(r"^version: (.+)$", (repository / "CITATION.cff").read_text(encoding="utf-8"), re.M)
    assert cited == version
    assert re.search(r"^## (\S+?),? ", pages["CHANGELOG.md"], re.M)[1] == version
