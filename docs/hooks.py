"""Hooks of mkdocs, which turn pages written for readers of the repository into pages of the site.

The hooks add pages outside ``docs/``, and one page per command that shows the command's ``--help``. The hooks redirect
links, and replace a line ``<!-- include FILE -->`` by the content of FILE, so that a page shows the tested example.
Code is coloured in the light and in the dark theme, and has the copy button of the reports.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markdown.extensions.toc import slugify
from mkdocs.structure.files import File, Files
from pygments.formatters import HtmlFormatter

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from lreid.apps.cli import COMMANDS as LREID  # noqa: E402
from lreid.apps.cli import parser_of  # noqa: E402

OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "REPRODUCIBILITY.md": "REPRODUCIBILITY.md",
    "MODEL_ZOO.md": "MODEL_ZOO.md",
    "SECURITY.md": "SECURITY.md",
    "THIRD_PARTY.md": "THIRD_PARTY.md",
    "datasets/README.md": "dataset-folders.md",
}  # file in the repository: page of the site
LINK = re.compile(r"(?P<text>!?\[(?:[^\]\n]|\n(?!\n))*\])\((?P<target>[^()\s#]+)(?P<anchor>#[^()\s]*)?\)")
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>(?:~?(?:\w+\.)*(?=\w+<))?([^<&]+?)(?: &lt;[^<]*)?</code>")
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.M | re.S)
COMMANDS = ("python ", "lreid ", "pip ", "git ", "make ", "torchrun ", ".venv/", "mkdocs ", "LREID_", "CUDA_", "PIP_")
STYLE = """
pre { white-space: pre; overflow-x: auto; }
.code { position: relative; }
.copy { position: absolute; right: 8px; top: 6px; font-size: .8rem; padding: 1px 8px; border-radius: 6px;
  border: 1px solid currentColor; background: var(--bs-body-bg); color: var(--bs-secondary-color); opacity: .85; }
table { display: block; overflow-x: auto; }
p, li, h1, h2, h3 { overflow-wrap: anywhere; }
td code, td a { white-space: nowrap; }
td[style*="right"] { white-space: nowrap; }
img { max-width: 100%; }
@media (max-width: 640px) { .code pre { padding-top: 32px; } }
"""
BEFORE_DIGIT = re.compile(r"(\]\([^():\s]*#)(?=\d)")  # the end of a link to a heading that begins with a digit
INCLUDE = re.compile(r"^<!-- include (\S+) -->$", re.M)
PACKAGE = re.compile(r"^::: (lreid\.\w+)$", re.M)
PUBLIC = re.compile(r"^from \.(\S+) import (\w+) as \w+$", re.M)  # in __init__.pyi


def on_config(config: Any) -> None:
    """Give headings that begin with a digit a different anchor, because the theme uses anchors as CSS selectors."""
    config.mdx_configs["toc"] = (config.mdx_configs.get("toc") or {}) | {"slugify": _anchor}


def _anchor(title: str, separator: str) -> str:
    name = slugify(title, separator)
    return f"_{name}" if name[:1].isdigit() else name


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are outside ``docs/``."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(REPOSITORY / source).read_text(encoding="utf-8")))
    for name in LREID:
        page = "\n".join(_help(parser_of(name, f"lreid {name}")))
        files.append(File.generated(config, f"reference/commands/{name}.md", content=page))
    script = REPOSITORY / "lreid" / "report" / "static" / "copy.js"
    files.append(File.generated(config, "copy.js", content=script.read_text(encoding="utf-8")))
    colours = [
        HtmlFormatter(style=style).get_style_defs(
            [f"[data-bs-theme={theme}] .{kind}" for kind in ("codehilite", "highlight")]
        )
        for theme, style in (("light", "default"), ("dark", "github-dark"))
    ]
    files.append(File.generated(config, "code.css", content=STYLE + "\n".join(colours)))
    return files


def _help(parser: argparse.ArgumentParser, level: int = 1) -> Iterator[str]:
    """Format the help of a command and of its subcommands, each under a heading."""
    parser.formatter_class = lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=100)
    yield f"{'#' * level} {parser.prog}\n\n```text\n{parser.format_help()}```\n"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _help(inner, level + 1)


def on_post_page(output: str, **_: Any) -> str:
    """Add two empty style elements, because the theme looks for them when it switches between light and dark mode."""
    return output.replace("</head>", '<style id="hljs-light"></style><style id="hljs-dark"></style></head>', 1)


def _named(fence: re.Match[str]) -> str:
    """Add the name of the language to a code block if its first line shows a shell command."""
    body = fence["body"]
    language = fence["language"] or ("bash" if body.startswith(COMMANDS) else "text")
    return f"```{language}\n{body}```"


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Insert included files and redirect links; a link to a file outside the site becomes plain text."""
    pages = {page: source for source, page in OUTSIDE.items()}
    source = pages.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def turned(link: re.Match[str]) -> str:
        path = os.path.normpath(os.path.join(os.path.dirname(source), link["target"]))
        if not (REPOSITORY / path).exists():  # an address on the web, or no link at all
            return link[0]
        inside = OUTSIDE.get(path, path.removeprefix("docs/"))
        if files.get_file_from_path(inside) is None:
            return link["text"][1:-1]
        inside = os.path.relpath(inside, os.path.dirname(page.file.src_uri) or ".")
        return f"{link['text']}({inside}{link['anchor'] or ''})"

    def included(line: re.Match[str]) -> str:
        return f"```python\n{(REPOSITORY / line[1]).read_text(encoding='utf-8').rstrip()}\n```"

    markdown = PACKAGE.sub(_with_public_names, markdown)
    return FENCE.sub(_named, INCLUDE.sub(included, BEFORE_DIGIT.sub(r"\1_", LINK.sub(turned, markdown))))


def _with_public_names(directive: re.Match[str]) -> str:
    """Let the page of a package also show its public names, which stand in ``__init__.pyi``."""
    stub = REPOSITORY / directive[1].replace(".", "/") / "__init__.pyi"
    if not stub.exists():
        return directive[0]
    modules = {name: module for module, name in PUBLIC.findall(stub.read_text(encoding="utf-8"))}
    names = [f"::: {directive[1]}.{modules[name]}.{name}" for name in sorted(modules)]
    return "\n\n".join([directive[0], *names])


def on_page_content(html: str, **_: Any) -> str:
    """Remove the Sphinx roles from names in docstrings."""
    return ROLE.sub(r"<code>\1</code>", html)
