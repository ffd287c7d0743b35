"""The descriptions of keys and options."""

from pathlib import Path

import pytest

from lreid.apps.options import keys_page, options_text
from lreid.methods import method_class, method_defaults, method_names, method_rules


def test_options_text_has_defaults_and_meanings() -> None:
    text = options_text("dwopp").splitlines()
    row = text.index("METHOD.TEMPERATURE  1.0  (float > 0)")
    assert text[row + 1].strip() == method_rules(method_class("dwpp"))["temperature"].about
    assert any("configs/recipes/bot.yaml" in line for line in options_text("lwf_plus").splitlines())
    assert max(map(len, text)) <= 120


@pytest.mark.parametrize("name", method_names())
def test_every_option_has_a_meaning(name: str) -> None:
    cls = method_class(name)
    options = method_defaults(cls)
    assert set(cls.unused) <= set(options) == set(method_rules(cls))
    keys = [line.split()[0] for line in options_text(name).splitlines() if line.startswith("METHOD.")]
    assert keys == [f"METHOD.{each.upper()}" for each in options if each not in cls.unused]


def test_page_of_keys_is_up_to_date(repository: Path) -> None:
    page = (repository / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    assert page == keys_page(), "python -m lreid.apps.options > docs/reference/configuration.md"
    assert "| `TRAIN.END_FACTOR` | `0.005` | float | > 0, ≤ 1 |" in page
