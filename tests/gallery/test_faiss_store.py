"""Searches by faiss: kinds, codes, shards and filters."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from galleries import WIDTH, names, play, small, vectors
from hypothesis import given, settings
from hypothesis import strategies as st

from lreid.errors import InputError
from lreid.gallery import Filter, Gallery
from lreid.gallery.shards import Shards

faiss = pytest.importorskip("faiss")


actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 5)),
        st.tuples(st.just("remove"), st.lists(st.integers(0, 30), max_size=4)),
        st.tuples(st.just("search"), st.integers(1, 6)),
        st.tuples(st.just("reload"), st.booleans()),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
@settings(max_examples=40, deadline=None)
@given(actions=actions, exclude=st.sampled_from(["nothing", "camera", "camera and identity"]))
def test_faiss_store_agrees_with_a_plain_list(kind, actions, exclude, tmp_path_factory):
    play(actions, exclude, kind, lambda: str(tmp_path_factory.mktemp("gallery") / "people.gallery"))


@pytest.mark.slow
def test_ivfpq_returns_right_labels_after_removals_and_additions():
    count = 10_000
    features = vectors(count, width=8)
    gallery = Gallery.build(features, names(count), np.arange(count), model="a1", kind="ivfpq")
    assert 0.3 < gallery.about.recall[10] < 1
    gallery.remove(names(5000))
    new = vectors(100, seed=1, width=8)
    gallery.add(new, names(100, count), count + np.arange(100), model="a1")
    found = gallery.search(np.concatenate([features[4990:5010], new[:10]]), 5, model="a1")
    expected = [*range(5000, 5010), *range(count, count + 10)]
    hits = [identity in found.ids[row] for row, identity in enumerate(expected, start=10)]
    assert np.mean(hits) > 0.7  # codes are coarse; labels out of step would give 0
    assert (found.ids >= 5000).all()  # nobody removed comes back
    np.testing.assert_array_equal(found.paths, np.array(names(count + 100), dtype=object)[found.ids])


def test_recall_equals_a_loop():
    features = vectors(300)
    gallery = Gallery.build(features, names(300), model="a1", kind="hnsw")
    assert gallery.about.recall == {1: 1.0, 10: 1.0}  # so small a graph is searched whole
    units = features / np.linalg.norm(features, axis=1, keepdims=True)
    half = Shards.build("flat", units, 1)
    half.remove(np.arange(0, 300, 2))  # an index that has lost every other image
    sample = np.unique(np.linspace(0, 299, 256).astype(int))
    hits = 0
    for image in sample:
        order = [other for other in np.argsort(-(units @ units[image]), kind="stable") if other != image][:10]
        hits += sum(other % 2 for other in order)
    assert half.recall(units)[10] == pytest.approx(hits / (10 * len(sample)), abs=1e-3)


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_shards_return_the_same_images_as_one_index(tmp_path, kind):
    rng = np.random.default_rng(0)
    count, file = 400, tmp_path / "g"
    features, cams = vectors(count), rng.integers(0, 4, count)
    one = Gallery.build(features, names(count), np.arange(count), cams, model="a1")
    more = Gallery.build(features, names(count), np.arange(count), cams, model="a1", kind=kind, shards=3, at=file)
    more.save()
    more = Gallery.load(file)
    gone = names(count)[50:90]
    for gallery in (one, more):
        gallery.remove(gone)
        gallery.add(vectors(7, seed=1), names(7, count), np.arange(7), np.arange(7) % 4, model="a1")
    more.save()
    more = Gallery.load(file)
    for where in (Filter(), Filter(cameras=[2]), Filter(not_cameras=[0, 1], not_identities=[5])):
        expected, found = (each.search(vectors(40, seed=2), 10, model="a1", where=where) for each in (one, more))
        np.testing.assert_array_equal(found.paths, expected.paths)
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-6)
    labels = more.labels()
    np.testing.assert_allclose(more.features(labels.keys), one.features(labels.keys), atol=1e-6)
    few = more.search(vectors(2), 300, model="a1", where=Filter(identities=range(5)))
    assert ((few.keys >= 0).sum(1) == more.count(Filter(identities=range(5)))).all()
    with pytest.raises(InputError, match="3 shards"):
        Gallery.load(file, memory_map=True)
    with pytest.raises(InputError, match="shards is 0"):
        small(shards=0)


@pytest.mark.parametrize("kind", ["hnsw", "ivfpq"])
@pytest.mark.parametrize("few", [0, 4096])
def test_filter_that_excludes_the_nearest_images_returns_others(kind, few, monkeypatch):
    monkeypatch.setattr("lreid.gallery.shards.EXACT_UP_TO", few)
    rng, count = np.random.default_rng(0), 10_000
    near = rng.random(count) < 0.9
    features = 0.2 * vectors(count) + np.where(near, 1, -1)[:, None] * np.eye(WIDTH, dtype=np.float32)[0]
    cams = np.where(near, 0, rng.integers(1, 100, count))
    gallery = Gallery.build(features, names(count), cams=cams, model="a1", kind=kind)
    query = np.eye(WIDTH)[:1]
    for where in (Filter(not_cameras=[0]), Filter(cameras=[5]), Filter(cameras=[1000])):
        allowed = np.flatnonzero(where.allows(cams, cams, cams))
        found = gallery.search(query, 10, model="a1", where=where)
        assert (found.keys >= 0).sum() == min(10, len(allowed))
        assert np.isin(found.keys[found.keys >= 0], allowed).all()
        if kind == "hnsw":
            units = features[allowed] / np.linalg.norm(features[allowed], axis=1, keepdims=True)
            assert set(found.keys[found.keys >= 0]) == set(allowed[np.argsort(-units[:, 0])[:10]])


def test_gallery_with_too_few_images_for_its_kind_stays_unfinished(tmp_path: Path):
    file = tmp_path / "few.gallery"
    gallery = Gallery.build(vectors(20), names(20), model="a1", kind="ivfpq", at=file, whole=False)
    with pytest.raises(InputError, match="9984 images or more"):
        gallery.finish()
    gallery.save()
    assert len(Gallery.load(file, unfinished=True)) == 20
    with pytest.raises(InputError, match="is not complete yet"):
        Gallery.load(file)


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_threads_take_turns(tmp_path: Path, kind: str) -> None:
    """In a process of its own, because faiss would end the process."""
    code = f"""
