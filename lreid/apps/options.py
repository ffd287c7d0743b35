"""Print what config keys and method options mean.

``python -m lreid.apps.options > docs/reference/configuration.md`` writes the page of all keys.
"""

import inspect
import textwrap
from pathlib import Path

from lreid.build import LEARNS_FROM, class_of
from lreid.config import load_config, method_options
from lreid.config_keys import GROUPS, KEYS
from lreid.methods import method_defaults, method_rules
from lreid.utils.rules import Rule

PAGE = Path(__file__).with_suffix(".md")  # the text above the tables


def options_text(method: str) -> str:
    """Describe a method, its kind of batches, and the key, default, type and meaning of each option."""
    cfg = load_config(overrides=["METHOD.NAME", method])
    cls = class_of(cfg)
    what = f"{cfg.METHOD.NAME} with the options of configs/methods/{method}.yaml. " if method != cfg.METHOD.NAME else ""
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
    lines = [PAGE.read_text(encoding="utf-8").rstrip()]
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
