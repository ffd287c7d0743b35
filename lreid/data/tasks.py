"""Build a lifelong benchmark from data sets: split identities into tasks, and make test sets of the test splits.

The fingerprints of a benchmark identify its protocol and its images; lreid compares only results with equal
fingerprints.
"""

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
from pathlib import PurePath
from typing import Any, Literal

import numpy as np

from lreid.data.datasets import DEV, Sources, file_of, find_dataset, image_scheme, load_datasets, split_count
from lreid.data.records import (
    Benchmark,
    DataSet,
    Names,
    NotThere,
    QueryGallery,
    Record,
    Task,
    grouped,
    trained_and_tested,
)
from lreid.errors import ArgumentError, InputError, counted
from lreid.utils.identities import UNKNOWN
from lreid.utils.reading import read_bytes

logger = logging.getLogger("lreid")

HASHED = 1000  # number of files whose content a fingerprint covers
BEFORE = "before"  # name of the task, without images, that stands for all training before a run
Splits = Sequence[DataSet]  # the random splits of one data set, which differ in train and test identities


@dataclass(frozen=True)
class Cut:
    """Rules for cutting the training data sets into tasks.

    Attributes:
        tasks_per_dataset: number of tasks into which lreid cuts each data set.
        pool: whether to merge all data sets into one, with one test set, before cutting.
        identities: maximum number of training identities per data set; identities with the lowest numbers are used. 0
            means all identities.
        order: order of the identities before cutting: ``"ascending"``, as in DwoPP's official split, or ``"random"``.
        order_seed: seed of the random order. The random order of a data set does not depend on other data sets.
        scenario: In ``"class-incremental"``, no two tasks share a class or identity. In ``"domain-incremental"``, every
            data set is one task, and all data sets have the same classes.
        groups: tasks of a single data set; each group is a name, followed by cameras or dates. An identity may be in
            several tasks, with the same label in all these tasks. Images that belong to no group are left out.
        group_by: ``"camera"`` or ``"date"``, see :attr:`lreid.data.records.DataSet.dates`.
    """

    tasks_per_dataset: int = 1
    pool: bool = False
    identities: int = 0
    order: str = "ascending"
    order_seed: int = 0
    scenario: str = "class-incremental"
    groups: Sequence[Sequence[Any]] = ()
    group_by: str = "camera"


@dataclass(frozen=True)
class Unseen:
    """Data sets that are used only for testing.

    Attributes:
        names: names of the data sets. A name that ends with ``?`` is left out, with a warning, if it has no folder.
        galleries: ``"separate"`` for one test set per data set, ``"merged"`` for one test set with the queries and
            galleries of all data sets, as in AKA, or ``"both"``.
        splits: maximum number of random splits per data set, over which figures are averaged. 0 means all splits (10 or
            20); 1 means only the first one, as in AKA.
    """

    names: Sequence[str] = ()
    galleries: str = "separate"
    splits: int = 0


@dataclass(frozen=True)
class Learned:
    """Data sets on which the initial model was trained; their test sets count as seen from the first task on.

    The training of the initial model counts as the first task, which has no images (:data:`BEFORE`).

    Attributes:
        names: names of the data sets, empty if they are no longer available for testing. If the run also uses a data
            set with one of these names, the test set of the earlier training is called "NAME before".
        identities: number of classes that the initial model learned.
    """

    names: Sequence[str] = ()
    identities: int = 0


