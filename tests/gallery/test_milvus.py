"""Galleries in Milvus: killed processes, a second writer, old and missing servers."""

import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from galleries import names, small, vectors
from milvus_lite_server import LiteServer, killed_at
from processes import start_python

from lreid.errors import InputError
from lreid.gallery import Filter, Gallery, milvus_client
from lreid.gallery.milvus_client import connect, require_version
from lreid.gallery.milvus_store import MilvusPlace

pytestmark = pytest.mark.slow

ADD = """
import sys
import numpy as np
from lreid.gallery import Gallery

where, name, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
gallery = Gallery.load(where)
print("open")
sys.stdin.readline()
for turn in range(turns):
    gallery.add(np.random.randn(20, 8), [f"{name}{turn}-{i}" for i in range(20)], model="a1")
    print(turn)
"""


def added(name: str, turns: int) -> list[str]:
    return [f"{name}{turn}-{i}" for turn in range(turns) for i in range(20)]


def test_killed_process_with_embedded_database_loses_no_acknowledged_rows(milvus, tmp_path):
    where = f"milvus:{tmp_path}/people.db"
    first = small(at=where)
    first.save()
    first.close()
    process = start_python(ADD, where, "new", "1000000")
    assert process.stdout.readline() == "open\n"
    with pytest.raises(InputError, match="people.db: another process"):
        Gallery.load(where)
    process.stdin.write("go\n")
    process.stdin.flush()
    for _ in range(12):
        last = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait()
    gallery = Gallery.load(where)
    assert gallery.holds(added("new", last + 1)).all() and gallery.holds(names(12)).all()
    assert len(gallery) >= 12 + 20 * (last + 1)
    found = gallery.search(gallery.features(gallery.labels().keys[-5:]), 1, model="a1")
    np.testing.assert_array_equal(found.paths[:, 0], gallery.labels().paths[-5:])
    gallery.close()


def test_killed_server_keeps_acknowledged_rows(milvus, tmp_path):
    server = LiteServer(tmp_path / "data")
    gallery = small(at=server.where)
    gallery.save()
    for turn in range(15):
        gallery.add(vectors(20, seed=turn + 1), [f"ours{turn}-{i}" for i in range(20)], model="a1")
        assert gallery.search(vectors(20, seed=turn + 1)[3:4], 1, model="a1").paths[0, 0] == f"ours{turn}-3"
    expected = [*names(12), *added("ours", 15)]
    assert sorted(gallery.labels().paths) == sorted(expected)
    server.kill()
    with pytest.raises(InputError, match="127.0.0.1"):
        _impatient(lambda: len(gallery))
    server.start()
    again = Gallery.load(server.where)
    assert sorted(again.labels().paths) == sorted(expected)
    again.close()
    server.kill()


def test_second_writer_is_refused_until_marker_is_dropped(server):
    gallery = small(at=f"{server.where}/marked")
    gallery.save()
    connection = gallery.store.connection
    connection.mark("marked")  # as by a process that was killed while it wrote
    for change in (lambda: gallery.add(vectors(1), ["new.jpg"], model="a1"), lambda: gallery.remove(names(1))):
        with pytest.raises(InputError, match="marked; .* drop .* marked_writer"):
            change()
    assert len(gallery) == 12
    connection("drop_collection", "marked_writer")
    gallery.add(vectors(1), ["new.jpg"], model="a1")
    gallery.remove(names(1))
    assert len(gallery) == 12 and not connection("has_collection", "marked_writer")


def test_second_builder_is_refused(server):
    where = f"{server.where}/two"
    first = small(at=where)
    with pytest.raises(InputError, match="writing to two"):
        Gallery.build(vectors(3), names(3), model="b2", at=where)
    first.add(vectors(1), ["more.jpg"], model="a1")
    first.save()
    with pytest.raises(InputError, match="already exists"):
        small(at=where)
    first.add(vectors(1), ["later.jpg"], model="a1")
    first.save()
    again = Gallery.load(where)
    assert again.about.model == "a1" and len(again) == 14


def test_failed_build_leaves_no_marker(server):
    where = f"{server.where}/failed"
    with pytest.raises(InputError, match="bytes, more than"):
        Gallery.build(vectors(1), ["x" * 70_000], model="a1", at=where)
    small(at=where).save()
    assert len(Gallery.load(where)) == 12


