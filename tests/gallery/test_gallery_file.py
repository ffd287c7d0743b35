"""Galleries in files: memory maps, kills, damage, locks and versions."""

import errno
import os
import stat
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from galleries import names, small, vectors
from power_cuts import Disk

from lreid.errors import InputError, NotConfirmed, UnknownFormat
from lreid.gallery import Gallery, gallery_file
from lreid.gallery.gallery import place_of
from lreid.utils.files import leftovers

faiss = pytest.importorskip("faiss")


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_mapped_gallery_can_be_searched_but_not_changed(tmp_path, kind):
    gallery = small(kind)
    gallery.save(tmp_path / "new folder" / "g")
    assert [path.name for path in (tmp_path / "new folder").iterdir()] == ["g"]
    mapped = Gallery.load(tmp_path / "new folder" / "g", memory_map=True)
    queries = vectors(4, seed=3)
    one, two = (each.search(queries, 5, model="a1") for each in (gallery, mapped))
    np.testing.assert_array_equal(one.paths, two.paths)
    with pytest.raises(InputError, match="memory_map=False"):
        mapped.remove(["00000.jpg"])
    with pytest.raises(InputError, match="memory_map=False"):
        mapped.add(vectors(1), ["new.jpg"], model="a1")
    mapped.save()  # over the file that is mapped just now
    assert len(Gallery.load(tmp_path / "new folder" / "g")) == 12


def test_second_writer_is_refused(tmp_path):
    file = tmp_path / "g"
    small().save(file)
    one, other = Gallery.load(file), Gallery.load(file)
    one.add(vectors(1), ["one.jpg"], model="a1")
    one.save()
    other.add(vectors(1), ["other.jpg"], model="a1")
    with pytest.raises(InputError, match="g: another process"):
        other.save()
    assert Gallery.load(file).holds(["one.jpg", "other.jpg"]).tolist() == [True, False]
    one.remove(["one.jpg"])
    one.save()  # knows its own file again
    file.unlink()
    with pytest.raises(InputError, match="g: was deleted"):
        one.save()
    assert [path.name for path in tmp_path.iterdir()] == []
    first, second = (small(at=tmp_path / "new") for _ in range(2))
    first.save()
    with pytest.raises(InputError, match="new: already exists"):
        second.save()


def test_only_the_owner_can_read_a_new_gallery(tmp_path):
    small().save(tmp_path / "g")
    assert (tmp_path / "g").stat().st_mode & 0o777 == 0o600


def test_symbolic_link_is_followed(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "real")
    small(at=tmp_path / "link").save()
    gallery = Gallery.load(tmp_path / "link")
    gallery.remove(names(11))
    gallery.save()
    Gallery.load(tmp_path / "link").save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert Gallery.load(tmp_path / "far" / "real").labels().paths.tolist() == names(1, 11)
    assert b"00000.jpg" not in (tmp_path / "far" / "real").read_bytes()
    place = place_of(tmp_path / "link")
    small(at=place.next()).save()
    place.switch(Gallery.load(place).store)
    assert sorted(path.name for path in (tmp_path / "far").iterdir()) == ["real", "real.previous"]
    place.roll_back()
    assert sorted(path.name for path in (tmp_path / "far").iterdir()) == ["real", "real.next"]
    assert len(Gallery.load(tmp_path / "link")) == 1 and (tmp_path / "link").is_symlink()


def sizes(disk, state, folder):
    """Numbers of images of the galleries that a power cut leaves."""
    folder.mkdir()
    disk.restore(state, folder)
    return {path.name: len(Gallery.load(path)) for path in folder.iterdir() if not path.name.startswith(".")}


def test_power_cut_undoes_no_acknowledged_change(tmp_path):
    folder = tmp_path / "disk"
    small(at=folder / "g").save()
    gallery, disk = Gallery.load(folder / "g"), Disk(folder)
    small(at=tmp_path / "first").save()  # imports are no part of what is recorded
    with disk.recording():
        gallery.remove(names(2))
        gallery.save()
        small(count=5, at=folder / "deep" / "new").save()
    found = set()
    for number, (over, state) in enumerate(disk.every_state()):
        there = sizes(disk, {name: data for name, data in state.items() if "deep" not in name}, tmp_path / str(number))
        found.add(there["g"])
        assert not over or there == {"g": 10}
        if data := state.get(str(folder / "deep" / "new")):
            (tmp_path / "new").write_bytes(data)
            assert len(Gallery.load(tmp_path / "new")) == 5
        assert not over or data
    assert found == {12, 10}


