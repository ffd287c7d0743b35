"""Images of made people: what hides what, the same pixels each time, and the data set on disk."""

import json
import math
import os
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from lreid.data import tables
from lreid.data.images import read_image
from lreid.data.rendered_set import PREFIX
from lreid.errors import InputError
from render import render
from render.assets import Assets
from render.images import photograph
from render.people import Person, make_fashion, make_person
from render.renderer import OVERSAMPLED, Renderer, Standing, Subject, on_plane
from render.scenes import PLACES, TEXTURES, Box, Camera, make_camera, make_domain, textures
from render.sensors import LUMA, Sensor, develop, make_sensor

RED, BLACK = (0.9, 0.0, 0.0), (0.0, 0.0, 0.0)
PLAIN = Sensor(((1, 0, 0), (0, 1, 0), (0, 0, 1)), bytes(each for each in range(256) for _ in range(3)), 0.0, 0.0, False)
FLAT = Camera(
    eye=(0.0, 20.0, 80.0),
    roll=0.0,
    boxes=(Box((0, -10, 0), (500, 10, 500), 0, 0, (0.5, 0.5, 0.5), 0.05),),
    sun=(0.48, 0.6, 0.64),
    light=(1.0, 1.0, 1.0),
    sky=(0.3, 0.3, 0.3),
    ground=(0.1, 0.1, 0.1),
    backdrop=(0.0, 0.0, 0.0),
    heading=0.0,
    gain=(1.0, 1.0, 1.0),
    contrast=1.0,
    saturation=1.0,
    pixels=64,
    noise=0.0,
    blur=0.1,
    quality=95,
    sensor=PLAIN,
)


def person(seed: int = 1) -> Person:
    return make_person(random.Random(seed), make_fashion(random.Random(0)))


def standing(subject: Subject, heading: float = 0.0) -> Standing:
    return Standing(subject, subject.skeleton.matrices({}), (0.0, 0.0), heading)


def window(at: Standing) -> tuple[float, float, float, float]:
    left, right, bottom, top = on_plane(FLAT, (0.0, 0.0), at.outline())
    wide = (top - bottom) / 4
    return (left + right) / 2 - wide, (left + right) / 2 + wide, bottom, top


def shown(renderer: Renderer, camera: Camera, obstacles: tuple[Box, ...] = (), *, alone: bool = False) -> np.ndarray:
    """A window around the origin, (96, 48, 3), with a person in it or not."""
    subject = renderer.subject(person()._replace(bag=0))
    here = window(standing(subject))
    people = [standing(subject._replace(parts=()) if alone else subject)]
    return renderer.draw(camera, people, here, obstacles, 64).astype(int)


def test_person_fills_the_window(renderer: Renderer) -> None:
    here, away = shown(renderer, FLAT), shown(renderer, FLAT, alone=True)
    assert here.shape == (round(64 * OVERSAMPLED), round(32 * OVERSAMPLED), 3)
    differs = np.abs(here - away).max(2) > 20
    rows, columns = np.flatnonzero(differs.any(1)), np.flatnonzero(differs.any(0))
    assert rows[0] < 8 and rows[-1] > 86 and columns[-1] - columns[0] > 20


def test_near_objects_hide_far_ones(renderer: Renderer) -> None:
    def wall(z: float) -> tuple[Box, ...]:
        return (Box((0, 10, z), (40, 60, 1), 0, 0, RED, 0.05),)

    def red(image: np.ndarray) -> float:
        return float((image[..., 0] > 3 * image[..., 1].clip(1)).mean())

    assert red(shown(renderer, FLAT, wall(20))) > 0.99
    assert 0.2 < red(shown(renderer, FLAT, wall(-20))) < 0.9


def test_person_casts_a_shadow(renderer: Renderer) -> None:
    from_right, from_left = shown(renderer, FLAT), shown(renderer, FLAT._replace(sun=(-0.48, 0.6, 0.64)))
    left = np.s_[78:90, :10]
    assert (from_left[left] - from_right[left]).max() > 40
    dark = shown(renderer, FLAT._replace(light=BLACK)), shown(renderer, FLAT._replace(light=BLACK), alone=True)
    assert np.abs(dark[0][left] - dark[1][left]).max() < 10


def test_two_renderers_give_the_same_image(renderer: Renderer, assets: Assets) -> None:
    def image(source: Renderer, seed: int) -> np.ndarray:
        domain = make_domain(0, 5)
        camera = make_camera(domain, 1)
        return photograph(source, domain, camera, source.subject(person(seed)), [], random.Random(seed))

    first = image(renderer, 3)
    assert first.shape == (64, 32, 3) and first.dtype == np.uint8 and first.std() > 5
    assert np.abs(image(renderer, 4).astype(int) - first).mean() > 3
    assert np.array_equal(image(Renderer(assets, height=64, width=32), 3), first)


