"""Settings that follow from the images: batches of even size, and the shape of the input."""

from pathlib import Path

import pytest
from PIL import Image

from lreid.data.proposal import ORIENTATION, propose, typical_size
from lreid.data.records import DataSet, Record
from lreid.errors import InputError


def of(folder: Path, sizes: list[tuple[int, int]], *, each: int = 1, orientation: int | None = None) -> DataSet:
    """A data set with an identity for each size, width and height, of so many images."""
    records = []
    for pid, size in enumerate(sizes):
        file = folder / f"{pid}.jpg"
        exif = Image.Exif()
        if orientation:
            exif[ORIENTATION] = orientation
        Image.new("RGB", size).save(file, exif=exif)
        records += [Record(str(file), pid, 0)] * each
    return DataSet("own", tuple(records), (), ())


@pytest.mark.parametrize(
    ("identities", "tasks", "batch"), [(5, 1, 5), (24, 1, 24), (30, 1, 15), (49, 1, 16), (49, 5, 9), (6, 3, 2)]
)
def test_batches_of_a_task_are_of_even_size(tmp_path: Path, identities: int, tasks: int, batch: int) -> None:
    proposal = propose([of(tmp_path, [(8, 16)] * identities)], tasks=tasks)
    assert (proposal.identities, proposal.tasks) == (batch, tasks)


def test_the_smallest_task_decides(tmp_path: Path) -> None:
    small, large = of(tmp_path, [(8, 16)] * 4), of(tmp_path, [(8, 16)] * 20)
    assert propose([large, small]).identities == 4
    with pytest.raises(InputError, match="tasks is 5, but own has 4 identities to train on, and a task needs two"):
        propose([large, small], tasks=5)


def test_sets_that_are_pooled_are_cut_together(tmp_path: Path) -> None:
    small, large = of(tmp_path, [(8, 16)] * 4), of(tmp_path, [(8, 16)] * 20)
    assert propose([large, small], pool=True).identities == 24
    assert propose([large, small], tasks=5, pool=True).identities == 4
    with pytest.raises(InputError, match=r"tasks is 13, but own\+own has 24 identities to train on"):
        propose([large, small], tasks=13, pool=True)


@pytest.mark.parametrize(("each", "images"), [(1, 2), (2, 2), (3, 3), (5, 5), (50, 5)])
def test_as_many_images_of_an_identity_as_most_have(tmp_path: Path, each: int, images: int) -> None:
    keys = propose([of(tmp_path, [(8, 16)] * 4, each=each)]).keys()
    assert keys["BATCH.IMAGES"] == keys["EPISODE.SUPPORT"] + keys["EPISODE.QUERY"] == images


@pytest.mark.parametrize(
    ("size", "started", "wanted"),
    [
        ((40, 100), (64, 32), (64, 32)),  # people
        ((60, 90), (64, 32), (64, 32)),
        ((100, 100), (64, 32), (48, 48)),
        ((100, 80), (256, 128), (176, 176)),
        ((200, 100), (64, 32), (32, 64)),  # cars from the side
    ],
)
def test_the_input_has_the_shape_of_the_images(tmp_path: Path, size, started, wanted) -> None:
    proposal = propose([of(tmp_path, [size] * 3)], height=started[0], width=started[1])
    assert (proposal.height, proposal.width) == wanted
    assert proposal.ratio == pytest.approx(size[1] / size[0])


def test_images_count_as_they_are_seen(tmp_path: Path) -> None:
    for orientation, ratio in ((6, 2.5), (3, 0.4)):
        size = typical_size([of(tmp_path, [(100, 40)], orientation=orientation)])
        assert size is not None and size.ratio == pytest.approx(ratio) and size.pixels == 4000


def test_one_odd_image_or_one_that_cannot_be_read_makes_no_difference(tmp_path: Path) -> None:
    data_set = of(tmp_path, [(10, 20), (10, 21), (900, 9)])
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff no image")
    records = [*data_set.train, Record(str(tmp_path / "broken.jpg"), 9, 0), Record(str(tmp_path / "gone.jpg"), 9, 0)]
    size = typical_size([DataSet("x", tuple(records), (), ())])
    assert size is not None and size.ratio == pytest.approx(2.0) and size.pixels == 210
    unread = [DataSet("x", (*records[3:], records[4]._replace(pid=8)), (), ())]
    assert typical_size(unread) is None and propose(unread).ratio is None
