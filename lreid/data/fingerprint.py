"""Fingerprints of a benchmark's training and test data; lreid compares only results with equal fingerprints."""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import PurePath
from typing import Any

from lreid.data.datasets import file_of, image_scheme
from lreid.data.records import Benchmark, QueryGallery, Record, grouped
from lreid.errors import InputError
from lreid.utils.reading import read_bytes

SAMPLE = 1000  # number of files whose content is hashed


def protocol_fingerprint(benchmark: Benchmark) -> str:
    """Compute the fingerprint of a benchmark's protocol: twelve hexadecimal digits.

    The fingerprint depends on the images, identities and labels of every task, and on the order of tasks. For each test
    set, the fingerprint also depends on the name, kind and first task; on the query and gallery images with identities
    and cameras; on splits and tracks; and on whether Rank-k is single-shot. Images are identified by their file names,
    so the fingerprint does not depend on the folder of the data or the titles of tasks.

    The fingerprint does not cover how scores are computed (AP, camera filter, metric). Compute the fingerprint before
    joint training merges the tasks (:func:`lreid.data.tasks.merge_tasks`), because merging changes it.
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

    The digits depend on the size of every file, and on the content of ``SAMPLE`` evenly spaced files, because reading
    all files would take minutes. For the data that come with lreid, the digits depend on all bytes. For synthetic
    images, the digits depend on the addresses, which determine the images.
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
