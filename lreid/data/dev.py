"""Development splits: ``dev:NAME`` tests on training identities, so that choices never see the official test split.

``dev:NAME`` uses only the training split of the data set NAME. A share of its identities is held out for testing; of
their images, the first one of each camera is a query, and the others are the gallery. All other identities are for
training. For image classification, where every class is trained, the same share of each class's images is held out.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

from lreid.data.datasets import DEV, Scheme, Sources, find_dataset, load_datasets
from lreid.data.records import DataSet, Record, cameras_of_test, grouped
from lreid.errors import ArgumentError, InputError, counted
from lreid.utils.identities import UNKNOWN

T = TypeVar("T")


def dev_split(data_set: DataSet, sources: Sources = Sources()) -> DataSet:  # noqa: B008 (frozen)
    """Hold out a share of a training split for testing.

    Args:
        data_set: a data set, whose test splits are ignored.
        sources: ``sources.dev_share`` is the share to hold out, rounded up to whole identities (for classification, to
            whole images of each class). ``random.Random(sources.split_seed)`` draws them from the ascending identities.

    Returns:
        The data set ``NAME-dev``. A held-out identity whose images all come first on their cameras has a single query.

    Raises:
        InputError: there are no training images.
        ArgumentError: the share leaves no identity to train on, or no query with a match.
    """
    name = f"{DEV}{data_set.name}"
    generator = random.Random(sources.split_seed)

    def drawn(items: Sequence[T]) -> list[T]:
        return generator.sample(items, math.ceil(sources.dev_share * len(items)))

    held_back = f"is {sources.dev_share:g}, so {name} holds out"
    images = dict(sorted(grouped(data_set.train, attrgetter("pid")).items()))
    if not images:
        raise InputError(f"{name}: {data_set.name} has no training images; name a data set that has some")
    if data_set.classes:
        tested = {pid: drawn(each) for pid, each in images.items()}
        parts = [(each[::2], each[1::2]) for each in map(sorted, tested.values())]
    else:
        tested = {pid: images[pid] for pid in drawn(list(images))}
        parts = [_first_of_cameras(tested[pid]) for pid in sorted(tested)]
    without = {record for each in tested.values() for record in each}
    train = tuple(record for record in data_set.train if record not in without)
    if len({record.pid for record in train}) < (len(images) if data_set.classes else 1):
        kind = "all images of a class" if data_set.classes else f"all of {counted(len(images), 'identity')}"
        raise ArgumentError("dev_share", f"{held_back} {kind}, and none is left for training; lower it or add images")
    if not any(gallery for _, gallery in parts):
        raise ArgumentError("dev_share", f"{held_back} one image per identity, and no query has a match; raise it")
    query, gallery = (tuple(chain.from_iterable(split)) for split in zip(*parts, strict=True))
    if not data_set.has_cameras:
        camids = cameras_of_test(sources.cameras)
        query = tuple(record._replace(camid=camids["query"]) for record in query)
        gallery = tuple(record._replace(camid=camids["gallery"]) for record in gallery)
    held_out = tuple(sorted(query + gallery)) if data_set.classes else ()
    own: dict[str, Any] = {"train": train, "query": query, "gallery": gallery, "held_out": held_out}
    return replace(data_set, name=f"{data_set.name}-dev", tracks=(), single_shot=False, **own)


def _first_of_cameras(images: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Divide the images of an identity: the first image (or tracklet) of each camera is a query."""
    units = [*grouped(images, lambda each: each.path if each.tracklet == UNKNOWN else each.tracklet).values()]
    first = [of_camera[0] for of_camera in grouped(units, lambda unit: unit[0].camid).values()]
    queries = [record for unit in (first if len(first) < len(units) else first[:1]) for record in unit]
    return queries, [record for record in images if record not in queries]


def _load_named(name: str, sources: Sources, split: int) -> list[DataSet]:
    if spec := find_dataset(name):  # the official test split need not be there
        data_sets = [spec.load_training(sources.root, split=split, seed=sources.split_seed, cameras=sources.cameras)]
    else:
        data_sets = load_datasets(name, sources, split=split)
    return [dev_split(data_set, sources) for data_set in data_sets]


SCHEME = Scheme(_load_named)
