"""Re-ID images drawn by a program: people and vehicles, seen by cameras, in domains.

A drawn image needs no file. Its address says all of it::

    synthetic:<domain>/<seed>/<identity>/<camera>/<shot>

The *seed* chooses the population, the *domain* the place with its cameras, backgrounds and fashions.
Identities are numbered in the order in which they appear over one season of :data:`SEASON` numbers.
Fashion and daylight drift from its first to its last day, so an early and a late task differ as they
do in a city; that is what makes a model forget.

Every choice comes from :class:`random.Random` seeded by text, every pixel from whole numbers: an address
gives the same image on every machine and in any order.
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
_ADDRESS = re.compile(r"synthetic:([a-z-]+)" + 4 * r"/([0-9]{1,18})")

COLOURS: dict[str, Colour] = {
    "black": (28, 28, 32), "charcoal": (58, 58, 64), "grey": (120, 122, 126), "silver": (178, 180, 184),
    "white": (232, 232, 228), "cream": (226, 212, 178), "beige": (190, 166, 128), "brown": (104, 70, 44),
    "maroon": (110, 28, 38), "red": (198, 40, 42), "coral": (236, 120, 100), "pink": (232, 150, 186),
    "orange": (232, 128, 36), "yellow": (236, 204, 62), "olive": (106, 108, 50), "lime": (150, 200, 70),
    "green": (48, 132, 66), "forest": (28, 72, 46), "teal": (30, 130, 134), "sky": (122, 182, 226),
    "blue": (42, 86, 188), "navy": (30, 38, 86), "denim": (72, 92, 134), "purple": (106, 58, 142),
}  # fmt: skip
SKIN: tuple[Colour, ...] = ((236, 196, 168), (214, 166, 130), (170, 118, 82), (112, 74, 50))


class Domain(NamedTuple):
    """A place: what its people wear (or which cars pass), how its cameras see, what stands behind.

    Colours are names out of :data:`COLOURS`; a name given twice is twice as likely.
    """

    fashion: str  # colours of clothes or paint in the order in which they come and go over the season
    wall: str  # background colours above the horizon
    ground: str  # and below
    texture: str  # of the background: bricks, panes, foliage or plain
    tint: Colour = (100, 100, 100)  # brightness of the colour channels, per cent
    light: tuple[int, int] = (85, 115)  # brightness of its cameras, per cent
    dusk: int = 40  # by how much the light falls (or rises, if negative) over the season, per cent
    views: tuple[int, int, int] = (3, 2, 3)  # weights of front, side and back
    cast: int = 6  # how far the tint of a camera strays, per cent
    blur: int = 1  # the most that a camera blurs, pixels
    noise: int = 5  # grey levels, at most
    clutter: int = 10  # chance that something stands in front, per cent
    kind: str = "person"


DOMAINS: dict[str, Domain] = {
    "plaza": Domain(
        "black charcoal navy grey maroon brown forest denim purple teal blue beige olive red coral sky "
        "orange white", "beige cream silver", "grey silver", "bricks",
    ),
    "campus": Domain(
        "maroon navy forest brown denim grey red black purple green sky white lime orange pink yellow",
        "olive beige forest", "olive grey", "foliage", (97, 103, 94), (88, 112), 20, (2, 3, 3),
    ),
    "station": Domain(
        "navy black grey charcoal brown beige white denim blue cream silver teal red maroon sky olive",
        "silver grey white", "charcoal grey", "panes", (103, 100, 92), (72, 98), 0, (4, 2, 3), noise=8,
    ),
    "market": Domain(
        "brown olive maroon purple forest orange beige red green yellow teal pink lime white coral",
        "beige cream brown", "brown beige", "bricks", (106, 99, 91), (88, 116), 15, (3, 3, 3), clutter=20,
    ),
    "mall": Domain(
        "black grey denim purple white red cream pink navy coral sky beige yellow lime white",
        "white cream pink", "silver white", "panes", (101, 98, 103), (95, 118), 0, (4, 2, 4),
    ),
    "snow": Domain(
        "red black navy purple orange blue teal white grey lime pink maroon sky yellow olive",
        "white silver sky", "white white silver", "foliage", (94, 100, 107), (92, 118), 15, (2, 3, 4),
    ),
    "park": Domain(
        "olive brown forest denim grey black navy green beige red blue white coral sky orange yellow lime",
        "forest olive beige", "olive green", "foliage", (97, 104, 94), (78, 106), -20, (3, 4, 3), clutter=20,
    ),
    "night-street": Domain(
        "black navy charcoal maroon brown denim grey forest purple red blue white teal beige orange",
        "navy black charcoal", "black charcoal", "panes", (86, 93, 116), (45, 68), 10, (4, 3, 4), noise=8,
    ),
    "highway": Domain(
        "black charcoal navy grey silver white maroon forest brown blue red beige sky orange yellow",
        "sky silver grey", "grey charcoal", "plain", views=(4, 3, 4), kind="vehicle",
    ),
    "car-park": Domain(
        "white silver grey beige sky blue navy black red maroon teal brown green charcoal",
        "grey silver cream", "charcoal grey", "bricks", (106, 102, 84), (60, 85), 0, noise=8, kind="vehicle",
    ),
}  # fmt: skip


def is_synthetic(path: str) -> bool:
    """Whether a record's path is the address of a drawn image."""
    return path.startswith("synthetic:")


