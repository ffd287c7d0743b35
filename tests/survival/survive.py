"""The long form of the survival tests: make survive. Writes its counts into docs/reference/reliability.md.

python tests/survival/survive.py                       # all parts
python tests/survival/survive.py --parts inputs races  # some; the rows of the others stay as they are
"""

import argparse
import datetime
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "tests" / each) for each in ("", "gallery", "methods", "survival")] + [str(REPOSITORY)]
os.environ |= {"OMP_NUM_THREADS": "1", "LREID_ZOO_CACHE": "cache"}

import torch  # noqa: E402 (reads the environment variables)
from chains import chain, titles  # noqa: E402
from commands import WRONG, Counts, Trial, World, commands  # noqa: E402
from inputs import read_any  # noqa: E402
from races import race  # noqa: E402

PAGE = REPOSITORY / "docs" / "reference" / "reliability.md"
MARKS = "<!-- Counts -->", "<!-- end Counts -->"
DONE = ("runs", "kills", "stops", "failures", "inputs", "races")
INPUTS, KILLS, TURNS = 110_000, 24, 20


def parts(world: World, folder: Path, scale: float) -> dict[str, Callable[[], Iterator[tuple[str, Counts]]]]:
    """The parts by name; each yields titles and counts."""

    def calls() -> Iterator[tuple[str, Counts]]:
        for name, command in commands(world).items():
            trial = Trial(name, command, folder / "calls")
            yield f"every one of {len(trial.calls)} calls of {name}", trial.run(max(1, round(1 / scale)))

    def chains() -> Iterator[tuple[str, Counts]]:
        for title in titles():
            try:
                counts = chain(title, folder / title.replace(" ", "_"), max(1, round(KILLS * scale)))
            except (RuntimeError, TimeoutError) as error:  # continue with the other runs
                counts = Counts()
                counts.wrong("lost", f"{title}: {error}")
            yield f"chain of {title}", counts

    def inputs() -> Iterator[tuple[str, Counts]]:
        yield "inputs of any kind", read_any(world, folder / "inputs", round(INPUTS * scale))

    def races() -> Iterator[tuple[str, Counts]]:
        yield "races", race(world, folder / "races", max(1, round(TURNS * scale)))

    return {"calls": calls, "chains": chains, "inputs": inputs, "races": races}


TITLES = {
    "calls": "a kill and a failure at every I/O call of a command",
    "chains": "runs killed at random, every method and option",
    "inputs": "damaged and hostile input",
    "races": "processes against one another",
}


def row(name: str, counts: Counts, when: str) -> str:
    """A row of the table."""
    numbers = counts.numbers
    done = ", ".join(f"{numbers[each]:,} {each}" for each in DONE if numbers[each])
    return f"| {TITLES[name]} | {done} | {' | '.join(str(numbers[each]) for each in WRONG)} | {when} |"


def write_table(rows: dict[str, str]) -> None:
    """Replace the rows of these parts in the page."""
    text = PAGE.read_text(encoding="utf-8")
    begin, end = (text.index(mark) for mark in MARKS)
    for name, title in TITLES.items():
        found = re.search(rf"^\| {re.escape(title)} \|.*$", text[begin:end], re.MULTILINE)
        rows.setdefault(name, found[0] if found else f"| {title} | not run | {' | ' * len(WRONG)} |")
    head = f"| what was done | how often | {' | '.join(WRONG)} | when |"
    table = [head, "|---|---|" + "---:|" * len(WRONG) + "---|", *(rows[name] for name in TITLES)]
    PAGE.write_text(f"{text[:begin]}{MARKS[0]}\n{chr(10).join(table)}\n{text[end:]}", encoding="utf-8")


def main() -> int:
    """Run the parts, print the faults, and write the table; return 1 if there are faults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(TITLES), default=list(TITLES))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the cases (default: all)")
    parser.add_argument("--dry", action="store_true", help="write nothing into the page")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.ones((), requires_grad=True).backward()  # torch.export before the first one would forbid forked processes any
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=9"], cwd=REPOSITORY, text=True, capture_output=True
    ).stdout.strip()
    share = "" if args.scale == 1 else f", {args.scale:.0%} of the cases"
    when, wrong = f"{datetime.date.today()}, {commit}{share}", 0
    with tempfile.TemporaryDirectory() as folder:
        world = World.make(Path(folder) / "world")
        for name in args.parts:
            total, begun = Counts(), time.monotonic()
            for title, counts in parts(world, Path(folder), args.scale)[name]():
                total.add(counts)
                print(f"{title}: {dict(counts.numbers)}", flush=True)
                for fault in counts.faults:
                    print(f"  {fault}", flush=True)
            print(f"{row(name, total, when)}\n{name}: {time.monotonic() - begun:.0f} s", flush=True)
            wrong += sum(total.numbers[each] for each in WRONG)
            if not args.dry:
                write_table({name: row(name, total, when)})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
