"""Images and data sets turned by an angle."""

from pathlib import Path

import numpy as np
import pytest
from class_archives import squares, write_mnist
from PIL import Image
from plain_benchmark import plain

from lreid.data.datasets import Sources, load_datasets
from lreid.data.images import Images, read_image, require_files
from lreid.data.records import Record
from lreid.data.tasks import content_fingerprint, protocol_fingerprint
from lreid.errors import InputError

DIGITS = squares(3, train=2, test=2, size=28)


@pytest.fixture
def image_file(tmp_path: Path) -> str:
    Image.fromarray(DIGITS["train"][0][0]).save(tmp_path / "a.png")
    return str(tmp_path / "a.png")


def test_a_quarter_turn_is_a_quarter_turn_and_corners_are_black(image_file: str) -> None:
    plain = read_image(image_file)
    assert np.array_equal(read_image(f"rotated:0.0:{image_file}"), plain)
    assert np.array_equal(read_image(f"rotated:90.0:{image_file}"), np.rot90(plain))
    assert np.array_equal(read_image(f"rotated:180.0:{image_file}"), plain[::-1, ::-1])
    assert (read_image(f"rotated:45.0:{image_file}")[[0, 0, -1, -1], [0, -1, 0, -1]] == 0).all()
    assert read_image(f"rotated:45.0:{image_file}", height=8, width=6).shape == (8, 6, 3)


def test_a_stream_of_domains(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", DIGITS)
    changes = {"root": tmp_path, "scenario": "domain-incremental"}
    names = ["rotated:0:mnist", "rotated:30.5:mnist"]
    benchmark = plain(train=names, **changes)
    assert [task.name for task in benchmark.tasks] == ["mnist 0°", "mnist 30.5°"]
    assert [task.classes for task in benchmark.tasks] == [[0, 1, 2], [3, 4, 5]]
    records = [record for task in benchmark.tasks for record in (*task.records, *task.held_out)]
    require_files(records)
    images = Images(records, height=28, width=28)
    assert len({image.tobytes() for image in images}) == len(records)  # another image at another angle
    other = plain(train=["rotated:0:mnist", "rotated:31:mnist"], **changes)
    assert protocol_fingerprint(benchmark) != protocol_fingerprint(other)
    assert content_fingerprint(benchmark.tasks[1].records) != content_fingerprint(other.tasks[1].records)


def test_files_behind_the_angle_count(image_file: str, tmp_path: Path) -> None:
    record = Record(f"rotated:10.0:{image_file}", 0, 0)
    before = content_fingerprint([record])
    turned = Images([record], height=28, width=28)[0]
    assert not np.array_equal(Images([Record(f"rotated:20.0:{image_file}", 0, 0)], height=28, width=28)[0], turned)
    Image.fromarray(DIGITS["train"][0][1]).save(image_file)
    assert content_fingerprint([record]) != before
    Path(image_file).unlink()
    with pytest.raises(InputError, match=f"^{image_file}: no such image"):
        require_files([record])


@pytest.mark.parametrize("angle", ["", "north", "nan", "inf"])
def test_invalid_angle_raises_an_error(angle: str, tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", DIGITS)
    with pytest.raises(InputError, match=f"rotated:{angle}: "):
        load_datasets(f"rotated:{angle}:mnist", Sources(tmp_path))
    with pytest.raises(InputError, match="minst: .*mnist"):
        load_datasets("rotated:3:minst", Sources(tmp_path))
