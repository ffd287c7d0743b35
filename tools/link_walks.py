"""Render videos of people who walk past six cameras on two days, and write a tracker's results and the ground truth.

    python tools/link_walks.py walks --people 60 --seed 2026     # walks/day-1.yaml, day-2.yaml, truth.json
    python tools/link_walks.py far --shrink walks                # the same from afar: people are 40 pixels high

The package tools/render renders one crop per person and second. The crop fills a slot of an otherwise black frame, so
that boxes and identities are exact. People cross, leave and return, and the simulated tracker loses some people
halfway. The second day has different light. Two cameras see the same place. tools/link_walks.py needs the same packages
and assets as tools/render.
"""

import argparse
import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[level]) for level in (0, 1)]
from lreid.apps.cli import run_tool


def parser() -> argparse.ArgumentParser:
    """Create the parser of the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    made = argparse.ArgumentParser(prog="tools/link_walks.py", description=__doc__, formatter_class=raw)
    made.add_argument("out", type=Path, metavar="DIR", help="folder to create")
    made.add_argument("--people", type=int, default=60, metavar="N", help="(default: 60)")
    made.add_argument(
        "--seed", type=int, default=2026, metavar="N", help="seed of people, walks and cameras (default: 2026)"
    )
    made.add_argument(
        "--shrink", type=Path, metavar="WALKS", help="shrink the videos of these walks instead of rendering"
    )
    made.add_argument("--assets", type=Path, default=Path("datasets/makehuman"), metavar="DIR", help="of MakeHuman")
    return made


if __name__ == "__main__" and {"-h", "--help"} & set(sys.argv):
    sys.exit(run_tool(parser(), lambda args: None))  # here, because the imports below take seconds

import numpy as np
import yaml

from lreid.utils.extras import Extra
from lreid.utils.files import folder_at_once, write_text
from render.assets import Assets
from render.images import photograph
from render.people import make_person
from render.renderer import Renderer
from render.scenes import Camera, Domain, make_camera, make_domain

cv2 = Extra("cv2", "opencv")

CAMERAS = ("gate", "hall", "stairs", "corridor", "yard-east", "yard-west")
NEXT = {0: (1, 2), 1: (0, 2, 3), 2: (0, 1, 3), 3: (1, 2, 4), 4: (3,)}  # camera 5 sees the same place as camera 4
LEAST = 10  # minimum number of seconds between two cameras
DAY = 900  # filmed seconds per day
STARTS = ("2026-03-02T08:00:00", "2026-03-03T08:00:00")
DOMAIN = 3  # a square; no model of the zoo was trained on this domain with this seed
HEIGHT, WIDTH, SLOTS = 256, 128, 8
FAR = 40  # height of people in shrunken videos, pixels
LIGHT = ("sun", "light", "sky", "ground", "backdrop", "gain", "contrast", "saturation", "noise")
LOST = 0.15  # share of passages that the tracker splits in two


class Passage(NamedTuple):
    """One passage of a person past a camera, from second ``first`` to second ``last`` of the day, inclusive."""

    person: int
    camera: int
    first: int
    last: int


def passages(people: int, seed: int, day: int) -> list[Passage]:
    """Create the passages of one day: one or two walks past three to five cameras per person."""
    made: list[Passage] = []
    for person in range(people):
        dice = random.Random(f"walk/{seed}/{day}/{person}")
        for part in range(dice.choice((1, 2))):  # in the first and the second half of the day
            now, camera = DAY // 2 * part + dice.randint(0, DAY // 5), dice.randrange(5)
            for _ in range(dice.randint(3, 5)):
                stay = dice.randint(5, 12)
                made.append(Passage(person, camera, now, now + stay - 1))
                if camera == 4:  # the other camera of the yard has a later, overlapping view
                    shift = dice.randint(1, 4)
                    made.append(Passage(person, 5, now + shift, now + shift + stay - 1))
                now += stay + dice.randint(LEAST, 3 * LEAST)
                camera = dice.choice(NEXT[camera])
    return sorted(made, key=lambda each: (each.first, each.camera, each.person))


def walks(out: Path, assets: Path, people: int, seed: int) -> int:
    """Write videos, tracks, start times and ground truth of both days; return the number of tracks."""
    domain = make_domain(DOMAIN, seed)._replace(passers=0.7)
    renderer = Renderer(Assets(assets), height=HEIGHT, width=WIDTH)
    subjects = [
        renderer.subject(make_person(random.Random(f"person/{seed}/{i}"), domain.fashion)) for i in range(people)
    ]
    truth: dict[str, dict[int, int]] = {}
    with folder_at_once(out) as folder:
        assert folder is not None, f"{out} is there already"
        for day, start in enumerate(STARTS, start=1):
            all_day, clips = passages(people, seed, day), {}
            for camera, name in enumerate(CAMERAS):
                here = [each for each in all_day if each.camera == camera]
                stem = f"{name}-{day}"
                scene = _relit(domain, camera, day)

                def crop(person: int, second: int, others: list[int]) -> np.ndarray:
                    dice = random.Random(f"image/{seed}/{stem}/{person}/{second}")  # noqa: B023
                    return photograph(renderer, domain, scene, subjects[person], [subjects[i] for i in others], dice)  # noqa: B023

                lines, truth[stem] = _film(folder / f"{stem}.avi", here, crop, random.Random(f"lost/{seed}/{stem}"))
                write_text(folder / f"{stem}.txt", "\n".join(lines) + "\n")
                clips[name] = {"video": f"{stem}.avi", "tracks": f"{stem}.txt", "start": start}
            write_text(folder / f"day-{day}.yaml", yaml.safe_dump({"cameras": clips}, sort_keys=False))
        write_text(folder / "truth.json", json.dumps(truth, indent=1) + "\n")
    return sum(map(len, truth.values()))


def _relit(domain: Domain, camera: int, day: int) -> Camera:
    """Create a camera with the light of the given day."""
    other = make_camera(domain, 100 * (day - 1) + camera)
    return make_camera(domain, camera)._replace(**{name: getattr(other, name) for name in LIGHT})


def _film(path: Path, here: list[Passage], crop: Any, dice: random.Random) -> tuple[list[str], dict[int, int]]:
    """Write a video with one frame per second; return the lines of the tracks file and the person of each track."""
    slots: dict[int, list[tuple[int, Passage, int]]] = {}  # slot, passage and track by second
    free = [-1] * SLOTS  # last second of each slot
    who: dict[int, int] = {}
    for passage in here:
        slot = next(i for i in range(SLOTS) if free[i] < passage.first)
        free[slot] = passage.last
        length = passage.last - passage.first + 1
        lost = passage.first + length // 2 if length >= 6 and dice.random() < LOST else None
        track = len(who) + 1
        who[track] = passage.person
        for second in range(passage.first, passage.last + 1):
            if second == lost:
                track = len(who) + 1
                who[track] = passage.person
                continue
            slots.setdefault(second, []).append((slot, passage, track))
    video = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 1, (SLOTS * WIDTH, HEIGHT))
    lines = []
    for second in range(max(slots, default=0) + 2):
        frame = np.zeros((HEIGHT, SLOTS * WIDTH, 3), np.uint8)
        present = slots.get(second, [])
        for slot, passage, track in present:
            others = [other.person for _, other, _ in present if other.person != passage.person]
            left = slot * WIDTH
            frame[:, left : left + WIDTH] = crop(passage.person, second, others)
            lines.append(f"{second + 1},{track},{left},0,{WIDTH},{HEIGHT},1,-1,-1,-1")
        video.write(np.ascontiguousarray(frame[..., ::-1]))
    video.release()
    return lines, who


def shrink(source: Path, out: Path) -> None:
    """Copy videos and tracks of walks, with smaller frames and boxes."""
    scale = FAR / HEIGHT
    with folder_at_once(out) as folder:
        assert folder is not None, f"{out} is there already"
        for file in sorted(source.glob("*.avi")):
            before, after = cv2.VideoCapture(str(file)), None
            while (frame := before.read()[1]) is not None:
                small = cv2.resize(frame, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
                if after is None:
                    size, codec = small.shape[1::-1], cv2.VideoWriter_fourcc(*"MJPG")
                    after = cv2.VideoWriter(str(folder / file.name), codec, 1, size)
                after.write(small)
            lines = [line.split(",") for line in file.with_suffix(".txt").read_text().splitlines()]
            boxes = [[*line[:2], *(f"{float(each) * scale:g}" for each in line[2:6]), *line[6:]] for line in lines]
            write_text(folder / f"{file.stem}.txt", "\n".join(map(",".join, boxes)) + "\n")
        for file in (*source.glob("*.yaml"), source / "truth.json"):
            shutil.copy(file, folder)


def run(args: argparse.Namespace) -> None:
    """Render the walks and print how to link them, or shrink existing walks."""
    if args.shrink:
        shrink(args.shrink, args.out)
        return
    tracks = walks(args.out, args.assets, args.people, args.seed)
    print(f"{args.out}: {tracks} tracks of {args.people} people; lreid link add linked {args.out}/day-1.yaml")


if __name__ == "__main__":
    sys.exit(run_tool(parser(), run))