def draw(address: str) -> np.ndarray:
    """The image at an address.

    Args:
        address: ``synthetic:<domain>/<seed>/<identity>/<camera>/<shot>``; identities are numbered from
            0 to ``SEASON - 1``, cameras from 1 to ``CAMERAS``.

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
        raise InputError(f"{address}: identities go from 0 to {SEASON - 1} and cameras from 1 to {CAMERAS}")
    # An identity shows each camera one side; place, size, pose and light change from shot to shot.
    eye, subject = _camera(name, camera), _subject(name, seed, identity)
    passing, dice = Dice(name, seed, identity, camera), Dice(name, seed, identity, camera, shot)
    view, mirror = passing.one_of(eye.views), passing.chance(50)
    canvas = _crop(eye.background, subject.canvas, dice)
    x, y = canvas.shape[1] // 2 + dice.between(-3, 3), dice.between(-3, 4)
    pen = Pen(canvas, x, y, eye.scale + dice.between(-12, 12), mirror)
    subject.draw(pen, view, dice)
    if dice.chance(domain.clutter):
        _obstruct(canvas, dice)
    return _expose(canvas, eye, domain.dusk * identity // SEASON, dice)


def load_synthetic(
    domain: str, *, train_identities: int, test_identities: int, images_per_identity: int, distractors: int,
    seed: int,
) -> DataSet:  # fmt: skip
    """Records of one domain: identities to train on, and others to be looked for.

    Training identities, test identities and distractors come from the whole season. Ascending ``pid``
    is the order of appearance: split the training identities in that order for tasks that drift.

    Args:
        domain: a key of :data:`DOMAINS`.
        train_identities, test_identities: how many; ``pid`` is the identity's number in its address.
        images_per_identity: at least 3; they come from up to ``SEEN_BY`` cameras in turn.
        distractors: gallery images of people or vehicles that nobody looks for, one each, with pid 0.
        seed: another seed is another population in the same place.

    Returns:
        The data set. Of each test identity, ``QUERIES`` images are queries and the rest is gallery; each
        query has a match under another camera.

    Raises:
        InputError: the domain is unknown or a number is out of range.
    """
    _domain(domain)
    most = SEASON // 3
    for key, value, low, high in (
        ("train_identities", train_identities, 0, most),
        ("test_identities", test_identities, 0, most),
        ("distractors", distractors, 0, most),
        ("images_per_identity", images_per_identity, QUERIES + 1, 1000),
    ):
        if not low <= value <= high:
            raise InputError(f"{key} of synthetic:{domain}: must be from {low} to {high}, not {value}")

    def arrivals(count: int, turn: int) -> list[int]:
        # Of three who come one after the other, one is nobody, one is trained on and one looked for.
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


def _domain(name: str) -> Domain:
    if name not in DOMAINS:
        nearest = difflib.get_close_matches(name, DOMAINS, n=1, cutoff=0.0)[0]
        raise InputError(f"unknown synthetic domain {name!r}; the nearest known one is {nearest}")
    return DOMAINS[name]


# ------------------------------------------------------------------------------------ dice and pen


class Dice:
    """Throws that come out the same on every machine for the same key.

    They use ``random()`` alone: the one stream that Python promises never to change.
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

    def colour(self, names: str) -> Colour:
        """One of the named colours, slightly off."""
        return tuple(min(255, max(0, v + self.between(-14, 14))) for v in COLOURS[self.one_of(names.split())])

    def shade(self, colour: Colour) -> Colour:
        return _darker(colour, self.between(6, 9 if max(colour) < 226 else 8))


