"""Print what config keys and method options mean.

``python -m lreid.apps.options > docs/reference/configuration.md`` writes the page of all keys.
"""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

from lreid.build import class_of
from lreid.config import load_config, method_options
from lreid.config_keys import GROUPS, KEYS
from lreid.methods import method_defaults, method_rules
from lreid.rules import Rule
from lreid.training.run_config import LEARNS_FROM

PAGE = """\
# Configuration

Every key of a config, with its default and the values that it may have. A run takes them from config files
(`--config`, several) and from `KEY VALUE` pairs of the command line, which win over files.

* `--config`, and `_BASE_` in a file, which names files that it builds on, take a path or the name of a file that comes
  with lreid: `configs/benchmarks/vehicles.yaml`, `benchmarks/vehicles`, or `vehicles`.
* Paths in a file (`INPUT.PIPELINE`, `MODEL.WEIGHTS`, `csv:` and `folder:` data sets) are looked for beside the file
  first, then, like those on the command line, in the working directory.
* Benchmarks of real images have `_BASE_: recipes/{METHOD.RECIPE}`: they train each method by the recipe that its file
  in `configs/methods` names, DMML's (`dmml`, where it names none), BoT's (`bot`) or LSTKC's (`lstkc`). `METHOD.RECIPE`
  chooses another one, and keys of the benchmark, of your files and of the command line win over it. `config.yaml` of a
  run shows what came out.
* Benchmarks, files that set `BENCHMARK.TRAIN`, are applied first, so that a method's file may stand before or after
  them. Then the other files are applied in the order given. A file that changes a key which another one set itself
  causes a warning with both names and the key, unless the command line sets that key. Two files that name two methods
  are refused, unless one of them is a benchmark. A key that stands twice in a file is refused.
* `METHOD.NAME lstkc` sets what `configs/methods/lstkc.yaml` sets, and drops the options of the method before. A
  method that follows a joint method's file is refused until `BENCHMARK.JOINT` is set as well.
* A key that the method ignores is refused, wherever it stands but in a benchmark that comes with lreid. Keys of both
  `EPISODE` and `BATCH` together fit any method.
* The options of a method, further keys of `METHOD`, are printed with their meaning by `lreid train --options METHOD`.

The table in `lreid/config_keys.py` generates this page:
`python -m lreid.apps.options > docs/reference/configuration.md`"""


def options_text(method: str) -> str:
    """Text about a method: what it is, what it trains on, and the key, default, type and meaning of each option.

    Raises:
        InputError: there is no such method.
    """
    cfg = load_config(overrides=["METHOD.NAME", method])
    cls = class_of(cfg)
    what = f"{cfg.METHOD.NAME} as configs/methods/{method}.yaml sets it. " if method != cfg.METHOD.NAME else ""
    summary = (inspect.getdoc(cls) or "").partition("\n\n")[0]
    lines = [*textwrap.wrap(f"{method}: {what}{summary}", 120), f"It learns from {LEARNS_FROM[cls.batches]}."]
    lines.append(f"Benchmarks of real images train it by configs/recipes/{cfg.METHOD.RECIPE}.yaml (METHOD.RECIPE).")
    rules = method_rules(cls)
    for option, default in (method_defaults(cls) | method_options(cfg)).items():
        if option not in cls.unused:
            rule = rules.get(option, Rule(""))
            lines += ["", f"METHOD.{option.upper()}  {default!r}  ({_type(default, rule)})"]
            lines += textwrap.wrap(rule.about, 116, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines) + "\n"


def keys_page() -> str:
    """The page of all keys, Markdown."""
    lines = [PAGE]
    group = None
    for name, key in KEYS.items():
        own = name.rpartition(".")[0]
        if own != group:
            group = own
            lines += ["", f"## {own}", "", GROUPS[own]] if own else []
            lines += ["", "| key | default | type | values | meaning |", "|---|---|---|---|---|"]
        kind, values = type(key.default).__name__, ", ".join(key.rule.choices or _limits(key.rule))
        lines.append(f"| `{name}` | `{key.default!r}` | {kind} | {values} | {key.rule.about} |")
    return "\n".join(lines) + "\n"


def _limits(rule: Rule) -> list[str]:
    limits = [("≥", rule.least), (">", rule.above), ("≤", rule.most), ("<", rule.below)]
    return [f"{sign} {limit}" for sign, limit in limits if limit is not None]


def _type(default: Any, rule: Rule) -> str:
    return ", ".join(rule.choices) or " ".join([type(default).__name__, *_limits(rule)])


if __name__ == "__main__":
    print(keys_page(), end="")
