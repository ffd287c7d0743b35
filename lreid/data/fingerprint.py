"""Fingerprint what a benchmark trains and tests on, so that unlike figures are not compared."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

from lreid.data.records import Benchmark, QueryGallery, Record
from lreid.data.schemes import file_of, image_scheme
from lreid.errors import InputError
from lreid.reading import read_bytes

SAMPLE = 1000  # files whose content counts


def protocol_fingerprint(benchmark: Benchmark) -> str:
    """Twelve hexadecimal digits that differ when the protocol does.

    It covers the images, identities and labels of every task in order, and for every test set its name, kind, first
    task, query and gallery images with identities and cameras, splits, tracks and single shots. An image counts by its
    file name, so the folder that holds the data makes no difference; neither do the titles of tasks.

    The way of scoring (AP, camera filter, metric) is not part of it. Joint training of merged tasks
    (:func:`lreid.data.tasks.merge_tasks`) is another protocol: take the fingerprint before merging.
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
            # named only where there are some, so that fingerprints of all other test sets stay as they were
            | ({"tracks": _tracks(test)} if test.tracks else {})
            | ({"single_shot": True} if test.single_shot else {})
            for test in benchmark.tests
        ],
    }
    text = json.dumps(description, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def content_fingerprint(records: Sequence[Record]) -> str:
    """Twelve hexadecimal digits that differ when images are replaced under the same names.

    The size of every file counts, and the bytes of ``SAMPLE`` of them, evenly spread: to read all would take minutes.
    Of those that come with lreid all do; synthetic ones follow from their addresses.
    """
    digest = hashlib.sha256()
    paths = sorted({record.path for record in records})
    stride = max(1, len(paths) // SAMPLE)
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
        except (InputError, OSError, ValueError):  # no such file, no file, or none can have such a name
            digest.update(b"missing")
    return digest.hexdigest()[:12]


def _described(records: Iterable[Record]) -> list[list[Any]]:
    """The records whose order does not matter, without the folders that they are in."""
    return sorted([[_file_name(path), pid, camid] for path, pid, camid in records])


def _tracks(test: QueryGallery) -> list[list[str]]:
    """The images of every track; how tracks are numbered does not matter."""
    tracks: dict[int, list[str]] = {}
    for record, track in zip(test.gallery, test.tracks, strict=True):
        tracks.setdefault(track, []).append(_file_name(record.path))
    return sorted(sorted(files) for files in tracks.values())


def _file_name(path: str) -> str:
    """Without its folder; with the angle where the image is rotated."""
    file = file_of(path)
    return path if file is None else path.removesuffix(file) + PurePath(file).name
