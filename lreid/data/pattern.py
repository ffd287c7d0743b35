"""Read identity and camera from paths by a pattern that the user defines, such as ``{pid}/{camid}_{n}.png``."""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from statistics import median_low

from lreid.errors import ArgumentError

# Common layouts, which suggested() tries in this order with the suffix of the images appended.
COMMON = ("{pid}/{date}_{camid}_{n}", "{pid}/{camid}_{n}", "{pid}_{camid}_{n}", "{camid}/{pid}/{name}")
FIELD = re.compile(r"\{([A-Za-z_]\w*)\}")


@dataclass(frozen=True)
class Pattern:
    """A pattern for image paths.

    The field ``{pid}`` matches the identity, ``{camid}`` matches the camera, and ``{n}`` matches digits. A field with
    any other name matches any text, which lreid ignores. No field matches a slash. If a field occurs twice in the
    pattern, it must match the same text in both places. The pattern ``{pid}/{date}_{camid}_{n}.jpg`` matches
    ``anna/2024-05-01_front_0001.jpg``.

    Attributes:
        text: the pattern as the user typed it.

    Raises:
        ArgumentError: the pattern has neither ``{pid}`` nor ``{camid}``, or a brace in it does not enclose a field.
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
        """Number of path components that the pattern matches, including the file name."""
        return self.text.count("/") + 1

    def read(self, path: PurePath) -> tuple[str | None, str | None] | None:
        """Read identity and camera from a path.

        Args:
            path: path relative to the folder of the images.

        Returns:
            Identity and camera; a value is None if the pattern lacks its field. If the path does not match the pattern,
            the result is None.
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
    """Suggest the first pattern of ``COMMON`` that matches all paths and reads plausible cameras from them.

    Cameras are plausible if more than half of the identities have several cameras, and more than half of the cameras
    saw several identities.

    Args:
        paths: image paths, relative to the folder of the data set.

    Returns:
        The pattern, or "" if no pattern of ``COMMON`` fits.
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
