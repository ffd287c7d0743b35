"""Render images of people: MakeHuman's bodies with clothes, drawn with OpenGL in procedural streets and halls.

:func:`render` writes a data set. Domain, identity, camera, image number and seed determine an image; on one machine,
the same five values always give the same pixels. Each module imports only modules that this list names before it:

* :mod:`~render.formats` reads MakeHuman's files.
* :mod:`~render.people` chooses the appearance of a person.
* :mod:`~render.assets` and :mod:`~render.poses` make bodies and garments, and move them.
* :mod:`~render.sensors` simulates the colours, tones and sharpness of a camera.
* :mod:`~render.scenes` makes domains and their cameras.
* :mod:`~render.renderer` draws by OpenGL.
* :mod:`~render.images` makes an image: it combines pose, place, camera and detector.
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
from lreid.utils.extras import Extra
from lreid.utils.files import files_below, folder_at_once, unfinished, write_file
from render.assets import Assets
from render.images import photograph
from render.people import make_person
from render.renderer import Renderer, Subject
from render.scenes import Camera, Domain, make_camera, make_domain

cv2 = Extra("cv2", "opencv")

__all__ = ["render"]

PASSERS = 4  # number of people per domain who appear behind or in front of others, but are not identities
SEEN_BY = 4  # maximum number of cameras that see one identity
QUALITY = 92  # JPEG quality of the files


class Plan(NamedTuple):
    """The data set that a call of :func:`render` creates."""

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
    """One line of ``index.csv``."""

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
    """Write a data set of rendered people: ``index.csv``, JPEG files in ``images``, and settings in ``render.json``.

    Domains differ in place, cameras, light, sensors, fashion and the errors of the person detector. Rendering more
    identities, images or domains does not change the images of the others.

    Args:
        out: folder to create. If the name ends with ``.zip``, everything is written to one file, whose bytes depend
            only on its contents.
        assets: folder of MakeHuman's assets.
        domains: number of domains, at least 1.
        train_identities, test_identities: number of identities per domain; one of the two may be 0.
        images: number of images per identity, at least 2; up to ``SEEN_BY`` cameras take them in turn.
        cameras: number of cameras per domain, at least 2.
        height, width: size of the images in pixels, from 16 to 1024.
        seed: seed of domains and people; another seed gives other domains and other people.
        first_domain: number of the first domain. For example, 6 gives only domains that are not among the six domains
            of another call with the same seed.
        workers: number of rendering processes.

    Returns:
        The number of images.

    Raises:
        ArgumentError: a number is out of range.
        InputError: the folder or file exists already or cannot be written, an asset is missing or damaged, or OpenGL is
            not available.
    """
    plan = Plan(domains, train_identities, test_identities, images, cameras, height, width, seed, first_domain)
    none = dict.fromkeys(("train_identities", "test_identities", "seed", "first_domain"), 0)
    least = {"images": 2, "cameras": 2, "height": 16, "width": 16} | none
    for name, value in {**plan._asdict(), "workers": workers}.items():
        most = 1024 if name in ("height", "width") else 10**6
        require(least.get(name, 1) <= value <= most, name, value, f"from {least.get(name, 1)} to {most}")
    require(train_identities + test_identities > 0, "test_identities", 0, "above 0 if train_identities is 0")
    if out.exists():
        raise InputError(f"{out}: already exists; remove it, or choose another name")
    Assets(assets)  # raises an error if assets are missing, before processes are started
    try:
        with folder_at_once(out) as folder:
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
        raise InputError(f"{out}: cannot be created ({error}); choose a folder that can be written to") from None
    if out.suffix == ".zip":
        _pack(out)
    return len(rows)


def _pack(folder: Path) -> None:
    """Replace a folder by one zip file, which stores JPEG files without compression and stores no times."""
    try:
        with unfinished(folder.with_name(f"{folder.name}.packed")) as file:
            with zipfile.ZipFile(file, "w") as archive:
                for path in files_below(folder):
                    archive.writestr(zipfile.ZipInfo(path.relative_to(folder).as_posix()), path.read_bytes())
            file.flush()
            shutil.rmtree(folder)
            os.rename(file.name, folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot be packed ({error}); the folder with all images remains") from None


def _results(jobs: list[tuple], workers: int) -> Iterator[list[Row]]:
    if workers == 1:
        yield from map(_work, jobs)
        return
    try:  # forked processes would share one connection to OpenGL
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            yield from pool.map(_work, jobs)
    except BrokenProcessPool:
        raise InputError(
            "rendering: a process was killed, perhaps because memory ran out; use fewer --workers"
        ) from None


def _write(path: Path, data: bytes) -> None:
    try:
        write_file(path, lambda file: file.write(data))
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}); free some space, then run this again") from None


class _Studio(NamedTuple):
    """Renderer and other objects that a process keeps in memory between two jobs."""

    key: tuple
    renderer: Renderer
    domain: Domain
    cameras: list[Camera]
    passers: list[Subject]


_studios: list[_Studio] = []  # objects of this process, at most one entry


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
    """Render some identities of a domain, and write their images."""
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