def _darker(colour: Colour, eighths: int = 6) -> Colour:
    return tuple(value * eighths // 8 for value in colour)


class Pen:
    """Draws flat shapes in body coordinates: x from the body's axis, y down from the top of the frame."""

    def __init__(self, canvas: np.ndarray, x: int, y: int, scale: int, mirror: bool) -> None:
        self.canvas, self.x, self.y, self.scale, self.sign = canvas, x, y, scale, -1 if mirror else 1
        self.ground = canvas.shape[0] - 8  # bodies grow and shrink from the ground up

    def _at(self, x: int, y: int) -> Point:
        rise = (y - self.ground) * self.scale // 256
        return self.x + self.sign * x * self.scale // 256, self.y + self.ground + rise

    def shape(self, colour: Colour, *points: Point) -> None:
        """A convex polygon."""
        cv2.fillConvexPoly(self.canvas, np.array([self._at(x, y) for x, y in points], np.int32), colour)

    def box(self, colour: Colour, left: int, top: int, right: int, bottom: int) -> None:
        self.shape(colour, (left, top), (right, top), (right, bottom), (left, bottom))

    def oval(self, colour: Colour, x: int, y: int, rx: int, ry: int, start: int = 0, end: int = 360) -> None:
        """An ellipse or, from ``start`` to ``end`` degrees clockwise from 3 o'clock, a piece of one."""
        radii = max(1, rx * self.scale // 256), max(1, ry * self.scale // 256)
        if self.sign < 0:
            start, end = 180 - end, 180 - start
        cv2.ellipse(self.canvas, self._at(x, y), radii, 0, start, end, colour, -1)

    def print(self, pattern: str, first: Colour, second: Colour, *points: Point) -> None:
        """A convex polygon cut out of a cloth with a pattern, which moves with the body."""
        height, width = self.canvas.shape[:2]
        top, left = 16 - self.y, 16 + width // 2 - self.x
        where = PATTERNS[pattern][top : top + height, left : left + width, None]
        cloth = np.where(where, np.uint8(second), np.uint8(first))  # (H, W, 3)
        mask = np.zeros((height, width), np.uint8)
        cv2.fillConvexPoly(mask, np.array([self._at(x, y) for x, y in points], np.int32), 255)
        cv2.copyTo(cloth, mask, self.canvas)


_Y, _X = np.mgrid[:160, :176]
PATTERNS = {  # where the second colour of a cloth goes
    "hoops": _Y % 12 < 5,
    "stripes": _X % 10 < 4,
    "checks": (_X // 6 + _Y // 6) % 2 == 0,
    "dots": (_X % 10 - 5) ** 2 + (_Y % 10 - 5) ** 2 < 8,
    "tartan": (_X % 14 < 3) | (_Y % 14 < 3),
    "diagonal": (_X + _Y) % 16 < 6,
}


# ----------------------------------------------------------------------------------------- people


class Person(NamedTuple):
    """What stays the same on all images of one person. Lengths are in 128ths of the frame's height."""

    skin: Colour
    hair: Colour
    upper: Colour
    second: Colour  # of the pattern and the logo
    inner: Colour  # shirt under an open jacket
    lower: Colour
    shoes: Colour
    bag_colour: Colour
    hat_colour: Colour
    shoulder: int  # half the width of the body
    head: int  # top of the head
    hem: int  # lower end of the upper garment
    pattern: str  # a key of PATTERNS, or plain
    short_sleeves: bool
    legs: str  # trousers, shorts or skirt
    haircut: str  # short, long or bald
    hat: str  # none, cap or beanie
    bag: str  # none, backpack, satchel or handbag
    front: str  # plain, logo or open

    canvas = (128, 64)  # height and width to draw on: twice the image's

    def draw(self, pen: Pen, view: str, dice: Dice) -> None:
        side = view == "side"
        width = self.shoulder * 5 // 8 if side else self.shoulder
        stride = dice.between(2, 9) if side else dice.between(-2, 2)
        if self.bag == "backpack" and side:
            pen.oval(self.bag_colour, -width - 3, 46, 8, 14)
        self._legs(pen, width, stride, side)
        self._torso(pen, width, view)
        self._arms(pen, width, side, swing=dice.between(-4, 6))
        self._bag(pen, width, view)
        self._head(pen, view)

    def _legs(self, pen: Pen, width: int, stride: int, side: bool) -> None:
        hem = 86 if self.legs == "shorts" else 116
        for sign, light in ((-1, 6), (1, 8)):  # the far leg is darker
            hip = sign * (2 if side else width // 2)
            foot = hip + sign * stride
            knee = hip + (foot - hip) * (hem - 64) // 52
            if self.legs != "trousers":
                skin = _darker(self.skin, light)
                pen.shape(skin, (hip - 3, 70), (hip + 3, 70), (foot + 2, 117), (foot - 2, 117))
            pen.oval(_darker(self.shoes, light), foot + 3 * side, 119, 7 if side else 5, 4)
            if self.legs != "skirt":
                cloth = _darker(self.lower, light)
                pen.shape(cloth, (hip - 5, 62), (hip + 5, 62), (knee + 4, hem), (knee - 4, hem))
        if self.legs == "skirt":
            pen.shape(self.lower, (-width + 2, 62), (width - 2, 62), (width + 2, 90), (-width - 2, 90))

    def _torso(self, pen: Pen, width: int, view: str) -> None:
        waist = width * 7 // 8
        outline = ((-width, 32), (-4, 27), (4, 27), (width, 32), (waist, self.hem), (-waist, self.hem))
        if self.pattern == "plain":
            pen.shape(self.upper, *outline)
        else:
            pen.print(self.pattern, self.upper, self.second, *outline)
        if view == "front" and self.front == "open":
            pen.shape(self.inner, (-3, 27), (3, 27), (4, self.hem), (-4, self.hem))
        elif view == "front" and self.front == "logo":
            pen.box(self.second, -5, 38, 5, 47)

    def _arms(self, pen: Pen, width: int, side: bool, swing: int) -> None:
        sleeve = _darker(self.upper)
        forearm = self.skin if self.short_sleeves else sleeve
        for sign in (1,) if side else (-1, 1):
            top = 0 if side else sign * width
            elbow, hand = top + sign * 2 + swing // 2, top + sign * 2 + swing
            pen.shape(forearm, (elbow - 2, 46), (elbow + 3, 46), (hand + 2, 70), (hand - 2, 70))
            pen.shape(sleeve, (top - 3, 32), (top + 3, 32), (elbow + 3, 49), (elbow - 3, 49))
            pen.oval(self.skin, hand, 71, 3, 3)

    def _bag(self, pen: Pen, width: int, view: str) -> None:
        if self.bag == "backpack" and view == "back":
            pen.box(self.bag_colour, -8, 33, 8, 58)
            pen.box(_darker(self.bag_colour), -6, 46, 6, 55)
        elif self.bag == "backpack" and view == "front":  # its straps
            for left in (-width + 3, width - 6):
                pen.box(self.bag_colour, left, 30, left + 3, 52)
        elif self.bag == "satchel":
            pen.shape(self.bag_colour, (-width + 2, 30), (-width + 5, 30), (width, 62), (width - 3, 62))
            pen.box(self.bag_colour, width - 7, 58, width + 5, 72)
        elif self.bag == "handbag":
            pen.box(self.bag_colour, width - 1, 72, width + 9, 86)

    def _head(self, pen: Pen, view: str) -> None:
        side, y = view == "side", self.head + 9
        pen.box(self.skin, -3, y + 4, 3, 30)
        if self.haircut == "long":
            pen.box(self.hair, -8 if side else -7, y, 1 if side else 7, y + 18)
        pen.oval(self.skin, 0, y, 7, 9)
        if self.haircut != "bald":
            start, end = {"front": (195, 345), "side": (120, 300), "back": (0, 360)}[view]
            pen.oval(self.hair, -1 if side else 0, y - 1, 8 if side else 7, 9, start, end)
        if self.hat != "none":
            pen.oval(self.hat_colour, 0, y - 3, 8, 8, 180, 360)
        if self.hat == "cap" and view != "back":
            pen.box(self.hat_colour, -2 if side else -6, y - 4, 12 if side else 6, y - 2)


def _person(dice: Dice, fashion: str, when: int) -> Person:
    """Somebody dressed in these colours, the warmer the day (per cent of the season), the lighter."""
    warm = dice.chance(when)
    return Person(
        skin=dice.one_of(SKIN),
        hair=dice.colour("black black brown brown beige charcoal silver maroon"),
        upper=dice.colour(fashion),
        second=dice.colour(fashion),
        inner=dice.colour(fashion),
        lower=dice.colour("black navy denim denim charcoal grey " + fashion),
        shoes=dice.colour("black black white brown red grey"),
        bag_colour=dice.colour("black brown navy red olive grey beige teal"),
        hat_colour=dice.colour(fashion),
        shoulder=dice.between(11, 16),
        head=dice.between(4, 9),
        hem=dice.between(62, 68) if warm else dice.one_of((66, 68, 70, 82, 90)),
        pattern=dice.one_of((*PATTERNS, "plain", "plain", "plain", "plain")),
        short_sleeves=warm and dice.chance(75),
        legs=dice.one_of(("trousers", "shorts", "skirt") if warm else ("trousers",) * 3 + ("skirt",)),
        haircut=dice.one_of(("short", "short", "long", "long", "bald")),
        hat=dice.one_of(("none", "none", "none", "cap" if warm else "beanie")),
        bag=dice.one_of(("none", "none", "backpack", "satchel", "handbag")),
        front=dice.one_of(("plain", "logo") if warm else ("plain", "open", "open", "logo")),
    )


# --------------------------------------------------------------------------------------- vehicles

# From the side, front to the right: the glass house (rear, roof, roof, front) and the body below it.
BODIES: dict[str, tuple[tuple[Point, Point, Point, Point], tuple[Point, ...]]] = {
    "saloon": (((-24, 46), (-12, 32), (12, 32), (26, 46)), ((-48, 47), (46, 46), (50, 68), (-50, 68))),
    "hatchback": (((-40, 46), (-34, 30), (10, 30), (26, 46)), ((-44, 46), (42, 46), (46, 68), (-45, 68))),
    "suv": (((-44, 42), (-40, 22), (14, 22), (26, 42)), ((-47, 40), (46, 42), (48, 70), (-48, 70))),
    "pickup": (((-8, 44), (-6, 26), (14, 26), (26, 44)), ((-50, 44), (48, 44), (50, 70), (-50, 70))),
    "van": (((-46, 40), (-46, 18), (26, 18), (40, 40)), ((-48, 38), (42, 38), (50, 70), (-48, 70))),
    "lorry": (((22, 44), (22, 22), (42, 22), (46, 44)), ((20, 40), (48, 40), (50, 72), (-50, 72))),
}
RUBBER, PLATE, HEADLAMP, TAIL_LAMP = (22, 22, 24), (236, 236, 230), (244, 236, 190), (196, 32, 32)


class Vehicle(NamedTuple):
    """What stays the same on all images of one vehicle. Lengths are in 96ths of the frame's height."""

    body: str  # a key of BODIES
    paint: Colour
    roof: Colour
    trim: Colour  # bumpers
    glass: Colour
    rim: Colour
    stripe_colour: Colour  # also of a roof box
    sticker_colour: Colour
    stripe: str  # none, belt or sill (on the side), bonnet
    rack: str  # none, bars or box
    stickers: int  # on the side
    sticker: Point  # where the first of them is
    rear_sticker: int  # where, 0 for none
    width: int  # half of it, seen from the front

    canvas = (96, 128)

    def draw(self, pen: Pen, view: str, dice: Dice) -> None:
        reach = 50 if view == "side" else self.width
        pen.box(RUBBER, -reach, 74, reach, 80)  # shadow
        (left, _), (roof_left, top), (roof_right, _), _ = BODIES[self.body][0]
        if view != "side":
            roof_left, roof_right = 6 - self.width, self.width - 6
        if self.rack != "none":
            rack = self.stripe_colour if self.rack == "box" else RUBBER
            pen.box(rack, roof_left + 3, top - 6, roof_right - 3, top)
        if view == "side":
            self._side(pen)
        else:
            self._end(pen, top, view == "front")

    def _side(self, pen: Pen) -> None:
        house, body = BODIES[self.body]
        rear, roof_rear, roof_front, front = house
        if self.body == "lorry":
            pen.box(self.roof, -50, 12, 18, 64)  # its load
        pen.shape(self.roof, *house)
        pen.shape(
            self.glass,
            (rear[0] + 4, rear[1]),
            (roof_rear[0] + 4, roof_rear[1] + 4),
            (roof_front[0] - 2, roof_front[1] + 4),
            (front[0] - 5, front[1]),
        )
        pillar = (roof_rear[0] + roof_front[0]) // 2
        pen.box(self.roof, pillar - 2, roof_rear[1], pillar + 1, rear[1])
        pen.shape(self.paint, *body)
        if self.stripe in ("belt", "sill"):
            y = 50 if self.stripe == "belt" else 61
            pen.box(self.stripe_colour, -46, y, 46, y + 4)
        x, y = self.sticker
        for left in range(x, x + 16 * self.stickers, 16):
            pen.box(self.sticker_colour, left, y, left + 9, y + 8)
        for sign, lamp in ((-1, TAIL_LAMP), (1, HEADLAMP)):
            pen.box(self.trim, sign * 47 - 4, 62, sign * 47 + 4, 69)
            pen.box(lamp, sign * 47 - 2, 50, sign * 47 + 2, 56)
            pen.oval(RUBBER, sign * 30, 70, 11, 11)
            pen.oval(self.rim, sign * 30, 70, 6, 6)

    def _end(self, pen: Pen, top: int, front: bool) -> None:
        w, inset = self.width, 2 if self.body in ("van", "lorry") else 7
        if self.body == "lorry":
            pen.box(self.roof, -w - 3, 12, w + 3, 64)
        pen.shape(self.roof, (1 - w, 46), (inset - w, top), (w - inset, top), (w - 1, 46))
        if front or self.body not in ("lorry", "pickup"):  # the others have no rear window
            edge = w - inset - 4
            pen.shape(self.glass, (5 - w, 44), (-edge, top + 4), (edge, top + 4), (w - 5, 44))
        for sign in (-1, 1):
            pen.box(RUBBER, sign * (w - 5) - 5, 64, sign * (w - 5) + 5, 80)
        pen.box(self.paint, -w, 44, w, 72)
        pen.box(self.trim, -w, 64, w, 71)
        pen.box(PLATE, -8, 62, 8, 67)
        for sign in (-1, 1):
            x = sign * (w - 6)
            pen.box(HEADLAMP if front else TAIL_LAMP, x - 4, 50, x + 4, 56)
            if self.stripe == "bonnet":
                pen.box(self.stripe_colour, sign * 4 - 2, 44, sign * 4 + 2, 62)
        if front:
            pen.box(RUBBER, -12, 52, 12, 58)  # grille
        elif self.rear_sticker:
            pen.box(self.sticker_colour, self.rear_sticker, 48, self.rear_sticker + 8, 55)


def _vehicle(dice: Dice, fashion: str) -> Vehicle:
    paint = dice.colour(fashion)
    return Vehicle(
        body=dice.one_of(tuple(BODIES)),
        paint=paint,
        roof=dice.one_of((paint, paint, paint, dice.colour("black white grey"))),
        trim=dice.one_of((_darker(paint), dice.colour("black charcoal grey silver"))),
        glass=dice.colour("black charcoal navy denim"),
        rim=dice.colour("silver grey charcoal black white beige"),
        stripe_colour=dice.colour("white black red yellow blue lime orange"),
        sticker_colour=dice.colour("white yellow red sky orange lime black pink"),
        stripe=dice.one_of(("none", "none", "belt", "sill", "bonnet")),
        rack=dice.one_of(("none", "none", "bars", "box")),
        stickers=dice.one_of((0, 0, 1, 2)),
        sticker=(dice.between(-18, 4), dice.between(48, 58)),
        rear_sticker=dice.one_of((0, 0, -24, -14, 8, 18)),
        width=dice.between(28, 36),
    )


@lru_cache(maxsize=4096)
def _subject(name: str, seed: int, identity: int) -> Person | Vehicle:
    domain, dice = DOMAINS[name], Dice(name, seed, identity)
    colours = domain.fashion.split()
    first = (len(colours) - IN_FASHION + 1) * identity // SEASON
    fashion = " ".join(colours[first : first + IN_FASHION])
    if domain.kind == "vehicle":
        return _vehicle(dice, fashion)
    return _person(dice, fashion, when=100 * identity // SEASON)


# ---------------------------------------------------------------------------------------- cameras


class Camera(NamedTuple):
    """One camera of a domain: where it hangs and how it sees."""

    background: np.ndarray  # (192, 192, 3) uint8, larger than any canvas
    views: tuple[str, ...]  # front, side and back, repeated by their weights
    scale: int  # size of bodies, in 256ths
    light: int  # per cent
    cast: Colour  # brightness of the channels, per cent
    contrast: int  # by how much the mid-tones are lifted, per cent
    blur: int  # width of the kernel, odd
    noise: int  # standard deviation, grey levels


@lru_cache(maxsize=256)
def _camera(name: str, number: int) -> Camera:
    domain, dice = DOMAINS[name], Dice(name, "camera", number)
    favourite = dice.below(3)  # each camera sees one of the sides more than the domain's others do
    weights = [weight * (3 if i == favourite else 1) for i, weight in enumerate(domain.views)]
    return Camera(
        background=_background(domain, dice),
        views=("front",) * weights[0] + ("side",) * weights[1] + ("back",) * weights[2],
        scale=dice.between(200, 244),
        light=dice.between(*domain.light),
        cast=tuple(tint + dice.between(-domain.cast, domain.cast) for tint in domain.tint),
        contrast=dice.between(-30, 30),
        blur=2 * dice.between(0, domain.blur) + 1,
        noise=dice.between(0, domain.noise),
    )


def _background(domain: Domain, dice: Dice) -> np.ndarray:
    size, horizon = 192, dice.between(70, 130)
    image = np.empty((size, size, 3), np.uint8)
    image[:horizon] = dice.colour(domain.wall)
    image[horizon:] = dice.colour(domain.ground)
    tone = dice.colour(domain.wall)
    if domain.texture == "bricks":
        for row, y in enumerate(range(0, horizon, 10)):
            for x in range(-10 * (row % 2), size, 20):
                cv2.rectangle(image, (x, y), (x + 18, min(y + 8, horizon - 1)), dice.shade(tone), -1)
    elif domain.texture == "panes":
        for x in range(0, size, dice.between(22, 40)):
            cv2.rectangle(image, (x, 4), (x + 14, horizon - 8), dice.shade(tone), -1)
    elif domain.texture == "foliage":
        for _ in range(60):
            centre, radius = (dice.below(size), dice.below(horizon)), dice.between(6, 16)
            cv2.circle(image, centre, radius, dice.shade(tone), -1)
    for _ in range(6):  # things that stand about, and marks on the ground
        x, width, height = dice.below(size), dice.between(4, 26), dice.between(6, 60)
        cv2.rectangle(image, (x, horizon - height), (x + width, horizon + 4), dice.colour(domain.wall), -1)
        y = dice.between(horizon, size)
        end, colour = (size, y + dice.between(-30, 30)), dice.colour(domain.ground)
        cv2.line(image, (0, y), end, colour, dice.between(1, 5))
    return image


def _crop(background: np.ndarray, shape: tuple[int, int], dice: Dice) -> np.ndarray:
    """A part of the background, another one for each shot."""
    height, width = shape
    top, left = 40 + dice.between(-12, 12), dice.between(0, background.shape[1] - width)
    return background[top : top + height, left : left + width].copy()


def _obstruct(canvas: np.ndarray, dice: Dice) -> None:
    """Something in the way: a post, a thing on the ground or a passer-by at the edge."""
    height, width = canvas.shape[:2]
    colour, kind = dice.colour("black grey brown forest navy silver maroon beige"), dice.below(3)
    if kind == 0:
        x = dice.between(width // 5, width * 4 // 5)
        cv2.rectangle(canvas, (x, 0), (x + dice.between(4, 9), height), colour, -1)
    elif kind == 1:
        top = dice.between(height * 5 // 8, height * 7 // 8)
        cv2.rectangle(canvas, (dice.between(-10, width // 2), top), (width, height), colour, -1)
    else:
        axes = width // 5, height // 2
        cv2.ellipse(canvas, (dice.one_of((0, width - 1)), height * 3 // 5), axes, 0, 0, 360, colour, -1)


# RandomState, not default_rng: its stream is frozen. The sum of two has a standard deviation of 53.
_NOISE = np.random.RandomState(0).randint(-64, 65, (2, 256, 256, 3)).sum(0).astype(np.int16)


def _expose(canvas: np.ndarray, eye: Camera, dusk: int, dice: Dice) -> np.ndarray:
    """What the sensor makes of the scene: blur, half the resolution, light, colour cast and noise."""
    height, width = canvas.shape[0] // 2, canvas.shape[1] // 2
    canvas = cv2.GaussianBlur(canvas, (eye.blur, eye.blur), 0)
    image = cv2.resize(canvas, (width, height), interpolation=cv2.INTER_AREA)
    light = (100 - dusk) * (eye.light + dice.between(-8, 8)) // 100
    level = np.arange(256)[:, None]
    level = level + level * (255 - level) * eye.contrast // 25_500  # bends the mid-tones, as gamma does
    table = np.clip(level * light * np.array(eye.cast) // 10_000, 0, 255).astype(np.uint8)  # (256, 3)
    image = cv2.LUT(image, table[None])
    y, x = dice.below(256 - height), dice.below(256 - width)
    grain = _NOISE[y : y + height, x : x + width] * eye.noise // 53
    return np.clip(image + grain, 0, 255).astype(np.uint8)
