"""Model how a person stands or walks: angles of joints, and the resulting positions of bones."""

import math
import random
from itertools import pairwise

import numpy as np

from render.assets import POSED, Assets

# Rotation of each bone in radians about the axes x, y and z of the world, in this order.
Angles = dict[str, tuple[float, float, float]]


def draw_angles(dice: random.Random, *, walking: float, stride: float, swing: float, loaded: str = "") -> Angles:
    """Sample the joint angles of a pose at random: a moment of a walk, or a way of standing.

    A positive angle about the x axis bends a bone that points up forwards, and a bone that points down backwards. Arms
    at angles (0, 0, 0) hang down.

    Args:
        dice: random number generator.
        walking: probability of a walk.
        stride, swing: factors of how far this person's legs and arms move.
        loaded: side whose arm carries something, L or R.
    """
    if dice.random() < walking:
        angles = _walk(dice.uniform(0, 2 * math.pi), stride * dice.uniform(0.8, 1.15), swing, dice)
    else:
        angles = _stand(dice)
    if loaded:
        angles[f"upperarm01.{loaded}"] = (dice.gauss(0.03, 0.08), 0.0, 0.12 if loaded == "L" else -0.12)
        angles[f"lowerarm01.{loaded}"] = (-abs(dice.gauss(0, 0.1)), 0.0, 0.0)
    look = dice.gauss(0, 0.35)
    angles["head"] = (dice.choice((0.0, 0.0, 0.1, 0.35)) + dice.gauss(0, 0.06), 0.6 * look, dice.gauss(0, 0.05))
    angles["neck01"] = (dice.gauss(0.05, 0.05), 0.4 * look, 0.0)
    return angles


def _walk(phase: float, stride: float, swing: float, dice: random.Random) -> Angles:
    """Compute joint angles at a phase of the gait cycle, close to published measurements of walking on level ground.

    The hip swings by about 20° around 5° of flexion. The knee bends by 60° in swing and by 15° in stance. Arms swing
    opposite to legs (Winter, The Biomechanics and Motor Control of Human Gait, 1987).
    """
    angles: Angles = {}
    for side, sign, step in (("L", 1.0, phase), ("R", -1.0, phase + math.pi)):
        hip = -0.09 - 0.37 * stride * math.cos(step)
        knee = 0.08 + 0.95 * stride * _bump(step - 4.6, 3) + 0.2 * _bump(step - 0.8, 4)
        ankle = (
            -hip - knee + 0.3 * stride * max(0.0, -math.cos(step - 5.4))
        )  # the foot is flat except for push-off and landing
        angles[f"upperleg01.{side}"] = (hip, 0.0, sign * 0.02)
        angles[f"lowerleg01.{side}"] = (knee, 0.0, 0.0)
        angles[f"foot.{side}"] = (max(-0.3, min(0.5, 0.8 * ankle)), sign * 0.1, 0.0)
        arm = 0.42 * swing * stride * math.cos(step)
        angles[f"upperarm01.{side}"] = (arm + 0.05, 0.0, sign * dice.uniform(0.06, 0.2))
        angles[f"lowerarm01.{side}"] = (-0.15 - 0.35 * swing * max(0.0, -math.cos(step)), 0.0, 0.0)
    turn = 0.09 * stride * math.cos(phase)
    angles["root"] = (0.03, turn, 0.02 * math.sin(phase))
    angles["spine03"] = (dice.gauss(0.02, 0.03), -0.8 * turn, -0.02 * math.sin(phase))
    angles["spine01"] = (0.0, -turn, 0.0)
    if dice.random() < 0.15:
        _arm(angles, dice.choice("LR"), dice)
    return angles


def _bump(angle: float, sharpness: int) -> float:
    """A smooth periodic bump: 1 at angle 0, and 0 at pi."""
    return (0.5 + 0.5 * math.cos(angle)) ** sharpness


