import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_benchmark import plain

from lreid.data import tasks
from lreid.data.records import DataSet, Names, Record
from lreid.data.tasks import merge_tasks, pool_data_sets, split_identities
from lreid.errors import ArgumentError


def make_data_set(name, pids, shuffle=None):
    """Two training images of every identity, one query and two gallery images of two others."""
    train = [Record(f"{name}/train/{pid:05d}_{camid}", pid, camid) for pid in pids for camid in (1, 2)]
    if shuffle is not None:
        random.Random(shuffle).shuffle(train)
    query = (Record(f"{name}/query/1", 2001, 1), Record(f"{name}/query/3", 2003, 2))
    gallery = (
        Record(f"{name}/gallery/0", 0, 6),
        Record(f"{name}/gallery/1", 2001, 2),
        Record(f"{name}/gallery/3", 2003, 1),
    )
    return DataSet(name, tuple(train), query, gallery)


# the numbers of training identities of the published data sets, with gaps as in theirs
SETS = {
    "market": make_data_set("market", range(2, 1503, 2)),  # 751
    "msmt": make_data_set("msmt", range(1041)),
    "veri": make_data_set("veri", range(1, 577)),
    "small": make_data_set("small", [30, 10, 20, 50, 40]),
}


@pytest.fixture
def build(monkeypatch):
    def build(train=("small",), unseen=(), sets=SETS, **changes):
        known = {**SETS, **sets}
        monkeypatch.setattr(tasks, "load_datasets", lambda name, sources, split=0: [known[n] for n in name.split("+")])
        return plain(train=train, unseen=unseen, **changes)

    return build


def test_earlier_training_is_the_first_task_and_is_tested(build):
    benchmark = build(["small"], ["veri"], learned=["market", "small"], learned_identities=700)
    assert [(task.index, task.name, len(task.records)) for task in benchmark.tasks] == [
        (0, "before", 0),
        (1, "small", 10),
    ]
    assert benchmark.tasks[1].classes == list(range(700, 705))
    assert [(test.name, test.kind, test.first_task) for test in benchmark.tests] == [
        ("market", "seen", 0),
        ("small before", "seen", 0),
        ("small", "seen", 1),
        ("veri", "unseen", None),
    ]
    with pytest.raises(ArgumentError, match="learned"):
        build(["small"], learned=["market"])


def test_data_sets_may_lack_test_or_training_images(build):
    sets = {
        "untested": replace(make_data_set("untested", range(5)), query=(), gallery=()),
        "tested": make_data_set("tested", []),
    }
    benchmark = build(["untested", "small"], ["tested"], sets)
    assert [task.name for task in benchmark.tasks] == ["untested", "small"]
    assert [(test.name, test.kind, test.first_task) for test in benchmark.tests] == [
        ("small", "seen", 1),
        ("tested", "unseen", None),
    ]
    with pytest.raises(ArgumentError, match="unseen names untested"):
        build(["small"], ["untested"], sets)
    with pytest.raises(ArgumentError, match="train names tested"):
        build(["tested"], sets=sets)


@pytest.mark.parametrize(
    ("name", "sizes"), [("market", [76] + [75] * 9), ("msmt", [105] + [104] * 9), ("veri", [63] + [57] * 9)]
)
def test_split_of_the_paper(build, name, sizes):
    benchmark = build([name], tasks_per_dataset=10)
    assert [len(task.classes) for task in benchmark.tasks] == sizes
    assert [task.name for task in benchmark.tasks] == [f"{name} {i}/10" for i in range(1, 11)]
    assert [task.index for task in benchmark.tasks] == list(range(10))


def test_labels_ascend_from_task_to_task_and_are_ranks_in_ascending_order(build):
    benchmark = build(["market"], tasks_per_dataset=10)
    random_order = build(["veri", "small"], tasks_per_dataset=5, order="random", order_seed=4)
    assert [label for task in random_order.tasks for label in task.classes] == list(range(576 + 5))
    ranks = {pid: rank for rank, pid in enumerate(range(2, 1503, 2))}
    for task in benchmark.tasks:
        for record in task.records:
            assert record.pid == ranks[int(record.path[-7:-2])]
    labels = [label for task in benchmark.tasks for label in task.classes]
    assert labels == list(range(751))


