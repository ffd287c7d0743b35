"""Read MakeHuman's files: meshes, targets, garments that follow a body, materials and the rig."""

import json
from collections.abc import Callable
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from lreid.errors import InputError, raise_if_out_of_memory

WHERE = "datasets/README.md says where to get MakeHuman's assets: data/ of https://github.com/vidya-hub/makehuman-core"
Read = TypeVar("Read")


class Mesh(NamedTuple):
    """Triangles over corners. A corner is a vertex with a texture position; on a seam, one vertex has two corners.

    Args:
        vertices: (V, 3) float32, decimetres; y points up and z forwards.
        corners: (C,) vertex of each corner.
        texture: (C, 2) float32, position of each corner in the texture, from its lower left.
        triangles: (T, 3) corners.
    """

    vertices: np.ndarray
    corners: np.ndarray
    texture: np.ndarray
    triangles: np.ndarray


class Garment(NamedTuple):
    """A garment whose mesh follows a body: each vertex is a weighted sum of three vertices of the body, plus an offset.

    Args:
        mesh: file of the mesh.
        material: file of the material.
        anchors: (G, 3) vertices of the body.
        weights: (G, 3) float32 weights of these vertices.
        offsets: (G, 3) float32, multiplied by the scale of each axis.
        scales: for each axis, two vertices of the body, and the distance between them along the axis at which the scale
            is 1.
        hidden: (N,) vertices of the body that the garment covers.
    """

    mesh: Path
    material: Path
    anchors: np.ndarray
    weights: np.ndarray
    offsets: np.ndarray
    scales: tuple[tuple[int, int, float], ...]
    hidden: np.ndarray


class Rig(NamedTuple):
    """Bones, and the influence of each bone on the vertices.

    Args:
        parents: parent of each bone; None for the root. Parents come before their children.
        joints: for each bone, the vertices of the body whose mean is its head.
        weights: for each bone, the vertices (N,) ints that follow the bone, and their weights (N,) float32.
    """

    parents: dict[str, str | None]
    joints: dict[str, np.ndarray]
    weights: dict[str, tuple[np.ndarray, np.ndarray]]


def _naming_damage(read: Callable[[Path], Read]) -> Callable[[Path], Read]:
    """Wrap a reader so that a damaged file raises one clear error."""

    @wraps(read)
    def reading(path: Path) -> Read:
        try:
            return read(path)
        except FileNotFoundError as error:
            raise InputError(f"{error.filename}: no such file; {WHERE}") from None
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise_if_out_of_memory(error, path)
            raise InputError(f"{path}: damaged or of another kind ({error}); {WHERE}") from None

    return reading


def _lines(path: Path) -> list[list[str]]:
    """Return the words of each line that is neither empty nor a comment."""
    lines = (line.split() for line in path.read_text(encoding="utf-8", errors="replace").splitlines())
    return [words for words in lines if words and not words[0].startswith("#")]


@_naming_damage
def read_mesh(path: Path) -> Mesh:
    """Read a Wavefront ``.obj``; if the file has a group ``body``, skip all other groups (MakeHuman's helpers).

    Raises:
        InputError: the file is missing or damaged.
    """
    lines = _lines(path)
    only_body = ["g", "body"] in lines
    vertices = np.array([words[1:4] for words in lines if words[0] == "v"], np.float32)
    texture = np.array([words[1:3] for words in lines if words[0] == "vt"] or [["0", "0"]], np.float32)
    keep = not only_body
    faces: list[tuple[tuple[int, int], ...]] = []
    for words in lines:
        if words[0] == "g" and only_body:
            keep = words[1:] == ["body"]
        elif words[0] == "f" and keep:
            ends = [_corner(word) for word in words[1:]]
            faces += [(ends[0], *pair) for pair in pairwise(ends[1:])]  # a polygon becomes a fan of triangles
    pairs, triangles = np.unique(np.array(faces).reshape(-1, 2), axis=0, return_inverse=True)
    if not len(pairs) or pairs.min() < 0 or pairs[:, 0].max() >= len(vertices) or pairs[:, 1].max() >= len(texture):
        raise ValueError("its faces refer to vertices that do not exist")
    return Mesh(vertices, pairs[:, 0], texture[pairs[:, 1]], triangles.reshape(-1, 3))


