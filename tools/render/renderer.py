"""Draw people in their surroundings with OpenGL, without a display (EGL), and without a GPU by Mesa's llvmpipe."""

import math
import os
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from lreid.errors import InputError, raise_if_out_of_memory
from lreid.utils.extras import Extra
from render import shaders
from render.assets import POSED, Assets, Part, normals
from render.formats import WHERE
from render.people import Cloth, Colour, Person
from render.poses import Skeleton, rotation
from render.scenes import Box, Camera, textures

TEXTURE = 512  # side of the assets' textures, pixels
SHADOW = 512  # side of the shadow map, pixels
REACH = 26.0  # radius around a person in which things throw shadows, decimetres
OVERSAMPLED = 1.5  # factor of the drawn size over the wanted size; on a CPU this is faster than 4 samples per pixel
_PERSON = ("in_at", "in_normal", "in_zone", "in_uv", "in_bones", "in_influence")
_PERSON_FORMAT = "3f 3f 3f 2f 4f 4f"
_BAG = ("", "spine01", "wrist.L", "wrist.R", "spine03")  # the bone to which each kind of bag is attached


class Drawn(NamedTuple):
    """A mesh on the graphics device, and the uniforms of the mesh's shader program."""

    array: Any
    shadow: Any
    texture: Any
    values: dict[str, Any]


class Subject(NamedTuple):
    """A person whose meshes are on the graphics device."""

    person: Person
    skeleton: Skeleton
    parts: tuple[Drawn, ...]


class Standing(NamedTuple):
    """A subject in a pose at a place: ``at`` is (x, z) in decimetres, ``heading`` in radians about y (0 towards +z)."""

    subject: Subject
    moves: np.ndarray  # (bones, 3, 4)
    at: tuple[float, float]
    heading: float

    @property
    def stand(self) -> np.ndarray:
        """Transform (4, 4) from the body's coordinates to the world's."""
        matrix = np.eye(4)
        matrix[:3, :3] = rotation(0, self.heading, 0)
        matrix[[0, 2], 3] = self.at
        return matrix

    def outline(self) -> np.ndarray:
        """Points (N, 3) decimetres in world coordinates that span the person."""
        points = self.subject.skeleton.points(self.moves)
        points = points @ self.stand[:3, :3].T + self.stand[:3, 3]
        aside = np.array([0.7, 0, 0])  # half the width of limbs
        return np.concatenate([points + aside, points - aside])