@pytest.mark.parametrize("bag", range(5))
def test_bags_are_visible(renderer: Renderer, bag: int) -> None:
    def front(carried: int) -> np.ndarray:
        # From behind, where all kinds are seen.
        subject = renderer.subject(person()._replace(bag=carried, bag_colour=RED, hat=2.0))
        here = standing(subject, math.pi)
        return renderer.draw(FLAT, [here], window(here), (), 64).astype(int)

    found = front(bag)
    red = (found[..., 0] > 3 * found[..., 1].clip(20)).sum()
    assert red == 0 if bag == 0 else red > 20


def test_domains_and_cameras_differ_and_are_reproducible() -> None:
    domains = [make_domain(number, 0) for number in range(12)]
    assert {domain.place for domain in domains} == set(PLACES) and len({domain.name for domain in domains}) == 12
    assert len({(domain.height, domain.noise, domain.jitter, domain.fashion) for domain in domains}) == 12
    assert make_domain(3, 0) == domains[3] != make_domain(3, 1)
    cameras = [make_camera(domains[0], number) for number in range(6)]
    assert len({(camera.eye, camera.sun, camera.gain) for camera in cameras}) == 6
    assert make_camera(domains[0], 2) == cameras[2]
    for camera in cameras:
        assert np.linalg.norm(camera.sun) == pytest.approx(1) and camera.sun[1] > 0


def test_surfaces_repeat_without_a_seam() -> None:
    surfaces = textures()
    assert surfaces.shape == (len(TEXTURES), 256, 256, 4) and surfaces.dtype == np.uint8
    plain = surfaces[TEXTURES.index("plain")].astype(int)
    inside = np.abs(np.diff(plain, axis=0)).max()
    assert np.abs(plain[0] - plain[-1]).max() <= inside


SMALL = {"domains": 2, "train_identities": 2, "test_identities": 1, "images": 4, "height": 32, "width": 16}


