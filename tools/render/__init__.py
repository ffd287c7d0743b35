"""Rendered people: MakeHuman's bodies in clothes, drawn by OpenGL in procedural streets and halls.

:func:`render` writes a data set. An image is determined by its domain, identity, camera, number and one seed; on one
machine it always has the same pixels. Each of these modules only knows the ones before it:

* :mod:`~render.formats`: MakeHuman's files
* :mod:`~render.people`: who is drawn
* :mod:`~render.assets`, :mod:`~render.poses`: bodies, garments and how they move
* :mod:`~render.sensors`: colours, tones and sharpness of a camera
* :mod:`~render.scenes`: domains and their cameras
* :mod:`~render.renderer`: OpenGL
* :mod:`~render.images`: what a camera and a detector make of a scene
"""

import csv
import json
import multiprocessing
import os
import random
import shutil
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from lreid.errors import InputError, require
from lreid.extras import Extra
from lreid.files import files_below, folder_at_once, unfinished, write_file
from render.assets import Assets
from render.images import photograph
from render.people import make_person
from render.renderer import Renderer, Subject
from render.scenes import Camera, Domain, make_camera, make_domain

cv2 = Extra("cv2", "opencv")

__all__ = ["render"]

PASSERS = 4  # people of a domain who pass by others and are nobody's identity
SEEN_BY = 4  # cameras that see one identity, at most
QUALITY = 92  # of the files' JPEG compression


class Plan(NamedTuple):
    """What is rendered; see :func:`render`."""

    domains: int
    train_identities: int
    test_identities: int
    images: int
    cameras: int
    height: int
    width: int
    seed: int
    first_domain: int


class Row(NamedTuple):
    """A line of the data set's list."""

    path: str
    pid: str
    camid: int
    split: str
    domain: str


def render(
    out: Path,
    assets: Path,
    *,
    domains: int = 6,
    train_identities: int = 80,
    test_identities: int = 60,
    images: int = 6,
    cameras: int = 4,
    height: int = 256,
    width: int = 128,
    seed: int = 0,
    first_domain: int = 0,
    workers: int = 1,
) -> int:
    """Writes a data set of rendered people: ``index.csv``, JPEG files in ``images``, and ``render.json``, the settings.

    Domains differ in place, cameras, light, sensors, fashion, and in how people are detected. More identities, images
    or domains leave those before them as they are.

    Args:
        out: folder that is made; a name that ends with ``.zip`` is that of one file with all of it, whose bytes follow
            from those of its parts.
        assets: folder of MakeHuman's assets.
        domains: how many, from 1.
        train_identities, test_identities: of each domain, from 0; one of the two may be none.
        images: of each identity, from 2; they come from up to ``SEEN_BY`` cameras in turn.
        cameras: of each domain, from 2.
        height, width: of images, pixels, from 16 to 1024.
        seed: another one makes other domains and other people.
        first_domain: its number; from 6 on, say, none is among the six of another call with the same seed.
        workers: processes that draw.

    Returns:
        The number of images.

    Raises:
        ArgumentError: a number is out of range.
        InputError: the folder or file is there already or cannot be written, an asset is missing or damaged, or there
            is no OpenGL.
    """
    plan = Plan(domains, train_identities, test_identities, images, cameras, height, width, seed, first_domain)
    none = dict.fromkeys(("train_identities", "test_identities", "seed", "first_domain"), 0)
    least = {"images": 2, "cameras": 2, "height": 16, "width": 16} | none
    for name, value in {**plan._asdict(), "workers": workers}.items():
        most = 1024 if name in ("height", "width") else 10**6
        require(least.get(name, 1) <= value <= most, name, value, f"from {least.get(name, 1)} to {most}")
    require(train_identities + test_identities > 0, "test_identities", 0, "above 0 where train_identities is 0")
    if out.exists():
        raise InputError(f"{out}: is there already; remove it, or take another name")
    Assets(assets)  # tells what is missing before a process is started
    try:
        with folder_at_once(out, empty=True) as folder:
            assert folder is not None
            jobs = [
                (plan, folder, assets, number, split, range(start, min(start + 10, count)))
                for number in range(first_domain, first_domain + domains)
                for split, count in (("train", train_identities), ("test", test_identities))
                for start in range(0, count, 10)
            ]
            rows = [row for made in _results(jobs, workers) for row in made]
            table = StringIO()
            lines = csv.writer(table, lineterminator="\n")
            lines.writerows([Row._fields, *rows])
            _write(folder / "index.csv", table.getvalue().encode())
            _write(folder / "render.json", (json.dumps(plan._asdict(), indent=1) + "\n").encode())
    except OSError as error:
        raise InputError(f"{out}: cannot be made ({error}); name a folder that can be written to") from None
    if out.suffix == ".zip":
        _pack(out)
    return len(rows)