def test_power_cut_leaves_old_or_new_version_in_use(tmp_path):
    folder = tmp_path / "disk"
    place = place_of(folder / "g")
    small(at=place).save()
    small(count=9, at=place.next()).save()
    current, disk = Gallery.load(place), Disk(folder)
    with disk.recording():
        place.switch(current.store)
    after = len(disk.log)
    with disk.recording():
        place.roll_back()
    number = 0
    for upto in range(len(disk.log) + 1):
        for state in disk.states(upto):
            number += 1
            there = sizes(disk, state, tmp_path / str(number))
            assert there["g"] in (12, 9)
            assert upto != after or there == {"g": 9, "g.previous": 12}
            assert upto != len(disk.log) or there == {"g": 12, "g.next": 9}


def test_index_of_another_kind_or_size_is_refused(tmp_path):
    keys, features = np.arange(12), vectors(12)
    euclidean = faiss.IndexIDMap(faiss.IndexFlatL2(8))
    euclidean.add_with_ids(features, keys)
    without_keys = faiss.IndexFlatIP(8)
    without_keys.add(features)
    with_more_keys = faiss.IndexIDMap(faiss.IndexFlatIP(8))
    with_more_keys.add_with_ids(features[:11], keys[:11])
    faiss.copy_array_to_vector(keys, with_more_keys.id_map)
    flat, graph = (small(kind) for kind in ("flat", "hnsw"))
    (of_flat,), (of_graph,) = flat.store.index.parts, graph.store.index.parts
    pairs = [(graph, of_flat), *((flat, index) for index in (of_graph, euclidean, without_keys, with_more_keys))]
    for gallery, index in pairs:
        gallery.save(tmp_path / "valid")
        _, header, arrays, _ = gallery_file.read_gallery(tmp_path / "valid", False)
        gallery_file.write_gallery(tmp_path / "g", [index], header, arrays)
        for mapped in (False, True):
            with pytest.raises(InputError, match="g: not a gallery"):
                Gallery.load(tmp_path / "g", memory_map=mapped)