def _corner(word: str) -> tuple[int, int]:
    """Return vertex and texture position of ``V``, ``V/T`` or ``V/T/N``, numbered from 0."""
    vertex, texture = [*word.split("/"), ""][:2]
    return int(vertex) - 1, int(texture or 1) - 1


@_naming_damage
def read_target(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read a ``.target`` file: vertices (N,) and their displacements (N, 3) float32 decimetres.

    Raises:
        InputError: the file is missing or damaged.
    """
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    rows = np.loadtxt(lines, np.float32, ndmin=2).reshape(-1, 4) if lines else np.empty((0, 4), np.float32)
    return rows[:, 0].astype(np.int64), rows[:, 1:]


@_naming_damage
def read_garment(path: Path) -> Garment:
    """Read an ``.mhclo`` file.

    Raises:
        InputError: the file is missing or damaged.
    """
    facts: dict[str, str] = {}
    scales: dict[str, tuple[int, int, float]] = {}
    rows: list[list[float]] = []
    hidden: list[int] = []
    part = ""
    for words in _lines(path):
        if words[0] in ("verts", "delete_verts"):
            part = words[0]
        elif words[0] in ("x_scale", "y_scale", "z_scale"):
            scales[words[0][0]] = int(words[1]), int(words[2]), float(words[3])
        elif words[0][0].isalpha():
            facts[words[0]] = " ".join(words[1:])
        elif part == "verts":
            values = [float(word) for word in words]
            rows.append(values if len(values) == 9 else [*values[:1] * 3, 1, 0, 0, 0, 0, 0])
        elif part == "delete_verts":
            hidden += _ranges(words)
    table = np.array(rows, np.float32).reshape(-1, 9)
    return Garment(
        path.with_name(facts["obj_file"]),
        path.parent / facts["material"],
        table[:, :3].astype(np.int64),
        table[:, 3:6],
        table[:, 6:],
        tuple(scales[axis] for axis in "xyz"),
        np.array(hidden, np.int64),
    )


def _ranges(words: list[str]) -> list[int]:
    """Return the numbers of a line such as ``3 7 - 9 12``, in which ``7 - 9`` is a range."""
    numbers: list[int] = []
    for place, word in enumerate(words):
        if word != "-":
            after_dash = place > 1 and words[place - 1] == "-"
            numbers += range(int(words[place - 2]) + 1 if after_dash else int(word), int(word) + 1)
    return numbers


@_naming_damage
def read_texture_name(path: Path) -> Path:
    """Return the image file that an ``.mhmat`` file names as its diffuse texture, even if that image does not exist.

    Raises:
        InputError: the file is missing or damaged.
    """
    names = [" ".join(words[1:]) for words in _lines(path) if words[0] == "diffuseTexture"]
    return path.parent / names[0]


@_naming_damage
def read_rig(path: Path) -> Rig:
    """Read an ``.mhskel`` file, and the file of weights that it names.

    Raises:
        InputError: a file is missing or damaged.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    bones, joints = content["bones"], content["joints"]
    weights = json.loads(path.with_name(content["weights_file"]).read_text(encoding="utf-8"))["weights"]
    parents: dict[str, str | None] = {}
    while len(parents) < len(bones):
        ready = [name for name in bones if name not in parents and bones[name]["parent"] in (None, *parents)]
        if not ready:
            raise ValueError("a bone is its own ancestor")
        parents |= {name: bones[name]["parent"] for name in ready}
    tables = {name: np.array(rows, np.float32).reshape(-1, 2) for name, rows in weights.items()}
    return Rig(
        parents,
        {name: np.array(joints[bones[name]["head"]], np.int64) for name in parents},
        {name: (table[:, 0].astype(np.int64), table[:, 1]) for name, table in tables.items()},
    )