def build_benchmark(
    name: str,
    train: Sequence[str],
    *,
    unseen: Unseen = Unseen(),
    learned: Learned = Learned(),
    cut: Cut = Cut(),
    sources: Sources = Sources(),  # noqa: B008
) -> Benchmark:
    """Build a sequence of tasks, and test sets of ``learned``, ``train`` and ``unseen``, in this order.

    Identities get class labels in the order of the tasks. Without ``cut.groups``, tasks share no identities.

    Args:
        name: name of the benchmark in tables.
        train: names of the training data sets, in the order of training (see
            :func:`lreid.data.datasets.load_datasets`). Of a data set with random splits, the first split is used.
        cut: rules for cutting data sets into tasks.

    Raises:
        ArgumentError: a data set occurs twice, lacks training or test images that it needs, or has fewer identities
            than tasks; a class is in two data sets of a class-incremental benchmark; or a value is invalid. The message
            names the config key to change.
        InputError: a data set cannot be loaded.
    """
    _require_allowed(train, learned, cut)
    seen = [data_set for each in train for data_set in _load_training(each, sources)]
    others = _unseen_splits(unseen, sources)
    first_splits = [versions[0] for versions in others]
    _require_usable(seen, first_splits)
    if cut.identities:
        seen = [_first_identities(data_set, cut.identities) for data_set in seen]
    shared_classes = _shared_classes(seen, cut.scenario, cut=cut.pool or cut.tasks_per_dataset > 1)
    if cut.pool and len(seen) > 1:
        seen = [pool_data_sets(name, seen)]
    tasks = [Task(0, BEFORE, ())] if learned.identities else []
    tests = _tests_before(learned, sources, {data_set.name for data_set in (*seen, *first_splits)})
    label = learned.identities
    for data_set in seen:
        if data_set.query:  # a data set without queries is trained on, but not tested
            tests.append(replace(query_gallery([data_set], "seen"), first_task=len(tasks)))
        if cut.groups:
            tasks += _group_tasks(data_set, cut, first=label, index=len(tasks))
            continue
        parts = split_identities(data_set, cut.tasks_per_dataset, order=cut.order, order_seed=cut.order_seed)
        for number, part in enumerate(parts, start=1):
            title = f"{data_set.name} {number}/{len(parts)}" if len(parts) > 1 else data_set.name
            labels = {pid: label + rank for rank, pid in enumerate(part)}
            records, held_out = (_labelled(each, labels) for each in (data_set.train, data_set.held_out))
            tasks.append(Task(len(tasks), title, records, held_out, shared_classes))
            label += len(part)
    return Benchmark(name, tuple(tasks), (*tests, *_unseen_tests(unseen, others)))


def _group_tasks(data_set: DataSet, cut: Cut, *, first: int, index: int) -> list[Task]:
    """Build one task per group of cameras or dates; labels begin at ``first``, and task numbers at ``index``."""
    by_date = cut.group_by == "date"
    if by_date and not data_set.dates:
        fault = f"is date, but {data_set.name} has no dates; docs/how-to/datasets.md explains how to add them"
        raise ArgumentError("group_by", fault)
    group_of: dict[Any, int] = {}
    for number, (name, *members) in enumerate(cut.groups):
        for member in members:
            if group_of.setdefault(member, number) != number:
                raise ArgumentError("groups", f"has {member} in {cut.groups[group_of[member]][0]} and in {name}")
    dates = data_set.dates
    images = grouped(data_set.train, lambda each: dates.get((each.pid, each.outfit)) if by_date else each.camid)
    if without := images.keys() - group_of.keys():
        names, number = ", ".join(sorted(map(str, without))), sum(len(images[member]) for member in without)
        line = "%s: left out %s, because no group has their %s: %s"
        logger.warning(line, data_set.name, counted(number, "image"), cut.group_by, names)
    labels: dict[int, int] = {}
    tasks: list[Task] = []
    for name, *members in cut.groups:
        records = [record for member in dict.fromkeys(members) for record in images.get(member, ())]
        if not records:
            raise ArgumentError("groups", f"has {name} without an image of {data_set.name}; remove it")
        for pid in _identities(records):
            labels.setdefault(pid, first + len(labels))
        tasks.append(Task(index + len(tasks), f"{data_set.name} {name}", _labelled(records, labels)))
    return tasks


def _unseen_tests(unseen: Unseen, others: Sequence[Splits]) -> Iterator[QueryGallery]:
    """Yield the test sets of unseen data sets: separate ones, a merged one, or both."""
    if unseen.galleries != "merged":
        yield from (query_gallery(versions, "unseen") for versions in others)
    if unseen.galleries != "separate" and others:
        # The splits of a data set with fewer splits than others are repeated.
        sets = [[each[split % len(each)] for each in others] for split in range(max(map(len, others)))]
        pooled = [pool_data_sets("merged unseen", versions) for versions in sets]
        yield query_gallery(pooled, "unseen" if unseen.galleries == "merged" else "merged")


