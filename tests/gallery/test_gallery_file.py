"""Galleries in files of faiss: memory maps, kills, damage, and who may replace a file."""

from __future__ import annotations

import signal
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from galleries import child, names, small, vectors

from lreid.errors import InputError
from lreid.gallery import Gallery
from lreid.gallery.faiss import gallery_file

faiss = pytest.importorskip("faiss")


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_a_mapped_gallery_is_searched_but_not_changed(tmp_path, kind):
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


def test_killed_while_saving_leaves_the_old_gallery_whole(tmp_path):
    program = """
import os, signal, sys
import numpy as np, faiss
from lreid.gallery import Gallery

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

def half(index, path):
    open(path, "wb").write(b"IxMp half an index")
    die()

for moment, where, name, last in (("write_index", faiss, "write_index", half), ("savez", np, "savez", die),
                                  ("fsync", os, "fsync", die)):
    process = os.fork()
    if not process:
        setattr(where, name, last)
        Gallery.build(np.eye(8, dtype="f4"), list("abcdefgh"), model="a1").save(f"{sys.argv[1]}/{moment}")
        os._exit(0)
    print(moment, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""
    moments = ("write_index", "savez", "fsync")
    for moment in moments:
        small(count=12).save(tmp_path / moment)
    said, errors = child(program, str(tmp_path)).communicate()
    assert said.splitlines() == [f"{moment} {-signal.SIGKILL}" for moment in moments], errors
    for moment in moments:
        assert len(Gallery.load(tmp_path / moment)) == 12


def test_killed_while_adding_all_that_was_saved_is_there(tmp_path):
    """Acknowledged is what ``save`` has returned for."""
    file = tmp_path / "g"
    small().save(file)
    program = f"""
import sys
import numpy as np
from lreid.gallery import Gallery

gallery = Gallery.load({str(file)!r})
for turn in range(10**6):
    gallery.add(np.random.randn(5, 8), [f"{{turn}}-{{i}}" for i in range(5)], model="a1")
    gallery.save()
    print(turn)
"""
    process = child(program)
    for _ in range(8):
        last = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait()
    gallery = Gallery.load(file)
    assert gallery.holds([f"{turn}-{i}" for turn in range(last + 1) for i in range(5)]).all()
    assert len(gallery) >= 12 + 5 * (last + 1) and len(gallery) == len(gallery.labels())


def test_of_two_writers_the_second_is_told(tmp_path):
    file = tmp_path / "g"
    small().save(file)
    one, other = Gallery.load(file), Gallery.load(file)
    one.add(vectors(1), ["one.jpg"], model="a1")
    one.save()
    other.add(vectors(1), ["other.jpg"], model="a1")
    with pytest.raises(InputError, match="g: another process has changed it in the meantime; nothing was written"):
        other.save()
    assert Gallery.load(file).holds(["one.jpg", "other.jpg"]).tolist() == [True, False]
    one.remove(["one.jpg"])
    one.save()  # knows its own file again
    file.unlink()
    with pytest.raises(InputError, match="g: was taken away"):
        one.save()
    assert [path.name for path in tmp_path.iterdir()] == []
    first, second = (small(at=tmp_path / "new") for _ in range(2))
    first.save()
    with pytest.raises(InputError, match="new: is there already; another process has made it"):
        second.save()


def test_a_file_of_before_there_were_times_names_and_shards(tmp_path, monkeypatch):
    from lreid.gallery.faiss import faiss_store

    def older(path, indexes, header, arrays, seen):
        for name in ("names", "shards", "whole"):
            del header[name]
        return faiss_write(path, indexes, header, {k: v for k, v in arrays.items() if k != "times"}, seen)

    faiss_write = faiss_store.write_gallery
    with monkeypatch.context() as patch:
        patch.setattr(faiss_store, "write_gallery", older)
        small().save(tmp_path / "g")
    gallery = Gallery.load(tmp_path / "g")
    assert (gallery.labels().times == -1).all() and gallery.about.names == {} and gallery.about.whole
    gallery.add(vectors(1), ["new.jpg"], times=[7], model="a1")
    gallery.save()
    assert Gallery.load(tmp_path / "g").labels().times[-1] == 7


def test_unusable_files_are_named(tmp_path):
    file = tmp_path / "people.gallery"
    with pytest.raises(InputError, match="people.gallery: no such file"):
        Gallery.load(file)
    small().save(file)
    whole = file.read_bytes()
    for damaged in (b"", b"no gallery at all", whole[:100], whole[:-1], whole[: len(whole) // 2]):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match="people.gallery: not a gallery, or cut short"):
            Gallery.load(file)
    file.write_bytes(b"XXXX" + whole[4:])
    with pytest.raises(InputError, match="people.gallery: its index is damaged"):
        Gallery.load(file)
    file.write_bytes(whole.replace(b'"format": 1', b'"format": 9'))
    with pytest.raises(InputError, match="people.gallery"):
        Gallery.load(file)
    with pytest.raises(InputError, match="cannot be written"):
        small().save(tmp_path / "people.gallery" / "below a file")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nearest": "yes"}, "nearest is not known"),
        ({"next_key": None}, "it has no next_key"),
        ({"recall": None}, "it has no recall"),
        ({"paths": None}, "it has no paths"),
        ({"shards": "a"}, "shards is 'a', not int"),
        ({"shards": 0}, "shards is 0"),
        ({"kind": "lsh"}, "kind is 'lsh'"),
        ({"threshold": "a"}, "threshold is 'a', not int or float"),
        ({"recall": [[1]]}, "recall is no list of pairs"),
        ({"names": {"identity": [[1, 2]]}}, "names.identity is no list of pairs"),
        ({"next_key": 11}, "keys do not ascend to below next_key"),
        ({"keys": np.arange(12)[::-1]}, "keys do not ascend to below next_key"),
        ({"ids": None}, "it has no ids"),
        ({"ids": np.arange(5)}, r"ids has shape \(5,\) and type int64"),
        ({"cams": np.zeros(12)}, "cams has shape .* and type float64"),
        ({"keys": np.arange(1, 13), "next_key": 13}, "index and labels do not belong together"),
    ],
)
def test_foreign_headers_and_columns_are_named(tmp_path, change, message):
    small().save(tmp_path / "g")
    indexes, header, arrays, _ = gallery_file.read_gallery(tmp_path / "g", False)
    for name, value in change.items():
        part = arrays if name in gallery_file.COLUMNS else header
        part[name] = value
        if value is None:
            del part[name]
    gallery_file.write_gallery(tmp_path / "changed", indexes, header, arrays)
    with pytest.raises(InputError, match=f"changed: .*{message}.*; build it again"):
        Gallery.load(tmp_path / "changed")


def test_a_header_that_is_none_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(gallery_file.json, "dumps", lambda _: "[1, 2]")
    small().save(tmp_path / "g")
    with pytest.raises(InputError, match="g: not a gallery .*it is a list, not a mapping.; build it again"):
        Gallery.load(tmp_path / "g")


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_every_byte_of_the_index_counts(tmp_path, kind):
    """One in the keys would give an image the name of another."""
    file = tmp_path / "g"
    small(kind).save(file)
    whole = file.read_bytes()
    with zipfile.ZipFile(file) as archive:
        end = archive.infolist()[0].header_offset
    for place in [*range(0, end, 37), *range(end - 100, end)]:
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(InputError, match="g: its index is damaged; build it again"):
            Gallery.load(file)


def save_without_checksum(gallery, path):
    """As before there was one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gallery_file, "CHECKSUM", "unused")
        gallery.save(path)


