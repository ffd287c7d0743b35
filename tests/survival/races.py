"""Several processes that change the same files at the same moment."""

import json
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from commands import Counts, World, call, commands, entry, galleries, leftovers_in, outcome, within
from processes import fork_process, wait_for_exit


def at_once(folder: Path, *commands: list[str]) -> list[tuple[int, str]]:
    """Start commands together in one folder; return the exit status and standard error of each."""

    def act(number: int, words: list[str]) -> None:
        (folder.parent / f"{folder.name}.{number}").write_text(json.dumps(call(words, folder)))

    pids = [
        fork_process(lambda number=number, words=words: act(number, words)) for number, words in enumerate(commands)
    ]
    for pid in pids:
        wait_for_exit(pid)
    return [tuple(json.loads((folder.parent / f"{folder.name}.{number}").read_text())) for number in range(len(pids))]


def race(world: World, folder: Path, turns: int) -> Counts:
    """Run builders, removals, additions, publishers, downloads and runs against each other."""
    counts, known = Counts(), commands(world)

    def check(
        name: str, turn: int, prepare: Callable[[], Any], words: list[list[str]], sound: Callable[..., bool]
    ) -> None:
        here = folder / f"{name}-{turn}"
        here.mkdir(parents=True)
        with within(here):
            prepare()
        results = at_once(here, *words)
        counts.numbers["races"] += 1
        if any(status == 1 or "Traceback" in err for status, err in results):
            counts.wrong("tracebacks", f"{name}: {results}")
        if not sound(here, [status for status, _ in results]):
            counts.wrong("lost", f"{name}: {results}")
        if leftovers_in(here):
            counts.wrong("leftovers", f"{name}: {leftovers_in(here)}")
        shutil.rmtree(here)

    def paths(here: Path) -> set[str]:
        return {path for path, _ in galleries(here)["people.gallery"][3]}

    more = world.folder / "more"
    first, second = sorted(path.name for path in more.iterdir())[:2]
    add, remove = known["add"].words, ["search", "remove", "people.gallery", "--identity", first]
    drop = ["search", "remove", "people.gallery", "--identity", second]
    train = known["train"].words
    uninterrupted = outcome(world.folder / "run")

    def both(here: Path, statuses: list[int]) -> bool:
        left = paths(here)
        return all(
            (status == 0) == (not any(f"/{name}/" in path for path in left))
            for status, name in zip(statuses, (first, second), strict=True)
        )

    build, publish, download = known["build"], known["publish"], known["download"]

    def built(here: Path, statuses: list[int]) -> bool:
        return sorted(statuses) == [0, 2, 2] and len(paths(here)) > 0

    def added(here: Path, statuses: list[int]) -> bool:
        return 0 in statuses and any("/more/" in path for path in paths(here))

    def published(here: Path, statuses: list[int]) -> bool:
        return statuses == [0, 0] and bool(entry(here))

    def downloaded(here: Path, statuses: list[int]) -> bool:
        return statuses == [0, 0] and len(download.state(here)) == 1

    def trained(here: Path, statuses: list[int]) -> bool:
        return 0 in statuses and outcome(here / "run") == uninterrupted

    trials: dict[str, tuple[Callable[[], Any], list[list[str]], Callable[..., bool]]] = {
        "builders": (build.prepare, [build.words] * 3, built),
        "removals": (lambda: world.build("people.gallery", "more"), [remove, drop], both),
        "additions": (known["add"].prepare, [add, add], added),
        "publications": (publish.prepare, [publish.words] * 2, published),
        "downloads": (download.prepare, [download.words] * 2, downloaded),
        "runs": (known["train"].prepare, [train, train], trained),
    }
    for turn, (name, trial) in product(range(turns), trials.items()):
        if name != "runs" or turn % 5 == 0:
            check(name, turn, *trial)
    return counts
