"""A person of boxes in MakeHuman's formats: one box a bone, each of eight vertices."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

from render.assets import AGES, HEIGHTS, POSED
from render.people import MUSCLES, RACES, SEXES, WEIGHTS

ENDS = {  # head and tail of the middle bones and of the left ones, decimetres
    "root": ((0, 0, 0), (0, 1, 0)),
    "spine05": ((0, 1, 0), (0, 2, 0)),
    "spine03": ((0, 2, 0), (0, 3, 0)),
    "spine01": ((0, 3, 0), (0, 5, 0)),
    "neck01": ((0, 5, 0), (0, 6, 0)),
    "head": ((0, 6, 0), (0, 8, 0)),
    "upperarm01": ((2, 5, 0), (4, 3, 0)),
    "lowerarm01": ((4, 3, 0), (6, 1, 0.5)),
    "wrist": ((6, 1, 0.5), (6.5, 0.5, 0.7)),
    "upperleg01": ((1, 0, 0), (1.2, -4, 0)),
    "lowerleg01": ((1.2, -4, 0), (1.4, -8, 0)),
    "foot": ((1.4, -8, 0), (1.4, -8.5, 1.5)),
}
PARENTS = {
    "spine05": "root",
    "spine03": "spine05",
    "spine01": "spine03",
    "neck01": "spine01",
    "head": "neck01",
    "upperarm01": "spine01",
    "lowerarm01": "upperarm02",
    "wrist": "lowerarm01",
    "upperleg01": "root",
    "lowerleg01": "upperleg01",
    "foot": "lowerleg01",
}
THICK = 0.6
QUADS = ((0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7))


def ends(bone: str) -> np.ndarray:
    """Head and tail, (2, 3)."""
    both = np.array(ENDS[bone.removesuffix(".L").removesuffix(".R")], float)
    return both * (-1, 1, 1) if bone.endswith(".R") else both


def vertices() -> np.ndarray:
    """All of them, eight a bone in the order of POSED, (8 x bones, 3)."""
    ring = THICK * np.array([(-1, 0, -1), (1, 0, -1), (1, 0, 1), (-1, 0, 1)])
    return np.concatenate([end + ring for bone in POSED for end in ends(bone)])


def quads(boxes: int) -> list[str]:
    """Faces of boxes, each with the places 1 to 4 of the texture."""
    rows = [[8 * box + corner + 1 for corner in quad] for box in range(boxes) for quad in QUADS]
    return ["f " + " ".join(f"{v}/{i + 1}" for i, v in enumerate(row)) for row in rows]


def points(places: np.ndarray) -> list[str]:
    """Lines of vertices, and of the four places of a texture."""
    return [*(f"v {x:.4f} {y:.4f} {z:.4f}" for x, y, z in places), "vt 0 0", "vt 1 0", "vt 1 1", "vt 0 1"]


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("# made for a test\n" + "\n".join(lines) + "\n")


def write_garment(folder: Path, bones: list[str], *, textured: bool = True) -> None:
    """A garment: the boxes of some bones, wider by an offset."""
    name = folder.name
    anchors = [8 * POSED.index(bone) + corner for bone in bones for corner in range(8)]
    rows = [f"{v} {v} {v} 0.5 0.25 0.25 {0.1 if i % 2 else -0.1} 0 0" for i, v in enumerate(anchors)]
    scales = ["x_scale 0 1 1.2", "y_scale 0 4 1.0", "z_scale 0 3 1.2"]
    facts = ["name x", f"obj_file {name}.obj", f"material {name}.mhmat", *scales]
    write(folder / f"{name}.mhclo", [*facts, "verts 0", *rows, "delete_verts", f"{anchors[0]} - {anchors[5]}"])
    write(folder / f"{name}.obj", [*points(vertices()[anchors]), *quads(len(bones))])
    write(folder / f"{name}.mhmat", [f"diffuseTexture {name}_diffuse.png"])
    if textured:
        stripes = np.tile(np.array([90, 200], np.uint8)[:, None, None], (8, 16, 4))
        stripes[..., 3] = 255
        Image.fromarray(stripes).save(folder / f"{name}_diffuse.png")


def write_assets(home: Path) -> Path:
    """The folder, with all that a renderer asks for."""
    body = [*points(vertices()), "g joint-x", "f 1/1 2/2 3/3 4/4", "g body", *quads(len(POSED))]
    write(home / "3dobjs" / "base.obj", body)
    bones = {
        bone: {"head": f"{bone}_h", "parent": PARENTS.get(bone, PARENTS.get(bone[:-2], "") + bone[-2:])}
        for bone in POSED
    }
    for bone, facts in bones.items():
        if facts["parent"].removesuffix(".L").removesuffix(".R") in ("root", "spine01"):
            facts["parent"] = facts["parent"].removesuffix(".L").removesuffix(".R")
        if bone == "root":
            facts["parent"] = None
    joints = {f"{bone}_h": [8 * i + corner for corner in range(4)] for i, bone in enumerate(POSED)}
    for side in "LR":  # a bone between two that poses move
        bones[f"upperarm02.{side}"] = {"head": f"lowerarm01.{side}_h", "parent": f"upperarm01.{side}"}
    weights = {bone: [[8 * i + corner, 1.0] for corner in range(8)] for i, bone in enumerate(POSED)}
    # The far end of the upper arms follows the bone between.
    for side in "LR":
        own = weights[f"upperarm01.{side}"]
        weights[f"upperarm01.{side}"], weights[f"upperarm02.{side}"] = own[:4], own[4:]
    (home / "rigs").mkdir()
    (home / "rigs" / "default.mhskel").write_text(
        json.dumps({"bones": bones, "joints": joints, "weights_file": "w.mhw"})
    )
    (home / "rigs" / "w.mhw").write_text(json.dumps({"weights": weights}))
    targets = home / "targets" / "macrodetails"
    for sex in SEXES:
        for age in AGES:
            for race in RACES:
                write(targets / f"{race}-{sex}-{age}.target", ["0 .5 0 0"] if race == "asian" else [])
            for muscle in MUSCLES:
                for weight in WEIGHTS:
                    kind = f"{sex}-{age}-{muscle}-{weight}"
                    wide = {"minweight": -1, "averageweight": 0, "maxweight": 2}[weight]
                    write(targets / f"universal-{kind}.target", [f"1 {wide} 0 0"] if wide else [])
                    for height, by in zip(HEIGHTS, (-1, 1), strict=True):
                        write(targets / "height" / f"{kind}-{height}.target", [f"40 0 {by} 0", f"41 0 {by} 0"])
    trunk = [bone for bone in POSED if bone.startswith(("root", "spine", "upper", "lower"))]
    for sex in SEXES:
        write_garment(home / "clothes" / f"{sex}_suit01", trunk)
    write_garment(home / "clothes" / "shoes01", ["foot.L", "foot.R"], textured=False)
    write_garment(home / "hair" / "short01", ["head"])
    skin = home / "skins" / "young_asian_male"
    write(skin / "skin.mhmat", ["diffuseTexture skin.png"])
    Image.new("RGB", (8, 8), (200, 150, 120)).save(skin / "skin.png")
    return home