@pytest.mark.parametrize(("kind", "shards"), [("flat", 1), ("flat", 3), ("hnsw", 1), ("hnsw", 2)])
def test_without_a_checksum_the_keys_are_compared(tmp_path, kind, shards):
    """Also in a file that is mapped, and so not read as a whole."""
    file, ways = tmp_path / "g", (False, True)[: 1 if shards > 1 else 2]
    gallery = small(kind, 60, shards=shards)
    gallery.remove(names(5, 10))
    save_without_checksum(gallery, file)
    for mapped in ways:
        found = Gallery.load(file, memory_map=mapped).search(vectors(4), 5, model="a1")
        np.testing.assert_array_equal(found.paths, gallery.search(vectors(4), 5, model="a1").paths)
    whole = file.read_bytes()
    place = whole.index(np.array([30, 30 + shards]).tobytes())  # of a key of the first part
    file.write_bytes(whole[:place] + b"\x3f" + whole[place + 1 :])
    for mapped in ways:
        with pytest.raises(InputError, match="g: index and labels do not belong together; build it again"):
            Gallery.load(file, memory_map=mapped)


def test_codes_have_their_keys_compared(tmp_path):
    gallery = Gallery.build(vectors(10_000), names(10_000), model="a1", kind="ivfpq")
    gallery.remove(names(5, 10))
    save_without_checksum(gallery, tmp_path / "g")
    assert len(Gallery.load(tmp_path / "g")) == len(Gallery.load(tmp_path / "g", memory_map=True)) == 9995
    labels = gallery.labels()
    gallery.store.everything = replace(labels, keys=np.where(labels.keys == 9999, 10_000, labels.keys))
    gallery.store.next_key += 1
    save_without_checksum(gallery, tmp_path / "other")
    with pytest.raises(InputError, match="index and labels do not belong together"):
        Gallery.load(tmp_path / "other")


def test_a_damaged_size_in_an_index_is_no_lack_of_memory(tmp_path, monkeypatch):
    def full(*_):
        raise MemoryError("std::bad_alloc")

    small().save(tmp_path / "g")
    monkeypatch.setattr(faiss, "read_index", full)
    with pytest.raises(InputError, match="g: its index is damaged; build it again"):
        Gallery.load(tmp_path / "g")


def test_another_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("lreid.gallery.faiss.gallery_file.FORMAT", 0)
    small().save(tmp_path / "g")
    monkeypatch.undo()
    with pytest.raises(InputError, match="another version"):
        Gallery.load(tmp_path / "g")


def test_the_file_opens_as_a_faiss_index_and_as_a_zip_archive(tmp_path):
    small().save(tmp_path / "g")
    assert faiss.read_index(str(tmp_path / "g")).ntotal == 12
    assert "ids.npy" in zipfile.ZipFile(tmp_path / "g").namelist()


def test_without_faiss_or_a_place_to_save_to(monkeypatch):
    with pytest.raises(InputError, match="saved to a path; give one"):
        small().save()
    with pytest.raises(InputError, match="index kind 'lsh': unknown; use flat, hnsw or ivfpq"):
        small("lsh")
    with pytest.raises(InputError, match="ivfpq learns from 9984 images or more, got 12; use flat"):
        small("ivfpq")
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match=r"install lreid\[cpu\], or lreid\[gpu\]"):
        small()