class Renderer:
    """Draw people from MakeHuman's assets.

    Args:
        assets: MakeHuman's assets.
        height, width: size of the largest images, pixels.

    Raises:
        InputError: moderngl or EGL is not installed.
    """

    def __init__(self, assets: Assets, *, height: int = 256, width: int = 128) -> None:
        os.environ.setdefault("LP_NUM_THREADS", "1")  # several processes use the cores already
        moderngl = Extra("moderngl", "render").load()
        with suppress(ImportError):  # must come before Mesa's LLVM: if torch loads its own LLVM later, it crashes
            import_module("triton")
        try:
            options: dict[str, Any] = {"backend": "egl"}  # moderngl's type hints lack this option
            gl: Any = moderngl.create_context(standalone=True, **options)
        except Exception as error:  # moderngl raises many kinds of exceptions, some without a message
            raise_if_out_of_memory(error, "OpenGL")
            raise InputError(
                f"OpenGL cannot be started through EGL ({error}); on Debian: apt-get install libegl1 libgl1-mesa-dri"
            ) from None
        gl.gc_mode = (
            "context_gc"  # gc() frees objects that Python deleted, at a moment when this context is the current one
        )
        self.assets, self.height, self.width, self._gl = assets, height, width, gl
        self._people = gl.program(vertex_shader=shaders.PERSON_VERTEX, fragment_shader=shaders.PERSON_FRAGMENT)
        self._boxes = gl.program(vertex_shader=shaders.BOX_VERTEX, fragment_shader=shaders.BOX_FRAGMENT)
        self._shadows = gl.program(vertex_shader=shaders.PERSON_VERTEX, fragment_shader=shaders.SHADOW_FRAGMENT)
        self._largest = math.ceil(OVERSAMPLED * width), math.ceil(OVERSAMPLED * height)
        self._canvas = gl.framebuffer([gl.renderbuffer(self._largest, 4)], gl.depth_renderbuffer(self._largest))
        self._shade = gl.depth_texture((SHADOW, SHADOW))
        self._shade.compare_func = "<="
        self._shade.repeat_x = self._shade.repeat_y = False
        self._shadow_canvas = gl.framebuffer(depth_attachment=self._shade)
        surfaces = textures()
        self._surfaces = gl.texture_array((*surfaces.shape[2:0:-1], len(surfaces)), 4, surfaces.tobytes())
        self._smooth(self._surfaces)
        self._white = gl.texture((1, 1), 4, b"\xff" * 4)
        self._texture = lru_cache(maxsize=128)(self._load_texture)
        self._scene = lru_cache(maxsize=64)(self._build_scene)

    def _smooth(self, texture: Any) -> None:
        texture.build_mipmaps()
        texture.filter = (self._gl.LINEAR_MIPMAP_LINEAR, self._gl.LINEAR)

    def _load_texture(self, path: Path | None) -> tuple[Any, float]:
        """Load a texture onto the device; return the texture and its mean brightness (linear)."""
        if path is None:
            return self._white, 1.0
        pixels = np.ascontiguousarray(_read_texture(path, TEXTURE)[::-1])
        opaque = pixels[pixels[..., 3] > 100][:, :3]
        mean = float(((opaque / 255) ** 2.2).mean()) if len(opaque) else 1.0
        texture = self._gl.texture((TEXTURE, TEXTURE), 4, pixels.tobytes())
        self._smooth(texture)
        return texture, max(mean, 0.02)

    def subject(self, person: Person) -> Subject:
        """Build a person: body, clothes, hair, eyes and bag."""
        with self._gl:  # makes the context of this renderer the current one
            self._gl.gc()
            return self._subject(person)

    def _subject(self, person: Person) -> Subject:
        assets = self.assets
        suits = assets.suits["male"]
        if person.body.sex == "female":  # women wear men's shirts and trousers, too
            suits = assets.suits["female"] + suits
        body = assets.shape(person.body)
        skeleton = Skeleton(assets, body)
        skin_file, tone = self._skin(person)
        suit, shoes, hair = _pick(suits, person.suit), _pick(assets.shoes, person.shoe), _pick(assets.hair, person.hair)
        worn: list[tuple[Path, dict[str, Any]]] = [
            (suit, _clothes(person, tone)),
            (shoes, {"kind": 1, "tint": person.shoes.colour}),
            (hair, {"kind": 1, "tint": person.hair_colour}),
            *((path, {"kind": 0, "tint": (0.8, 0.8, 0.8)}) for path in assets.eyes[:1]),
        ]
        if person.hat < 1 and assets.hats:
            worn.append((_pick(assets.hats, person.hat), {"kind": 1, "tint": person.hat_colour}))
        drawn = []
        hidden = np.zeros(len(body), bool)
        for path, values in worn:
            part = assets.part(path)
            assert part.garment is not None
            hidden[part.garment.hidden[part.garment.hidden < len(body)]] = True
            drawn.append(self._upload(part, assets.fit(part, body), skeleton, part.texture, values))
        part = assets.part(None)
        shown = ~hidden[part.mesh.corners[part.mesh.triangles]].all(1)
        skin = {"kind": 0, "tint": (person.skin_tone,) * 3}
        drawn.append(self._upload(part, assets.fit(part, body), skeleton, skin_file, skin, shown))
        for hem, above in ((person.skirt, False), (person.coat, True)):
            if hem:
                drawn.append(self._skirt(person, hem, above, skeleton, body, tone))
        if person.bag:
            drawn.append(self._bag(person, skeleton, body))
        return Subject(person, skeleton, tuple(drawn))

    def _skin(self, person: Person) -> tuple[Path, Colour]:
        """Choose a skin and return its mean colour: same race and sex, else same race, else any skin."""
        body = person.body
        close = [
            path
            for want in (f"{body.race}_{body.sex}", f"{body.race}_", "")
            for path in self.assets.skins
            if want in path.parent.name
        ]
        same = [path for path in close if f"{body.race}_{body.sex}" in path.parent.name]
        file = self.assets.skin_texture(_pick(same or close[:1], person.skin))
        return file, tuple(person.skin_tone * each for each in _mean_colour(file))

    def _upload(
        self,
        part: Part,
        corners: np.ndarray,
        skeleton: Skeleton,
        texture: Path | None,
        values: dict[str, Any],
        shown: np.ndarray | None = None,
    ) -> Drawn:
        zone = _zones(part, corners, skeleton)
        rows = [corners, normals(part, corners), zone, part.mesh.texture, part.bones, part.influence]
        triangles = part.mesh.triangles if shown is None else part.mesh.triangles[shown]
        image, brightness = self._texture(texture)
        return self._drawn(rows, triangles, image, {"brightness": brightness, **values})

    def _drawn(self, rows: list[np.ndarray], triangles: np.ndarray, texture: Any, values: dict[str, Any]) -> Drawn:
        table = np.concatenate(rows, axis=1, dtype=np.float32, casting="unsafe")
        buffer = self._gl.buffer(table.tobytes())
        index = self._gl.buffer(triangles.astype(np.int32).tobytes())
        array = self._gl.vertex_array(self._people, [(buffer, _PERSON_FORMAT, *_PERSON)], index, skip_errors=True)
        shadow = self._gl.vertex_array(self._shadows, [(buffer, _PERSON_FORMAT, *_PERSON)], index, skip_errors=True)
        return Drawn(array, shadow, texture, values)

    def _bag(self, person: Person, skeleton: Skeleton, body: np.ndarray) -> Drawn:
        """Make a bag: a rounded box that is fixed to a bone."""
        bone = _BAG[person.bag]
        half = np.array(person.bag_size)
        middle = skeleton.joints[POSED.index(bone)].copy()
        points, triangles, outwards = _rounded()
        if person.bag == 1:
            back = body[np.abs(body - middle)[:, :2].max(1) < 1.5]
            middle[2] = back[:, 2].min() - 0.85 * half[2] if len(back) else middle[2]
        elif person.bag == 4:
            middle += (2.3, -3.2, 0)
            half = half[[2, 1, 0]]
        if person.bag in (2, 3):  # the bag is below the hand if the arm hangs
            turn = rotation(0, 0, -skeleton.hang[bone[-1]])
            points = (points * half[[2, 1, 0]] + (0, -0.9 - half[1], 0)) @ turn.T + middle
            outwards = outwards @ turn.T
        else:
            points = points * half + middle
        count = len(points)
        bones = np.zeros((count, 4))
        bones[:, 0] = POSED.index(bone)
        influence = np.zeros((count, 4))
        influence[:, 0] = 1
        rows = [points, outwards, np.zeros((count, 3)), np.zeros((count, 2)), bones, influence]
        values = {"kind": 1, "tint": person.bag_colour, "brightness": 1.0}
        return self._drawn(rows, triangles, self._white, values)

    def _skirt(
        self, person: Person, hem: float, above: bool, skeleton: Skeleton, body: np.ndarray, skin: Colour
    ) -> Drawn:
        """Make a mesh around the legs: the lower part of a coat (``above`` is True), or a narrower skirt."""
        hip = skeleton.joints[POSED.index("upperleg01.L")]
        spread = 1.25 if above else 1.12
        around, down = (each.ravel() for each in np.meshgrid(np.linspace(0, 2 * math.pi, 33), np.linspace(0, 1, 9)))
        height = hip[1] + 1.2 - (1.2 + hem) * down
        belly = body[(np.abs(body[:, 1] - hip[1] - 0.4) < 0.6) & (np.abs(body[:, 0]) < 2.2)]
        wide, front, back = np.abs(belly[:, 0]).max(), belly[:, 2].max(), belly[:, 2].min()
        grow = spread * (1 + (person.flare - 1) * down)
        x = wide * grow * np.sin(around)
        z = (front + back) / 2 + (front - back) / 2 * grow * np.cos(around)
        folds = 0.35 * down * np.sin(around * round(5 + 6 * person.upper.seed))
        normal = np.stack([np.sin(around + folds), np.full_like(x, 0.1), np.cos(around + folds)], 1)
        legs = np.clip(0.75 * (hip[1] - height) / 4, 0, 0.85)  # how much the hem follows the legs
        left = np.clip(0.5 + 0.7 * x / wide, 0, 1)
        names = ("root", "upperleg01.L", "upperleg01.R", "root")
        bones = np.tile([POSED.index(name) for name in names], (len(x), 1))
        influence = np.stack([1 - legs, legs * left, legs * (1 - left), 0 * legs], 1)
        zone = np.stack([0 * x, 0 * x, height - hip[1]], 1)
        triangles = _grid_triangles(9, 33)
        values = _clothes(person, skin) | {"cut": (-100.0 if above else 100.0, 9.0, 9.0), "own": (0.0, 0.0)}
        rows = [np.stack([x, height, z], 1), normal, zone, np.zeros((len(x), 2)), bones, influence]
        return self._drawn(rows, triangles, self._white, {"brightness": 1.0, **values})

    def _build_scene(self, eye: tuple[float, ...], boxes: tuple[Box, ...]) -> Any:
        nearest = [np.linalg.norm(np.array(box.middle) - eye) - max(box.half[::2]) for box in boxes]
        return self._box_array(tuple(boxes[i] for i in np.argsort(nearest, kind="stable")))

    def _box_array(self, boxes: tuple[Box, ...]) -> Any:
        table = np.concatenate([_box_rows(box) for box in boxes])
        buffer = self._gl.buffer(table.astype(np.float32).tobytes())
        names = ("in_at", "in_normal", "in_colour", "in_uv")
        return self._gl.vertex_array(self._boxes, [(buffer, "3f 3f 3f 3f", *names)])

    def draw(
        self,
        camera: Camera,
        people: list[Standing],
        window: tuple[float, float, float, float],
        obstacles: tuple[Box, ...],
        height: int,
    ) -> np.ndarray:
        """Draw the part of a camera's image inside a window.

        Args:
            camera: the camera; its boxes are the surroundings.
            people: the people; the camera looks at the first person, who throws a shadow.
            window: left, right, bottom and top on the image plane at distance 1, as :func:`on_plane` returns them.
            obstacles: further boxes.
            height: wanted height in pixels, at most the renderer's own.

        Returns: (H, W, 3) uint8, RGB, :data:`OVERSAMPLED` times as high, in the shape of the renderer's images.
        """
        with self._gl as gl:
            first = people[0]
            to_screen = _projection(window) @ looking(camera, first.at)
            to_light = _light_view(camera, first.at)
            gl.enable(gl.DEPTH_TEST)
            self._shadow_canvas.use()
            self._shadow_canvas.clear(depth=1.0)
            for person in people:
                self._pose(self._shadows, person, to_light)
                for part in person.subject.parts:
                    part.shadow.render()
            width, height = (round(side * min(1, height / self.height)) for side in self._largest)
            self._canvas.use()
            self._canvas.viewport = (0, 0, width, height)
            self._canvas.clear(*_seen(camera, camera.backdrop), 1.0)
            self._shade.use(1)
            self._surfaces.use(2)
            common: dict[str, Any] = {
                **{
                    name: getattr(camera, name)
                    for name in ("sun", "light", "sky", "gain", "contrast", "saturation", "eye")
                },
                "earth": camera.ground,
                "shade": 1,
                "backdrop": camera.backdrop,
                "surfaces": 2,
            }
            for program in (self._people, self._boxes):
                for name, value in common.items():
                    if name in program:
                        program[name].value = value
                program["to_light"].write(_bytes(to_light))
                program["to_screen"].write(_bytes(to_screen))
            for person in people:  # people first, so that hidden surfaces behind them are not shaded
                self._pose(self._people, person, to_screen)
                for part in person.subject.parts:
                    for name, value in part.values.items():
                        self._people[name].value = value
                    part.texture.use(0)
                    part.array.render()
            if obstacles:
                self._box_array(obstacles).render()
            self._scene(camera.eye, camera.boxes).render()
            pixels = np.frombuffer(self._canvas.read((0, 0, width, height), components=3, alignment=1), np.uint8)
            return pixels.reshape(height, width, 3)[::-1].copy()

    def _pose(self, program: Any, person: Standing, to_screen: np.ndarray) -> None:
        program["bones"].write(person.moves.astype(np.float32).tobytes())
        program["stand"].write(_bytes(person.stand))
        program["to_screen"].write(_bytes(to_screen))


