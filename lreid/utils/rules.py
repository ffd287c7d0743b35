"""Rules for the values of config keys and of methods' options."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

# Normalisation layers of a backbone, see MODEL.NORM.
_KINDS = ("batch", "batch+stem", "ibn_a", "ibn_a+stem", "ibn_b")
NORMS = tuple(kind + entry for kind in _KINDS for entry in ("", "+input", "+grey"))
# Devices of torch and of the packages that extend it.
DEVICES = re.compile(r"auto|(cpu|cuda|hip|hpu|maia|meta|mps|mtia|npu|xla|xpu)(:\d+)?")


def device_fault(name: object) -> str:
    """Return "" for a valid device name, even if there is no such device; otherwise a text with the valid names."""
    return "" if DEVICES.fullmatch(str(name)) else "it must be auto, cpu, cuda, or a numbered GPU such as cuda:1"


@dataclass(frozen=True)
class Rule:
    """The meaning of a config key or option, and the values that it may have.

    Args:
        about: meaning of the value in words.
        least, most: inclusive limits of a number.
        above, below: exclusive limits of a number.
        choices: allowed values of a text, or of the texts in a list.
        check: function that returns "" for valid values, and otherwise a text such as ``it must be a list of files``.
    """

    about: str
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    choices: Collection[str] = ()
    check: Callable[[Any], str] | None = None

    def fault(self, value: Any) -> str:
        """Return "" for a valid value, otherwise the rule that it breaks; the value must have the right type."""
        if self.least is not None and value < self.least:
            return f"it must be {self.least} or more"
        if self.above is not None and value <= self.above:
            return f"it must be above {self.above}"
        if self.most is not None and value > self.most:
            return f"it must be {self.most} or less"
        if self.below is not None and value >= self.below:
            return f"it must be below {self.below}"
        values = value if isinstance(value, list) else [value]
        if self.choices and any(each not in self.choices for each in values):
            return f"it must be {' or '.join(self.choices)}"
        return self.check(value) if self.check else ""