import sys
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, {str(Path(__file__).parent)!r})
from galleries import names, small, vectors
from lreid.gallery import Gallery
gallery, features = small({kind!r}, 60, at={str(tmp_path / "g")!r}), vectors(400, 1)
gallery.save()

def change(thread):
    for row in range(thread, 400, 4):
        gallery.add(features[row : row + 1], [str(row)], [row], [0], model="a1")
        gallery.search(features[:3], 5, model="a1")
        if row % 8 == 0:
            gallery.remove([str(row)])
        if row % 20 < 4:
            gallery.save()

with ThreadPoolExecutor(4) as pool:
    list(pool.map(change, range(4)))
gallery.save()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    labels = Gallery.load(tmp_path / "g").labels()
    assert sorted(labels.paths) == sorted([*names(60), *(str(row) for row in range(400) if row % 8)])


def test_gallery_that_cannot_be_read_replaces_no_file(tmp_path: Path) -> None:
    gallery = small(at=tmp_path / "g")
    gallery.save()
    before = (tmp_path / "g").read_bytes()
    gallery.store.everything.keys[3] = gallery.store.everything.keys[2]  # as after changes by two threads
    with pytest.raises(InputError, match="^.*g.*: "):
        gallery.save()
    assert (tmp_path / "g").read_bytes() == before and [*tmp_path.iterdir()] == [tmp_path / "g"]


def test_failed_addition_leaves_no_names(tmp_path: Path):
    file = tmp_path / "people.gallery"
    Gallery.build(vectors(3), names(3), ["anna", "ben", "carl"], model="a1").save(file)
    gallery = Gallery.load(file, memory_map=True)
    with pytest.raises(InputError, match="memory-mapped"):
        gallery.add(vectors(1), ["new.jpg"], ["zoe"], model="a1")
    with pytest.raises(InputError, match="has no identity 'zoe'"):
        gallery.number_of("identity", "zoe")


def test_saving_a_file_or_refusing_milvus_does_not_load_pymilvus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "lreid.gallery.milvus_store", None)  # an import of it raises ImportError
    gallery = Gallery.build(vectors(3), names(3), model="a1")
    with pytest.raises(InputError, match="lreid search migrate"):
        gallery.save("milvus:people.db")
    with pytest.raises(InputError, match="name a file"):
        gallery.save("http://localhost/people.gallery")
    gallery.save(tmp_path / "people.gallery")