def _bytes(matrix: np.ndarray) -> bytes:
    return matrix.T.astype(np.float32).tobytes()


def _pick(files: list[Path], where: float) -> Path:
    return files[int(where * len(files))]


def _read_texture(path: Path, side: int) -> np.ndarray:
    """Read an image as (side, side, 4) uint8."""
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGBA").resize((side, side)))
    except (
        OSError,
        ValueError,
        SyntaxError,
        Image.DecompressionBombError,
    ) as error:  # PIL raises many kinds of exceptions for damaged files
        raise_if_out_of_memory(error, path)
        raise InputError(f"{path}: cannot be read as an image ({error}); {WHERE}") from None


@lru_cache(maxsize=64)
def _mean_colour(file: Path) -> Colour:
    red, green, blue = ((_read_texture(file, 64)[..., :3] / 255) ** 2.2).mean((0, 1))
    return (float(red), float(green), float(blue))


def _clothes(person: Person, skin: Colour) -> dict[str, Any]:
    def uniforms(cloth: Cloth) -> tuple[float, ...]:
        return (cloth.pattern, cloth.scale, cloth.angle, cloth.seed)

    upper, lower = person.upper, person.lower
    return {
        "kind": 2,
        "tint": (1.0, 1.0, 1.0),
        "skin": skin,
        "colours": [upper.colour, upper.second, lower.colour, lower.second],
        "upper": uniforms(upper),
        "lower": uniforms(lower),
        "own": (upper.own, lower.own),
        "cut": (person.waist, person.sleeves, person.legs),
    }