def _require_allowed(train: Sequence[str], learned: Learned, cut: Cut) -> None:
    """Raise ArgumentError if arguments exclude each other, before any data set is read."""
    if not train:
        raise ArgumentError("train", "is empty; name at least one data set")
    if cut.groups and (len(train) > 1 or cut.pool or cut.identities or cut.tasks_per_dataset > 1):
        raise ArgumentError("groups", "makes the tasks of one data set with all identities; set tasks_per_dataset to 1")
    if learned.names and not learned.identities:
        raise ArgumentError("learned", "lacks the number of identities; use lreid train --from, which sets it")


def _load_training(name: str, sources: Sources) -> list[DataSet]:
    """Load data sets to train on; refuse one that trains on test identities."""
    data_sets, spec = load_datasets(name, sources), find_dataset(name)
    for data_set in data_sets:
        if both := set() if spec and spec.renumbered else trained_and_tested(data_set):
            number, first = counted(len(both), "identity"), data_set.names.identity(min(both))
            fault = f"names {data_set.name}, which has {number} in training and in a test split, such as {first}"
            raise ArgumentError("train", f"{fault}; remove them from one of the two")
    return data_sets


def _unseen_splits(unseen: Unseen, sources: Sources) -> list[Splits]:
    """Load the splits of every unseen data set; a missing one whose name ends with ``?`` is left out."""
    all_splits: list[Splits] = []
    for name in unseen.names:
        plain = name.removesuffix("?")
        if plain.startswith(DEV):
            raise ArgumentError("unseen", f"names {plain}, a split of training images; write {plain.removeprefix(DEV)}")
        number = min(unseen.splits or split_count(plain), split_count(plain))
        try:
            loaded = [load_datasets(plain, sources, split=split) for split in range(number)]
        except NotThere as error:
            if plain == name:
                raise
            logger.warning("%s is left out of the unseen data sets: %s", plain, error)
        else:
            all_splits += zip(*loaded, strict=True)
    return all_splits


def _tests_before(learned: Learned, sources: Sources, taken: set[str]) -> list[QueryGallery]:
    """Build test sets from the data sets on which the initial model was trained.

    If another test set already has the name of such a data set, the name gets the suffix "before". If several of the
    earlier data sets share a name, older data sets get the suffix more than once.
    """
    data_sets = [data_set for each in learned.names for data_set in load_datasets(each, sources) if data_set.query]
    tests: list[QueryGallery] = []
    for data_set in reversed(data_sets):
        title = data_set.name
        while title in taken:
            title += " before"
        taken.add(title)
        tests.insert(0, replace(query_gallery([data_set], "seen"), name=title, first_task=0))
    return tests


def query_gallery(versions: Splits, kind: Literal["seen", "unseen", "merged"]) -> QueryGallery:
    """Build one test set from all splits of a data set; images that several splits use occur once."""
    first = versions[0]
    test = QueryGallery(
        first.name,
        kind,
        first.query,
        first.gallery,
        tracks=first.tracks,
        single_shot=first.single_shot,
        names=first.names,
        tracklets=first.tracklets,
    )
    if len(versions) == 1:
        return test
    query = tuple(sorted({record for version in versions for record in version.query}))
    gallery = tuple(sorted({record for version in versions for record in version.gallery}))
    in_query, in_gallery = ({record: i for i, record in enumerate(records)} for records in (query, gallery))
    splits = tuple(
        (tuple(in_query[r] for r in version.query), tuple(in_gallery[r] for r in version.gallery))
        for version in versions
    )
    return replace(test, query=query, gallery=gallery, splits=splits)


def split_identities(data_set: DataSet, tasks_per_dataset: int, *, order: str, order_seed: int) -> list[list[int]]:
    """Cut the training identities of a data set into tasks.

    All tasks get the same number of identities; the first task also gets the remainder. The ascending order gives
    DwoPP's split: of 751 identities, the first of ten tasks has 76, and each later task has 75. DwoPP's authors also
    used random orders but did not publish their seed.

    Returns:
        The identities of each task, as one list per task.

    Raises:
        ArgumentError: there are fewer identities than tasks, or the number of tasks is not positive.
    """
    pids = _identities(data_set.train)
    if not 1 <= tasks_per_dataset <= len(pids):
        raise ArgumentError(
            "tasks_per_dataset",
            f"is {tasks_per_dataset}; must be from 1 to {len(pids)}, the number of identities in {data_set.name}",
        )
    if order == "random":
        pids = [pids[i] for i in np.random.default_rng(order_seed).permutation(len(pids))]
    share, remainder = divmod(len(pids), tasks_per_dataset)
    cuts = [0, *(remainder + share * number for number in range(1, tasks_per_dataset + 1))]
    return [pids[start:end] for start, end in pairwise(cuts)]


