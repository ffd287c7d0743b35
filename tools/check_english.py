#!/usr/bin/env python
"""Check the English of pages, docstrings and messages: words of the glossary, sentences above 40 words, vague names.

    python tools/check_english.py                                    # all files; exit status 1 if there is a fault
    python tools/check_english.py README.md lreid/config.py          # some files

The check ignores code, the addresses of links, and tables that a script writes. If a page must keep a word (a
quotation, a term of a paper), a comment right before the paragraph gives the reason: <!-- english: REASON -->.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 40  # maximum number of words per sentence

# Expressions that a page must not use, and what to write instead.
GLOSSARY = {
    r"(is|are|was|were|be|been|it|which) (told|telling)|tells (how|what|which|that|of|it|when)|told (on|in|by|apart)": (
        "prints, reports, says, records, distinguishes"
    ),
    r"looks? at images|images looked at|looked at \d+": "trains on images; training images seen",
    r"go(es)? on (with|from|where|after)": "continues with, resumes, fine-tunes from",
    r"gone again|thr(ow|ew|own) away": "removed, rejected after a trial",
    r"anew": "again; re-estimated",
    r"the lesson|walks? back|way back|of the way is kept": "gain on the task; interpolation towards the old weights",
    r"what users suffer": "common problems",
    r"a (first|second|third|fourth|fifth|sixth) go\b|in one go": "training round; in one pass",
    r"of (yours|ours|one's own)": "your …; our …; custom …",
    r"finds? again": "re-identifies",
    r"same or not|the same from cosine": "verification; threshold on cosine similarity",
    r"false accepts": "false accept rate (FAR)",
    r"kin of|(BoT|LSTKC|DMML)'s (kin|family)": "LSTKC-based methods, softmax-triplet methods",
    r"looks on": "observes",
    r"drawn people|drawings": "synthetic (2-D); rendered (3-D)",
    r"mend(s|ed|ing)?|put right": "fix, correct",
    r"in turns": "interleaved",
    r"by hand": "manually",
    r"casts of colour|white of images": "colour casts; white balance",
    r"features less (their|the)": "features standardised per camera; features minus the mean",
    r"a (folder|file|row|column|line) a (person|identity|task|camera|run|method)": "one … per …",
}
VAGUE = frozenset(
    ["aftermath", "alone", "begun", "borne", "found", "kept", "known", "lasted", "seen_as", "some", "told", "untold"]
)  # values, functions
WORDS = [(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), instead) for pattern, instead in GLOSSARY.items()]
ALLOWED = re.compile(r"<!-- english: .+ -->")


def files() -> list[Path]:
    """List all pages and modules that people read, sorted by path."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "datasets").glob("*.md")]
    modules = [path for name in ("lreid", "tools", "examples") for path in (ROOT / name).rglob("*.py")]
    return sorted(path for path in [*pages, *modules] if path != Path(__file__).resolve())  # has the words


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """Yield a page, or the docstrings and messages of a module, each with the number of its first line."""
    content = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        yield 1, content
        return
    parts: set[ast.AST] = set()  # parts of texts that are yielded as one
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            if isinstance(node.body[0], ast.Expr):
                parts.add(node.body[0].value)
            yield node.body[0].lineno, text
        elif isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            yield (
                node.lineno,
                "".join(str(each.value) if isinstance(each, ast.Constant) else "X" for each in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            yield node.lineno, node.value


BLOCKS = re.compile(
    r"```.*?```"  # code of a page
    r"|(?:(?<=\n\n)|\A)(?:(?: {4}|\t).*\n+)+"  # code that is indented, after an empty line
    r"|^ *(?:lreid|python|make|pip) .*(?:\n +.*)*$"  # commands
    r"|^<!-- (?!english)([\w-]+).*?-->$.*?^<!-- end (?:of )?\1 -->$",  # tables that a script writes
    re.DOTALL | re.MULTILINE,
)
BEGINNING = re.compile(r"\s*([*-] |\d+\. |#+ |\||<!--|(\*\*)?[\w., `()]{1,40}: )")  # an item, a row, an argument


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield each paragraph, list item, table row and argument with the number of its first line."""
    text = BLOCKS.sub(lambda block: "\n" * block[0].count("\n"), text)
    lines: list[str] = []
    first, allowed = 1, False
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if lines and (not line.strip() or BEGINNING.match(line)):
            if not allowed:
                yield first, " ".join(lines)
            lines, allowed = [], False
        if ALLOWED.fullmatch(line.strip()):
            allowed = True
        elif line.strip():
            first = first if lines else number
            lines.append(line.strip())


def faults(text: str) -> Iterator[tuple[int, str]]:
    """Yield the faults of a text and their line numbers."""
    for number, paragraph in paragraphs(text):
        plain = re.sub(r"``?[^`]*``?", "CODE", paragraph)
        plain = re.sub(r"\]\([^)]*\)|<[^>]+>", "", plain)
        for pattern, instead in WORDS:
            for match in pattern.finditer(plain):
                yield number, f'"{match[0]}": write {instead}'
        for sentence in [] if plain.startswith("|") else re.split(r"(?<=[.!?:;])\s+", plain):
            if (count := len(re.findall(r"[\w'’-]+", sentence))) > LONGEST:
                yield number, f'{count} words in one sentence, of at most {LONGEST}: "{sentence[:60]}…"'


def vague_names(content: str) -> Iterator[tuple[int, str]]:
    """Yield the vague names of values and functions in a module, except fields of classes, and their line numbers."""
    tree = ast.parse(content)
    classes = (node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    fields = {id(line.target) for body in classes for line in body if isinstance(line, ast.AnnAssign)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name | ast.Attribute | ast.arg | ast.FunctionDef) or id(node) in fields:
            continue
        if not isinstance(getattr(node, "ctx", ast.Store()), ast.Store):
            continue
        name = next(getattr(node, key) for key in ("id", "attr", "arg", "name") if hasattr(node, key))
        if name.strip("_") in VAGUE:
            yield node.lineno, f'"{name}": a noun that says what the value is, a verb for a function'


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("files", nargs="*", type=Path, metavar="FILE", help="pages and modules (default: all)")
    return options


def main() -> int:
    count = 0
    for file in parser().parse_args().files or files():
        lines = [(first + line - 1, fault) for first, text in texts(file.resolve()) for line, fault in faults(text)]
        if file.suffix == ".py":
            lines += vague_names(file.read_text(encoding="utf-8"))
        for number, fault in sorted(lines):
            count += 1
            print(f"{file.relative_to(ROOT) if file.is_absolute() else file}:{number}: {fault}")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
