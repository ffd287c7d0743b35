"""Features from anything that holds images."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from PIL import Image

from lreid.data.images import read_image
from lreid.errors import ArgumentError, InputError
from lreid.models import Embedder


@pytest.fixture
def model() -> Embedder:
    torch.manual_seed(0)
    return Embedder("small", height=32, width=16).eval()


IMAGES = np.random.default_rng(0).integers(0, 256, (5, 32, 16, 3), dtype=np.uint8)


def test_other_sizes_are_resized(model: Embedder, tmp_path: Path) -> None:
    large = IMAGES[0].repeat(3, 0).repeat(3, 1)
    Image.fromarray(large).save(tmp_path / "large.png")
    resized = read_image(tmp_path / "large.png", height=32, width=16)
    np.testing.assert_allclose(model.extract([large]), model.extract([resized]), rtol=1e-5)


def test_flip_adds_the_mirrored_image(model: Embedder) -> None:
    both = model.extract(IMAGES, flip=True)
    mirrored = np.ascontiguousarray(IMAGES[:, :, ::-1])
    np.testing.assert_allclose(both, model.extract(IMAGES) + model.extract(mirrored), rtol=1e-4, atol=1e-5)


def test_extraction_restores_the_training_mode(model: Embedder) -> None:
    model.train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model.extract(IMAGES)
    assert model.training
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_similarity_is_the_cosine_of_images_and_of_features(model: Embedder) -> None:
    features = model.extract(IMAGES).astype(np.float64)
    lengths = np.sqrt((features**2).sum(1))
    wanted = [
        [a @ b / la / lb for b, lb in zip(features[3:], lengths[3:], strict=True)]
        for a, la in zip(features, lengths, strict=True)
    ]
    np.testing.assert_allclose(model.encode(IMAGES), features / lengths[:, None], rtol=1e-4, atol=1e-6)
    for second in (IMAGES[3:], features[3:], torch.from_numpy(features[3:]), model.encode(IMAGES[3:])):
        np.testing.assert_allclose(model.similarity(IMAGES, second), wanted, atol=1e-5)
    np.testing.assert_allclose(model.similarity(features[0], IMAGES[3]), [wanted[0][:1]], atol=1e-5)
    with pytest.raises(ArgumentError, match="features"):
        model.similarity(features[:, 1:], IMAGES)
    for guess in ("embed", "predict"):
        with pytest.raises(AttributeError, match="encode") as error:
            getattr(model, guess)
        assert "\n" not in str(error.value)
    with pytest.raises(AttributeError, match="embedding"):
        model.embedding  # noqa: B018


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ((IMAGES / 255).astype(np.float32), r"\(32, 16, 3\) and type float32"),
        (list((IMAGES / 255).astype(np.float32)), r"\(32, 16, 3\) and type float32"),
        (IMAGES.astype(np.int64), r"\(32, 16, 3\) and type int64"),
        (torch.from_numpy(IMAGES).long(), r"\(32, 16, 3\) and type int64"),
        (np.concatenate([IMAGES, IMAGES[..., :1]], -1), r"\(32, 16, 4\) and type uint8"),  # RGBA
        (torch.from_numpy(IMAGES).permute(0, 3, 1, 2), r"\(3, 32, 16\) and type uint8"),
        (torch.from_numpy(IMAGES).float(), r"\(5, 32, 16, 3\) and type torch.float32"),
    ],
)
def test_images_of_an_unsupported_form_are_refused(model: Embedder, images: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        model.extract(images)
    assert "\n" not in str(error.value)


def test_every_form_of_the_same_images_gives_the_same_rows(model: Embedder, tmp_path: Path) -> None:
    for index, image in enumerate(IMAGES):
        Image.fromarray(image).save(tmp_path / f"{index}.png")
    wanted = model.extract(IMAGES)
    assert wanted.shape == (5, 256) and wanted.dtype == np.float32
    forms: list[Any] = [
        IMAGES,
        list(IMAGES),
        torch.from_numpy(IMAGES),
        model.normalise(torch.from_numpy(IMAGES)),
        [tmp_path / f"{i}.png" for i in range(5)],
        [str(tmp_path / f"{i}.png") for i in range(5)],
        tmp_path,
        str(tmp_path / "*.png"),
        [Image.fromarray(image) for image in IMAGES],
        (image for image in IMAGES),
        iter([Image.fromarray(IMAGES[0]), *(str(tmp_path / f"{i}.png") for i in range(1, 5))]),
        pandas.DataFrame({"path": [tmp_path / f"{i}.png" for i in range(5)]})["path"],
    ]
    for form in forms:
        np.testing.assert_allclose(model.extract(form, batch_size=2), wanted, rtol=1e-4, atol=1e-6)
    one = wanted[:1]
    ready = model.normalise(torch.from_numpy(IMAGES[:1]))[0]
    for form in (tmp_path / "0.png", str(tmp_path / "0.png"), IMAGES[0], Image.fromarray(IMAGES[0]), ready):
        assert model.extract(form).shape == (1, 256)
        np.testing.assert_allclose(model.extract(form), one, rtol=1e-4, atol=1e-6)


def test_grey_images_have_three_equal_channels(model: Embedder) -> None:
    grey = IMAGES[..., 0]
    wanted = model.extract(np.repeat(grey[..., None], 3, axis=-1))
    for form in (grey, list(grey), grey[..., None], [Image.fromarray(each) for each in grey]):
        np.testing.assert_array_equal(model.extract(form), wanted)
    assert model.extract(grey[0]).shape == (1, 256)


@pytest.mark.parametrize(
    "images",
    [
        None,
        7,
        {"a.jpg": 1},
        b"a.jpg",
        [None],
        [7],
        "https://example.com/a.jpg",
        ["a.mp4"],
        "nothing/*.jpg",
        ".",  # a folder without images
        torch.zeros(1, 32, 16, 3, dtype=torch.uint8, device="meta"),
        torch.zeros(1, 3, 32, 16, device="meta"),
        torch.zeros(1, 3, 32, 16).to_sparse(),
        np.array(7, np.uint8),
        Image.Image,
    ],
)
def test_values_other_than_images_are_refused_in_one_line(
    model: Embedder, images: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        model.extract(images)
    assert "\n" not in str(error.value) and ";" in str(error.value)


@pytest.mark.parametrize("size", [0, -1, None, 1.5])
def test_invalid_batch_sizes_are_refused(model: Embedder, size: Any) -> None:
    with pytest.raises(InputError, match="batch_size is"):
        model.extract(IMAGES, batch_size=size)


def test_forward_refuses_paths_and_names_extract(model: Embedder) -> None:
    with pytest.raises(ArgumentError, match="extract"):
        model(["a.jpg"])


NONE = np.zeros((0, 5, 3), np.uint8)


@pytest.mark.parametrize(
    ("images", "position"),
    [
        ([IMAGES[0], IMAGES[1], NONE], 2),
        ([IMAGES[0], NONE[:, :0], IMAGES[1]], 1),
        ([torch.from_numpy(IMAGES[0]), torch.from_numpy(NONE)], 1),
        (np.zeros((2, 32, 0, 3), np.uint8), 0),
        (torch.zeros(2, 0, 16, 3, dtype=torch.uint8), 0),
        (torch.zeros(2, 3, 0, 16), 0),
        (torch.cat([torch.zeros(3, 3, 32, 16), torch.full((1, 3, 32, 16), torch.nan)]), 3),
        (torch.cat([torch.zeros(1, 3, 32, 16), torch.full((1, 3, 32, 16), -torch.inf)]).half(), 1),
        (torch.cat([torch.zeros(3, 3, 32, 16), torch.full((1, 3, 32, 16), 3e38)]), 3),  # overflows in the network
    ],
)
def test_images_without_pixels_or_with_infinite_values_are_refused(model: Embedder, images: Any, position: int) -> None:
    with pytest.raises(ArgumentError, match=f"position {position}"):
        model.extract(images, batch_size=2)


@pytest.mark.parametrize("images", [np.empty((0, 32, 16, 3), np.uint8), torch.empty(0, 3, 32, 16), []])
def test_no_images_give_no_features(model: Embedder, images: Any) -> None:
    assert model.extract(images).shape == (0, 256)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_float_images_of_other_precision_are_converted(model: Embedder, dtype: torch.dtype) -> None:
    images = torch.ones(2, 3, 32, 16)
    np.testing.assert_array_equal(model.extract(images.to(dtype)), model.extract(images))


def test_normalisation() -> None:
    model = Embedder("small", height=4, width=2, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    image = np.full((1, 4, 2, 3), 51, np.uint8)  # 0.2
    expected = [(0.2 - 0.1) / 0.5, 0.0, (0.2 - 0.3) / 0.7]
    np.testing.assert_allclose(model.normalise(torch.from_numpy(image))[0, :, 0, 0], expected, atol=1e-6)


@pytest.mark.parametrize("pooling", ["avg", "gem"])
def test_pooling_against_a_loop(pooling: str) -> None:
    model = Embedder("small", height=32, width=16, pooling=pooling).eval().double()
    images = torch.randn(2, 3, 32, 16, dtype=torch.float64)
    with torch.no_grad():
        maps, features = model.maps(images), model(images)
    assert maps.shape == (2, 256, 4, 2)
    power = 3 if pooling == "gem" else 1
    for image in range(2):
        for channel in range(0, 256, 16):
            values = maps[image, channel].flatten().tolist()
            expected = (sum(max(value, 1e-6 if power == 3 else value) ** power for value in values) / 8) ** (1 / power)
            assert features[image, channel].item() == pytest.approx(expected)


@pytest.mark.parametrize("pooling", ["avg", "gem"])
def test_scale_multiplies_features_and_maps(pooling: str) -> None:
    plain = Embedder("small", height=32, width=16, pooling=pooling).eval().double()
    scaled = Embedder("small", height=32, width=16, pooling=pooling, scale=0.25).eval().double()
    scaled.load_state_dict(plain.state_dict())
    images = torch.randn(2, 3, 32, 16, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(scaled(images), 0.25 * plain(images), atol=2e-6, rtol=0)  # GeM clamps at 1e-6
        torch.testing.assert_close(scaled.maps(images), 0.25 * plain.maps(images))


@pytest.mark.parametrize(("name", "value"), [("scale", 0), ("pooling", "max")])
def test_invalid_settings_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=f"{name} is {value!r}"):
        Embedder("small", **{name: value})
