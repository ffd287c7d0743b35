"""Read the folder of MakeHuman's assets: check it, list the available assets, and build bodies from them."""

from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lreid.errors import InputError
from lreid.utils.extras import Extra
from render.formats import WHERE, Garment, Mesh, Rig, read_garment, read_mesh, read_rig, read_target, read_texture_name
from render.people import MUSCLES, RACES, SEXES, WEIGHTS, Body

sparse = Extra("scipy.sparse", "render")

AGES = ("child", "young", "old")
HEIGHTS = ("minheight", "maxheight")
MESH, RIG = "3dobjs/base.obj", "rigs/default.mhskel"

# The bones that poses move. Every other bone moves with its nearest ancestor among them.
POSED = (
    *("root", "spine05", "spine03", "spine01", "neck01", "head"),
    *(f"{bone}.{side}" for side in "LR" for bone in ("upperarm01", "lowerarm01", "wrist")),
    *(f"{bone}.{side}" for side in "LR" for bone in ("upperleg01", "lowerleg01", "foot")),
)
INFLUENCES = 4  # maximum number of bones that move one vertex


class Part(NamedTuple):
    """A mesh that follows a body of any shape.

    Args:
        mesh: the mesh with the vertices of its file; :meth:`Assets.fit` moves them.
        garment: how the mesh follows the body; None for the body itself.
        texture: file of the texture; None means plain white.
        bones: (C, 4) positions in :data:`POSED` of the bones that move each corner.
        influence: (C, 4) float32, how much each corner follows these bones; each row sums to 1.
        facing: (C, T) sparse matrix that sums the normals of the triangles at each corner's vertex.
    """

    mesh: Mesh
    garment: Garment | None
    texture: Path | None
    bones: np.ndarray
    influence: np.ndarray
    facing: Any  # scipy.sparse.csr_matrix