def _stand(dice: random.Random) -> Angles:
    lean, apart = dice.gauss(0, 0.03), dice.uniform(-0.01, 0.08)
    angles: Angles = {
        "root": (0.0, dice.gauss(0, 0.08), lean),
        "spine05": (dice.gauss(0, 0.03), 0.0, -lean),
        "spine03": (dice.gauss(0, 0.04), dice.gauss(0, 0.12), -0.6 * lean),
        "spine01": (dice.gauss(0.02, 0.03), dice.gauss(0, 0.08), 0.0),
    }
    for side, sign in (("L", 1.0), ("R", -1.0)):
        bend = max(0.0, dice.gauss(-0.03, 0.08))
        angles[f"upperleg01.{side}"] = (-bend + dice.gauss(0, 0.07), sign * dice.gauss(0.08, 0.12), sign * apart - lean)
        angles[f"lowerleg01.{side}"] = (1.8 * bend, 0.0, 0.0)
        angles[f"foot.{side}"] = (-0.8 * bend, 0.0, -sign * apart)
        angles[f"upperarm01.{side}"] = (dice.gauss(0.05, 0.12), 0.0, sign * dice.uniform(0.03, 0.2))
        angles[f"lowerarm01.{side}"] = (-abs(dice.gauss(0.1, 0.2)), 0.0, 0.0)
        if dice.random() < 0.35:
            _arm(angles, side, dice)
    return angles


def _arm(angles: Angles, side: str, dice: random.Random) -> None:
    """Change the angles of an arm to one of several typical gestures."""
    sign = 1.0 if side == "L" else -1.0
    upper, lower = dice.choice(
        (
            ((-0.45, 0.0, 0.25), (-2.1, -sign * 0.3, 0.0)),  # a telephone at the ear
            ((-0.5, 0.0, 0.1), (-1.3, -sign * 0.4, 0.0)),  # a telephone in front of the chest
            ((-0.2, 0.0, 0.2), (-1.35, -sign * 0.9, 0.0)),  # the hand in front of the belly
            ((0.35, 0.0, 0.3), (-0.9, -sign * 0.2, 0.0)),  # the hand in the pocket
            ((-0.9, 0.0, 0.1), (-0.4, 0.0, 0.0)),  # pointing
        )
    )
    jitter = [dice.gauss(0, 0.08) for _ in range(6)]
    angles[f"upperarm01.{side}"] = (upper[0] + jitter[0], upper[1] + jitter[1], sign * upper[2] + jitter[2])
    angles[f"lowerarm01.{side}"] = (lower[0] + jitter[3], lower[1] + jitter[4], lower[2] + jitter[5])


