import os
import random
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from lreid.data import images
from lreid.data.datasets import Scheme
from lreid.data.images import SUFFIXES, Images, read_image, require_files, typical_size
from lreid.data.records import Record
from lreid.errors import InputError, OutOfMemory


def noise(seed, height=24, width=12):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture
def records(tmp_path):
    """Five PNG files, which lose nothing; identity i on camera 0."""
    for i in range(5):
        Image.fromarray(noise(i)).save(tmp_path / f"{i}.png")
    return [Record(str(tmp_path / f"{i}.png"), i, 0) for i in range(5)]


def damage(record, how):
    file = Path(record.path)
    if how == "missing":
        file.unlink()
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "truncated":
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2])
    elif how == "text":
        file.write_text("<html>404 not found</html>")


DAMAGES = {
    "missing": r"2\.png: .*no such image",
    "empty": r"2\.png: .*0 bytes",
    "truncated": r"2\.png: .*decoded",
    "text": r"2\.png: .*decoded",
}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_suffix_that_is_listed_can_be_read(tmp_path, suffix):
    if suffix == ".avif" and "AVIF" not in images.FORMATS:
        pytest.skip("this Pillow has no AVIF")
    Image.new("RGB", (5, 9)).save(tmp_path / f"x{suffix}")
    assert read_image(tmp_path / f"x{suffix}").shape == (9, 5, 3)


