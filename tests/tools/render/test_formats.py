"""MakeHuman's files, read and refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lreid.errors import InputError
from render import formats


def test_mesh_is_the_body_in_triangles(tmp_path: Path) -> None:
    lines = [
        "v 0 0 0",
        "v 1 0 0",
        "v 1 1 0",
        "v 0 1 0",
        "v 5 5 5",
        "vt 0 0",
        "vt .5 .25",
        "g joint",
        "f 5 5 5",
        "g body",
    ]
    (tmp_path / "a.obj").write_text("\n".join([*lines, "f 1/1 2/2 3/1 4/1", "f 1/2 2/2 3/1"]))
    mesh = formats.read_mesh(tmp_path / "a.obj")
    assert mesh.vertices.shape == (5, 3)
    found = [[(mesh.corners[c], *mesh.texture[c].tolist()) for c in triangle] for triangle in mesh.triangles]
    first, second, seam = (0, 0, 0), (1, 0.5, 0.25), (0, 0.5, 0.25)
    third, fourth = (2, 0, 0), (3, 0, 0)
    assert found == [[first, second, third], [first, third, fourth], [seam, second, third]]
    assert len(mesh.corners) == 5  # the first vertex twice, since two places of the texture meet there


def test_target_may_move_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.target").write_text("# of\n# nobody\n")
    assert formats.read_target(tmp_path / "a.target")[0].shape == (0,)
    (tmp_path / "a.target").write_text("# one\n\n7 .5 -1 0\n")
    where, by = formats.read_target(tmp_path / "a.target")
    assert where.tolist() == [7] and by.tolist() == [[0.5, -1, 0]]


def test_garment_follows_one_vertex_or_three(tmp_path: Path) -> None:
    head = "name a b\nobj_file a.obj\nmaterial ../m/a.mhmat\nz_scale 5 6 3\nx_scale 1 2 1.5\ny_scale 3 4 2\n"
    rows = "verts 0\n9\n1 2 3 .5 .25 .25 0 1 2\ndelete_verts\n3 7 - 9 12\n14 - 15 20\n"
    (tmp_path / "a.mhclo").write_text(head + rows)
    garment = formats.read_garment(tmp_path / "a.mhclo")
    assert garment.anchors.tolist() == [[9, 9, 9], [1, 2, 3]]
    assert garment.weights.tolist() == [[1, 0, 0], [0.5, 0.25, 0.25]]
    assert garment.offsets.tolist() == [[0, 0, 0], [0, 1, 2]]
    assert garment.scales == ((1, 2, 1.5), (3, 4, 2.0), (5, 6, 3.0))
    assert garment.hidden.tolist() == [3, 7, 8, 9, 12, 14, 15, 20]
    assert (garment.mesh, garment.material) == (tmp_path / "a.obj", tmp_path / "../m/a.mhmat")


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (formats.read_mesh, "v 1 2\nf 1 2 3"),
        (formats.read_mesh, "v 1 2 3\nf 1 2 3"),
        (formats.read_mesh, "<html>"),
        (formats.read_target, "<html>"),
        (formats.read_target, "1 2 3"),
        (formats.read_garment, "verts 0\n1"),
        (formats.read_garment, "obj_file a.obj\nmaterial m\nverts 0\n1 2"),
        (formats.read_texture_name, "name a"),
        (formats.read_rig, "{"),
        (formats.read_rig, '{"bones": [], "joints": {}, "weights_file": "gone"}'),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, read: Callable[[Path], object], content: str) -> None:
    (tmp_path / "a.file").write_text(content)
    with pytest.raises(InputError, match=r"^\S+(a\.file|gone): .*; datasets/README.md"):
        read(tmp_path / "a.file")


def test_circular_bones_are_refused(tmp_path: Path) -> None:
    (tmp_path / "w").write_text('{"weights": {}}')
    bones = '{"a": {"head": "j", "parent": "b"}, "b": {"head": "j", "parent": "a"}}'
    (tmp_path / "rig").write_text(f'{{"bones": {bones}, "joints": {{"j": [0]}}, "weights_file": "w"}}')
    with pytest.raises(InputError, match="a bone is its own ancestor"):
        formats.read_rig(tmp_path / "rig")