class Skeleton:
    """The posed bones of one body.

    Args:
        assets: assets with the rig.
        body: vertices (V, 3) float32 decimetres.

    Attributes:
        joints: (bones, 3) the point about which each bone rotates, at rest.
        sole: height of the soles at rest, decimetres.
    """

    def __init__(self, assets: Assets, body: np.ndarray) -> None:
        self.parents = assets.parents
        self.joints = np.array([body[vertices].mean(0) for vertices in assets.rig.values()], np.float64)
        self.sole = float(body[assets.base.corners, 1].min())
        # At rest, arms are held out and legs are apart. These rotations about z let them hang down.
        self.hang = {side: self._hang(f"upperarm01.{side}", f"lowerarm01.{side}") for side in "LR"}
        self.bend = {side: self._bend(side) for side in "LR"}
        self.together = {side: self._hang(f"upperleg01.{side}", f"foot.{side}") for side in "LR"}

    def _hang(self, upper: str, lower: str) -> float:
        limb = self.joints[POSED.index(lower)] - self.joints[POSED.index(upper)]
        return -math.atan2(limb[0], -limb[1])

    def _bend(self, side: str) -> tuple[float, float]:
        """Rotations about x with which upper and lower arm point straight down."""
        joints = [self.joints[POSED.index(f"{bone}.{side}")] for bone in ("upperarm01", "lowerarm01", "wrist")]
        down = [rotation(0, 0, self.hang[side]) @ (end - start) for start, end in pairwise(joints)]
        upper, lower = (math.atan2(limb[2], -limb[1]) for limb in down)
        return upper, lower - upper

    def matrices(self, angles: Angles) -> np.ndarray:
        """Transforms (bones, 3, 4) float32 of each bone from rest to a pose; the lower foot stands at y = 0."""
        moves = np.empty((len(POSED), 3, 4))
        for bone, name in enumerate(POSED):
            turn = rotation(*angles.get(name, (0.0, 0.0, 0.0)))
            side = name[-1]
            if name.startswith("upperarm01"):
                turn = turn @ rotation(self.bend[side][0], 0, 0) @ rotation(0, 0, self.hang[side])
            elif name.startswith("upperleg01"):
                turn = turn @ rotation(0, 0, self.together[side])
            elif name.startswith("foot"):
                turn = rotation(0, 0, -self.together[side]) @ turn
            elif name.startswith(("lowerarm01", "wrist")):  # these bones bend about the axes of a hanging arm
                straight = rotation(self.bend[side][1] if name.startswith("lowerarm01") else 0, 0, 0)
                turn = rotation(0, 0, -self.hang[side]) @ turn @ straight @ rotation(0, 0, self.hang[side])
            if self.parents[bone] < 0:
                above, at = np.eye(3), self.joints[bone]
            else:
                parent = moves[self.parents[bone]]
                above, at = parent[:, :3], parent[:, :3] @ self.joints[bone] + parent[:, 3]
            moves[bone, :, :3] = above @ turn
            moves[bone, :, 3] = at - moves[bone, :, :3] @ self.joints[bone]
        # The ball of the foot touches the ground before the heel's joint does.
        low = []
        for side in "LR":
            foot, joint = moves[POSED.index(f"foot.{side}")], self.joints[POSED.index(f"foot.{side}")]
            heel, ball = (np.array([joint[0], self.sole, joint[2] + forward]) for forward in (-0.5, 1.3))
            low += [(foot[:, :3] @ point + foot[:, 3])[1] for point in (heel, ball)]
        moves[:, 1, 3] -= min(low)
        return moves.astype(np.float32)

    def points(self, moves: np.ndarray) -> np.ndarray:
        """Points (N, 3) of the outline of a person: joints in a pose, and the ends of head, hands and feet."""
        here = np.einsum("bij,bj->bi", moves[:, :, :3], self.joints) + moves[:, :, 3]
        ends = []
        reaches = {"head": np.array([0, 2.6, 0.3])}
        for side in "LR":  # a hand points in the direction of the lower arm
            arm = self.joints[POSED.index(f"wrist.{side}")] - self.joints[POSED.index(f"lowerarm01.{side}")]
            reaches[f"wrist.{side}"] = 1.7 * arm / (np.linalg.norm(arm) + 1e-9)
        for name, reach in reaches.items():
            bone = POSED.index(name)
            ends.append(moves[bone, :, :3] @ (self.joints[bone] + reach) + moves[bone, :, 3])
        for side in "LR":
            bone = POSED.index(f"foot.{side}")
            for forward in (-0.6, 2.0):
                toe = np.array([self.joints[bone, 0], self.sole, self.joints[bone, 2] + forward])
                ends.append(moves[bone, :, :3] @ toe + moves[bone, :, 3])
        return np.concatenate([here, np.array(ends)])


def rotation(x: float, y: float, z: float) -> np.ndarray:
    """The rotation matrix (3, 3) that rotates about x, then y, then z."""
    (cx, sx), (cy, sy), (cz, sz) = ((math.cos(angle), math.sin(angle)) for angle in (x, y, z))
    about_x = np.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]])
    about_y = np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    about_z = np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]])
    return about_z @ about_y @ about_x