def pool_data_sets(name: str, data_sets: Iterable[DataSet]) -> DataSet:
    """Merge data sets into one, and renumber identities and cameras so that no two data sets share a number.

    The merged data set ranks single images, even if one of the data sets ranks tracks or is single-shot.
    """
    splits: dict[str, list[Record]] = {"train": [], "query": [], "gallery": [], "held_out": []}
    pid_offset = camid_offset = 0
    names = Names()
    for data_set in data_sets:
        records = [*data_set.train, *data_set.query, *data_set.gallery]
        for split, merged in splits.items():
            merged += [
                each._replace(
                    pid=each.pid + pid_offset, camid=UNKNOWN if each.camid == UNKNOWN else each.camid + camid_offset
                )
                for each in getattr(data_set, split)
            ]
        names = names.behind(data_set.names, pid_offset, camid_offset)
        pid_offset += max(record.pid for record in records) + 1
        camid_offset += max(record.camid for record in records) + 1
    pooled: dict[str, Any] = {split: tuple(merged) for split, merged in splits.items()}
    return DataSet(name, **pooled, names=names)


def merge_tasks(benchmark: Benchmark) -> Benchmark:
    """Merge all tasks of a benchmark into one for joint training; all seen test sets then belong to this task."""
    records = tuple(record for task in benchmark.tasks for record in task.records)
    held_out = tuple(record for task in benchmark.tasks for record in task.held_out)
    tests = tuple(replace(test, first_task=0) if test.kind == "seen" else test for test in benchmark.tests)
    shared_classes = benchmark.tasks[0].shared_classes
    return Benchmark(benchmark.name, (Task(0, "joint", records, held_out, shared_classes),), tests)


def _shared_classes(seen: Sequence[DataSet], scenario: str, *, cut: bool) -> int:
    """Count the classes that all tasks of a domain-incremental benchmark share; 0 for class-incremental ones."""
    if scenario == "class-incremental":
        home: dict[str, str] = {}
        for data_set in seen:
            for name in data_set.classes:
                if name in home:
                    raise ArgumentError(
                        "train",
                        f"has class {name} in {home[name]} and in {data_set.name}; in a class-incremental benchmark a "
                        "class is in one task: rename it, leave one out, or set the scenario to domain-incremental",
                    )
                home[name] = data_set.name
        return 0
    if cut:
        raise ArgumentError("scenario", "is domain-incremental, where a data set is one task; do not pool or cut them")
    for data_set in seen:
        if not data_set.classes or data_set.classes != seen[0].classes:
            raise ArgumentError(
                "scenario",
                f"is domain-incremental, where all data sets have the same classes, but those of {data_set.name} are "
                f"{', '.join(data_set.classes[:3]) or 'identities'}{' …' * (len(data_set.classes) > 3)}",
            )
    return len(seen[0].classes)


def _identities(records: Iterable[Record]) -> list[int]:
    return sorted({record.pid for record in records})


def _first_identities(data_set: DataSet, number: int) -> DataSet:
    """Keep only the first identities of the training split; for classification, also limit the test splits to them."""
    chosen = set(_identities(data_set.train)[:number])
    limited = ("train", "query", "gallery", "held_out") if data_set.held_out else ("train",)
    records: dict[str, Any] = {
        split: tuple(record for record in getattr(data_set, split) if record.pid in chosen) for split in limited
    }
    return replace(data_set, classes=data_set.classes[:number], **records)


def _labelled(records: Iterable[Record], labels: Mapping[int, int]) -> tuple[Record, ...]:
    """Select the records whose identities are in ``labels``, replace identities by labels, sort by label and path."""
    chosen = [record._replace(pid=labels[record.pid]) for record in records if record.pid in labels]
    return tuple(sorted(chosen, key=lambda record: (record.pid, record.path)))


