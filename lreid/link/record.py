"""``identities.json``: the identity of each tracklet, the user's corrections, and the history for undo."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lreid.errors import InputError
from lreid.utils.files import write_text
from lreid.utils.identities import require_written
from lreid.utils.reading import NUMBER, misfit, naming_damage, read_json, require_not_newer

RECORD_FILE = "identities.json"
RECORD_FORMAT = 1
LATEST = 2.5e11  # seconds since 1970, in the year 9892; dates end with the year 9999
Json = dict[str, Any]
# Forms for :func:`lreid.utils.reading.misfit`: the fields of a tracklet that the history stores if they change, the
# parts of the record that it stores as a whole, a step of the history, and the record.
DECISION: Json = {"identity": int, "score": (*NUMBER, type(None)), "why": str}
SMALL_PARTS: Json = {
    "threshold": (*NUMBER, type(None)),
    "model": (str, type(None)),
    "raw": bool,
    "travel": [list],
    "next": int,
    "names": {str: str},
    "same": [[str]],
    "apart": [[str]],
}
HISTORY_STEP: Json = {
    "action": str,
    "clips": int,
    "count": int,
    "tracklets": {str: DECISION},
    "replaced": {f"{name}?": form for name, form in SMALL_PARTS.items()},
}
RECORD_FORM: Json = {
    "schema": int,
    **SMALL_PARTS,
    "clips": [{"name": str, "camera": str, "video": str, "start": NUMBER, "end": NUMBER}],
    "tracklets": [{"key": str, "camera": str, "start": NUMBER, "end": NUMBER, **DECISION, "crops": {str: NUMBER}}],
    "history": [HISTORY_STEP],
}


class LinkRecord:
    """The content of ``identities.json``.

    An identity is a number that is never used again; it may also have a name. The history contains the values that each
    change replaced.

    Attributes:
        content: the content as plain data, with these keys. ``threshold`` is a cosine similarity. ``model`` is the
            fingerprint of the model for which the threshold is valid. ``raw`` says whether the threshold is valid for
            features that are not standardised. ``travel`` contains the minimum travel times
            between cameras in seconds that a user gave. ``next`` is the number of the next identity. ``names`` contains
            the names of identities by number. ``clips`` lists the recordings. ``same`` contains groups of tracklets
            that a user marked as one person, and ``apart`` pairs that a user marked as two people. ``history`` contains
            replaced values. ``tracklets`` lists all tracklets. A tracklet has a ``key`` (a folder below
            ``tracklets/``), times, its ``identity``, ``crops`` with their qualities, a ``score`` (mean similarity to
            the other tracklets of the identity), and ``why`` (the reason for the identity).
    """

    def __init__(self, content: Json | None = None) -> None:
        empty: Json = {"schema": RECORD_FORMAT, "threshold": None, "model": None, "raw": False, "travel": [], "next": 1}
        empty |= {"names": {}, "clips": [], "tracklets": [], "same": [], "apart": [], "history": []}
        self.content = content or empty
        self._before = copy.deepcopy(self.content)

    @classmethod
    def read(cls, folder: Path) -> LinkRecord:
        """Read ``identities.json`` of a folder.

        Raises:
            InputError: the file is missing, damaged or of a later version.
        """
        path = folder / RECORD_FILE
        with naming_damage(path, "not a record of lreid link", "pass a folder written by lreid link add"):
            content = read_json(path)
            content.setdefault("raw", False)  # earlier versions of lreid did not write it
            if fault := misfit(content, RECORD_FORM) or _fault(content):
                raise ValueError(fault)
        require_not_newer(path, content["schema"], RECORD_FORMAT, "cannot be read")
        return cls(content)

    def write(self, folder: Path) -> None:
        """Write the file atomically."""
        write_text(folder / RECORD_FILE, json.dumps(self.content, indent=1) + "\n")

    @property
    def tracklets(self) -> list[Json]:
        """The tracklets of all recordings, in the order in which they were linked."""
        return self.content["tracklets"]

    @property
    def identities(self) -> dict[int, list[Json]]:
        """The tracklets of each identity, by its number."""
        by_number: dict[int, list[Json]] = {}
        for each in self.tracklets:
            by_number.setdefault(each["identity"], []).append(each)
        return dict(sorted(by_number.items()))

    def name_of(self, identity: int) -> str:
        """Return the name of an identity, or ``unknown-NUMBER``."""
        return self.content["names"].get(str(identity), f"unknown-{identity}")

    @property
    def numbers(self) -> dict[str, int]:
        """The number of each identity, by its name."""
        return {self.name_of(number): number for number in [*self.identities, *map(int, self.content["names"])]}

    def find(self, word: str) -> int:
        """Return the identity with this number or name.

        Raises:
            InputError: no identity has this number or name.
        """
        numbers = self.numbers
        number = numbers.get(word, numbers.get(f"unknown-{word}", int(word) if word.isdecimal() else -1))
        if number not in numbers.values():
            examples = ", ".join([*numbers][:5])
            raise InputError(f"{word}: no such identity; {RECORD_FILE} lists them, for instance {examples}")
        return number

    def new_identity(self) -> int:
        """Return a number that no identity has had before."""
        self.content["next"] += 1
        return self.content["next"] - 1

    @property
    def changed(self) -> bool:
        """Whether the content in memory differs from the content of the file."""
        return self.content != self._before

    @property
    def renamed(self) -> dict[str, str]:
        """The new names of identities that were renamed, with their names in the file as keys."""
        names = self.content["names"]
        return {old: names[number] for number, old in self._before["names"].items() if names.get(number, old) != old}

    def remember(self, action: str) -> None:
        """Add to the history all values that were replaced since the file was read."""
        before, count = self._before, len(self._before["tracklets"])
        changed = {
            old["key"]: {name: old[name] for name in DECISION}
            for old, new in zip(before["tracklets"], self.tracklets[:count], strict=True)
            if any(old[name] != new[name] for name in DECISION)
        }
        small = {name: before[name] for name in SMALL_PARTS if before[name] != self.content[name]}
        step = {"action": action, "clips": len(before["clips"]), "count": count}
        self.content["history"].append({**step, "tracklets": changed, "replaced": small})

    def undo(self) -> str:
        """Undo the last change, and return its name.

        Raises:
            InputError: there is no change to undo, a removal of tracklets has deleted the history, or the history is
                damaged.
        """
        if not self.content["history"]:
            raise InputError(f"{RECORD_FILE}: nothing to undo; a removal, and changes before it, cannot be undone")
        step = self.content["history"].pop()
        self.content |= step["replaced"]
        del self.content["clips"][step["clips"] :], self.tracklets[step["count"] :]
        for each in self.tracklets:
            each |= step["tracklets"].get(each["key"], {})
        if fault := _fault(self.content):
            raise InputError(f"{RECORD_FILE}: the history is damaged ({fault}); delete the last entry of history")
        return step["action"]

    def merge(self, first: str, second: str) -> None:
        """Merge two identities of one person into the one with a name, or into the one with the lower number.

        Raises:
            InputError: both identities are the same, both have names, or a user marked them as two people.
        """
        one, other = self._two(first, second)
        names, of = self.content["names"], self.identities
        keys = {each["key"] for each in of.get(one, []) + of.get(other, [])}
        if any(keys.issuperset(pair) for pair in self.content["apart"]):
            raise InputError(f"{first} and {second} were marked as two people; undo that first")
        if str(one) in names and str(other) in names:
            raise InputError(f"{first} and {second} both have a name; first rename one of the two to unknown-NUMBER")
        if str(other) in names:
            one, other = other, one
        for each in of.get(other, []):
            each |= {"identity": one, "score": None, "why": f"merged from unknown-{other}"}
        self.content["same"].append(sorted(keys))

    def apart(self, first: str, second: str) -> None:
        """Mark two identities as two people, so that a later ``relink`` does not join them.

        Raises:
            InputError: both identities are the same, or one of them has no tracklets.
        """
        one, other = (self.identities.get(each, []) for each in self._two(first, second))
        if not one or not other:
            raise InputError(f"{first if not one else second}: has no tracklets, so there is nothing to mark")
        self._confirm_apart(one, other)

    def split(self, identity: str, keys: Iterable[str]) -> int:
        """Move tracklets of an identity to a new identity, and return its number.

        Raises:
            InputError: a tracklet does not belong to the identity, or all its tracklets would move.
        """
        of, keys = self.identities.get(self.find(identity), []), set(keys)
        moved, rest = ([each for each in of if (each["key"] in keys) == inside] for inside in (True, False))
        if foreign := sorted(keys - {each["key"] for each in moved}):
            raise InputError(
                f"{foreign[0]}: is not a tracklet of {identity}; its first tracklet is {of[0]['key'] if of else 'none'}"
            )
        if not rest:
            raise InputError(f"{identity}: these are all its tracklets; leave out at least one")
        number = self.new_identity()
        for each in moved:
            each |= {"identity": number, "score": None, "why": f"split from {self.name_of(self.find(identity))}"}
        keep = [group for group in self.content["same"] if not ({*group} & keys and {*group} - keys)]
        self.content["same"] = keep
        # Earlier statements that this identity and another one are two people hold for the part that keeps the number.
        pairs = self.content["apart"]
        self.content["apart"] = [[rest[0]["key"] if key in keys else key for key in pair] for pair in pairs]
        self._confirm_apart(moved, rest)
        return number

    def name(self, identity: str, name: str) -> None:
        """Give an identity a name; ``unknown-NUMBER`` removes the name.

        Raises:
            InputError: another identity has the name, or the name is empty, a number, like ``unknown-17`` or a word for
                a missing value.
        """
        number = self.find(identity)
        name = require_written(name, "the name")
        if self.numbers.get(name, number) != number:
            raise InputError(f"{name}: another identity has this name; merge the two if they are one person")
        if name == f"unknown-{number}":
            self.content["names"].pop(str(number), None)
        elif not name.strip() or name.startswith("unknown-") or name.isdecimal():
            raise InputError(f"{name!r}: is not a valid name; use one that is neither a number nor like unknown-17")
        else:
            self.content["names"][str(number)] = name

    def drop(self, keys: set[str]) -> None:
        """Remove tracklets, recordings without tracklets, and the history, which has data of removed tracklets."""
        self.content["tracklets"] = [each for each in self.tracklets if each["key"] not in keys]
        clips = {each["key"].rpartition("/")[0] for each in self.tracklets}
        self.content["clips"] = [clip for clip in self.content["clips"] if clip["name"] in clips]
        numbers = {str(number) for number in self.identities}
        self.content["names"] = {number: name for number, name in self.content["names"].items() if number in numbers}
        groups = ([key for key in group if key not in keys] for group in self.content["same"])
        self.content["same"] = [group for group in groups if len(group) > 1]
        self.content["apart"] = [pair for pair in self.content["apart"] if not keys & {*pair}]
        self.content["history"] = []

    def _two(self, first: str, second: str) -> tuple[int, int]:
        one, other = sorted((self.find(first), self.find(second)))
        if one == other:
            raise InputError(f"{first} and {second} are the same identity; pass two different ones")
        return one, other

    def _confirm_apart(self, one: list[Json], other: list[Json]) -> None:
        """Record that two identities are different people, and that the tracklets of each show one person."""
        for each in (one, other):
            if len(each) > 1:
                self.content["same"].append(sorted(row["key"] for row in each))
        self.content["apart"].append([one[0]["key"], other[0]["key"]])


def _fault(content: Json) -> str | None:
    """Describe the first contradiction in content of the right form; None if there is none."""
    cameras = {clip["name"]: clip["camera"] for clip in content["clips"]}
    for each in content["clips"] + content["tracklets"]:
        if not 0 <= each["start"] <= each["end"] < LATEST:
            return f"{each.get('key', each.get('name'))} does not end after its start"
    for each in content["tracklets"]:
        if cameras.get(each["key"].rpartition("/")[0]) != each["camera"] or not each["crops"]:
            return f"tracklet {each['key']} has no recording or no crops"
        if not 0 < each["identity"] < content["next"]:
            return f"tracklet {each['key']}: identity {each['identity']} is not below next, {content['next']}"
    for each in content["travel"]:
        if [*map(type, each[:2]), len(each)] != [str, str, 3] or misfit(each[2], NUMBER):
            return f"travel: {each!r} is not [CAMERA, OTHER CAMERA, SECONDS]"
    if not all(number.isdecimal() for number in content["names"]):
        return "names has a key that is not the number of an identity"
    return None if all(len(pair) == 2 for pair in content["apart"]) else "apart has an entry that is not a pair"
