"""Rename, merge and undo: what a gallery holds afterwards, and what its file still stores of removed people."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from galleries import names, vectors

import lreid.gallery
from lreid.errors import InputError
from lreid.gallery import Gallery
from lreid.gallery.change import Change

PEOPLE = ["anna", "anna", "anna", "ben", "ben", None, "carl", "carl"]


def people(at: Any = None, ids: list[Any] = PEOPLE, **about: Any) -> Gallery:
    return Gallery.build(vectors(len(ids)), names(len(ids)), ids, [*range(len(ids))], model="a1", at=at, **about)


def rows(gallery: Gallery) -> dict[str, tuple[Any, ...]]:
    labels = gallery.labels()
    features = map(tuple, gallery.features(labels.keys).round(6).tolist())
    return dict(zip(labels.paths, zip(labels.ids, labels.cams, labels.times, features, strict=True), strict=True))


def ids(gallery: Gallery) -> list[Any]:
    labels = gallery.labels()
    return [identity for _, identity in sorted(zip(labels.paths, labels.ids, strict=True))]


def test_rename_moves_and_merges_identities(new_place: Callable[[], str]) -> None:
    where = new_place()
    people(where).save()
    before = Gallery.load(where)
    gallery = Gallery.load(where)
    assert gallery.rename("anna", "zoe") == 3
    gallery.save(undoable=True)
    for each in (gallery, gallery := Gallery.load(where)):
        assert ids(each) == ["zoe" if name == "anna" else name for name in PEOPLE]
        assert each.identities == [*each] == ["ben", "carl", "zoe"]
    assert {path: row[1:] for path, row in rows(gallery).items()} == {p: row[1:] for p, row in rows(before).items()}
    assert gallery.search(vectors(1), 1, model="a1").ids[0, 0] == "zoe"
    gallery.add(vectors(1, seed=5), ["new"], ["anna"], model="a1")  # is not the person who had this name
    assert ids(gallery).count("anna") == 1 and ids(gallery).count("zoe") == 3
    for bad in (("zoe", "ben"), ("nobody", "x"), ("zoe", "zoe"), ("zoe", "nan"), ("zoe", ""), (None, "x"), ("zoe", 3)):
        with pytest.raises(InputError) as refused:
            gallery.rename(*bad)
        assert "\n" not in str(refused.value) and ids(gallery).count("zoe") == 3
    assert gallery.rename("zoe", "ben", merge=True) == 3 and gallery.identities == ["anna", "ben", "carl"]
    gallery.save()
    again = Gallery.load(where)
    assert ids(again).count("ben") == 5 and again.identities == gallery.identities
    with pytest.raises(InputError, match="undo"):
        again.undo()


CHANGES: dict[str, Callable[[Gallery], Any]] = {
    "add": lambda gallery: gallery.add(vectors(2, seed=9), ["x", "y"], ["ben", "zoe"], model="a1"),
    "remove": lambda gallery: gallery.remove(names(1, 3), identity="anna"),
    "rename": lambda gallery: gallery.rename("ben", "zoe"),
    "merge": lambda gallery: gallery.rename("ben", "anna", merge=True),
}


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
@pytest.mark.parametrize("name", CHANGES)
def test_undo_restores_every_row(tmp_path: Path, name: str, kind: str) -> None:
    file = tmp_path / "g"
    gallery = people(file, kind=kind, shards=2)
    gallery.save()
    before, kept = rows(gallery), gallery.identities
    CHANGES[name](gallery)
    gallery.save(undoable=True)
    changed = rows(gallery)
    assert changed != before
    for each in (gallery, gallery := Gallery.load(file)):
        assert rows(each) == changed
        each.undo()
        assert rows(each) == before and each.identities == kept
        with pytest.raises(InputError, match="no change to undo"):
            each.undo()
    gallery.save(undoable=True)
    with pytest.raises(InputError, match="no change to undo"):
        Gallery.load(file).undo()


def test_integers_are_renamed_and_removed() -> None:
    gallery = people(ids=[4, 4, 7, -1])
    assert gallery.identities == [4, 7] and gallery.rename(4, 9) == 2 and ids(gallery) == [9, 9, 7, -1]
    for bad in ((4, 5), (7, -1), (-1, 7), (7, "anna")):
        with pytest.raises(InputError):
            gallery.rename(*bad)
    gallery.remove(identity=9)
    assert ids(gallery) == [7, -1]
    gallery.undo()
    assert sorted(ids(gallery)) == [-1, 7, 9, 9]


def test_only_an_undoable_change_leaves_removed_data_in_the_file(tmp_path: Path) -> None:
    (file, codes) = (tmp_path / name for name in ("g", "codes"))
    gallery = people(file)
    gallery.remove(identity="ben")
    for undoable in (True, False):
        gallery.save(undoable=undoable)
        assert (b"00003.jpg" in file.read_bytes()) == (Gallery.load(file).store.change is not None) == undoable
    count = 9984
    compressed = Gallery.build(
        vectors(count), names(count), [f"p{n % 9}" for n in range(count)], model="a1", kind="ivfpq"
    )
    compressed.remove(identity="p1")
    compressed.save(codes)
    with pytest.raises(InputError, match="ivfpq"):
        compressed.undo()
    compressed.rename("p2", "p1")
    compressed.undo()
    assert "p2" in compressed.identities


def test_change_survives_a_file(tmp_path: Path) -> None:
    features = vectors(1)
    change = Change("remove", [["\udce9"], ["ö"], [None], [-1]], features, {"\udce9": b"\0\xff"})
    read = Change.read(change.to_arrays())
    assert read is not None and np.array_equal(read.features, features) and Change.read({}) is None
    assert (read.action, read.labels, read.files, read.name) == ("remove", change.labels, change.files, change.name)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    people(tmp_path / "g").save()
    return tmp_path / "g"


def test_commands_rename_undo_and_forget(saved: Path) -> None:
    before = rows(Gallery.load(saved))
    assert lreid.gallery.rename(saved, "ben", "anna", merge=True) == 2
    assert lreid.gallery.undo(saved).action == "rename" and rows(Gallery.load(saved)) == before
    uploads = Path(f"{saved}.images")
    uploads.mkdir()
    file = uploads / ("1" * 32 + ".png")
    file.write_bytes(b"a photograph")
    gallery = Gallery.load(saved)
    gallery.add(vectors(1, seed=3), [file], ["dora"], model="a1")
    gallery.save()
    with_dora = rows(gallery)
    for other in (".previous", ".next"):
        shutil.copy(saved, f"{saved}{other}")
    lreid.gallery.remove(saved, identity="dora")
    assert not file.exists() and rows(Gallery.load(saved)) == before
    lreid.gallery.undo(saved)
    assert file.read_bytes() == b"a photograph" and rows(Gallery.load(saved)) == with_dora
    lreid.gallery.remove(saved, identity="dora")
    with pytest.raises(InputError, match="none of these images"):
        lreid.gallery.remove(saved, identity="nobody", everywhere=True)
    assert lreid.gallery.remove(saved, identity="dora", everywhere=True) == 1  # only the change and other versions
    assert not any(
        b"dora" in each.read_bytes() or file.name.encode() in each.read_bytes()
        for each in saved.parent.glob("g*")
        if each.is_file()
    )
    with pytest.raises(InputError, match="no change to undo"):
        lreid.gallery.undo(saved)


def test_group_has_the_mean_of_the_scores_of_its_images() -> None:
    gallery, queries = people(), vectors(5, seed=4)
    single = gallery.search(queries, 8, model="a1")
    score = [dict(zip(*each, strict=True)) for each in zip(single.paths, single.scores.astype(float), strict=True)]
    rowsets = [[0, 3], [1], [2, 4]]
    found = gallery.search(queries, 8, model="a1", group=["b", "", "a", "b", "a"])
    for row, members in enumerate(rowsets):
        mean = {path: np.mean([score[member][path] for member in members]) for path in score[0]}
        assert found.paths[row].tolist() == sorted(mean, key=mean.get, reverse=True)
        np.testing.assert_allclose(found.scores[row], sorted(mean.values(), reverse=True), atol=1e-6)
    hidden = gallery.search(
        queries, 8, None, [1, 2, 3, -1, 5], model="a1", group=[7, 8, 9, 7, 9], exclude_same_camera=True
    )
    assert [({*range(8)} - {*cams.tolist()}) for cams in hidden.cams] == [{1}, {2}, {3, 5}]
    own = gallery.search(
        queries, 8, ["anna"] * 5, [1, 2, 3, 4, 5], model="a1", group=[7, 8, 9, 7, 9], exclude_same_camera=True
    )
    assert [({*range(8)} - {*cams.tolist()}) for cams in own.cams] == [{1}, {2}, set()]
    with pytest.raises(InputError, match="group"):
        gallery.search(queries, 8, model="a1", group=[1, 2])
