"""Names on the pages are names in the code: functions, tests, keys, methods, benchmarks; figures are those measured."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from setup_file import keywords_of

import lreid
from lreid import losses
from lreid.config import default_config, leaves
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
    for source, functions, tests in (row for row in rows(pages["docs/papers.md"]) if row[1] != "function"):
        for name in re.findall(r"`([^`]+)`", functions):
            module, function = name.rsplit(".", 1)
            assert function in defined(repository / "lreid" / f"{module.replace('.', '/')}.py"), (source, name)
            named.add(function)
        for name in re.findall(r"`([^`]+)`", tests):
            file, test = name.split("::")
            assert test in defined(repository / "tests" / file), (source, name)
        assert "`" in functions and "`" in tests, source
    assert set(losses.__all__) - named == {"Pairs"}  # what a function returns
    assert {method_class(name).__name__ for name in method_names()} <= named


def test_every_test_that_a_page_names_exists(repository: Path, pages: dict[str, str]) -> None:
    found = re.findall(r"`tests/([\w/]+\.py)(?:::(\w+))?`", "\n".join(pages.values()))
    assert len(found) > 8
    for file, test in found:
        if "stay_near" not in file:
            assert not test or test in defined(repository / "tests" / file), (file, test)


def test_every_pain_has_its_tests_or_is_told(pages: dict[str, str]) -> None:
    """That these tests exist is checked above, as on every page."""
    start, *pains = re.split(r"^## ", pages["docs/pains.md"], flags=re.MULTILINE)
    assert [int(pain.split()[0]) for pain in pains] == list(range(1, 26))
    assert all(re.search(r"^`tests/[\w/]+\.py::\w+`", pain, re.MULTILINE) for pain in pains)
    lacking = {pain.split()[0] for pain in pains if re.search(r"\*\*(?:In\s+part|Not\s+answered)\.\*\*", pain)}
    assert set(re.findall(r"\[(\d+)\]\(#", start)) == lacking
    assert "Nineteen are answered" in start and len(lacking) == 25 - 19


def test_every_key_that_a_page_names_exists(pages: dict[str, str]) -> None:
    options = {f"METHOD.{key.upper()}" for name in method_names() for key in method_defaults(method_class(name))}
    known = {key for key, _ in leaves(default_config())} | options | PLANNED
    groups = "|".join({key.split(".")[0] for key in known if "." in key})
    for page, text in pages.items():
        assert not set(re.findall(rf"\b(?:{groups})\.[A-Z][A-Z_]+\b", text)) - known, page


def test_every_name_in_the_concepts_exists(repository: Path, pages: dict[str, str]) -> None:
    names = re.findall(r"`lreid\.([\w.]+)\.(\w+)`", pages["docs/concepts.md"])
    assert len(names) > 10
    for module, name in names:
        assert name in defined(repository / "lreid" / f"{module.replace('.', '/')}.py"), (module, name)


def test_every_method_and_benchmark_is_said_to_have_been_run_or_not(repository: Path, pages: dict[str, str]) -> None:
    cells = rows(pages["REPRODUCIBILITY.md"])
    told = {name for row in cells for name in re.findall(r"`([\w-]+)`", row[0])}
    benchmarks = {file.stem for file in (repository / "configs" / "benchmarks").glob("*.yaml")}
    run = set(next(row for row in cells if row[0] == "method")[1:])
    assert set(method_names()) <= told and benchmarks == run | (told & benchmarks)


def test_figures_of_the_overview_are_those_of_the_tables(pages: dict[str, str]) -> None:
    tables = "\n".join(pages[page] for page in ("README.md", "docs/results.md", "docs/retrace.md")).splitlines()
    count = 0
    for name, *cells in rows(pages["REPRODUCIBILITY.md"]):
        if name.strip("`") not in method_names():
            continue
        names = (name, f"{name[:-1]}_reid`")  # "for re-ID"
        measured = [line for line in tables if line.startswith("|") and any(n in line.split("|")[1] for n in names)]
        for figure in re.findall(r"\d+\.\d(?: ± \d+\.\d)?", " ".join(cells)):
            assert any(f" {figure} " in line.replace("*", " ") for line in measured), (name, figure)
            count += 1
    assert count > 15


def test_one_version(repository: Path, pages: dict[str, str]) -> None:
    version = lreid.__version__
    assert keywords_of(repository)["version"] == version
    (cited,) = re.findall(r"^version: (.+)$", (repository / "CITATION.cff").read_text(encoding="utf-8"), re.M)
    assert cited == version and f"version = {{{version}}}" in pages["README.md"]
    assert re.search(r"^## (\S+?),? ", pages["CHANGELOG.md"], re.M)[1] == version