def _zones(part: Part, corners: np.ndarray, skeleton: Skeleton) -> np.ndarray:
    """For each corner, the influence of an arm, the relative position along the limb, and the height above the hip."""
    arms = [bone for bone, name in enumerate(POSED) if name.startswith(("upperarm", "lowerarm", "wrist"))]
    arm = (part.influence * np.isin(part.bones, arms)).sum(1)
    joints = {name: skeleton.joints[bone] for bone, name in enumerate(POSED)}
    hip, sole = joints["upperleg01.L"], skeleton.sole
    down = (hip[1] - corners[:, 1]) / (hip[1] - sole)
    shoulder, wrist = joints["upperarm01.L"], joints["wrist.L"]
    line = wrist - shoulder
    mirrored = corners.copy()
    mirrored[:, 0] = np.abs(mirrored[:, 0])
    along = (mirrored - shoulder) @ line / (line @ line)
    return np.stack([arm, np.where(arm > 0.5, along, down), corners[:, 1] - hip[1]], axis=1)


@lru_cache(maxsize=1)
def _rounded() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A box from -1 to 1 with rounded edges: points (N, 3), triangles (T, 3), normals (N, 3)."""
    around, up = np.meshgrid(np.linspace(0, 2 * math.pi, 17), np.linspace(-math.pi / 2, math.pi / 2, 9))
    ball = np.stack([np.cos(up) * np.cos(around), np.sin(up), np.cos(up) * np.sin(around)], -1).reshape(-1, 3)
    points = np.sign(ball) * np.abs(ball) ** 0.4
    return points, _grid_triangles(9, 17), ball


def _grid_triangles(rows: int, columns: int) -> np.ndarray:
    """Two triangles (T, 3) per cell of a grid whose points are numbered row by row."""
    first = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()
    return np.concatenate([first[:, None] + [0, columns, 1], first[:, None] + [1, columns, columns + 1]])


def _box_rows(box: Box) -> np.ndarray:
    """Positions, normals, colours and texture positions (36, 12) of a box's twelve triangles."""
    half, turn, rows = np.array(box.half), rotation(0, box.turn, 0), []
    for axis in range(3):
        for sign in (-1.0, 1.0):
            one, two = (axis + 1) % 3, (axis + 2) % 3
            corners = np.zeros((6, 3))
            corners[:, axis] = sign
            corners[:, one], corners[:, two] = [-1, 1, 1, -1, 1, -1], [-1, -1, 1, -1, 1, 1]
            places = corners * half
            normal = np.zeros(3)
            normal[axis] = sign
            # The texture of a wall is upright.
            across, upwards = (2, 1) if axis == 0 else (0, 1) if axis == 2 else (0, 2)
            texture = np.stack([places[:, across], -places[:, upwards]], 1) * box.scale
            rows.append(
                np.hstack(
                    [
                        places @ turn.T + box.middle,
                        np.tile(turn @ normal, (6, 1)),
                        np.tile(box.colour, (6, 1)),
                        texture,
                        np.full((6, 1), box.texture),
                    ]
                )
            )
    return np.concatenate(rows)