class Assets:
    """MakeHuman's assets in a folder; lreid reads a file at its first use.

    Args:
        home: the folder, with ``3dobjs``, ``targets``, ``rigs``, ``skins``, ``clothes`` and ``hair``.

    Raises:
        InputError: a file is missing (the message names it), or a group of assets is empty.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        needed = [home / MESH, home / RIG, *(self._target(name) for name in self._target_names())]
        if missing := [path for path in needed if not path.is_file()]:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise InputError(f"{missing[0]}: no such file{more}; {WHERE}")
        self.skins = self._with_textures("skins/*/*.mhmat")
        self.suits = {sex: self._garments(f"clothes/{sex}_*") for sex in SEXES}
        self.shoes = self._garments("clothes/shoes*")
        self.hats = self._garments("clothes/fedora*")
        self.eyes = self._garments("eyes/low-poly")
        # The transparency of its texture cuts out the hair, so hair without a texture cannot be drawn.
        self.hair = [path for path in self._garments("hair/*") if self.texture(path) is not None]
        for pattern, files in (
            ("skins/*/*.mhmat with the texture that it names", self.skins),
            *((f"clothes/{sex}_*/*.mhclo", self.suits[sex]) for sex in SEXES),
            ("clothes/shoes*/*.mhclo", self.shoes),
            ("hair/*/*.mhclo with its texture", self.hair),
        ):
            if not files:
                raise InputError(f"{home}: has no {pattern}; {WHERE}")

    def _garments(self, folders: str) -> list[Path]:
        return sorted(self.home.glob(f"{folders}/*.mhclo"))

    def _with_textures(self, pattern: str) -> list[Path]:
        return [path for path in sorted(self.home.glob(pattern)) if read_texture_name(path).is_file()]

    def skin_texture(self, skin: Path) -> Path:
        """The texture file of a skin (``.mhmat``)."""
        return read_texture_name(skin)

    def texture(self, garment: Path) -> Path | None:
        """Texture file that a garment's material names; None if the file does not exist."""
        path = read_texture_name(read_garment(garment).material)
        return path if path.is_file() else None

    def _target(self, name: str) -> Path:
        return self.home / "targets" / "macrodetails" / f"{name}.target"

    @staticmethod
    def _target_names() -> list[str]:
        names = [f"{race}-{sex}-{age}" for race in RACES for sex in SEXES for age in AGES]
        for sex in SEXES:
            for age in AGES:
                kinds = [f"{sex}-{age}-{muscle}-{weight}" for muscle in MUSCLES for weight in WEIGHTS]
                names += [f"universal-{kind}" for kind in kinds]
                names += [f"height/{kind}-{height}" for kind in kinds for height in HEIGHTS]
        return names

    @cached_property
    def base(self) -> Mesh:
        """The body's mesh with all vertices to which garments may be attached."""
        return read_mesh(self.home / MESH)

    @cached_property
    def rig(self) -> dict[str, np.ndarray]:
        """For each posed bone, the vertices (N,) whose mean is the joint about which the bone rotates."""
        return {name: self._rig.joints[name] for name in POSED}

    @cached_property
    def _rig(self) -> Rig:
        rig = read_rig(self.home / RIG)
        if missing := [name for name in POSED if name not in rig.parents]:
            raise InputError(f"{self.home / RIG}: has no bone {missing[0]}; {WHERE}")
        return rig

    @cached_property
    def parents(self) -> list[int]:
        """Index of each posed bone's parent among the posed bones; -1 for the root."""
        return [-1 if name == "root" else self._posed(self._rig.parents[name]) for name in POSED]

    def _posed(self, bone: str | None) -> int:
        while bone is not None and bone not in POSED:
            bone = self._rig.parents[bone]
        return POSED.index(bone or "root")

    @cached_property
    def _skinning(self) -> np.ndarray:
        """Influence (V, bones) float32 of each posed bone on each vertex of the body."""
        table = np.zeros((len(self.base.vertices), len(POSED)), np.float32)
        for bone, (vertices, weights) in self._rig.weights.items():
            table[vertices, self._posed(bone)] += weights
        table[table.sum(1) == 0, 0] = 1
        return table / table.sum(1, keepdims=True)

    def shape(self, body: Body) -> np.ndarray:
        """Vertices (V, 3) float32 decimetres of a body, blended from the two nearest targets on each axis."""
        vertices = self.base.vertices.copy()
        ages = _between(AGES, body.age)
        for age, share in ages:
            self._move(vertices, f"{body.race}-{body.sex}-{age}", share)
            for muscle, much in _between(MUSCLES, body.muscle):
                for weight, heavy in _between(WEIGHTS, body.weight):
                    kind, part = f"{body.sex}-{age}-{muscle}-{weight}", share * much * heavy
                    self._move(vertices, f"universal-{kind}", part)
                    tall = HEIGHTS[body.height > 0]
                    self._move(vertices, f"height/{kind}-{tall}", part * abs(body.height))
        return vertices

    def _move(self, vertices: np.ndarray, target: str, share: float) -> None:
        if share > 0:
            where, by = _read_target(self._target(target))
            if len(where) and where.max() >= len(vertices):
                raise InputError(f"{self._target(target)}: belongs to another body than {MESH}; {WHERE}")
            vertices[where] += share * by

    @lru_cache(maxsize=128)  # noqa: B019, one object lives as long as its process
    def part(self, path: Path | None) -> Part:
        """Load a garment from its ``.mhclo`` file, or the body if the path is None."""
        if path is None:
            return self._part(self.base, None, None)
        garment = read_garment(path)
        mesh = read_mesh(garment.mesh)
        vertices = len(self.base.vertices)
        if (
            len(garment.anchors) < len(mesh.vertices)
            or not 0 <= garment.anchors.min() <= garment.anchors.max() < vertices
        ):
            raise InputError(f"{path}: does not fit {garment.mesh.name} on {MESH}; {WHERE}")
        return self._part(mesh, garment, self.texture(path))

    def _part(self, mesh: Mesh, garment: Garment | None, texture: Path | None) -> Part:
        weights = self._skinning
        if garment is not None:
            weights = np.einsum("gkb,gk->gb", weights[garment.anchors], garment.weights).clip(min=0)
        weights = weights[mesh.corners]  # (C, bones)
        bones = np.argsort(-weights, axis=1, kind="stable")[:, :INFLUENCES]
        influence = np.take_along_axis(weights, bones, 1) + 1e-9
        influence /= influence.sum(1, keepdims=True)
        return Part(mesh, garment, texture, bones, influence.astype(np.float32), _facing(mesh))

    def fit(self, part: Part, body: np.ndarray) -> np.ndarray:
        """Corners (C, 3) float32 decimetres of a part on a body; ``body`` holds the body's vertices (V, 3)."""
        garment = part.garment
        if garment is None:
            return body[part.mesh.corners]
        scale = [
            abs(body[first, axis] - body[second, axis]) / unit
            for axis, (first, second, unit) in enumerate(garment.scales)
        ]
        vertices = np.einsum("gkc,gk->gc", body[garment.anchors], garment.weights) + garment.offsets * np.array(scale)
        return vertices[part.mesh.corners].astype(np.float32)


@lru_cache(maxsize=512)
def _read_target(path: Path) -> tuple[np.ndarray, np.ndarray]:
    return read_target(path)


def _between(names: tuple[str, ...], value: float) -> list[tuple[str, float]]:
    """Weights that interpolate between the names around a value from 0 (the first name) to 1 (the last name)."""
    place = value * (len(names) - 1)
    return [(name, max(0.0, 1 - abs(place - i))) for i, name in enumerate(names)]


def _facing(mesh: Mesh) -> Any:
    vertices = mesh.corners[mesh.triangles]  # (T, 3)
    count, triangles = len(mesh.vertices), len(mesh.triangles)
    at = sparse.csr_matrix(
        (np.ones(3 * triangles, np.float32), (vertices.ravel(), np.repeat(np.arange(triangles), 3))), (count, triangles)
    )
    return at[mesh.corners]


def normals(part: Part, corners: np.ndarray) -> np.ndarray:
    """Unit normals (C, 3) float32 of a part's corners, weighted by the area of triangles and smooth over seams."""
    ends = corners[part.mesh.triangles]  # (T, 3, 3)
    areas = np.cross(ends[:, 1] - ends[:, 0], ends[:, 2] - ends[:, 0])
    sums = part.facing @ areas
    return (sums / (np.linalg.norm(sums, axis=1, keepdims=True) + 1e-9)).astype(np.float32)
