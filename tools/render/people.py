"""Choose the appearance of people by a seed: body, clothes with colours and patterns, hair and bag."""

import colorsys
import random
from typing import NamedTuple

RACES = ("african", "asian", "caucasian")
SEXES = ("female", "male")
MUSCLES = ("minmuscle", "averagemuscle", "maxmuscle")
WEIGHTS = ("minweight", "averageweight", "maxweight")
PATTERNS = (
    *("plain", "bands", "pinstripes", "checks", "dots", "camouflage", "print", "blocks", "fade", "sidestripe"),
    "open",  # an open jacket over another garment
)

Colour = tuple[float, ...]  # red, green and blue, linear, in [0, 1]


class Body(NamedTuple):
    """The shape of a person.

    Args:
        race, sex: one of :data:`RACES` and one of :data:`SEXES`.
        age: from 0 (child) over 0.5 (25 years) to 1 (90 years).
        muscle, weight: in [0, 1].
        height: from -1 to 1.
    """

    race: str
    sex: str
    age: float
    muscle: float
    weight: float
    height: float


class Cloth(NamedTuple):
    """Colours and pattern of a piece of clothing.

    Args:
        colour, second: colours of the ground and of the pattern.
        pattern: position in :data:`PATTERNS`.
        scale: repetitions of the pattern per decimetre.
        angle: rotation of the pattern in radians.
        seed: seed of the random parts of the pattern, in [0, 1].
        own: weight of the hues of the garment's texture, in [0, 1].
    """

    colour: Colour
    second: Colour
    pattern: int
    scale: float
    angle: float
    seed: float
    own: float


class Person(NamedTuple):
    """Properties of a person that are the same in all images.

    Args:
        body: shape of the body.
        skin, suit, shoe, hair, hat: in [0, 1), relative positions in the lists of assets; a hat of 1 or more means no
            hat.
        skin_tone: factor of the skin's brightness.
        upper, lower, shoes: colours of these pieces of clothing.
        hair_colour, bag_colour: colours of hair and bag.
        waist: height of the lower end of the upper garment above the hip, decimetres.
        sleeves, legs: how much of arms and legs is covered; 1 means all.
        bag: 0 no bag, 1 on the back, 2 in the left hand, 3 in the right hand, 4 across the shoulder.
        bag_size: half of the bag's width, height and depth, decimetres.
        stride, swing: factors of how far legs and arms move when this person walks.
        coat, skirt: length of coat and skirt below the hip, decimetres; 0 means none.
        flare: width of the hem, as a factor of the hip's width.
    """

    body: Body
    skin: float
    suit: float
    shoe: float
    hair: float
    hat: float
    skin_tone: float
    upper: Cloth
    lower: Cloth
    shoes: Cloth
    hair_colour: Colour
    hat_colour: Colour
    bag_colour: Colour
    waist: float
    sleeves: float
    legs: float
    bag: int
    bag_size: tuple[float, ...]
    stride: float
    swing: float
    coat: float
    skirt: float
    flare: float


class Fashion(NamedTuple):
    """Shares of races in a domain, and rules for choosing clothes.

    Args:
        races: weights, in the order of :data:`RACES`.
        hue: favourite hue, in [0, 1].
        dark: share of black, grey and navy clothes.
        patterned: share of upper garments with a pattern.
        bare: share of short sleeves and legs.
        bags, hats: shares of people with a bag and with a hat.
    """

    races: tuple[float, ...]
    hue: float
    dark: float
    patterned: float
    bare: float
    bags: float
    hats: float


def make_fashion(dice: random.Random) -> Fashion:
    """Sample the fashion of a domain at random."""
    return Fashion(
        tuple(dice.uniform(0.2, 1) ** 2 for _ in RACES),
        dice.random(),
        dice.uniform(0.15, 0.6),
        dice.uniform(0.12, 0.4),
        dice.choice((0.03, 0.25, 0.6)),
        dice.uniform(0.1, 0.4),
        dice.uniform(0.02, 0.12),
    )


