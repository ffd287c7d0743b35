from dataclasses import replace

import pytest

from lreid.data.records import Benchmark, QueryGallery, Record, Task
from lreid.data.tasks import protocol_fingerprint

TASKS = (
    Task(0, "shop 1/2", (Record("/data/shop/a.jpg", 0, 1), Record("/data/shop/b.jpg", 1, 1))),
    Task(1, "shop 2/2", (Record("/data/shop/c.jpg", 2, 2),)),
)
QUERY = (Record("/data/shop/q1.jpg", 7, 1), Record("/data/shop/q2.jpg", 8, 1))
GALLERY = (Record("/data/shop/g1.jpg", 7, 2), Record("/data/shop/g2.jpg", 8, 2))
SHOP = QueryGallery("shop", "seen", QUERY, GALLERY, 0)
MALL = QueryGallery("mall", "unseen", QUERY, GALLERY, splits=(((0,), (0, 1)), ((1,), (0, 1))))
BENCHMARK = Benchmark("bench", TASKS, (SHOP, MALL))


def moved(records, folder):
    return tuple(record._replace(path=record.path.replace("/data/shop", folder)) for record in records)


def test_is_short_and_stable():
    assert protocol_fingerprint(BENCHMARK) == "5ec41248bd86"


def test_neither_folder_nor_titles_nor_order_of_records_matter():
    folder = "/home/somebody/else"
    tasks = tuple(replace(task, name="other", records=moved(task.records, folder)[::-1]) for task in TASKS)
    shop = replace(SHOP, query=moved(QUERY, folder)[::-1], gallery=moved(GALLERY, folder))
    mall = replace(MALL, query=QUERY[::-1], splits=(((1,), (0, 1)), ((0,), (1, 0))))
    assert protocol_fingerprint(Benchmark("name", tasks, (shop, mall))) == protocol_fingerprint(BENCHMARK)
    one, same, other = (
        protocol_fingerprint(replace(BENCHMARK, tests=(replace(SHOP, tracks=tracks),)))
        for tracks in ((0, 1), (7, 3), (5, 5))  # numbers of tracks do not matter either
    )
    assert one == same != other


CHANGES = {
    "order of tasks": {"tasks": TASKS[::-1]},
    "an identity fewer": {"tasks": (replace(TASKS[0], records=TASKS[0].records[:1]), TASKS[1])},
    "another label": {"tasks": (TASKS[0], replace(TASKS[1], records=(Record("/data/shop/c.jpg", 3, 2),)))},
    "one task": {"tasks": (replace(TASKS[0], records=TASKS[0].records + TASKS[1].records),)},
    "camera of the gallery": {"tests": (replace(SHOP, gallery=tuple(r._replace(camid=1) for r in GALLERY)), MALL)},
    "an image fewer": {"tests": (replace(SHOP, gallery=GALLERY[:1]), MALL)},
    "splits": {"tests": (SHOP, replace(MALL, splits=MALL.splits[:1]))},
    "no splits": {"tests": (SHOP, replace(MALL, splits=()))},
    "kind": {"tests": (SHOP, replace(MALL, kind="merged"))},
    "test sets": {"tests": (SHOP,)},
    "tracks": {"tests": (replace(SHOP, tracks=(0, 1)), MALL)},
    "single shots": {"tests": (SHOP, replace(MALL, single_shot=True))},
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_the_protocol_shows(change):
    assert protocol_fingerprint(replace(BENCHMARK, **CHANGES[change])) != protocol_fingerprint(BENCHMARK)
