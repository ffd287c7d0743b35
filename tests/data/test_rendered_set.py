"""The rendered people that come with lreid: what is in the archive, and that it is read like files."""

import json
import zipfile

import numpy as np
import pytest

import lreid.classification  # noqa: F401, registers the scheme rotated:
from lreid.build import benchmark_of
from lreid.config import check_values, load_config
from lreid.data.datasets import Sources, load_datasets
from lreid.data.images import Images, read_image, require_files
from lreid.data.rendered_set import ARCHIVE, domains, load_rendered, read_rendered
from lreid.data.tasks import content_fingerprint
from lreid.errors import InputError

SIZE = {"height": 128, "width": 64}


def test_archive_contains_the_rendered_domains() -> None:
    assert ARCHIVE.stat().st_size < 16e6
    with zipfile.ZipFile(ARCHIVE) as archive:
        assert archive.testzip() is None
        plan = json.loads(archive.read("render.json"))
        names = set(archive.namelist()) - {"index.csv", "render.json"}
    assert len(domains()) == plan["domains"] == 6
    paths = set()
    for domain in domains():
        data = load_rendered(domain)
        people = {split: {record.pid for record in getattr(data, split)} for split in ("train", "query", "gallery")}
        assert len(people["train"]) == plan["train_identities"]
        assert people["query"] == people["gallery"] and len(people["query"]) == plan["test_identities"]
        assert not people["train"] & people["query"]
        seen = {(record.pid, record.camid) for record in data.gallery}
        for query in data.query:
            assert any(pid == query.pid and camid != query.camid for pid, camid in seen)
        assert len({record.camid for record in data.train}) >= 2
        paths |= {record.path.replace("rendered:", "images/") for record in (*data.train, *data.query, *data.gallery)}
    assert paths == names


def test_images_are_read_like_files() -> None:
    (data,) = load_datasets(f"rendered:{domains()[0]}", Sources("nowhere"))
    records = data.query[:3]
    require_files(records)
    images = Images(records, **SIZE)
    for image, record in zip(images, records, strict=True):
        assert image.shape == (128, 64, 3) and image.std() > 5
        assert np.array_equal(image, read_image(record.path))
    assert not np.array_equal(images[0], images[1])
    (turned,) = load_datasets(f"rotated:180:rendered:{domains()[0]}", Sources("nowhere"))
    require_files(turned.query)
    assert np.array_equal(read_image(turned.query[0].path), images[0][::-1, ::-1])


def test_no_two_images_are_the_same_and_other_ones_have_another_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    records = load_rendered(domains()[1]).query
    assert len({read_rendered(record.path) for record in records}) == len(records)
    before = content_fingerprint(records)
    monkeypatch.setattr("lreid.data.rendered_set.read_rendered", lambda path: b"another renderer")
    assert content_fingerprint(records) != before


def test_unknown_domain_names_the_nearest() -> None:
    with pytest.raises(InputError, match="^rendered:hal-1: .*nearest name is rendered:hall-1"):
        load_rendered("hal-1")
    with pytest.raises(InputError, match="^rendered:hall-1/test/x.jpg: "):
        read_image("rendered:hall-1/test/x.jpg")


@pytest.mark.parametrize(("name", "tasks", "people"), [("rendered-domains", 4, 80), ("rendered-10", 10, 32)])
def test_the_benchmarks(name: str, tasks: int, people: int) -> None:
    cfg = load_config([name])
    check_values(cfg)
    benchmark = benchmark_of(cfg)
    assert benchmark.name == name and [len(task.classes) for task in benchmark.tasks] == tasks * [people]
    kinds = [test.kind for test in benchmark.tests]
    assert kinds.count("unseen") == 2 and kinds.count("seen") == (4 if name == "rendered-domains" else 1)
    records = [record.path for task in benchmark.tasks for record in task.records]
    assert len(set(records)) == len(records) == tasks * people * 6
    assert not set(records) & {record.path for test in benchmark.tests for record in (*test.query, *test.gallery)}
