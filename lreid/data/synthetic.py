"""Re-ID images drawn by a program: people and vehicles, seen by cameras, in domains.

A drawn image needs no file. Its address says all of it::

    synthetic:<domain>/<seed>/<identity>/<camera>/<shot>

The *seed* chooses the population, the *domain* the place with its cameras, backgrounds and fashions.
Identities are numbered in the order in which they appear over one season of :data:`SEASON` numbers.
Fashion and daylight drift from its first to its last day, so an early and a late task differ as they
do in a city; that is what makes a model forget.

Every choice comes from :class:`random.Random` seeded by text, every pixel from integer arithmetic:
an address gives the same image on every machine and in any order.
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import cv2
import numpy as np

from lreid.data.records import DataSet, Record
from lreid.errors import InputError

Colour = tuple[int, int, int]
Point = tuple[int, int]
T = TypeVar("T")

SEASON = 30_000  # identity numbers from the first to the last day
CAMERAS = 6  # in every domain, numbered from 1
IN_FASHION = 6  # colours at any time
SEEN_BY = 4  # cameras that see one identity, at most
QUERIES = 2  # per test identity, each under another camera
_ADDRESS = re.compile(r"synthetic:([a-z-]+)/([0-9]+)/([0-9]+)/([0-9]+)/([0-9]+)")

COLOURS: dict[str, Colour] = {
    "black": (28, 28, 32), "charcoal": (58, 58, 64), "grey": (120, 122, 126), "silver": (178, 180, 184),
    "white": (232, 232, 228), "cream": (226, 212, 178), "beige": (190, 166, 128), "brown": (104, 70, 44),
    "maroon": (110, 28, 38), "red": (198, 40, 42), "coral": (236, 120, 100), "pink": (232, 150, 186),
    "orange": (232, 128, 36), "yellow": (236, 204, 62), "olive": (106, 108, 50), "lime": (150, 200, 70),
    "green": (48, 132, 66), "forest": (28, 72, 46), "teal": (30, 130, 134), "sky": (122, 182, 226),
    "blue": (42, 86, 188), "navy": (30, 38, 86), "denim": (72, 92, 134), "purple": (106, 58, 142),
}  # fmt: skip
SKIN: tuple[Colour, ...] = ((236, 196, 168), (214, 166, 130), (170, 118, 82), (112, 74, 50))
HAIR = ("black", "black", "brown", "brown", "beige", "charcoal", "silver", "maroon")


class Domain(NamedTuple):
    """A place: what its people wear (or which cars pass), how its cameras see, what stands behind.

    Colours are names out of :data:`COLOURS`; a name given twice is twice as likely.
    """

    fashion: str  # colours of clothes or paint in the order in which they come and go over the season
    wall: str  # background colours above the horizon
    ground: str  # and below
    texture: str  # of the background: bricks, panes, foliage or plain
    light: tuple[int, int] = (85, 115)  # brightness of its cameras, per cent
    dusk: int = 40  # by how much the light falls (or rises, if negative) over the season, per cent
    cast: int = 6  # how far the colour channels of a camera stray, per cent
    blur: int = 1  # the most that a camera blurs
    noise: int = 5  # grey levels
    clutter: int = 10  # chance that something stands in front, per cent
    views: tuple[int, int, int] = (3, 2, 3)  # weights of front, side and back
    kind: str = "person"


DOMAINS: dict[str, Domain] = {
    "plaza": Domain(
        "black charcoal navy grey maroon brown forest denim purple teal blue beige olive red coral sky orange white",
        "beige cream silver", "grey silver", "bricks",
    ),
    "campus": Domain(
        "forest maroon navy brown denim grey red black purple green sky white lime orange pink yellow",
        "maroon brown cream", "forest olive grey", "foliage", (85, 125), -15, 8, 1, 6, 15, (2, 5, 2),
    ),
    "station": Domain(
        "navy black grey charcoal brown beige white denim blue cream silver teal red black sky olive",
        "silver grey white", "charcoal grey", "panes", (65, 95), 10, 16, 2, 10, 25, (5, 1, 4),
    ),
    "market": Domain(
        "brown olive maroon purple forest orange beige red green yellow teal pink lime white coral",
        "red yellow teal cream green", "brown beige", "bricks", (75, 130), 15, 14, 1, 8, 35, (3, 4, 3),
    ),
    "mall": Domain(
        "black grey denim purple white red cream pink navy coral sky beige yellow lime white",
        "white cream pink sky", "silver white", "panes", (95, 125), 0, 10, 1, 6, 20, (4, 2, 4),
    ),
    "night-street": Domain(
        "black navy charcoal maroon brown denim grey forest purple red blue white teal beige orange",
        "navy black charcoal", "black charcoal", "panes", (42, 70), 10, 20, 2, 14, 20, (4, 3, 4),
    ),
    "snow": Domain(
        "red black navy purple orange blue teal white grey lime pink maroon sky yellow olive",
        "white silver sky", "white white silver", "foliage", (95, 130), 15, 12, 2, 8, 15, (2, 3, 4),
    ),
    "park": Domain(
        "olive brown forest denim grey black navy green beige red blue white coral sky orange yellow lime",
        "green forest olive", "olive green beige", "foliage", (70, 120), -20, 14, 1, 8, 25, (3, 5, 3),
    ),
    "highway": Domain(
        "black charcoal navy grey silver white maroon forest brown blue red beige sky orange yellow",
        "sky silver grey", "grey charcoal", "plain", (80, 120), 35, 8, 1, 6, 10, (4, 3, 4), "vehicle",
    ),
    "car-park": Domain(
        "white silver grey beige sky blue navy black red maroon teal brown green charcoal",
        "grey silver cream", "charcoal grey", "bricks", (55, 90), 10, 16, 2, 10, 25, (3, 4, 3), "vehicle",
    ),
}  # fmt: skip


def is_synthetic(path: str) -> bool:
    """Whether a record's path is the address of a drawn image."""
    return path.startswith("synthetic:")