def make_person(dice: random.Random, fashion: Fashion) -> Person:
    """Sample a person of a domain at random."""
    sex = dice.choice(SEXES)
    body = Body(
        dice.choices(RACES, fashion.races)[0],
        sex,
        dice.uniform(0.12, 0.35) if dice.random() < 0.05 else min(0.5 + 0.45 * dice.betavariate(1, 2.2), 1),
        dice.betavariate(3, 3),
        dice.betavariate(3, 3.5),
        max(-1.0, min(1.0, dice.gauss(0, 0.35))),
    )
    upper, lower = _cloth(dice, fashion, PATTERNS[:-1], fashion.patterned), _trousers(dice, fashion)
    bag = dice.choice((1, 1, 1, 2, 3, 4)) if dice.random() < fashion.bags else 0
    size = (1.25, 1.75, 0.65) if bag == 1 else (1.1, 1.1, 0.4) if bag == 4 else (1.5, 1.2, 0.5)
    shade = dice.betavariate(1, 2.5)
    coat = dice.uniform(0.8, 6.5) if dice.random() < 0.3 * (1 - fashion.bare) else 0.0
    skirt = dice.uniform(2.5, 7.5) if sex == "female" and dice.random() < 0.3 else 0.0
    if upper.pattern == 0 and dice.random() < (0.6 if coat else 0.15):
        upper = upper._replace(pattern=len(PATTERNS) - 1, second=_colour(dice, fashion._replace(dark=0.2)))
    if skirt and dice.random() < 0.4:  # a dress
        lower = upper
    bare = 0.6 * fashion.bare
    return Person(
        body=body,
        **{name: dice.random() for name in ("skin", "suit", "shoe", "hair")},
        hat=dice.random() / fashion.hats,
        skin_tone=dice.uniform(0.75, 1.15),
        upper=upper,
        lower=lower,
        shoes=_cloth(dice, fashion._replace(dark=0.7), ("plain",), 0),
        hair_colour=_hair(dice, body, shade),
        hat_colour=_colour(dice, fashion),
        bag_colour=_colour(dice, fashion),
        waist=dice.choice((0.9, 0.5, 0.2, -0.3, -1.0)) + dice.uniform(-0.25, 0.25),
        sleeves=dice.uniform(0.15, 0.5) if dice.random() < fashion.bare else 1.0,
        legs=0.2 if skirt and dice.random() < 0.5 else dice.uniform(0.35, 0.6) if dice.random() < bare else 1.0,
        bag=bag,
        bag_size=tuple(each * dice.uniform(0.75, 1.3) for each in size),
        stride=dice.uniform(0.75, 1.25),
        swing=dice.uniform(0.5, 1.4),
        coat=coat,
        skirt=skirt,
        flare=dice.uniform(1.05, 1.6),
    )


def _cloth(dice: random.Random, fashion: Fashion, patterns: tuple[str, ...], patterned: float) -> Cloth:
    pattern = dice.choice(patterns) if dice.random() < patterned else "plain"
    return Cloth(
        _colour(dice, fashion),
        _colour(dice, fashion._replace(dark=0.35)),
        PATTERNS.index(pattern),
        dice.uniform(0.5, 2.6),
        dice.choice((0.0, 0.0, 0.0, 0.78)) + dice.gauss(0, 0.03),
        dice.random(),
        dice.choice((0.0, 0.0, 0.3, 1.0)),
    )


def _trousers(dice: random.Random, fashion: Fashion) -> Cloth:
    cloth = _cloth(dice, fashion._replace(dark=0.5), ("checks", "camouflage", "sidestripe", "pinstripes", "bands"), 0.2)
    if dice.random() < 0.3:  # jeans
        return cloth._replace(colour=_rgb(dice.uniform(0.58, 0.64), dice.uniform(0.3, 0.7), dice.uniform(0.2, 0.65)))
    return cloth


def _hair(dice: random.Random, body: Body, shade: float) -> Colour:
    if body.age > 0.72 and dice.random() < 0.7:
        grey = dice.uniform(0.15, 0.5)
        return (grey, grey, grey)
    if dice.random() < 0.02:
        return _rgb(dice.random(), 0.7, 0.6)
    light = 0.06 + (0.75 if body.race == "caucasian" else 0.18) * shade
    return _rgb(dice.uniform(0.04, 0.12), dice.uniform(0.3, 0.7), light)


def _colour(dice: random.Random, fashion: Fashion) -> Colour:
    if dice.random() < fashion.dark:
        return _rgb(dice.choice((0.62, fashion.hue, dice.random())), dice.uniform(0, 0.35), dice.uniform(0.04, 0.4))
    if dice.random() < 0.25:
        return _rgb(dice.random(), dice.uniform(0, 0.12), dice.uniform(0.6, 0.98))
    hue = fashion.hue + dice.gauss(0, 0.08) if dice.random() < 0.3 else dice.random()
    return _rgb(hue, 0.15 + 0.7 * dice.betavariate(1.5, 2.4), dice.uniform(0.2, 0.9))


def _rgb(hue: float, saturation: float, value: float) -> Colour:
    """Convert hue, saturation and value of a displayed colour to linear RGB."""
    red, green, blue = colorsys.hsv_to_rgb(hue % 1, saturation, value)
    return (red**2.2, green**2.2, blue**2.2)
