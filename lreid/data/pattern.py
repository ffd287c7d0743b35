"""Read identity and camera off paths by a pattern that the user gives, such as ``{pid}/{camid}_{n}.png``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from statistics import median_low

from lreid.errors import ArgumentError

# Layouts that people have, tried in this order; a suffix follows.
COMMON = ("{pid}/{date}_{camid}_{n}", "{pid}/{camid}_{n}", "{pid}_{camid}_{n}", "{camid}/{pid}/{name}")
FIELD = re.compile(r"\{([A-Za-z_]\w*)\}")


@dataclass(frozen=True)
class Pattern:
    """A pattern of paths.

    ``{pid}`` is the identity and ``{camid}`` the camera, ``{n}`` is digits, and a field of any other name is text that
    is ignored; no field matches a slash. A field that occurs twice must match the same text. ``{pid}/{date}_{camid}_
    {n}.jpg`` reads ``anna/2024-05-01_front_0001.jpg``.

    Attributes:
        text: as the user wrote it.

    Raises:
        ArgumentError: it has neither ``{pid}`` nor ``{camid}``, or a brace that is no field's.
    """

    text: str

    def __post_init__(self) -> None:
        fields, rest = FIELD.findall(self.text), FIELD.sub("", self.text)
        if not {"pid", "camid"} & {*fields} or "{" in rest or "}" in rest or self.text.startswith("/"):
            raise ArgumentError(
                "pattern",
                f"is {self.text!r}; write fields in braces with {{pid}} or {{camid}} among them, as in "
                "{pid}/{camid}_{n}.png",
            )

    @property
    def depth(self) -> int:
        """The parts of a path that it reads: folders, and the file."""
        return self.text.count("/") + 1

    def read(self, path: PurePath) -> tuple[str | None, str | None] | None:
        """Identity and camera in a path, None each where the pattern has no such field; None if it differs.

        Args:
            path: below the folder of the images.
        """
        match = self._regex.fullmatch(path.as_posix())
        return None if match is None else (match.groupdict().get("pid"), match.groupdict().get("camid"))

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        parts, seen = [], set()
        for number, part in enumerate(FIELD.split(self.text)):
            if number % 2 == 0:
                parts.append(re.escape(part))
            elif part in seen:
                parts.append(f"(?P={part})")
            else:
                parts.append(rf"(?P<{part}>{r'[0-9]+' if part == 'n' else '[^/]+?'})")
                seen.add(part)
        return re.compile("".join(parts))


def suggested(paths: Collection[PurePath]) -> str:
    """The first common pattern that reads all paths, most identities under several cameras, which saw several each.

    Args:
        paths: those of images, below their folder.

    Returns:
        The pattern; "" where none reads cameras that make sense.
    """
    suffixes = {path.suffix for path in paths}
    suffix = suffixes.pop() if len(suffixes) == 1 else ".{suffix}"
    for pattern in (Pattern(each + suffix) for each in COMMON):
        labels = [label for label in map(pattern.read, paths) if label is not None]
        seen = Counter(pid for pid, _ in set(labels))
        shared = Counter(camid for _, camid in set(labels))
        if labels and len(labels) == len(paths) and min(map(median_low, (seen.values(), shared.values()))) > 1:
            return pattern.text
    return ""
