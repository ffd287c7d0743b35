"""Synthetic re-ID images: people and vehicles in several domains, each with its own cameras.

A synthetic image is not stored in a file, because its address determines all its pixels::

    synthetic:<domain>/<seed>/<identity>/<camera>/<shot>

The *seed* determines which people or vehicles exist. The *domain* is a site with its own cameras, backgrounds and
fashions. A season has :data:`SEASON` identities, numbered in the order in which they appear. The colours of clothes and
the daylight change gradually from the first to the last day of the season. Images of early tasks therefore differ from
images of late tasks, and a model forgets early tasks.

Every random choice uses a :class:`random.Random` with a text as its seed, and every pixel is computed in integers. An
address therefore gives the same image on all machines.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from lreid.data.datasets import Scheme
from lreid.data.records import DataSet, Record
from lreid.data.synthetic.people import Pen, Person
from lreid.data.synthetic.sites import (
    CAMERAS,
    DOMAINS,
    IN_FASHION,
    SEASON,
    Dice,
    camera_of,
    crop,
    domain_named,
    expose,
    obstruct,
)
from lreid.errors import ArgumentError, InputError

if TYPE_CHECKING:
    from lreid.data.synthetic.vehicles import Vehicle

__all__ = ["CAMERAS", "DOMAINS", "QUERIES", "SEASON", "draw", "load_synthetic"]

SEEN_BY = 4  # maximum number of cameras that see one identity
QUERIES = 2  # number of queries per test identity, each from a different camera
_ADDRESS = re.compile(r"synthetic:([a-z-]+)" + 4 * r"/([0-9]{1,18})")


def draw(address: str) -> np.ndarray:
    """Draw the image at an address.

    Args:
        address: ``synthetic:<domain>/<seed>/<identity>/<camera>/<shot>``; identities are numbered from 0 to
            ``SEASON - 1``, and cameras from 1 to ``CAMERAS``.

    Returns:
        (H, W, 3) uint8, RGB: 64 x 32 pixels for people, 48 x 64 for vehicles.

    Raises:
        InputError: the address is invalid.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise InputError(f"{address!r}: not the address of a synthetic image; an example is synthetic:plaza/0/17/2/5")
    name, (seed, identity, camera, shot) = match[1], map(int, match.groups()[1:])
    domain = domain_named(name)
    if identity >= SEASON or not 1 <= camera <= CAMERAS:
        raise InputError(f"{address}: identities go from 0 to {SEASON - 1} and cameras from 1 to {CAMERAS}")
    # A camera sees one side of an identity in all shots; position, size, pose and light change from shot to shot.
    eye, subject = camera_of(name, camera), _subject(name, seed, identity)
    passing, dice = Dice(name, seed, identity, camera), Dice(name, seed, identity, camera, shot)
    view, flip, scene = passing.one_of(eye.views), passing.chance(50), passing.below(domain.scenes) + shot
    canvas = crop(eye.backgrounds[scene % domain.scenes], subject.canvas, dice)
    x, y = canvas.shape[1] // 2 + dice.between(-3, 3), dice.between(-3, 4)
    pen = Pen(canvas, x, y, eye.scale + dice.between(-12, 12), flip)
    subject.draw(pen, view, dice)
    if dice.chance(domain.clutter):
        obstruct(canvas, dice)
    return expose(canvas, eye, domain.dusk * identity // SEASON, dice)


def load_synthetic(
    domain: str, *, train_identities: int, test_identities: int, images_per_identity: int, distractors: int, seed: int
) -> DataSet:
    """Build the data set of one domain, with disjoint training and test identities.

    Training identities, test identities and distractors come from the whole season. Identities with a higher ``pid``
    appear later in the season, so appearance drifts if tasks are cut in ascending order of ``pid``. For each test
    identity, ``QUERIES`` images are queries, and its other images are in the gallery. Each query has a match from
    another camera.

    Args:
        domain: a key of :data:`DOMAINS`.
        train_identities, test_identities: numbers of identities; the ``pid`` is the identity's number in an address.
        images_per_identity: number of images per identity, at least 3, which up to ``SEEN_BY`` cameras take in turn.
        distractors: number of distractors: gallery images with pid 0, each of a different identity without a query.
        seed: seed of the population; other seeds give other identities in the same domain.

    Raises:
        ArgumentError: there are more identities or distractors than a third of the season.
        InputError: the domain is unknown.
    """
    domain_named(domain)
    most = SEASON // 3
    numbers = {"train_identities": train_identities, "test_identities": test_identities, "distractors": distractors}
    for argument, number in numbers.items():
        if number > most:
            raise ArgumentError(argument, f"of synthetic:{domain} is {number}; must be {most} or less")

    def arrivals(count: int, turn: int) -> list[int]:
        # Of three consecutive numbers, one (turn 0) is for distractors, one (1) for training, one (2) for testing.
        return [3 * (k * most // count) + turn for k in range(count)]

    def images(identity: int, pid: int, count: int) -> list[Record]:
        cameras = Dice(domain, seed, identity, "cameras").shuffled(range(1, CAMERAS + 1))[:SEEN_BY]
        shots = [(cameras[i % SEEN_BY], i // SEEN_BY) for i in range(count)]
        return [Record(f"synthetic:{domain}/{seed}/{identity}/{c}/{shot}", pid, c) for c, shot in shots]

    train, query, gallery = [], [], []
    for identity in arrivals(train_identities, 1):
        train += images(identity, identity, images_per_identity)
    for identity in arrivals(test_identities, 2):
        records = images(identity, identity, images_per_identity)
        query += records[:QUERIES]
        gallery += records[QUERIES:]
    for identity in arrivals(distractors, 0):
        gallery += images(identity, 0, 1)
    return DataSet(domain, tuple(train), tuple(query), tuple(gallery))


@lru_cache(maxsize=4096)
def _subject(name: str, seed: int, identity: int) -> Person | Vehicle:
    domain, dice = DOMAINS[name], Dice(name, seed, identity)
    colours = domain.fashion.split()
    first = (len(colours) - IN_FASHION + 1) * identity // SEASON
    fashion = " ".join(colours[first : first + IN_FASHION])
    if domain.kind == "vehicle":
        from lreid.data.synthetic.vehicles import Vehicle

        return Vehicle(dice, fashion)
    return Person(dice, fashion, when=100 * identity // SEASON)


SCHEME = Scheme(lambda domain, sources, split: [load_synthetic(domain, **sources.synthetic)], draw)