@given(st.sets(st.integers(0, 10**6), min_size=1, max_size=60), st.data())
def test_any_split_is_a_partition_in_order(pids, data):
    num_tasks = data.draw(st.integers(1, len(pids)))
    order = data.draw(st.sampled_from(["ascending", "random"]))
    parts = split_identities(make_data_set("x", pids), num_tasks, order=order, order_seed=1)
    assert len(parts) == num_tasks
    assert sorted(pid for part in parts for pid in part) == sorted(pids)
    assert {len(part) for part in parts[1:]} <= {len(pids) // num_tasks}
    assert len(parts[0]) == len(pids) // num_tasks + len(pids) % num_tasks
    if order == "ascending":
        assert [pid for part in parts for pid in part] == sorted(pids)


@pytest.mark.parametrize("order", ["ascending", "random"])
def test_the_order_of_files_does_not_matter(build, order):
    straight = build(["market"], tasks_per_dataset=10, order=order)
    shuffled = {"market": make_data_set("market", range(2, 1503, 2), shuffle=5)}
    assert build(["market"], sets=shuffled, tasks_per_dataset=10, order=order) == straight


def test_random_order_is_decided_by_its_seed_alone():
    def order(seed):
        return split_identities(SETS["veri"], 10, order="random", order_seed=seed)

    assert order(0) == order(0)
    assert order(0) != order(1)
    assert order(0)[0] != sorted(order(0)[0])


def test_one_task_a_data_set_has_its_name(build):
    benchmark = build(["small", "veri"], unseen=["market"])
    assert benchmark.name == "bench"
    assert [task.name for task in benchmark.tasks] == ["small", "veri"]
    assert benchmark.tasks[1].classes == list(range(5, 581))
    assert [(test.name, test.kind, test.first_task) for test in benchmark.tests] == [
        ("small", "seen", 0),
        ("veri", "seen", 1),
        ("market", "unseen", None),
    ]
    for test in benchmark.tests:  # with the ids of their authors, which query and gallery share
        assert (test.query, test.gallery) == (SETS[test.name].query, SETS[test.name].gallery)


def test_a_name_may_stand_for_several_data_sets(build):
    assert [task.name for task in build(["small+veri"]).tasks] == ["small", "veri"]


@pytest.mark.parametrize("order", ["ascending", "random"])
def test_identities_are_capped_at_the_first_ascending(build, order):
    benchmark = build(["market", "small"], identities=3, order=order)
    assert [len(task.classes) for task in benchmark.tasks] == [3, 3]
    pids = [sorted({int(record.path[-7:-2]) for record in task.records}) for task in benchmark.tasks]
    assert pids == [[2, 4, 6], [10, 20, 30]]
    assert benchmark.tests[1].gallery == SETS["small"].gallery  # tests are never cut


def version(name, split, people):
    """A split of a data set in which every person is once a query and once in the gallery, with a distractor."""
    query = tuple(Record(f"{name}/{pid}a", pid, 1) for pid in people)
    gallery = (*(Record(f"{name}/{pid}b", pid, 2) for pid in people), Record(f"{name}/0", 0, 2))
    train = tuple(Record(f"{name}/{pid}a", pid, 1) for pid in range(1, 6) if pid not in people)
    return DataSet(name, train, query, gallery[::-1] if split % 2 else gallery)


@pytest.fixture
def build_split(monkeypatch):
    """``four`` has four splits, ``two`` two of them, ``one`` only one."""
    versions = {
        "four": [version("four", i, people) for i, people in enumerate([(1, 2), (2, 3), (4, 5), (1, 5)])],
        "two": [version("two", i, people) for i, people in enumerate([(1, 4), (2, 5)])],
        "one": [version("one", 0, (3, 4, 5))],
    }
    calls = []

    def load(name, sources, *, split=0):
        calls.append((name, split, sources.split_seed, sources.cameras))
        return [versions[name][split]]

    monkeypatch.setattr(tasks, "load_datasets", load)
    monkeypatch.setattr(tasks, "split_count", {"four": 4, "two": 2, "one": 1}.get)

    def build(**changes):
        chosen = {"train": ["one"], "unseen": ["four", "two"], "split_seed": 7, "cameras": "same"}
        return plain(**chosen | changes)

    build.versions, build.calls = versions, calls
    return build


def resolved(test):
    """The query and gallery paths of every split."""
    return [
        ([test.query[i].path for i in query], [test.gallery[i].path for i in gallery]) for query, gallery in test.splits
    ]


def paths(data_set):
    return [r.path for r in data_set.query], [r.path for r in data_set.gallery]


def test_one_split_is_the_first(build_split):
    _, four, two = build_split().tests
    first = build_split.versions["four"][0]
    assert (four.query, four.gallery) == (first.query, first.gallery)
    assert four.splits == two.splits == ()
    assert set(build_split.calls) == {(name, 0, 7, "same") for name in ("one", "four", "two")}


@pytest.mark.parametrize(("splits", "numbers"), [(0, (4, 2)), (2, (2, 2)), (3, (3, 2)), (99, (4, 2))])
def test_splits_hold_every_image_once(build_split, splits, numbers):
    _, *tests = build_split(splits=splits).tests
    for test, number in zip(tests, numbers, strict=True):
        versions = build_split.versions[test.name][:number]
        assert resolved(test) == [paths(version) for version in versions]
        assert sorted(test.query) == sorted({record for version in versions for record in version.query})
        assert sorted(test.gallery) == sorted({record for version in versions for record in version.gallery})


def test_training_uses_the_first_split(build_split):
    benchmark = build_split(train=["four"], unseen=["two"], splits=0)
    assert [record.path for record in benchmark.tasks[0].records] == ["four/3a", "four/4a", "four/5a"]
    assert benchmark.tests[0].splits == ()


def test_merged_unseen_galleries(build_split):
    (_, test) = build_split(unseen_galleries="merged").tests
    assert (test.name, test.kind, test.splits) == ("merged unseen", "unseen", ())
    assert [record.path for record in test.query] == ["four/1a", "four/2a", "two/1a", "two/4a"]
    matches = [
        [other.path for other in test.gallery if other.pid == record.pid and other.camid != record.camid]
        for record in test.query
    ]
    assert matches == [["four/1b"], ["four/2b"], ["two/1b"], ["two/4b"]]  # never one of the other set


def test_merged_splits_repeat_the_fewer_ones(build_split):
    (_, test) = build_split(unseen_galleries="merged", splits=0).tests
    versions = build_split.versions
    assert [queries for queries, _ in resolved(test)] == [
        paths(versions["four"][i])[0] + paths(versions["two"][i % 2])[0] for i in range(4)
    ]
    assert len(test.query) == len(set(test.query))


def test_merged_gallery_next_to_single_ones_has_its_own_kind(build_split):
    tests = build_split(unseen_galleries="both").tests
    kinds = {"one": "seen", "four": "unseen", "two": "unseen", "merged unseen": "merged"}
    assert {test.name: test.kind for test in tests} == kinds
    assert [test.kind for test in build_split(unseen=[], unseen_galleries="both").tests] == ["seen"]


def test_pool_keeps_ids_and_cameras_apart(build):
    benchmark = build(["small", "veri"], pool=True, identities=4, tasks_per_dataset=2)
    assert [task.name for task in benchmark.tasks] == ["bench 1/2", "bench 2/2"]
    assert [{record.path.split("/")[0] for record in task.records} for task in benchmark.tasks] == [{"small"}, {"veri"}]
    (test,) = benchmark.tests
    assert (test.name, test.kind, test.first_task) == ("bench", "seen", 0)
    assert len(test.query) == 4
    pids = [{r.pid for r in test.query + test.gallery if r.path.startswith(name)} for name in ("small", "veri")]
    assert not pids[0] & pids[1]
    assert build(["small"], pool=True) == build(["small"])


def test_pool_offsets():
    one = DataSet("one", (Record("a", 4, 1),), (Record("b", 7, 2),), (Record("c", 7, 0),))
    pooled = pool_data_sets("both", [one, one])
    assert pooled.train == (("a", 4, 1), ("a", 12, 4))
    assert pooled.query == (("b", 7, 2), ("b", 15, 5))
    assert pooled.gallery == (("c", 7, 0), ("c", 15, 3))
    nowhere = replace(one, query=(Record("b", 7, -1),))  # by a camera that is not known
    assert pool_data_sets("both", [one, nowhere]).query == (("b", 7, 2), ("b", 15, -1))


def test_names_of_identities_and_cameras_survive_pooling():
    names = Names({7: "ann", 4: "4"}, {2: "north"})
    one = DataSet("one", (Record("a", 4, 1),), (Record("b", 7, 2),), (Record("c", 7, 0),), names=names)
    pooled = pool_data_sets("both", [one, one])
    for test in (tasks.query_gallery([pooled], "seen"), tasks.query_gallery([pooled, pooled], "unseen")):
        shown = [(test.names.identity(pid), test.names.camera(camid)) for _, pid, camid in test.query + test.gallery]
        assert shown == [("ann", "cam north"), ("ann", "cam north"), ("ann", "cam 0"), ("ann", "cam 3")]
    assert [pooled.names.identity(pid) for _, pid, _ in pooled.train] == ["id 4", "id 4"]
    assert pooled.names.identity(99) == "id 99"


def test_merge_tasks(build):
    benchmark = build(["small", "veri"], unseen=["market"], tasks_per_dataset=5)
    assert [test.first_task for test in benchmark.tests] == [0, 5, None]
    joint = merge_tasks(benchmark)
    (task,) = joint.tasks
    assert (task.index, task.name) == (0, "joint")
    assert task.records == tuple(record for part in benchmark.tasks for record in part.records)
    assert task.classes == list(range(581))
    assert [test.first_task for test in joint.tests] == [0, 0, None]
    assert [test.query for test in joint.tests] == [test.query for test in benchmark.tests]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": []}, "train is empty"),
        ({"tasks_per_dataset": 6}, "tasks_per_dataset is 6; .*5"),
        ({"tasks_per_dataset": 3, "identities": 2}, "tasks_per_dataset is 3; .*2"),
        ({"tasks_per_dataset": 0}, "tasks_per_dataset is 0"),
        ({"train": ["small", "small"]}, "train .*small"),
        ({"unseen": ["veri", "veri"]}, "unseen .*veri"),
        ({"train": ["small", "veri"], "unseen": ["veri"]}, "unseen .*veri"),
        ({"train": ["small", "small"], "pool": True}, "train .*small"),
    ],
)
def test_bad_input_is_named(build, changes, message):
    with pytest.raises(ArgumentError, match=message):
        build(**changes)