def test_resize_is_pils_bicubic(records):
    expected = Image.fromarray(noise(0)).resize((16, 32), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(read_image(records[0].path, height=32, width=16), np.asarray(expected))


def test_height_without_width_raises_value_error(records):
    with pytest.raises(ValueError, match="both"):
        read_image(records[0].path, height=3)


def test_sides_longer_than_those_of_a_jpeg_are_refused_before_decoding(tmp_path):
    for size in ((1, 65_536), (65_536, 1)):
        Image.new("1", size).save(tmp_path / "narrow.png")
        with pytest.raises(InputError, match=r"narrow\.png"):
            read_image(tmp_path / "narrow.png", height=256, width=128)
    Image.new("1", (1, 65_535)).save(tmp_path / "narrow.png")
    assert read_image(tmp_path / "narrow.png").shape == (65_535, 1, 3)


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK", "I;16", "RGB"])
def test_only_larger_images_are_reduced_within_a_size(tmp_path, mode):
    image = Image.fromarray(noise(0, 300, 400))
    (image.convert("L") if mode == "I;16" else image).convert(mode).save(tmp_path / "x.tiff")
    whole = read_image(tmp_path / "x.tiff")
    assert whole.shape == (300, 400, 3)
    np.testing.assert_array_equal(read_image(tmp_path / "x.tiff", within=400), whole)
    np.testing.assert_array_equal(read_image(tmp_path / "x.tiff", within=100), whole[2::4, 2::4])


def test_image_turned_by_exif_is_reduced_within_a_size(tmp_path):
    turned = Image.Exif()
    turned[ExifTags.Base.Orientation] = 6
    Image.new("RGB", (400, 300), "red").save(tmp_path / "x.jpg", exif=turned)
    reduced = read_image(tmp_path / "x.jpg", within=100)
    assert reduced.shape == (100, 75, 3) and (reduced[..., 0] > 250).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB"])
def test_hidden_colours_of_transparent_pixels_are_black(tmp_path, mode):
    colours = np.random.default_rng(0).integers(1, 256, (8, 6, 3), np.uint8)
    opaque = Image.fromarray(colours).convert(mode)
    if mode in ("RGBA", "LA"):
        half = Image.fromarray(np.repeat([[255, 255, 255, 0, 0, 0]], 8, axis=0).astype(np.uint8))
        opaque.putalpha(half)
        shown = np.array(opaque.convert("RGB")) * (np.arange(6) < 3)[None, :, None]
        opaque.save(tmp_path / "x.png")
    else:  # one colour is transparent
        hidden = opaque.getpixel((0, 0))
        shown = np.array(opaque.convert("RGB")) * (np.array(opaque).reshape(8, 6, -1) != hidden).any(2)[..., None]
        opaque.save(tmp_path / "x.png", transparency=hidden)
    np.testing.assert_array_equal(read_image(tmp_path / "x.png"), shown)
    Image.fromarray(colours).convert("RGBA").save(tmp_path / "opaque.png")
    np.testing.assert_array_equal(read_image(tmp_path / "opaque.png"), colours)


DEEP = np.array([[0, 255, 256], [12_345, 40_000, 65_535]])  # grey values of 16 bits
SCALED = np.stack([np.array([[0, 0, 1], [48, 156, 255]])] * 3, -1)


@pytest.mark.parametrize(
    ("name", "kind"), [("x.png", np.uint16), ("x.tiff", np.uint16), ("x.tiff", np.dtype(">u2")), ("x.ppm", np.int32)]
)
def test_grey_values_of_16_bits_are_scaled(tmp_path, name, kind):
    Image.fromarray(DEEP.astype(kind)).save(tmp_path / name)
    np.testing.assert_array_equal(read_image(tmp_path / name), SCALED)


def test_png_in_mode_I_is_scaled(tmp_path, monkeypatch):
    Image.fromarray(DEEP.astype(np.uint16)).save(tmp_path / "x.png")
    opened = Image.open

    def of_32_bits(path, formats):
        image = opened(path, formats=formats).convert("I")
        image.format = "PNG"
        return image

    monkeypatch.setattr(images.Image, "open", of_32_bits)
    np.testing.assert_array_equal(read_image(tmp_path / "x.png"), SCALED)


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_grey_values_of_unknown_range_are_refused(tmp_path, kind):
    Image.fromarray((DEEP * 9).astype(kind)).save(tmp_path / "x.tiff")
    with pytest.raises(InputError, match=r"x\.tiff: .*8 bits"):
        read_image(tmp_path / "x.tiff")


@pytest.mark.parametrize(("orientation", "turns"), [(1, 0), (3, 2), (6, -1), (8, 1)])
def test_exif_orientation_is_applied(tmp_path, orientation, turns):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    corners = np.zeros((32, 16, 3), np.uint8)
    corners[:8, :8] = 255
    Image.fromarray(corners).save(tmp_path / "x.jpg", exif=exif, quality=95)
    np.testing.assert_allclose(read_image(tmp_path / "x.jpg"), np.rot90(corners, turns), atol=8)


def test_damaged_exif_does_not_rotate_the_image(tmp_path):
    Image.fromarray(noise(0)).save(tmp_path / "x.png", exif=b"Exif\0\0no such block")
    np.testing.assert_array_equal(read_image(tmp_path / "x.png"), noise(0))


@pytest.mark.parametrize("how", DAMAGES)
def test_bad_file_is_named_with_the_remedy(records, how):
    """The remedy is an argument of the called function, which ``read_image`` lacks."""
    damage(records[2], how)
    for read, has_argument in (
        (lambda: read_image(records[2].path), False),
        (lambda: Images(records, height=16, width=8), True),
        (lambda: Images(records, height=16, width=8, cache_gib=0)[2], True),
    ):
        with pytest.raises(InputError, match=DAMAGES[how]) as error:
            read()
        assert str(error.value).count("skip_bad=True") == has_argument


def test_truncated_jpeg_raises_an_error(tmp_path):
    whole, part = tmp_path / "whole.jpg", tmp_path / "part.jpg"
    Image.fromarray(noise(0, 64, 32)).save(whole)
    content = whole.read_bytes()
    for length in random.Random(0).sample(range(1, len(content) - 2), 30):
        part.write_bytes(content[:length])
        with pytest.raises(InputError, match="part.jpg"):
            read_image(part)


def test_a_folder_is_no_image(tmp_path):
    with pytest.raises(InputError, match=str(tmp_path)):
        read_image(tmp_path)


def test_images_of_a_scheme_are_read_by_it(monkeypatch):
    monkeypatch.setattr("lreid.data.synthetic.SCHEME", Scheme(list, lambda address: noise(int(address[10:]))))
    np.testing.assert_array_equal(read_image("synthetic:7"), noise(7))
    assert read_image("synthetic:7", height=10, width=6).shape == (10, 6, 3)
    require_files([Record("synthetic:7", 0, 0)])
    assert Images([Record("synthetic:7", 0, 0)], height=10, width=6, cache_gib=0)[0].shape == (10, 6, 3)


@pytest.mark.parametrize("workers", [None, 1, 3])
@pytest.mark.parametrize("cache_gib", [4.0, 0.0])
def test_images_are_those_of_read_image_in_order(records, cache_gib, workers):
    loaded = Images(records, height=16, width=8, cache_gib=cache_gib, workers=workers)
    assert len(loaded) == 5
    assert loaded.records == tuple(records)
    assert loaded.skipped == []
    for record, image in zip(records, loaded, strict=True):
        assert image.dtype == np.uint8
        np.testing.assert_array_equal(image, read_image(record.path, height=16, width=8))
    for rows in (slice(1, 4), slice(4, None), slice(None, None, -2)):
        np.testing.assert_array_equal(loaded[rows], np.stack(list(loaded))[rows])


@pytest.mark.parametrize(
    ("cache_gib", "kept"), [(5 * 16 * 8 * 3 / 2**30, True), (5 * 16 * 8 * 3 / 2**30 - 1e-9, False)]
)
def test_the_cache_is_bounded(records, cache_gib, kept):
    loaded = Images(records, height=16, width=8, cache_gib=cache_gib)
    damage(records[3], "missing")
    if kept:
        assert loaded[3].shape == (16, 8, 3)
    else:
        with pytest.raises(InputError, match=r"3\.png"):
            loaded[3]


def test_cached_images_are_read_only(records):
    loaded = Images(records, height=16, width=8)
    with pytest.raises(ValueError, match="read-only"):
        loaded[0][:] = 0


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("cache_gib", [4.0, 0.0])
def test_bad_files_stop_or_are_left_out(records, how, cache_gib):
    damage(records[2], how)
    damage(records[0], "empty")
    with pytest.raises(InputError, match=r"0\.png"):  # the first in the order of the records
        Images(records, height=16, width=8, cache_gib=cache_gib)
    loaded = Images(records, height=16, width=8, cache_gib=cache_gib, skip_bad=True)
    assert loaded.skipped == [records[0].path, records[2].path]
    assert loaded.records == (records[1], records[3], records[4])
    for record, image in zip(loaded.records, loaded, strict=True):
        np.testing.assert_array_equal(image, read_image(record.path, height=16, width=8))


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_missing_files_are_found_by_the_constructor(records, how):
    damage(records[4], how)
    with pytest.raises(InputError, match=r"4\.png"):
        require_files(records)
    require_files(records[:4])


def test_the_first_bad_file_ends_the_reading(records, monkeypatch):
    damage(records[0], "empty")
    read = []
    monkeypatch.setattr(images, "decode", lambda path: read.append(path) or Image.new("RGB", (8, 16)))
    with pytest.raises(InputError, match=r"0\.png"):
        Images([records[0], *records[1:] * 500], height=16, width=8, workers=1)
    assert len(read) < 2000


def test_skipping_every_image_raises_an_error(records):
    for record in records:
        damage(record, "empty")
    with pytest.raises(InputError, match=r"0\.png.*empty"):
        Images(records, height=16, width=8, skip_bad=True)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not list threads")
def test_decoding_threads_have_ended_before_a_fork(records):
    """It would hold a lock of OpenCV, and the process would hang."""
    Images(records, height=16, width=8)  # libraries begin theirs
    before = set(os.listdir("/proc/self/task"))
    for _ in range(40):
        Images(records, height=16, width=8)
        assert set(os.listdir("/proc/self/task")) <= before


@pytest.mark.parametrize(
    ("fault", "kind", "named"),
    [
        (PermissionError(13, "Permission denied"), InputError, "Permission denied"),
        (MemoryError(), OutOfMemory, "memory"),
    ],
)
def test_intact_file_is_neither_called_damaged_nor_skipped(tmp_path, monkeypatch, fault, kind, named):
    path = tmp_path / "a.png"
    Image.new("RGB", (8, 16)).save(path)

    def load(self):
        raise fault

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    for skip_bad in (True, False)[kind is InputError :]:
        with pytest.raises(kind, match=f"a.png: .*{named}"):
            Images([Record(str(path), 0, 0)], height=16, width=8, skip_bad=skip_bad)


@pytest.mark.parametrize(("orientation", "ratio"), [(1, 0.4), (3, 0.4), (6, 2.5)])
def test_sizes_are_those_of_rotated_images(tmp_path: Path, orientation: int, ratio: float) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    Image.new("RGB", (100, 40)).save(tmp_path / "a.jpg", exif=exif)
    assert typical_size([Record(str(tmp_path / "a.jpg"), 0, 0)]) == (4000, pytest.approx(ratio))


def test_typical_size_is_the_median_of_the_readable_images(tmp_path: Path) -> None:
    for number, size in enumerate([(10, 20), (10, 21), (900, 9)]):
        Image.new("RGB", size).save(tmp_path / f"{number}.png")
    (tmp_path / "3.png").write_bytes(b"\xff\xd8\xff no image")
    records = [Record(str(tmp_path / f"{number}.png"), 0, 0) for number in range(5)]
    assert typical_size(records) == (210, pytest.approx(2.0))
    assert typical_size(records[3:]) is None
