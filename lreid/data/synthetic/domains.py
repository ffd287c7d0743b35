"""Domains of the synthetic people and vehicles: palettes, backgrounds and families of cameras."""

import difflib
from typing import NamedTuple

from lreid.data.synthetic.drawing import Colour
from lreid.errors import InputError

SEASON = 30_000  # number of identities that appear during a season
CAMERAS = 6  # number of cameras of every domain, numbered from 1
IN_FASHION = 6  # number of colours that are in fashion at any time


class Domain(NamedTuple):
    """A site: the colours of its people or vehicles, its cameras and its background.

    Colours are names from :data:`~lreid.data.synthetic.drawing.COLOURS`, separated by spaces.
    """

    fashion: str  # colours of clothes or paint, in the order in which they come into fashion during the season
    wall: str  # background colours above the horizon
    ground: str  # background colours below the horizon
    texture: str  # texture of the background: bricks, panes, foliage or plain
    tint: Colour = (100, 100, 100)  # brightness of the colour channels, per cent
    light: tuple[int, int] = (85, 115)  # range of the brightness of the cameras, per cent
    dusk: int = 40  # by how much the light falls (or rises, if negative) over the season, per cent
    views: tuple[int, int, int] = (3, 2, 3)  # weights of front, side and back
    cast: int = 6  # largest deviation of a camera's colour channels from the tint, per cent
    blur: int = 1  # largest blur of a camera, pixels
    noise: int = 5  # largest standard deviation of a camera's noise, grey levels
    clutter: int = 10  # probability that an object occludes the body, per cent
    scenes: int = 8  # number of backgrounds per camera
    kind: str = "person"


DOMAINS: dict[str, Domain] = {
    "plaza": Domain(
        "black charcoal navy grey maroon brown forest denim purple teal blue beige olive red coral sky orange white",
        "beige cream silver",
        "grey silver",
        "bricks",
        scenes=1,
    ),
    "campus": Domain(
        "maroon navy forest brown denim grey red black purple green sky white lime orange pink yellow",
        "olive beige silver",
        "olive grey",
        "foliage",
        (98, 102, 95),
        (90, 114),
        20,
        (3, 3, 3),
    ),
    "station": Domain(
        "navy black grey charcoal brown beige white denim blue cream silver teal red maroon sky olive",
        "silver grey beige",
        "charcoal grey",
        "panes",
        (103, 100, 94),
        (80, 104),
        0,
    ),
    "market": Domain(
        "brown olive maroon purple forest orange beige red green yellow teal pink lime white coral",
        "cream beige coral",
        "beige grey",
        "bricks",
        (105, 99, 93),
        (88, 114),
        15,
        clutter=15,
    ),
    "mall": Domain(
        "black grey denim purple white red cream pink navy coral sky beige yellow lime white",
        "white cream pink",
        "silver white",
        "panes",
        (101, 98, 103),
        (92, 114),
        0,
    ),
    "snow": Domain(
        "red black navy purple orange blue teal white grey lime pink maroon sky yellow olive",
        "white silver sky",
        "white white silver",
        "foliage",
        (95, 100, 106),
        (92, 114),
        15,
        (2, 3, 4),
    ),
    "park": Domain(
        "olive brown forest denim grey black navy green beige red blue white coral sky orange yellow lime",
        "olive lime beige",
        "olive beige",
        "foliage",
        (98, 103, 95),
        (84, 108),
        10,
        (3, 3, 3),
        clutter=15,
    ),
    "night-street": Domain(
        "black navy charcoal maroon brown denim grey forest purple red blue white teal beige orange",
        "navy black charcoal",
        "black charcoal",
        "panes",
        (86, 93, 116),
        (45, 68),
        10,
        (4, 3, 4),
        noise=8,
    ),
    "highway": Domain(
        "black charcoal navy grey silver white maroon forest brown blue red beige sky orange yellow",
        "sky silver grey",
        "grey charcoal",
        "plain",
        views=(4, 3, 4),
        scenes=1,
        kind="vehicle",
    ),
    "car-park": Domain(
        "white silver grey beige sky blue navy black red maroon teal brown green charcoal",
        "grey silver cream",
        "charcoal grey",
        "bricks",
        (106, 102, 84),
        (60, 85),
        0,
        noise=8,
        kind="vehicle",
    ),
}


def domain_named(name: str) -> Domain:
    """Return the domain of the given name.

    Raises:
        InputError: no domain has this name; the message gives the most similar name.
    """
    if name not in DOMAINS:
        nearest = difflib.get_close_matches(name, DOMAINS, n=1, cutoff=0.0)[0]
        raise InputError(f"unknown synthetic domain {name!r}; the nearest name is {nearest}")
    return DOMAINS[name]
