"""Bodies put together from made assets, and their poses."""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_makehuman import ends, vertices

from lreid.errors import InputError
from render.assets import POSED, Assets, normals
from render.people import Body, make_fashion, make_person
from render.poses import Skeleton, draw_angles, rotation

AVERAGE = Body("caucasian", "male", age=0.5, muscle=0.5, weight=0.5, height=0.0)


def test_average_body_is_the_mesh(assets: Assets) -> None:
    assert np.allclose(assets.shape(AVERAGE), vertices(), atol=1e-4)


def test_targets_are_blended(assets: Assets) -> None:
    body = AVERAGE._replace(race="asian", age=0.8, muscle=0.9, weight=0.75, height=-0.5)
    moved = assets.shape(body) - vertices()
    # Race moves vertex 0 by 0.5; half between average (0) and most weight (2) moves vertex 1; half the least height.
    expected = np.zeros_like(moved)
    expected[0, 0], expected[1, 0], expected[[40, 41], 1] = 0.5, 1.0, -0.5
    assert np.allclose(moved, expected, atol=1e-4)


def test_garments_follow_the_body(assets: Assets) -> None:
    body = assets.shape(AVERAGE._replace(weight=1.0))  # vertex 1 is 2 dm farther out, so that the x scale grows
    part = assets.part(assets.suits["male"][0])
    found = assets.fit(part, body)
    garment = part.garment
    for corner, vertex in enumerate(part.mesh.corners):
        anchors, weights = garment.anchors[vertex], garment.weights[vertex]
        for axis in range(3):
            first, second, unit = garment.scales[axis]
            scale = abs(body[first, axis] - body[second, axis]) / unit
            wanted = sum(float(w) * body[a, axis] for a, w in zip(anchors, weights, strict=True))
            wanted += garment.offsets[vertex, axis] * scale
            assert found[corner, axis] == pytest.approx(wanted, abs=1e-4)


def test_every_corner_follows_bones_that_poses_move(assets: Assets) -> None:
    part = assets.part(None)
    assert np.allclose(part.influence.sum(1), 1, atol=1e-5)
    strongest = part.bones[:, 0]
    assert (strongest == part.mesh.corners // 8).all()  # those between two posed ones go with the upper one


def test_normals_of_boxes_point_outwards(assets: Assets) -> None:
    part = assets.part(None)
    found = normals(part, part.mesh.vertices[part.mesh.corners])
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-4)


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        ("3dobjs/base.obj", "base.obj: no such file; datasets/README.md says"),
        ("rigs", "default.mhskel: no such file; "),
        ("targets", "african-female-child.target: no such file and 179 more; "),
        ("skins", "has no skins/*/*.mhmat with the texture that it names; "),
        ("skins/young_asian_male/skin.png", "has no skins/*/*.mhmat with the texture that it names; "),
        ("clothes/female_suit01", "has no clothes/female_*/*.mhclo; "),
        ("clothes/shoes01", "has no clothes/shoes*/*.mhclo; "),
        ("hair/short01/short01_diffuse.png", "has no hair/*/*.mhclo with its texture; "),
    ],
)
def test_missing_assets_are_named(home: Path, tmp_path: Path, gone: str, message: str) -> None:
    shutil.copytree(home, tmp_path / "makehuman")
    path = tmp_path / "makehuman" / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(InputError) as error:
        Assets(tmp_path / "makehuman")
    assert message in str(error.value) and len(str(error.value).splitlines()) == 1


def test_assets_of_another_body_are_refused(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home, tmp_path / "makehuman")
    folder = tmp_path / "makehuman"
    (folder / "targets/macrodetails/caucasian-male-young.target").write_text("999999 1 0 0\n")
    with pytest.raises(InputError, match="caucasian-male-young.target: .* 3dobjs/base.obj"):
        Assets(folder).shape(AVERAGE)
    suit = folder / "clothes/male_suit01/male_suit01.mhclo"
    suit.write_text(suit.read_text().replace("verts 0\n", "verts 0\n999999\n"))
    with pytest.raises(InputError, match="male_suit01.mhclo: .* male_suit01.obj"):
        Assets(folder).part(suit)


@pytest.fixture
def skeleton(assets: Assets) -> Skeleton:
    return Skeleton(assets, assets.shape(AVERAGE))


def moved(moves: np.ndarray, bone: str, point: np.ndarray) -> np.ndarray:
    matrix = moves[POSED.index(bone)]
    return matrix[:, :3] @ point + matrix[:, 3]


def test_zero_angles_let_arms_and_legs_hang(skeleton: Skeleton) -> None:
    moves = skeleton.matrices({})
    for limb in ("upperarm01", "lowerarm01"):
        for side in "LR":
            start, end = (moved(moves, f"{limb}.{side}", point) for point in ends(f"{limb}.{side}"))
            straight = (end - start) / np.linalg.norm(end - start)
            assert straight == pytest.approx([0, -1, 0], abs=1e-5), (limb, side)
    hip, ankle = moved(moves, "upperleg01.L", ends("upperleg01.L")[0]), moved(moves, "foot.L", ends("foot.L")[0])
    assert hip[0] == pytest.approx(ankle[0], abs=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_poses_are_stiff_connected_and_on_the_ground(skeleton: Skeleton, seed: int) -> None:
    angles = draw_angles(random.Random(seed), walking=seed % 2, stride=1.0, swing=1.0, loaded="L" if seed > 5 else "")
    moves = skeleton.matrices(angles)
    for bone, matrix in enumerate(moves.astype(float)):
        assert matrix[:, :3] @ matrix[:, :3].T == pytest.approx(np.eye(3), abs=1e-5)
        if (parent := skeleton.parents[bone]) >= 0:  # both have the joint at the same place
            joint = skeleton.joints[bone]
            assert moved(moves, POSED[parent], joint) == pytest.approx(matrix[:, :3] @ joint + matrix[:, 3], abs=1e-4)
    feet = [
        moved(moves, f"foot.{side}", np.array([joint[0], skeleton.sole, joint[2] + forward]))[1]
        for side in "LR"
        for joint in [skeleton.joints[POSED.index(f"foot.{side}")]]
        for forward in (-0.5, 1.3)
    ]
    assert min(feet) == pytest.approx(0, abs=1e-4)
    assert moved(moves, "head", ends("head")[1])[1] > 12  # nobody lies down


def test_positive_angles_about_x_bend_forwards_what_points_up() -> None:
    assert rotation(0.5, 0, 0) @ [0, 1, 0] == pytest.approx([0, np.cos(0.5), np.sin(0.5)])
    turned = rotation(0.3, 0.2, 0.1)
    one_by_one = rotation(0, 0, 0.1) @ rotation(0, 0.2, 0) @ rotation(0.3, 0, 0)
    assert turned == pytest.approx(one_by_one)


def test_thousands_of_people_differ() -> None:
    fashion = make_fashion(random.Random(0))
    people = [make_person(random.Random(i), fashion) for i in range(3000)]
    assert len({(person.upper, person.lower, person.body) for person in people}) == 3000
    assert {person.body.sex for person in people} == {"female", "male"}
    assert len({person.upper.pattern for person in people}) == 11
    for person in people:
        body = person.body
        assert all(0 <= value <= 1 for value in (body.age, body.muscle, body.weight)) and -1 <= body.height <= 1
        for colour in (person.upper.colour, person.lower.second, person.hair_colour):
            assert all(0 <= value <= 1 for value in colour)
    assert make_person(random.Random(7), fashion) == people[7]
