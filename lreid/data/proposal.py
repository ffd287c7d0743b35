"""Propose settings that suit the images: the batch size and the input size of the network."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import sqrt
from operator import itemgetter
from statistics import median
from typing import NamedTuple

from PIL import Image

from lreid.data.records import DataSet
from lreid.errors import ArgumentError, counted
from lreid.utils.reading import require_regular

LARGEST, FEWEST = 24, 2  # maximum and minimum number of identities per batch
IMAGES = (2, 5)  # minimum and maximum number of images per identity in a batch
SAMPLE = 200  # approximate number of images whose size is read
UPRIGHT = 1.5  # minimum height over width of an upright image, as images of people are
STEP = 16  # pixels; a square input is a multiple of this, because networks halve an image several times
TURNED = (5, 6, 7, 8)  # EXIF orientations that swap width and height
ORIENTATION = 0x0112


@dataclass(frozen=True)
class Proposal:
    """Proposed training settings for data sets.

    Attributes:
        tasks: number of tasks per data set.
        identities, images: identities per batch, and images per identity.
        height, width: size of the network's input, pixels.
        ratio: median ratio of height to width of the images, or None if no image can be read.
    """

    tasks: int
    identities: int
    images: int
    height: int
    width: int
    ratio: float | None

    def keys(self) -> dict[str, int]:
        """Return the settings as config keys, both for methods with episodes and for methods with P x K batches."""
        return {
            "BENCHMARK.TASKS_PER_DATASET": self.tasks,
            "EPISODE.IDENTITIES": self.identities,
            "EPISODE.SUPPORT": self.images - 1,
            "EPISODE.QUERY": 1,
            "BATCH.IDENTITIES": self.identities,
            "BATCH.IMAGES": self.images,
            "INPUT.HEIGHT": self.height,
            "INPUT.WIDTH": self.width,
        }


def propose(
    data_sets: Sequence[DataSet], *, tasks: int = 1, pool: bool = False, height: int = 64, width: int = 32
) -> Proposal:
    """Propose training settings that suit given data sets.

    A batch contains at most 24 identities, and all batches of an epoch have about the same number of identities. The
    number of images per identity in a batch is the median over the identities, but at least 2 and at most 5. The
    network's input is upright, square or wide, like most of the images, and has about ``height`` x ``width`` pixels.

    Args:
        data_sets: data sets with training images.
        tasks: number of tasks into which each data set is cut.
        pool: whether to merge all data sets before cutting them into ``tasks`` tasks.
        height, width: input size in pixels of the initial network, for upright images.

    Raises:
        ArgumentError: a task would have fewer than two identities.
    """
    counts = [Counter((number, record.pid) for record in each.train) for number, each in enumerate(data_sets)]
    names = [each.name for each in data_sets]
    if pool:
        counts, names = [Counter(chain.from_iterable(count.elements() for count in counts))], ["+".join(names)]
    short, number = min(zip(names, map(len, counts), strict=True), key=itemgetter(1))
    smallest = number // tasks
    if smallest < FEWEST:
        raise ArgumentError(
            "tasks",
            f"is {tasks}, but {short} has {counted(number, 'identity')} to train on, and a task needs two or more; "
            "lower it, or add identities",
        )
    each = int(median(images for count in counts for images in count.values()))
    typical = typical_size(data_sets)
    ratio = typical and typical.ratio
    if ratio is not None and ratio < UPRIGHT:
        side = STEP * max(round(sqrt(height * width) / STEP), 1)
        height, width = (side, side) if ratio > 1 / UPRIGHT else (width, height)
    batches = -(-smallest // LARGEST)
    images = min(max(each, IMAGES[0]), IMAGES[1])
    return Proposal(tasks, smallest // batches, images, height, width, ratio)


class Size(NamedTuple):
    """Size of an image, by its number of pixels and its ratio of height to width."""

    pixels: float
    ratio: float


def typical_size(data_sets: Sequence[DataSet]) -> Size | None:
    """Compute the median size of the training images, from a sample if there are many; None without images.

    Only the headers of image files are read. Unreadable files are skipped here, because decoding them raises an error
    later.
    """
    records = [record for data_set in data_sets for record in data_set.train]
    stride = max(len(records) // SAMPLE, 1)
    sizes = list(chain.from_iterable(_size(record.path) for record in records[::stride]))
    return Size(*map(median, zip(*sizes, strict=True))) if sizes else None


def _size(path: str) -> list[Size]:
    """Return the size of an image after its EXIF rotation, in a list that is empty if the file cannot be read."""
    try:
        require_regular(path)
        with Image.open(path) as image:
            width, height = image.size
            turned = image.getexif().get(ORIENTATION) in TURNED
    except Exception:  # PIL raises many kinds of exceptions for damaged files
        return []
    if not (width and height):
        return []
    return [Size(height * width, width / height if turned else height / width)]