def test_unusable_files_are_named(tmp_path):
    file = tmp_path / "people.gallery"
    with pytest.raises(InputError, match="people.gallery: no such file"):
        Gallery.load(file)
    small().save(file)
    whole = file.read_bytes()
    for damaged in (b"", b"no gallery at all", whole[:100], whole[:-1], whole[: len(whole) // 2], b"XXXX" + whole[4:]):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match="people.gallery: not a gallery"):
            Gallery.load(file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nearest": "yes"}, "nearest is unknown"),
        ({"next_key": None}, "it has no next_key"),
        ({"shards": "a"}, "shards is 'a', not int"),
        ({"shards": 0}, "shards is 0"),
        ({"kind": "lsh"}, "kind is 'lsh'"),
        ({"recall": [[1]]}, "recall is not"),
        ({"recall": [[{}, 0.5]]}, "recall is not"),
        ({"names": {"identity": [[[1], "anna"]]}}, "identity is not"),
        ({"names": {"identity": [[1, 2]]}}, "identity is not"),
        ({"next_key": 11}, "next_key"),
        ({"next_key": 2**40}, "next_key 1099511627776"),
        ({"times": None}, "times are not 12"),
        ({"keys": np.arange(12)[::-1]}, "keys"),
        ({"ids": np.arange(5)}, "ids are not"),
        ({"cams": np.zeros(12)}, "cams are not"),
        ({"keys": np.arange(1, 13), "next_key": 13}, "labels do not match"),
    ],
)
def test_invalid_headers_and_columns_are_named(tmp_path, change, message):
    small().save(tmp_path / "g")
    indexes, header, arrays, _ = gallery_file.read_gallery(tmp_path / "g", False)
    for name, value in change.items():
        part = arrays if name in gallery_file.LABEL_COLUMNS else header
        part[name] = value
        if value is None:
            del part[name]
    gallery_file.write_gallery(tmp_path / "changed", indexes, header, arrays)
    with pytest.raises(InputError, match=f"changed: .*{message}"):
        Gallery.load(tmp_path / "changed")


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_any_changed_byte_of_the_index_is_detected(tmp_path, kind):
    file = tmp_path / "g"
    small(kind).save(file)
    whole = file.read_bytes()
    with zipfile.ZipFile(file) as archive:
        end = archive.infolist()[0].header_offset
    for place in [*range(0, end, 37), *range(end - 100, end)]:
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(InputError, match="g: not a gallery"):
            Gallery.load(file)


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_keys_of_a_mapped_index_are_checked(tmp_path, kind):
    """A mapped file is not read completely, so its checksum is not verified."""
    file = tmp_path / "g"
    gallery = small(kind, 60)
    gallery.remove(names(5, 10))
    gallery.save(file)
    found = Gallery.load(file, memory_map=True).search(vectors(4), 5, model="a1")
    np.testing.assert_array_equal(found.paths, gallery.search(vectors(4), 5, model="a1").paths)
    whole = file.read_bytes()
    place = whole.index(np.array([30, 31]).tobytes())  # of a key
    file.write_bytes(whole[:place] + b"\x3f" + whole[place + 1 :])
    with pytest.raises(InputError, match="labels do not match"):
        Gallery.load(file, memory_map=True)


@pytest.mark.slow
def test_keys_of_ivfpq_are_checked(tmp_path):
    gallery = Gallery.build(vectors(10_000), names(10_000), model="a1", kind="ivfpq")
    gallery.remove(names(5, 10))
    gallery.save(tmp_path / "g")
    assert len(Gallery.load(tmp_path / "g")) == len(Gallery.load(tmp_path / "g", memory_map=True)) == 9995
    labels = gallery.labels()
    gallery.store.everything = replace(labels, keys=np.where(labels.keys == 9999, 10_000, labels.keys))
    gallery.store.next_key += 1
    with pytest.raises(InputError, match="labels do not match"):
        gallery.save(tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_missing_faiss_path_or_images_are_named(monkeypatch):
    with pytest.raises(InputError, match="^path is missing"):
        small().save()
    with pytest.raises(InputError, match="which needs 9984 images"):
        small("ivfpq")
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match=r"faiss .*lreid\[cpu\]"):
        small()


def test_other_files_with_names_of_versions_are_not_replaced(tmp_path):
    place = place_of(tmp_path / "g")
    small(at=place).save()
    small(count=9, at=place.next()).save()
    before = place.path.read_bytes()
    place.previous().path.write_text("my notes")
    with pytest.raises(InputError, match="g.previous: is not a gallery"):
        place.switch(Gallery.load(place).store)
    place.previous().path.unlink()
    place.switch(Gallery.load(place).store)
    assert place.previous().path.read_bytes() == before
    place.next().path.mkdir()
    for act in (place.roll_back, place.next().delete):
        with pytest.raises(InputError, match="g.next: is not a gallery"):
            act()
    assert len(Gallery.load(place)) == 9 and place.next().path.is_dir() and not leftovers(tmp_path)


def test_file_opens_as_faiss_index_and_as_zip_archive(tmp_path):
    small().save(tmp_path / "g")
    assert faiss.read_index(str(tmp_path / "g")).ntotal == 12
    assert "ids.npy" in zipfile.ZipFile(tmp_path / "g").namelist()


def test_unconfirmed_save_can_be_repeated(tmp_path, monkeypatch):
    gallery, confirm = small(at=tmp_path / "g"), os.fsync

    def unconfirmed(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        confirm(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", unconfirmed)
        with pytest.raises(NotConfirmed, match="done, but"):
            gallery.save()
    assert len(Gallery.load(tmp_path / "g")) == len(gallery)
    gallery.remove(names(2))
    gallery.save()
    assert len(Gallery.load(tmp_path / "g")) == len(gallery)


@pytest.mark.parametrize(
    ("name", "value", "fault", "message"),
    [
        ("FORMAT", 0, InputError, "another version"),
        ("FORMAT", 2, UnknownFormat, "another version"),
        ("CHECKSUM", "unused", InputError, "not a gallery"),
        ("json.dumps", lambda _: "[1, 2]", InputError, "not a gallery"),
    ],
)
def test_unknown_format_is_refused_and_not_overwritten(tmp_path, monkeypatch, name, value, fault, message):
    with monkeypatch.context() as patch:
        patch.setattr(f"lreid.gallery.gallery_file.{name}", value)
        patch.setattr("lreid.gallery.gallery_file.read_gallery", lambda *_, **__: None)  # the save would read it back
        small().save(tmp_path / "g")
    before = (tmp_path / "g").read_bytes()
    with pytest.raises(InputError, match=f"g: .*{message}") as caught:
        Gallery.load(tmp_path / "g")
    assert caught.type is fault and (tmp_path / "g").read_bytes() == before