def test_killed_build_can_be_repeated(lite_place):
    small(at=lite_place + "x").save()
    for number in range(30):
        try:
            with killed_at(number):
                small(at=lite_place, names={"identity": {1: "ann"}}).save()
            break
        except KeyboardInterrupt:
            with pytest.raises(InputError, match="no such gallery"):
                Gallery.load(lite_place)
    assert number > 7
    assert len(Gallery.load(lite_place)) == 12 and Gallery.load(lite_place).about.whole


def test_killed_addition_leaves_at_most_names_without_images(lite_place, monkeypatch):
    gallery = small(at=lite_place)
    gallery.save()
    gallery.about.names["identity"] = {99: "zoe"}
    original = milvus_client.Connection.__call__

    def call(self, method, *args, **kwargs):
        if method == "upsert" and not args[0].endswith("_meta"):
            raise KeyboardInterrupt
        return original(self, method, *args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(milvus_client.Connection, "__call__", call)
        gallery.add(vectors(1), ["zoe.jpg"], [99], model="a1")
    again = Gallery.load(lite_place)
    assert again.about.names["identity"] == {99: "zoe"} and len(again) == 12
    again.add(vectors(1), ["zoe.jpg"], [99], model="a1")
    assert len(Gallery.load(lite_place)) == 13


def test_names_that_look_like_filters_are_only_names(lite_place):
    gallery = Gallery.build(
        vectors(3), ['a" or key >= 0 or path == "', "b'; drop", "c"], [1, 2, 3], model="a1", at=lite_place
    )
    gallery.save()
    assert gallery.holds(['a" or key >= 0 or path == "', '" or 1 == 1', "b"]).tolist() == [True, False, False]
    gallery.remove(["b'; drop"])
    assert sorted(gallery.labels().paths) == ['a" or key >= 0 or path == "', "c"]
    assert gallery.count(Filter(identities=[1, 2])) == 1


@pytest.mark.parametrize("version", ["2.3.5", "v2.3.21", "milvus_lite-2.4.1", "unknown"])
def test_old_servers_are_refused(version):
    milvus_client.import_pymilvus()
    for good in ("milvus_lite-3.2.2", "v2.4.0", "2.6.3-gpu", "v3.0.1"):
        require_version(good, "http://h:1")
    with pytest.raises(InputError, match=f"http://h:1: .*'{version}'"):
        require_version(version, "http://h:1")


def test_addresses():
    assert MilvusPlace.parse("milvus:a b/x.db") == MilvusPlace("a b/x.db", "gallery")
    assert MilvusPlace.parse("milvus:a/x.db/cars") == MilvusPlace("a/x.db", "cars")
    assert MilvusPlace.parse("milvus:http://h:1/cars") == MilvusPlace("http://h:1", "cars")
    assert str(MilvusPlace.parse("milvus:https://h:1/").next()) == "milvus:https://h:1 (next version)"
    for bad in ("milvus:", "milvus:people.gallery", "milvus:http://", "milvus:http://h:1/a/b"):
        with pytest.raises(InputError, match="is not an address"):
            MilvusPlace.parse(bad)
    with pytest.raises(InputError, match="'a-b' is .* name for a gallery"):
        MilvusPlace.parse("milvus:http://h:1/a-b")


def test_unusable_addresses_and_arguments_are_named(milvus, lite_place, tmp_path, monkeypatch):
    Path(tmp_path, "file.db").write_text("x")
    gallery = small(at=lite_place)
    gallery.save()
    for fault, use in (
        ("http://127.0.0.1:1: ", lambda: Gallery.load("milvus:http://127.0.0.1:1")),
        ("no folder", lambda: small(at=f"milvus:{tmp_path}/nowhere/people.db")),
        ("no such gallery", lambda: Gallery.load(f"milvus:{tmp_path}/people.db")),
        ("file.db: is a file", lambda: small(at=f"milvus:{tmp_path}/file.db")),
        ("already exists", lambda: small(at=lite_place)),
        ("k is 20000", lambda: gallery.store.nearest(vectors(1), 20_000, Filter())),
        ("lreid search migrate", lambda: gallery.save(tmp_path / "file")),
        ("memory_map", lambda: Gallery.load(lite_place, memory_map=True)),
        ("shards is 2", lambda: small(at=lite_place + "x", shards=2)),
    ):
        with pytest.raises(InputError, match=fault):
            use()
    assert not Path(tmp_path, "people.db").exists()
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(InputError, match=r"pymilvus .*lreid\[milvus\]"):
        connect("http://127.0.0.1:2")


def _impatient(call) -> None:
    """With a server that does not answer, waits for less than a minute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(milvus_client.Connection.__call__, "__kwdefaults__", {"timeout": 2.0})
        call()