def _pack(folder: Path) -> None:
    """Puts one file in the place of a folder: JPEG is not compressed again, and no time is kept."""
    try:
        with unfinished(folder.with_name(f"{folder.name}.packed")) as file:
            with zipfile.ZipFile(file, "w") as archive:
                for path in files_below(folder):
                    archive.writestr(zipfile.ZipInfo(path.relative_to(folder).as_posix()), path.read_bytes())
            file.flush()
            shutil.rmtree(folder)
            os.rename(file.name, folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot be packed ({error}); it stays a folder with all images") from None


def _results(jobs: list[tuple], workers: int) -> Iterator[list[Row]]:
    if workers == 1:
        yield from map(_work, jobs)
        return
    try:  # processes that are forked would share one connection to OpenGL
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            yield from pool.map(_work, jobs)
    except BrokenProcessPool:
        raise InputError("rendering: a process was killed, perhaps for want of memory; use fewer --workers") from None


def _write(path: Path, data: bytes) -> None:
    try:
        write_file(path, lambda file: file.write(data))
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}); free some space, then run this again") from None


class _Studio(NamedTuple):
    """What a process keeps from one job to the next."""

    key: tuple
    renderer: Renderer
    domain: Domain
    cameras: list[Camera]
    passers: list[Subject]


_studios: list[_Studio] = []  # of this process, at most one


def _studio(plan: Plan, assets: Path, number: int) -> _Studio:
    key = (assets, plan.height, plan.width, plan.cameras, plan.seed, number)
    if not _studios or _studios[0].key != key:
        renderer = None
        while _studios:
            last = _studios.pop()
            renderer = last.renderer if last.key[:3] == key[:3] else None
        renderer = renderer or Renderer(Assets(assets), height=plan.height, width=plan.width)
        domain = make_domain(number, plan.seed)
        people = [make_person(random.Random(f"passer/{domain.seed}/{i}"), domain.fashion) for i in range(PASSERS)]
        cameras = [make_camera(domain, i) for i in range(plan.cameras)]
        _studios.append(_Studio(key, renderer, domain, cameras, [renderer.subject(person) for person in people]))
    return _studios[0]


def _work(job: tuple[Plan, Path, Path, int, str, range]) -> list[Row]:
    """Draws some identities of a domain and writes their images."""
    plan, folder, assets, number, split, identities = job
    studio, rows = _studio(plan, assets, number), []
    domain = studio.domain
    for identity in identities:
        name = f"{domain.seed}/{split}/{identity}"
        subject = studio.renderer.subject(make_person(random.Random(f"person/{name}"), domain.fashion))
        seen_by = random.Random(f"cameras/{name}").sample(range(plan.cameras), min(SEEN_BY, plan.cameras))
        queries = 0 if split == "train" else 2 if plan.images >= 4 else 1
        for shot in range(plan.images):
            camera = seen_by[shot % len(seen_by)]
            dice = random.Random(f"image/{name}/{shot}")
            image = photograph(studio.renderer, domain, studio.cameras[camera], subject, studio.passers, dice)
            path = f"images/{domain.name}/{split}/{identity:05d}_c{camera}_{shot}.jpg"
            _, stream = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
            _write(folder / path, stream.tobytes())
            part = split if split == "train" else "query" if shot < queries else "gallery"
            rows.append(Row(path, f"{split}-{identity:05d}", camera, part, domain.name))
    return rows