MORE = {"domains": 3, "train_identities": 3, "test_identities": 2, "images": 5}


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def drawn(renderer: Renderer, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of 24 images."""
    folder = tmp_path_factory.mktemp("drawn") / "people"
    assert render(folder, home, **SMALL) == 24
    return folder


def test_rendered_data_set_loads(drawn: Path) -> None:
    sets = tables.load(drawn / "index.csv")
    assert [data.name for data in sets] == ["street-0", "hall-1"]
    for data in sets:
        assert (len(data.train), len(data.query), len(data.gallery)) == (8, 2, 2)
        for query in data.query:  # is found under another camera
            assert any(each.pid == query.pid and each.camid != query.camid for each in data.gallery)
    assert json.loads((drawn / "render.json").read_text()) == SMALL | {"cameras": 4, "seed": 0, "first_domain": 0}


def photographs(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in files(folder).items() if name.endswith(".jpg")}


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"train_identities": 0}, 8),
        ({"test_identities": 0}, 16),
        ({"domains": 1, "first_domain": 1}, 12),
        pytest.param(MORE, 75, marks=pytest.mark.slow),
    ],
)
def test_an_image_does_not_depend_on_the_others(
    drawn: Path, home: Path, tmp_path: Path, changes: dict[str, int], count: int
) -> None:
    options = SMALL | changes
    assert render(tmp_path / "other", home, **options) == count
    assert len(tables.load(tmp_path / "other" / "index.csv")) == options["domains"]
    few, many = sorted((photographs(drawn), photographs(tmp_path / "other")), key=len)
    assert few.items() <= many.items() and len(set(many.values())) == len(many) == max(count, 24)


@pytest.mark.slow
def test_another_seed_draws_other_images(drawn: Path, home: Path, tmp_path: Path) -> None:
    render(tmp_path / "other", home, **SMALL, seed=1)
    assert not {*photographs(drawn).values()} & {*photographs(tmp_path / "other").values()}


@pytest.mark.slow
def test_number_of_processes_does_not_change_images(drawn: Path, home: Path, tmp_path: Path) -> None:
    render(tmp_path / "two", home, **SMALL, workers=2)
    assert files(tmp_path / "two") == files(drawn)


def test_archive_equals_the_folder(drawn: Path, home: Path, tmp_path: Path) -> None:
    for name in ("one.zip", "two.zip"):
        assert render(tmp_path / name, home, **SMALL) == 24
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files(drawn)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"one.zip", "two.zip"}


@pytest.mark.slow
def test_shipped_people_equal_the_rendered_ones(renderer: Renderer, repository: Path, tmp_path: Path) -> None:
    """Of each domain's first: the same pixels, or where Mesa is another one, nearly the same."""
    home = repository / "datasets" / "makehuman"
    if not home.exists():
        pytest.skip("the assets are not there")
    render(tmp_path / "people", home, domains=2, train_identities=1, test_identities=1, height=128, width=64)
    found = sorted((tmp_path / "people" / "images").rglob("*.jpg"))
    assert len(found) == 24
    for path in found:
        address = PREFIX + path.relative_to(tmp_path / "people" / "images").as_posix()
        assert np.abs(read_image(path).astype(float) - read_image(address)).mean() < 3, address


def test_existing_folder_is_not_overwritten(home: Path, tmp_path: Path) -> None:
    (tmp_path / "people").mkdir()
    with pytest.raises(InputError, match="people: already exists; remove it"):
        render(tmp_path / "people", home)
    assert not list((tmp_path / "people").iterdir())


@pytest.mark.parametrize("damaged", ["skins/young_asian_male/skin.png", "hair/short01/short01_diffuse.png"])
def test_damaged_image_of_the_assets_is_named(renderer: Renderer, home: Path, tmp_path: Path, damaged: str) -> None:
    shutil.copytree(home, tmp_path / "makehuman")
    (tmp_path / "makehuman" / damaged).write_bytes(b"\x89PNG\r\n\x1a\nand no more")
    with pytest.raises(InputError, match=f"{damaged}: .*datasets/README.md"):
        render(tmp_path / "people", tmp_path / "makehuman", **SMALL)
    assert not (tmp_path / "people").exists()


@pytest.mark.slow
def test_torch_may_load_its_compiler_after_opengl(renderer: Renderer, home: Path, repository: Path) -> None:
    """Its triton and Mesa both bring an LLVM, which crash the process in the wrong order."""
    code = "from render.renderer import Assets, Renderer; import pathlib, sys; "
    code += "Renderer(Assets(pathlib.Path(sys.argv[1]))); import torch._dynamo"
    paths = os.pathsep.join([str(repository), str(repository / "tools")])
    subprocess.run([sys.executable, "-c", code, str(home)], check=True, env={**os.environ, "PYTHONPATH": paths})


def test_plain_sensor_changes_nothing_and_each_camera_has_its_own() -> None:
    image = np.random.default_rng(0).integers(0, 256, (24, 12, 3), dtype=np.uint8)
    np.testing.assert_array_equal(develop(image, PLAIN, random.Random(0)), image)
    domain = make_domain(0, 1)
    one, same, other = (make_camera(domain, number).sensor for number in (0, 0, 1))
    assert one == same and one.curve != other.curve and one.matrix != other.matrix


def test_sensors_differ_in_tone_saturation_and_cast() -> None:
    sensors = [make_sensor(random.Random(seed)) for seed in range(300)]
    for sensor in sensors:
        np.testing.assert_allclose(np.sum(sensor.matrix, 1), 1, atol=1e-5)
    tones = np.array([list(sensor.curve) for sensor in sensors]).reshape(-1, 256, 3)
    assert (np.diff(tones[:, 32:225], axis=1) >= 0).all()  # brighter stays brighter; the darkest may be crushed
    middle = tones[:, 128]  # (N, 3)
    assert middle.mean(1).std() > 15  # tone
    assert np.abs(middle - middle.mean(1, keepdims=True)).mean() > 3  # cast
    red = np.array([sensor.matrix for sensor in sensors])[:, :, 0]  # (N, 3)
    saturation = red[:, 0] - red @ LUMA
    assert np.quantile(saturation, 0.1) < 0.6 and np.quantile(saturation, 0.9) > 0.85


@pytest.mark.parametrize("dress", [{"skirt": 5.0, "coat": 0.0}, {"skirt": 0.0, "coat": 5.0}])
def test_coats_and_skirts_hang_around_the_legs_in_the_colour_of_their_cloth(
    renderer: Renderer, dress: dict[str, float]
) -> None:
    plain = person()._replace(bag=0, coat=0.0, skirt=0.0)
    cloth = plain.upper._replace(colour=RED, second=RED, pattern=0, own=0.0)
    dark = cloth._replace(colour=BLACK, second=BLACK)
    clothes = {"upper": dark, "lower": cloth} if dress["skirt"] else {"upper": cloth, "lower": dark}
    pictures = []
    for worn in (plain._replace(**clothes), plain._replace(**clothes, **dress)):
        at = standing(renderer.subject(worn))
        pictures.append(renderer.draw(FLAT, [at], window(at), (), 64).astype(int))
    rows = len(pictures[0])
    thighs = slice(round(0.5 * rows), round(0.66 * rows))
    red = [((picture[thighs, :, 0] - picture[thighs, :, 1]) > 40).sum() for picture in pictures]
    assert red[1] > 1.3 * red[0] + 20
