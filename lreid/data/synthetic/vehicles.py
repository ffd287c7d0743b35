"""Synthetic vehicles: body, paint, stripes, stickers and racks."""

from lreid.data.synthetic.people import Pen, Point
from lreid.data.synthetic.sites import Dice, darker

# Outlines from the side, with the front to the right: the windows (rear, roof, roof, front), and the body below them.
BODIES: dict[str, tuple[tuple[Point, Point, Point, Point], tuple[Point, ...]]] = {
    "saloon": (((-24, 46), (-12, 32), (12, 32), (26, 46)), ((-48, 47), (46, 46), (50, 68), (-50, 68))),
    "hatchback": (((-40, 46), (-34, 30), (10, 30), (26, 46)), ((-44, 46), (42, 46), (46, 68), (-45, 68))),
    "suv": (((-44, 42), (-40, 22), (14, 22), (26, 42)), ((-47, 40), (46, 42), (48, 70), (-48, 70))),
    "pickup": (((-8, 44), (-6, 26), (14, 26), (26, 44)), ((-50, 44), (48, 44), (50, 70), (-50, 70))),
    "van": (((-46, 40), (-46, 18), (26, 18), (40, 40)), ((-48, 38), (42, 38), (50, 70), (-48, 70))),
    "lorry": (((22, 44), (22, 22), (42, 22), (46, 44)), ((20, 40), (48, 40), (50, 72), (-50, 72))),
}
RUBBER, PLATE, HEADLAMP, TAIL_LAMP = (22, 22, 24), (236, 236, 230), (244, 236, 190), (196, 32, 32)


class Vehicle:
    """The constant appearance of a random vehicle; ``fashion`` lists the possible colours of its paint.

    Lengths are in 96ths of the frame's height.

    Attributes:
        canvas: height and width of the canvas, which are twice those of the image.
    """

    canvas = (96, 128)

    def __init__(self, dice: Dice, fashion: str) -> None:
        self.paint = paint = dice.colour(fashion)
        self.body = dice.one_of(tuple(BODIES))
        self.roof = dice.one_of((paint, paint, paint, dice.colour("black white grey")))
        self.trim = dice.one_of((darker(paint), dice.colour("black charcoal grey silver")))  # colour of the bumpers
        self.glass = dice.colour("black charcoal navy denim")
        self.rim = dice.colour("silver grey charcoal black white beige")
        self.stripe_colour = dice.colour("white black red yellow blue lime orange")  # of stripe and roof box
        self.sticker_colour = dice.colour("white yellow red sky orange lime black pink")
        self.stripe = dice.one_of(("none", "none", "belt", "sill", "bonnet"))  # belt and sill are on the side
        self.rack = dice.one_of(("none", "none", "bars", "box"))
        self.stickers = dice.one_of((0, 0, 1, 2))  # number of stickers on the side
        self.sticker = (dice.between(-18, 4), dice.between(48, 58))  # position of the first sticker on the side
        self.rear_sticker = dice.one_of((0, 0, -24, -14, 8, 18))  # x of the sticker on the rear, 0 for none
        self.width = dice.between(28, 36)  # half the width, seen from the front

    def draw(self, pen: Pen, view: str, dice: Dice) -> None:
        """Draw the vehicle from the front, the side or the back."""
        reach = 50 if view == "side" else self.width
        pen.box(RUBBER, -reach, 74, reach, 80)  # shadow
        _, (roof_left, top), (roof_right, _), _ = BODIES[self.body][0]
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
            pen.box(self.roof, -50, 12, 18, 64)  # the load
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
