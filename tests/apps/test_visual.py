"""Pictures of what models see, against the pieces that they are made of."""

import base64
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from example_files import write_checkpoint
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lreid.apps.visual import activation_maps, common_plane, image_sections, overlay, pictures_of
from lreid.build import benchmark_of
from lreid.errors import InputError
from lreid.loading import model_config
from lreid.models import Embedder
from lreid.report.rendering import Panel
from lreid.report.tables import grouped


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with three finished tasks."""
    folder = tmp_path_factory.mktemp("runs") / "my-run"
    for task in (8, 9, 10):
        write_checkpoint(folder / "checkpoints" / f"task-{task:02d}.pt", seed=task)
    return folder


@pytest.fixture(scope="module")
def sections(run: Path) -> list[Panel]:
    return image_sections(run)


def text_of(sections: list[Panel]) -> str:
    return "".join(f"{each.title} {each.note} {each.body}" for each in sections)


def test_maps_are_norms_over_channels() -> None:
    torch.manual_seed(0)
    model = Embedder("small", height=32, width=16).eval()
    images = torch.randn(2, 3, 32, 16)
    maps = activation_maps(model, images)
    features = model.backbone(images).double()  # (2, 256, 4, 2)
    assert maps.shape == (2, *features.shape[2:]) and maps.dtype == np.float32
    for wanted, found in zip(features, maps, strict=True):
        norms = np.zeros(found.shape)
        for row, column in np.ndindex(*found.shape):
            norms[row, column] = sum(value.item() ** 2 for value in wanted[:, row, column]) ** 0.5
        scaled = (norms - norms.min()) / (norms.max() - norms.min())
        assert found == pytest.approx(scaled, abs=1e-4)
        assert (found.min(), found.max()) == (0, 1)


def test_vectors_have_no_maps_and_equal_norms_give_zero() -> None:
    model = Embedder("small", height=32, width=16).eval()
    model.backbone = torch.nn.Sequential(torch.nn.Flatten())
    assert activation_maps(model, torch.zeros(1, 3, 32, 16)) is None
    model.backbone = torch.nn.Identity()
    assert not activation_maps(model, torch.ones(1, 3, 32, 16)).any()


def test_overlay_is_bright_where_the_map_is() -> None:
    image = np.full((32, 16, 3), 100, np.uint8)
    shown = overlay(image, np.array([[0.0, 0.0], [1.0, 1.0]], np.float32))
    assert shown.shape == image.shape and shown.dtype == np.uint8
    brightness = shown.mean((1, 2))
    assert (np.diff(brightness) >= 0).all() and brightness[-1] > brightness[0] + 50


@given(seed=st.integers(0, 1000), turned=st.integers(0, 1000))
def test_plane_keeps_distances_of_planar_features(seed: int, turned: int) -> None:
    """Points of a plane come out of a turned space with their distances, and sets are cut where they were joined."""
    rng = np.random.default_rng(seed)
    angles = rng.uniform(0, 0.5, 7)
    flat = np.stack([np.cos(angles), np.sin(angles)], 1)  # (7, 2), of unit length
    turn = np.linalg.qr(np.random.default_rng(turned).normal(size=(5, 5)))[0]
    lengths = rng.uniform(0.5, 2, (7, 1))  # which do not count
    features = lengths * np.pad(flat, ((0, 0), (0, 3))) @ turn
    (first, second), share = common_plane(features[:3], features[3:])
    points = np.concatenate([first, second])
    assert first.shape == (3, 2) and share == pytest.approx(1)
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    assert distances == pytest.approx(np.linalg.norm(flat[:, None] - flat[None], axis=2), abs=1e-6)


def test_plane_has_a_fixed_sign() -> None:
    features = np.random.default_rng(0).normal(size=(20, 6))
    (points,), share = common_plane(features)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    values, axes = np.linalg.eigh(np.cov(unit.T))
    for place, axis in enumerate((axes[:, -1], axes[:, -2])):
        axis = axis * np.sign(axis[np.abs(axis).argmax()])
        assert points[:, place] == pytest.approx((unit - unit.mean(0)) @ axis, abs=1e-9)
    assert share == pytest.approx(values[-2:].sum() / values.sum())


def test_sections_of_a_run(sections: list[Panel]) -> None:
    titles = [f"{title}, plaza" for title in ("Ranked matches", "Activation maps", "Map of features")]
    assert [each.title for each in sections] == titles
    ranked, attended, plane = (f"{each.note}{each.body}" for each in sections)
    assert 'class="tile right"' in ranked and 'class="tile wrong"' in ranked
    names = [re.findall(r'<figure class="tile \w*" title="([^"]*)"', part) for part in (ranked, attended)]
    assert names[1] and names[1] == names[0][: len(names[1])]  # the same images
    assert re.findall("<figcaption>(.*?)</figcaption>", plane) == ["After task 9", "After task 10"]
    assert plane.count("<title>id ") == 2 * int(re.search(r"(\d+) images of", plane)[1])


def test_blur_removes_details_of_all_images(run: Path, sections: list[Panel]) -> None:
    def details(parts: list[Panel]) -> list[float]:
        images = [
            np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("L"), float)
            for data in re.findall(r"base64,([^\"]*)", text_of(parts))
        ]
        return [float(np.abs(np.diff(image, axis=1)).mean()) for image in images]

    smeared = image_sections(run, blur=True)
    sharp, blurred = details(sections), details(smeared)
    assert len(sharp) == len(blurred) > 20
    assert all(after < 0.8 * before for before, after in zip(sharp, blurred, strict=True))
    assert smeared[-1] == sections[-1]  # the map has no images, and nothing is drawn by chance


def test_checkpoint_of_another_device_is_shown(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoints" / "task-01.pt", DEVICE="cuda:7")
    (tmp_path / "checkpoints" / "task-best.pt").write_text("a copy by hand")
    assert re.findall("<figcaption>(After .*?)</figcaption>", text_of(image_sections(tmp_path))) == ["After task 1"]


def test_images_need_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=tmp_path.name):
        image_sections(tmp_path)


def test_queries_of_forgotten_identities_after_every_task(run: Path, results: Any) -> None:
    checkpoint = run / "checkpoints" / "task-10.pt"
    (test,) = benchmark_of(model_config(checkpoint)).tests
    first, second = sorted({record.pid for record in test.query})[:2]
    made = results(rows=4, seen=(test.name,), unseen=())
    made["identity_ap"] = {test.name: {"ids": [first, second], "ap": [[90.0, 50.0]] * 3 + [[10.0, 45.0]]}}
    (group,) = grouped([made])
    found = pictures_of([group], {group.name: run})
    assert set(found.faces) == {(group.benchmark, test.name, pid) for pid in (first, second)}  # the hardest, too
    ((key, name),) = found.rankings
    assert key == (group.benchmark, test.name, first) and name == group.name
    tasks, queries = zip(*found.rankings[key, name], strict=True)
    assert tasks == (8, 9, 10) and {query.tile for query in queries} == {found.faces[key]}
    assert found.faces[key].labels[0] == test.names.identity(first)
    assert all(len(query.matches) >= 5 for query in queries)
    assert len({tuple(match.score for match in query.matches) for query in queries}) == 3  # by three models