CLASSES = {
    name: replace(make_data_set(name, range(3)), classes=("a", "b", "c"), held_out=(Record(f"{name}/0", 0, 0),))
    for name in ("sun", "rain")
} | {"fog": replace(make_data_set("fog", range(2)), classes=("c", "d"))}


def test_a_class_in_two_tasks_is_refused_unless_the_benchmark_is_domain_incremental(build):
    for other, shared in (("rain", "a"), ("fog", "c")):
        with pytest.raises(ArgumentError, match=f"train has class {shared} in sun and in {other}"):
            build(["sun", other], sets=CLASSES)
    benchmark = build(["sun", "rain"], sets=CLASSES, scenario="domain-incremental")
    assert [task.classes for task in benchmark.tasks] == [[0, 1, 2], [3, 4, 5]]
    assert [task.shared_classes for task in benchmark.tasks] == [3, 3]
    assert merge_tasks(benchmark).tasks[0].shared_classes == 3
    kept = build(["sun", "rain"], sets=CLASSES, scenario="domain-incremental", identities=2)
    assert [task.shared_classes for task in kept.tasks] == [2, 2]
    assert build(["sun"], sets=CLASSES, tasks_per_dataset=3).tasks[0].shared_classes == 0


@pytest.mark.parametrize(
    ("train", "changes", "fault"),
    [
        (["sun", "rain"], {"pool": True}, "one task"),
        (["sun", "rain"], {"tasks_per_dataset": 3}, "one task"),
        (["sun", "fog"], {}, "fog are c, d$"),
        (["market", "veri"], {}, "market are identities"),
    ],
)
def test_domain_incremental_benchmark_needs_equal_classes(build, train, changes, fault):
    with pytest.raises(ArgumentError, match=f"scenario is domain-incremental, .*{fault}"):
        build(train, sets=CLASSES, scenario="domain-incremental", **changes)
