"""Print what config keys and method options mean.

``python -m lreid.apps.options > docs/reference/configuration.md`` writes the page of all keys.
"""

import inspect
import textwrap

from lreid.build import class_of
from lreid.config import load_config, method_options
from lreid.config_keys import GROUPS, KEYS
from lreid.methods import method_defaults, method_rules
from lreid.training.run_config import LEARNS_FROM
from lreid.utils.rules import Rule

PAGE = """\
# Configuration

This page lists all config keys with their defaults and accepted values. A run reads keys from config files (`--config`,
which you can repeat) and from `KEY VALUE` pairs on the command line. The pairs override the files.

* `--config` accepts a path, or the name of a config file of lreid: `configs/benchmarks/vehicles.yaml`,
  `benchmarks/vehicles`, or `vehicles`. A config file can extend other files, which it names in the same way in its key
  `_BASE_`.
* A path in a config file (`INPUT.PIPELINE`, `MODEL.WEIGHTS`, `csv:` and `folder:` data sets) may be relative. lreid
  looks for it first next to the config file, and then in the working directory. Paths on the command line are relative
  to the working directory.
* Benchmarks of real images train each method with a recipe: DMML's (`dmml`, the default), BoT's (`bot`) or LSTKC's
  (`lstkc`). Their line `_BASE_: recipes/{METHOD.RECIPE}` selects the recipe that the method's file in `configs/methods`
  names. With `METHOD.RECIPE` you select a different recipe. Keys of the benchmark, of your files and of the command
  line override the recipe. The file `config.yaml` of a run shows the resulting values.
* lreid applies benchmarks (files that set `BENCHMARK.TRAIN`) first, and then the other files in the given order. If a
  file changes a key that another file sets, lreid prints a warning, unless the command line sets that key. lreid
  refuses two files that name different methods, unless one of them is a benchmark. It also refuses a key that occurs
  twice in a file.
* `METHOD.NAME lstkc` applies `configs/methods/lstkc.yaml`, and removes the options of the method that was set before.
  If you first apply the file of a joint method and then name a different method, set `BENCHMARK.JOINT` as well.
* lreid refuses a key that the method ignores, except in lreid's own benchmark files. A file that sets keys of both
  `EPISODE` and `BATCH` can be used with any method.
* The options of a method are further keys of `METHOD`. `lreid train --options NAME` prints the options of the method
  NAME.

This command writes this page from the keys in `lreid/config_keys.py`:
`python -m lreid.apps.options > docs/reference/configuration.md`"""


def options_text(method: str) -> str:
    """Describe a method, its kind of batches, and the key, default, type and meaning of each option."""
    cfg = load_config(overrides=["METHOD.NAME", method])
    cls = class_of(cfg)
    what = (
        f"{cfg.METHOD.NAME} with the settings of configs/methods/{method}.yaml. " if method != cfg.METHOD.NAME else ""
    )
    summary = (inspect.getdoc(cls) or "").partition("\n\n")[0]
    lines = [*textwrap.wrap(f"{method}: {what}{summary}", 120), f"It trains on {LEARNS_FROM[cls.batches]}."]
    lines.append(f"Benchmarks of real images train it with configs/recipes/{cfg.METHOD.RECIPE}.yaml (METHOD.RECIPE).")
    rules = method_rules(cls)
    for option, default in (method_defaults(cls) | method_options(cfg)).items():
        if option not in cls.unused:
            rule = rules.get(option, Rule(""))
            kind = ", ".join(rule.choices) or " ".join([type(default).__name__, *_limits(rule)])
            lines += ["", f"METHOD.{option.upper()}  {default!r}  ({kind})"]
            lines += textwrap.wrap(rule.about, 116, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines) + "\n"


def keys_page() -> str:
    """Return the reference page of all config keys in Markdown."""
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


if __name__ == "__main__":
    print(keys_page(), end="")