def _require_usable(seen: Sequence[DataSet], unseen: Sequence[DataSet]) -> None:
    """Raise ArgumentError if a name occurs twice, or if a data set lacks images that training or testing needs."""
    names: set[str] = set()
    for argument, data_sets in (("train", seen), ("unseen", unseen)):
        for data_set in data_sets:
            if data_set.name in names:
                advice = "name each data set once in train and unseen, or rename one"
                raise ArgumentError(argument, f"has a second data set called {data_set.name}; {advice}")
            names.add(data_set.name)
    for data_set in seen:
        if not data_set.train:
            raise ArgumentError("train", f"names {data_set.name}, which is for testing only; move it to the unseen")
    for data_set in unseen:
        if not data_set.query:
            raise ArgumentError("unseen", f"names {data_set.name}, which has no test split; add one, or leave it out")


def protocol_fingerprint(benchmark: Benchmark) -> str:
    """Compute the fingerprint of a benchmark's protocol: twelve hexadecimal digits.

    The fingerprint depends on the images, identities and labels of every task, and on the order of tasks. For each test
    set, the fingerprint also depends on the name, kind and first task; on the query and gallery images with identities
    and cameras; on splits and tracks; and on whether Rank-k is single-shot. Images are identified by their file names,
    so the fingerprint does not depend on the folder of the data or the titles of tasks.

    The fingerprint does not cover how scores are computed (AP, camera filter, metric). Compute the fingerprint before
    joint training merges the tasks (:func:`merge_tasks`), because merging changes it.
    """
    description = {
        "tasks": [_described(task.records) for task in benchmark.tasks],
        "tests": [
            {
                "name": test.name,
                "kind": test.kind,
                "first_task": test.first_task,
                "query": _described(test.query),
                "gallery": _described(test.gallery),
                "splits": [
                    [_described(test.query[i] for i in query), _described(test.gallery[i] for i in gallery)]
                    for query, gallery in test.splits
                ],
            }
            # The key exists only for tracks, so that the fingerprints of test sets without tracks stay the same.
            | ({"tracks": _tracks(test)} if test.tracks else {})
            | ({"single_shot": True} if test.single_shot else {})
            | ({"tracklets": True} if test.tracklets else {})
            for test in benchmark.tests
        ],
    }
    text = json.dumps(description, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def content_fingerprint(records: Sequence[Record]) -> str:
    """Compute twelve hexadecimal digits, which change if images are replaced by other images of the same names.

    The digits depend on the size of every file, and on the content of ``HASHED`` evenly spaced files, because reading
    all files would take minutes. For the data that come with lreid, the digits depend on all bytes. For synthetic
    images, the digits depend on the addresses, which determine the images.
    """
    digest = hashlib.sha256()
    paths = sorted({record.path for record in records})
    stride = max(1, len(paths) // HASHED)
    for place, path in enumerate(paths):
        digest.update(_file_name(path).encode(errors="surrogateescape") + b"\0")
        if scheme := image_scheme(path):
            digest.update(scheme.content(path))
        file = file_of(path)
        if file is None:
            continue
        try:
            digest.update(str(os.stat(file).st_size).encode())
            if place % stride == 0:
                digest.update(hashlib.sha256(read_bytes(file)).digest())
        except (InputError, OSError, ValueError):  # the file is missing, is not a file, or its name is impossible
            digest.update(b"missing")
    return digest.hexdigest()[:12]


def _described(records: Iterable[Record]) -> list[list[Any]]:
    """Describe records in a form that does not depend on their order or their folders."""
    return sorted([[_file_name(path), pid, camid] for path, pid, camid in records])


def _tracks(test: QueryGallery) -> list[list[str]]:
    """List the images of every track in a form that does not depend on track numbers."""
    tracks = grouped(zip(test.gallery, test.tracks, strict=True), itemgetter(1)).values()
    return sorted(sorted(_file_name(record.path) for record, _ in track) for track in tracks)


def _file_name(path: str) -> str:
    """Return the file name without its folder; for a rotated image, the name includes the angle."""
    file = file_of(path)
    return path if file is None else path.removesuffix(file) + PurePath(file).name