def looking(camera: Camera, at: tuple[float, float]) -> np.ndarray:
    """Transform (4, 4) from the world to the coordinates of a camera that looks at the middle of a person."""
    eye, target = np.array(camera.eye), np.array([0.5 * at[0], 8.5, 0.5 * at[1]])
    backwards = (eye - target) / np.linalg.norm(eye - target)
    right = np.cross([math.sin(camera.roll), math.cos(camera.roll), 0], backwards)
    right /= np.linalg.norm(right)
    matrix = np.eye(4)
    matrix[:3, :3] = np.stack([right, np.cross(backwards, right), backwards])
    matrix[:3, 3] = -matrix[:3, :3] @ eye
    return matrix


def on_plane(camera: Camera, at: tuple[float, float], points: np.ndarray) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of points (N, 3), projected onto the image plane at distance 1."""
    seen = points @ looking(camera, at)[:3, :3].T + looking(camera, at)[:3, 3]
    x, y = seen[:, 0] / -seen[:, 2], seen[:, 1] / -seen[:, 2]
    return float(x.min()), float(x.max()), float(y.min()), float(y.max())


def _projection(window: tuple[float, float, float, float]) -> np.ndarray:
    left, right, bottom, top = window
    near, far = 4.0, 4000.0
    return np.array(
        [
            [2 / (right - left), 0, (right + left) / (right - left), 0],
            [0, 2 / (top - bottom), (top + bottom) / (top - bottom), 0],
            [0, 0, -(far + near) / (far - near), -2 * far * near / (far - near)],
            [0, 0, -1, 0],
        ]
    )


def _light_view(camera: Camera, at: tuple[float, float]) -> np.ndarray:
    backwards = np.array(camera.sun)
    right = np.cross([0, 1, 0], backwards)
    right /= np.linalg.norm(right) + 1e-9
    matrix = np.eye(4)
    matrix[:3, :3] = np.stack([right, np.cross(backwards, right), backwards])
    matrix[:3, 3] = -matrix[:3, :3] @ [at[0], 8.5, at[1]]
    return np.diag([1 / REACH, 1 / REACH, -1 / (2 * REACH), 1]) @ matrix


def _seen(camera: Camera, colour: Colour) -> Colour:
    """Compute the colour that a camera shows for a scene colour; the shaders compute the same."""
    shown = np.array(colour) * camera.gain
    grey = shown @ [0.3, 0.59, 0.11]
    shown = np.maximum(grey + camera.saturation * (shown - grey), 0)
    shown = shown * (1 + shown / 9) / (1 + 0.6 * shown)
    red, green, blue = shown.clip(0, 1) ** (camera.contrast / 2.2)
    return (float(red), float(green), float(blue))
