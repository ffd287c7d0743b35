"""Count the lines of code, docstrings, comments and blanks in every room of lreid, and all lines of the tests.

    python tools/count_lines.py                # one row per room
    python tools/count_lines.py --files        # one row per file
    python tools/count_lines.py --most 26000   # exit status 1 above 26,000 lines of code

A line with code and a comment at its end counts as code. A docstring is a text that stands alone as a statement.
"""

import argparse
import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("code", "docstring", "comment", "blank")
LAYOUT = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING}


def count(text: str) -> Counter[str]:
    """Count the lines of a Python source by kind."""
    kinds = dict.fromkeys(range(1, len(text.splitlines()) + 1), "blank")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        lines = range(token.start[0], token.end[0] + 1)
        if token.type == tokenize.COMMENT and kinds[token.start[0]] == "blank":
            kinds[token.start[0]] = "comment"
        elif token.type not in LAYOUT | {tokenize.COMMENT}:
            kinds.update(dict.fromkeys(lines, "code"))
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=int(last)):
                kinds.update(dict.fromkeys(range(first, last + 1), "docstring"))
    return Counter(kinds.values())


def room_of(file: Path, package: Path) -> str:
    """Return the folder of a file below the package, or the package's name for a file at its root."""
    parts = file.relative_to(package).parts
    return parts[0] if len(parts) > 1 else package.name


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--root", type=Path, default=ROOT, help="checkout to count (default: this one)")
    options.add_argument("--files", action="store_true", help="print one row per file instead of per room")
    options.add_argument("--most", type=int, metavar="N", help="exit with status 1 above N lines of code")
    return options


def main() -> None:
    args = parser().parse_args()
    package = args.root / "lreid"
    rows: dict[str, Counter[str]] = {}
    for file in sorted(package.rglob("*.py")):
        name = file.relative_to(args.root).as_posix() if args.files else room_of(file, package)
        rows.setdefault(name, Counter())
        rows[name] += count(file.read_text()) + Counter(modules=1)
    total = sum(rows.values(), Counter())
    width = max(map(len, rows))
    print(f"{'':{width}}  modules  {'  '.join(f'{kind:>9}' for kind in KINDS)}      lines")
    for name, row in [*sorted(rows.items(), key=lambda row: -row[1]["code"]), ("all", total)]:
        lines = sum(row[kind] for kind in KINDS)
        print(f"{name:{width}}  {row['modules']:7}  {'  '.join(f'{row[kind]:9}' for kind in KINDS)}  {lines:9}")
    tests = sum(len(file.read_text().splitlines()) for file in (args.root / "tests").rglob("*.py"))
    print(f"tests: {tests} lines")
    sys.exit(args.most is not None and total["code"] > args.most)


if __name__ == "__main__":
    main()