def draw(address: str) -> np.ndarray:
    """The image at an address.

    Args:
        address: ``synthetic:<domain>/<seed>/<identity>/<camera>/<shot>``; identities count from 0 to
            ``SEASON - 1``, cameras from 1 to ``CAMERAS``.

    Returns:
        (H, W, 3) uint8, RGB: 64 x 32 pixels for people, 48 x 64 for vehicles.

    Raises:
        InputError: it is no such address.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise InputError(f"{address!r}: not the address of a drawn image; write synthetic:plaza/0/17/2/5")
    name, (seed, identity, camera, shot) = match[1], map(int, match.groups()[1:])
    domain = _domain(name)
    if identity >= SEASON or not 1 <= camera <= CAMERAS:
        raise InputError(f"{address}: identity must be below {SEASON} and camera from 1 to {CAMERAS}")
    # Who passes a camera shows it one side (a tracklet); light and pose change from shot to shot.
    eye = _camera(name, camera)
    passing = Dice(name, seed, identity, camera)
    dice = Dice(name, seed, identity, camera, shot)
    view = passing.one_of(eye.views)
    subject = _subject(name, seed, identity)
    canvas = _crop(eye.background, subject.canvas, dice)
    height, width = subject.canvas
    pen = Pen(
        canvas,
        x=width // 2 + dice.between(-3, 3),
        y=dice.between(-3, 4),
        scale=eye.scale + dice.between(-12, 12),
        mirror=passing.chance(50),
    )
    subject.draw(pen, view, dice)
    if dice.chance(domain.clutter):
        _obstruct(canvas, eye, dice)
    return _expose(canvas, eye, domain.dusk * identity // SEASON, dice)


def load_synthetic(
    domain: str, *, train_identities: int, test_identities: int, images_per_identity: int, distractors: int,
    seed: int,
) -> DataSet:  # fmt: skip
    """Records of one domain: training identities, and others to be looked for.

    All three groups (training, test, distractors) come from the whole season. Training identities are
    numbered in order of appearance: split them in ascending order for tasks that drift.

    Args:
        domain: a key of :data:`DOMAINS`.
        train_identities, test_identities: how many; ``pid`` is the identity number of the address.
        images_per_identity: at least 3; they come from up to ``SEEN_BY`` cameras.
        distractors: gallery images of further people or vehicles, one each, with pid 0.
        seed: another seed is another population in the same place.

    Returns:
        The data set; of each test identity ``QUERIES`` images are queries, each of which has a match
        in the gallery under another camera.

    Raises:
        InputError: the domain is unknown or a number is out of range.
    """
    _domain(domain)
    group = SEASON // 3
    for key, value, least in (
        ("train_identities", train_identities, 0),
        ("test_identities", test_identities, 0),
        ("distractors", distractors, 0),
    ):
        if not least <= value < group:
            raise InputError(f"{key}: must be from {least} to {group - 1}, not {value}")
    if images_per_identity < 3:
        raise InputError(f"images_per_identity: must be at least 3 (query and match), not {images_per_identity}")

    def images(identity: int, pid: int, count: int) -> list[Record]:
        cameras = Dice(domain, seed, identity, "cameras").shuffled(range(1, CAMERAS + 1))[:SEEN_BY]
        shots = ((cameras[i % SEEN_BY], i // SEEN_BY) for i in range(count))
        return [Record(f"synthetic:{domain}/{seed}/{identity}/{c}/{s}", pid, c) for c, s in shots]

    # Of three neighbours in the season, one is trained on, one is looked for and one is nobody.
    def arrivals(count: int, group_index: int) -> list[int]:
        return [3 * (k * group // count) + group_index for k in range(count)]

    n = images_per_identity
    train = [r for i in arrivals(train_identities, 1) for r in images(i, i, n)]
    test = [images(i, i, n) for i in arrivals(test_identities, 2)]
    nobody = [r for i in arrivals(distractors, 0) for r in images(i, 0, 1)]
    query = [r for records in test for r in records[:QUERIES]]
    gallery = [r for records in test for r in records[QUERIES:]] + nobody
    return DataSet(domain, tuple(train), tuple(query), tuple(gallery))


def _domain(name: str) -> Domain:
    if name not in DOMAINS:
        nearest = difflib.get_close_matches(name, DOMAINS, n=1, cutoff=0.0)[0]
        raise InputError(f"unknown synthetic domain {name!r}; the nearest known one is {nearest}")
    return DOMAINS[name]


class Dice:
    """Throws that come out the same on every machine for the same key.

    Only ``random()`` is used: the one stream that Python promises never to change.
    """

    def __init__(self, *key: object) -> None:
        self._random = random.Random("/".join(map(str, key))).random

    def below(self, n: int) -> int:
        return int(self._random() * n)

    def between(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""
        return low + self.below(high - low + 1)

    def chance(self, per_cent: int) -> bool:
        return self.below(100) < per_cent

    def one_of(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return sorted(items, key=lambda _: self._random())

    def colour(self, names: str, stray: int = 14) -> Colour:
        """One of the named colours, slightly off."""
        r, g, b = COLOURS[self.one_of(names.split())]
        return tuple(max(0, min(255, v + self.between(-stray, stray))) for v in (r, g, b))


class Pen:
    """Draws flat shapes given in body coordinates: x from the body's axis, y from the top of the frame."""

    def __init__(self, canvas: np.ndarray, x: int, y: int, scale: int, mirror: bool) -> None:
        self.canvas, self.x, self.y, self.scale, self.sign = canvas, x, y, scale, -1 if mirror else 1
        self.foot = canvas.shape[0] - 8  # people grow and shrink from the ground up

    def _at(self, x: int, y: int) -> Point:
        return (
            self.x + self.sign * x * self.scale // 256,
            self.y + self.foot + (y - self.foot) * self.scale // 256,
        )

    def shape(self, colour: Colour, *points: Point, cloth: np.ndarray | None = None) -> None:
        """A convex polygon, plain or cut out of a cloth as large as the canvas."""
        corners = np.array([self._at(x, y) for x, y in points], np.int32)
        if cloth is None:
            cv2.fillConvexPoly(self.canvas, corners, colour)
        else:
            mask = np.zeros(self.canvas.shape[:2], np.uint8)
            cv2.fillConvexPoly(mask, corners, 255)
            cv2.copyTo(cloth, mask, self.canvas)

    def box(self, colour: Colour, left: int, top: int, right: int, bottom: int) -> None:
        self.shape(colour, (left, top), (right, top), (right, bottom), (left, bottom))

    def oval(self, colour: Colour, x: int, y: int, rx: int, ry: int, start: int = 0, end: int = 360) -> None:
        """An ellipse or, from ``start`` to ``end`` degrees clockwise from 3 o'clock, a piece of one."""
        radii = (max(1, rx * self.scale // 256), max(1, ry * self.scale // 256))
        if self.sign < 0:
            start, end = 180 - end, 180 - start
        cv2.ellipse(self.canvas, self._at(x, y), radii, 0, start, end, colour, -1)


def _darker(colour: Colour, eighths: int = 6) -> Colour:
    r, g, b = colour
    return r * eighths // 8, g * eighths // 8, b * eighths // 8


# ---------------------------------------------------------------------------------------- cloth


def _pattern(name: str) -> np.ndarray:
    """Where the second colour of a cloth goes: (160, 176) bool."""
    y, x = np.mgrid[:160, :176]
    return {
        "hoops": y % 12 < 5,
        "stripes": x % 10 < 4,
        "checks": (x // 6 + y // 6) % 2 == 0,
        "dots": (x % 10 - 5) ** 2 + (y % 10 - 5) ** 2 < 8,
        "tartan": (x % 14 < 3) | (y % 14 < 3),
        "diagonal": (x + y) % 16 < 6,
    }[name]


PATTERNS = {name: _pattern(name) for name in ("hoops", "stripes", "checks", "dots", "tartan", "diagonal")}


def _cloth(pen: Pen, pattern: str, first: Colour, second: Colour) -> np.ndarray:
    """A cloth as large as the canvas that moves with the body."""
    height, width = pen.canvas.shape[:2]
    top, left = 16 - pen.y, 16 + width // 2 - pen.x
    where = PATTERNS[pattern][top : top + height, left : left + width]
    return np.where(where[..., None], np.uint8(second), np.uint8(first))  # (H, W, 3)


# --------------------------------------------------------------------------------------- people


class Person(NamedTuple):
    """What is the same on all images of one person. Lengths are in 128ths of the frame's height."""

    skin: Colour
    hair: Colour
    upper: Colour
    second: Colour  # of the pattern and the logo
    inner: Colour  # shirt under an open jacket
    lower: Colour
    shoes: Colour
    bag_colour: Colour
    hat_colour: Colour
    shoulder: int  # half the width
    head: int  # top of the head
    hem: int  # lower end of the upper garment
    pattern: str  # a key of PATTERNS, or plain
    short_sleeves: bool
    legs: str  # trousers, shorts or skirt
    haircut: str  # short, long or bald
    hat: str  # none, cap or beanie
    bag: str  # none, backpack, satchel or handbag
    front: str  # plain, logo or open

    canvas = (128, 64)

    def draw(self, pen: Pen, view: str, dice: Dice) -> None:
        side = view == "side"
        width = self.shoulder * 5 // 8 if side else self.shoulder
        stride = dice.between(2, 9) if side else dice.between(-2, 2)
        if self.bag == "backpack" and side:
            pen.oval(self.bag_colour, -width - 3, 46, 8, 14)
        self._legs(pen, width, stride, side)
        self._torso(pen, width, view)
        self._arms(pen, width, side, dice.between(-4, 6))
        self._bag(pen, width, view)
        self._head(pen, view)

    def _legs(self, pen: Pen, width: int, stride: int, side: bool) -> None:
        bare = self.legs != "trousers"
        hem = 86 if self.legs == "shorts" else 116
        for s, shade in ((-1, 6), (1, 8)):
            hip = s * (2 if side else width // 2)
            foot = hip + s * stride
            if bare:
                pen.shape(_darker(self.skin, shade), (hip - 3, 70), (hip + 3, 70), (foot + 2, 117), (foot - 2, 117))
            pen.oval(_darker(self.shoes, shade), foot + (3 if side else 0), 119, 7 if side else 5, 4)
            if self.legs != "skirt":
                knee = hip + (foot - hip) * (hem - 64) // 52
                pen.shape(_darker(self.lower, shade), (hip - 5, 62), (hip + 5, 62), (knee + 4, hem), (knee - 4, hem))
        if self.legs == "skirt":
            pen.shape(self.lower, (-width + 2, 62), (width - 2, 62), (width + 2, 90), (-width - 2, 90))

    def _torso(self, pen: Pen, width: int, view: str) -> None:
        cloth = None
        if self.pattern != "plain":
            cloth = _cloth(pen, self.pattern, self.upper, self.second)
        waist = width * 7 // 8
        outline = [(-width, 32), (-4, 27), (4, 27), (width, 32), (waist, self.hem), (-waist, self.hem)]
        pen.shape(self.upper, *outline, cloth=cloth)
        if view == "front" and self.front == "open":
            pen.shape(self.inner, (-3, 27), (3, 27), (4, self.hem), (-4, self.hem))
        if view == "front" and self.front == "logo":
            pen.box(self.second, -5, 38, 5, 47)

    def _arms(self, pen: Pen, width: int, side: bool, swing: int) -> None:
        sleeve = _darker(self.upper)
        lower = self.skin if self.short_sleeves else sleeve
        for s in (1,) if side else (-1, 1):
            top = 0 if side else s * width
            elbow, hand = top + s * 2 + swing // 2, top + s * 2 + swing
            pen.shape(lower, (elbow - 2, 46), (elbow + 3, 46), (hand + 2, 70), (hand - 2, 70))
            pen.shape(sleeve, (top - 3, 32), (top + 3, 32), (elbow + 3, 49), (elbow - 3, 49))
            pen.oval(self.skin, hand, 71, 3, 3)

    def _bag(self, pen: Pen, width: int, view: str) -> None:
        if self.bag == "backpack":
            if view == "back":
                pen.box(self.bag_colour, -8, 33, 8, 58)
                pen.box(_darker(self.bag_colour), -6, 46, 6, 55)
            elif view == "front":
                for x in (-width + 3, width - 6):
                    pen.box(self.bag_colour, x, 30, x + 3, 52)
        elif self.bag == "satchel":
            pen.shape(self.bag_colour, (-width + 2, 30), (-width + 5, 30), (width, 62), (width - 3, 62))
            pen.box(self.bag_colour, width - 7, 58, width + 5, 72)
        elif self.bag == "handbag":
            pen.box(self.bag_colour, width - 1, 72, width + 9, 86)

    def _head(self, pen: Pen, view: str) -> None:
        y = self.head + 9
        pen.box(self.skin, -3, y + 4, 3, 30)
        if self.haircut == "long":
            pen.box(self.hair, -7 if view != "side" else -8, y, 7 if view != "side" else 1, y + 18)
        pen.oval(self.skin, 0, y, 7, 9)
        if self.haircut != "bald":
            if view == "front":
                pen.oval(self.hair, 0, y - 1, 7, 9, 195, 345)
            elif view == "back":
                pen.oval(self.hair, 0, y - 1, 7, 9)
            else:
                pen.oval(self.hair, -1, y - 1, 8, 9, 120, 300)
        if self.hat != "none":
            pen.oval(self.hat_colour, 0, y - 3, 8, 8, 180, 360)
            if self.hat == "cap" and view != "back":
                pen.box(self.hat_colour, -2 if view == "side" else -6, y - 4, 12 if view == "side" else 6, y - 2)


def _person(dice: Dice, clothes: str, summer: int) -> Person:
    """Somebody dressed out of these colours; ``summer`` is how far the season is, per cent."""
    warm = dice.chance(summer)
    return Person(
        skin=dice.one_of(SKIN),
        hair=dice.colour(" ".join(HAIR)),
        upper=dice.colour(clothes),
        second=dice.colour(clothes),
        inner=dice.colour(clothes),
        lower=dice.colour("black navy denim denim charcoal grey " + clothes),
        shoes=dice.colour("black black white brown red grey"),
        bag_colour=dice.colour("black brown navy red olive grey beige teal"),
        hat_colour=dice.colour(clothes),
        shoulder=dice.between(11, 16),
        head=dice.between(4, 9),
        hem=dice.between(62, 68) if warm else dice.one_of((66, 68, 70, 82, 90)),
        pattern=dice.one_of((*PATTERNS, "plain", "plain", "plain", "plain")),
        short_sleeves=warm and dice.chance(75),
        legs=dice.one_of(("trousers", "shorts", "skirt") if warm else ("trousers", "trousers", "trousers", "skirt")),
        haircut=dice.one_of(("short", "short", "long", "long", "bald")),
        hat=dice.one_of(("none", "none", "none", "cap" if warm else "beanie")),
        bag=dice.one_of(("none", "none", "backpack", "satchel", "handbag")),
        front=dice.one_of(("plain", "logo") if warm else ("plain", "open", "open", "logo")),
    )


# ------------------------------------------------------------------------------------- vehicles

# Body outlines from the side: the glass house and the body below, front to the right.
BODIES: dict[str, tuple[tuple[Point, ...], tuple[Point, ...]]] = {
    "saloon": (((-24, 46), (-12, 32), (12, 32), (26, 46)), ((-48, 47), (46, 46), (50, 68), (-50, 68))),
    "hatchback": (((-40, 46), (-34, 30), (10, 30), (26, 46)), ((-44, 46), (42, 46), (46, 68), (-45, 68))),
    "suv": (((-44, 42), (-40, 22), (14, 22), (26, 42)), ((-47, 40), (46, 42), (48, 70), (-48, 70))),
    "pickup": (((-8, 44), (-6, 26), (14, 26), (26, 44)), ((-50, 44), (48, 44), (50, 70), (-50, 70))),
    "van": (((-46, 40), (-46, 18), (26, 18), (40, 40)), ((-48, 38), (42, 38), (50, 70), (-48, 70))),
    "lorry": (((22, 44), (22, 22), (42, 22), (46, 44)), ((20, 40), (48, 40), (50, 72), (-50, 72))),
}


class Vehicle(NamedTuple):
    """What is the same on all images of one vehicle."""

    body: str  # a key of BODIES
    paint: Colour
    roof: Colour
    stripe_colour: Colour
    sticker_colour: Colour
    rim: Colour
    glass: Colour
    trim: Colour  # of the bumpers
    stripe: str  # none, belt, sill or bonnet
    sticker: tuple[int, int]  # on the side of the body
    stickers: int
    rack: str  # none, bars or box
    rear_sticker: int
    width: int  # half the width seen from the front

    canvas = (96, 128)

    def draw(self, pen: Pen, view: str, dice: Dice) -> None:
        reach = 50 if view == "side" else self.width
        pen.box((24, 24, 26), -reach, 74, reach, 80)  # shadow
        if view == "side":
            self._side(pen)
        else:
            self._end(pen, view == "front")

    def _side(self, pen: Pen) -> None:
        house, body = BODIES[self.body]
        top, left, right = house[1][1], house[1][0], house[2][0]
        if self.rack != "none":
            pen.box(self.stripe_colour if self.rack == "box" else (20, 20, 20), left + 3, top - 6, right - 3, top)
        if self.body == "lorry":
            pen.box(self.roof, -50, 12, 18, 64)
        pen.shape(self.roof, *house)
        (ax, ay), (bx, by), (cx, cy), (dx, dy) = house
        pen.shape(self.glass, (ax + 4, ay), (bx + 4, by + 4), (cx - 2, cy + 4), (dx - 5, dy))
        pen.box(self.roof, (bx + cx) // 2 - 2, by, (bx + cx) // 2 + 1, ay)
        pen.shape(self.paint, *body)
        if self.stripe in ("belt", "sill"):
            y = 50 if self.stripe == "belt" else 61
            pen.box(self.stripe_colour, -46, y, 46, y + 4)
        x, y = self.sticker
        for i in range(self.stickers):
            pen.box(self.sticker_colour, x + 16 * i, y, x + 16 * i + 9, y + 8)
        pen.box(self.trim, 44, 62, 51, 69)
        pen.box(self.trim, -51, 62, -44, 69)
        pen.box((240, 230, 170), 45, 50, 49, 55)
        pen.box((190, 30, 30), -49, 50, -46, 56)
        for wheel in (-30, 30):
            pen.oval((22, 22, 24), wheel, 70, 11, 11)
            pen.oval(self.rim, wheel, 70, 6, 6)

    def _end(self, pen: Pen, front: bool) -> None:
        house, _ = BODIES[self.body]
        top, w = house[1][1], self.width
        tall = self.body in ("van", "lorry")
        inset = 2 if tall else 7
        if self.rack != "none":
            pen.box(self.stripe_colour if self.rack == "box" else (20, 20, 20), -w + 9, top - 6, w - 9, top)
        for s in (-1, 1):
            pen.box((22, 22, 24), s * (w - 5) - 5, 64, s * (w - 5) + 5, 80)
        if self.body == "lorry":
            pen.box(self.roof, -w - 3, 12, w + 3, 64)
        pen.shape(self.roof, (-w + 1, 46), (-w + inset, top), (w - inset, top), (w - 1, 46))
        if front or self.body not in ("lorry", "pickup"):
            pen.shape(self.glass, (-w + 5, 44), (-w + inset + 4, top + 4), (w - inset - 4, top + 4), (w - 5, 44))
        pen.box(self.paint, -w, 44, w, 72)
        if self.stripe == "bonnet":
            pen.box(self.stripe_colour, -6, 44, -2, 62)
            pen.box(self.stripe_colour, 2, 44, 6, 62)
        lamp = (244, 236, 190) if front else (196, 32, 32)
        for s in (-1, 1):
            pen.box(lamp, s * (w - 6) - 4, 50, s * (w - 6) + 4, 56)
        pen.box(self.trim, -w, 64, w, 71)
        pen.box((236, 236, 230), -8, 62, 8, 67)
        if not front and self.rear_sticker:
            pen.box(self.sticker_colour, self.rear_sticker, 48, self.rear_sticker + 8, 55)
        if front:
            pen.box((34, 34, 38), -12, 52, 12, 58)


def _vehicle(dice: Dice, paints: str) -> Vehicle:
    paint = dice.colour(paints)
    trim = dice.colour("black charcoal grey silver")
    return Vehicle(
        body=dice.one_of(tuple(BODIES)),
        paint=paint,
        roof=dice.one_of((paint, paint, paint, dice.colour("black white grey"))),
        stripe_colour=dice.colour("white black red yellow blue lime orange"),
        sticker_colour=dice.colour("white yellow red sky orange lime black pink"),
        rim=dice.colour("silver grey charcoal black white beige"),
        glass=dice.colour("black charcoal navy denim"),
        trim=dice.one_of((_darker(paint), trim)),
        stripe=dice.one_of(("none", "none", "belt", "sill", "bonnet")),
        sticker=(dice.between(-18, 4), dice.between(48, 58)),
        stickers=dice.one_of((0, 0, 1, 2)),
        rack=dice.one_of(("none", "none", "bars", "box")),
        rear_sticker=dice.one_of((0, 0, -24, -14, 8, 18)),
        width=dice.between(28, 36),
    )


@lru_cache(maxsize=4096)
def _subject(name: str, seed: int, identity: int) -> Person | Vehicle:
    domain, dice = DOMAINS[name], Dice(name, seed, identity)
    colours = domain.fashion.split()
    first = (len(colours) - IN_FASHION + 1) * identity // SEASON
    worn = " ".join(colours[first : first + IN_FASHION])
    return _person(dice, worn, 100 * identity // SEASON) if domain.kind == "person" else _vehicle(dice, worn)


# -------------------------------------------------------------------------------------- cameras


class Camera(NamedTuple):
    background: np.ndarray  # (192, 192, 3) uint8, larger than any canvas
    views: tuple[str, ...]  # the sides that it sees, repeated by weight
    scale: int  # size of what it sees, in 256ths
    light: int  # per cent
    cast: Colour  # per cent
    contrast: int  # how far the mid-tones are lifted, per cent
    blur: int  # width of the kernel, odd
    noise: int  # grey levels


@lru_cache(maxsize=256)
def _camera(name: str, number: int) -> Camera:
    domain, dice = DOMAINS[name], Dice(name, "camera", number)
    # Each camera sees mostly one side: the domain's weights, with one of the sides tripled.
    favourite = dice.below(3)
    weights = [w * (3 if i == favourite else 1) for i, w in enumerate(domain.views)]
    return Camera(
        background=_background(domain, dice),
        views=tuple(v for v, w in zip(("front", "side", "back"), weights, strict=True) for _ in range(w)),
        scale=dice.between(200, 244),
        light=dice.between(*domain.light),
        cast=tuple(100 + dice.between(-domain.cast, domain.cast) for _ in range(3)),
        contrast=dice.between(-30, 30),
        blur=2 * dice.between(0, domain.blur) + 1,
        noise=dice.between(0, domain.noise),
    )


def _background(domain: Domain, dice: Dice) -> np.ndarray:
    size = 192
    image = np.empty((size, size, 3), np.uint8)
    horizon = dice.between(70, 130)
    image[:horizon] = dice.colour(domain.wall)
    image[horizon:] = dice.colour(domain.ground)
    tone = dice.colour(domain.wall)
    if domain.texture == "bricks":
        for row, y in enumerate(range(0, horizon, 10)):
            for x in range(-10 * (row % 2), size, 20):
                cv2.rectangle(image, (x, y), (x + 18, min(y + 8, horizon - 1)), dice_shade(tone, dice), -1)
    elif domain.texture == "panes":
        for x in range(0, size, dice.between(22, 40)):
            cv2.rectangle(image, (x, 4), (x + 14, horizon - 8), dice_shade(tone, dice), -1)
    elif domain.texture == "foliage":
        for _ in range(60):
            centre = (dice.below(size), dice.below(horizon))
            cv2.circle(image, centre, dice.between(6, 16), dice_shade(dice.colour(domain.wall), dice), -1)
    for _ in range(6):  # things that stand about, and marks on the ground
        x, width, height = dice.below(size), dice.between(4, 26), dice.between(6, 60)
        cv2.rectangle(image, (x, horizon - height), (x + width, horizon + 4), dice.colour(domain.wall), -1)
        y = dice.between(horizon, size)
        cv2.line(image, (0, y), (size, y + dice.between(-30, 30)), dice.colour(domain.ground), dice.between(1, 5))
    return image


def dice_shade(colour: Colour, dice: Dice) -> Colour:
    return _darker(colour, dice.between(6, 9) if max(colour) < 226 else dice.between(6, 8))


def _crop(background: np.ndarray, shape: tuple[int, int], dice: Dice) -> np.ndarray:
    """A copy of a part of the background; the camera pans a little from shot to shot."""
    top, left = 40 + dice.between(-12, 12), dice.between(0, background.shape[1] - shape[1])
    top = min(top, background.shape[0] - shape[0])
    return background[top : top + shape[0], left : left + shape[1]].copy()


def _obstruct(canvas: np.ndarray, eye: Camera, dice: Dice) -> None:
    """Something in the way: a post, a thing on the ground, or a passer-by at the edge."""
    height, width = canvas.shape[:2]
    colour = dice.colour("black grey brown forest navy silver maroon beige")
    kind = dice.below(3)
    if kind == 0:
        x = dice.between(width // 5, width * 4 // 5)
        cv2.rectangle(canvas, (x, 0), (x + dice.between(4, 9), height), colour, -1)
    elif kind == 1:
        top = dice.between(height * 5 // 8, height * 7 // 8)
        cv2.rectangle(canvas, (dice.between(-10, width // 2), top), (width, height), colour, -1)
    else:
        x = dice.one_of((0, width - 1))
        cv2.ellipse(canvas, (x, height * 3 // 5), (width // 5, height // 2), 0, 0, 360, colour, -1)


_NOISE = np.random.RandomState(0).randint(-64, 65, (2, 256, 256, 3)).sum(0).astype(np.int16)  # a frozen stream


def _expose(canvas: np.ndarray, eye: Camera, dusk: int, dice: Dice) -> np.ndarray:
    """What the sensor makes of the scene: blur, half the resolution, light, colour cast and noise."""
    height, width = canvas.shape[0] // 2, canvas.shape[1] // 2
    if eye.blur > 1:
        canvas = cv2.GaussianBlur(canvas, (eye.blur, eye.blur), 0)
    image = cv2.resize(canvas, (width, height), interpolation=cv2.INTER_AREA)
    light = (100 - dusk) * (eye.light + dice.between(-8, 8)) // 100
    level = np.arange(256)[:, None]
    level = level + level * (255 - level) * eye.contrast // 25500  # bends the mid-tones, as gamma does
    table = np.clip(level * light * np.array(eye.cast) // 10_000, 0, 255).astype(np.uint8)  # (256, 3)
    image = cv2.LUT(image, table[None])
    y, x = dice.below(256 - height), dice.below(256 - width)
    grain = _NOISE[y : y + height, x : x + width] * eye.noise // 52  # standard deviation of the table: 52
    return np.clip(image + grain, 0, 255).astype(np.uint8)
