import os
import signal
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lreid.errors import InputError
from lreid.retrieval import Gallery
from lreid.retrieval.index import measure_recall, new_index

faiss = pytest.importorskip("faiss")
WIDTH = 8


def vectors(count, seed=0, width=WIDTH):
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def names(count, start=0):
    return [f"{number:05d}.jpg" for number in range(start, start + count)]


def small(kind="flat", count=12, **more):
    ids, cams = np.arange(count) // 3, np.arange(count) % 2
    return Gallery.build(vectors(count), names(count), ids, cams, model="a1", kind=kind, **more)


def cosine(query, image):
    norms = np.linalg.norm(query.astype(float)) * np.linalg.norm(image.astype(float))
    return float(query.astype(float) @ image.astype(float) / norms) if norms else 0.0


def is_hidden(image, exclude, query_id, query_cam):
    _, identity, camera, _ = image
    if exclude == "nothing" or camera == -1 or camera != query_cam:
        return False
    return exclude == "camera" or identity == query_id


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
def test_agrees_with_a_plain_list(kind, actions, exclude, tmp_path_factory):
    rng = np.random.default_rng(0)
    images = []  # the gallery again, as a plain list of (feature, identity, camera, path)
    gallery, made = None, 0
    for action, argument in [("add", 6), *actions, ("search", 5)]:
        if action == "add":
            features = rng.standard_normal((argument, WIDTH)).astype(np.float32)
            ids, cams = rng.integers(4, size=argument), rng.integers(-1, 2, size=argument)
            paths = names(argument, made)
            made += argument
            if gallery is None:
                gallery = Gallery.build(features, paths, ids, cams, model="a1", kind=kind)
            else:
                gallery.add(features, paths, ids, cams, model="a1")
            images += list(zip(features, ids.tolist(), cams.tolist(), paths, strict=True))
        elif action == "remove":
            doomed = {images[place][3] for place in argument if place < len(images)}
            gallery.remove(sorted(doomed))
            images = [image for image in images if image[3] not in doomed]
        elif action == "reload":
            file = tmp_path_factory.mktemp("gallery") / "people.gallery"
            gallery.save(file)
            gallery = Gallery.load(file)
        else:
            queries = rng.standard_normal((3, WIDTH)).astype(np.float32)
            query_ids, query_cams = [0, 1, 2], [0, 1, -1]
            found = gallery.search(
                queries,
                argument,
                query_ids if exclude == "camera and identity" else None,
                query_cams,
                model="a1",
                exclude_same_camera=exclude != "nothing",
            )
            for row, query in enumerate(queries):
                kept = [im for im in images if not is_hidden(im, exclude, query_ids[row], query_cams[row])]
                best = sorted((cosine(query, image[0]) for image in kept), reverse=True)[:argument]
                number = int((found.indices[row] >= 0).sum())
                assert number == len(best)
                np.testing.assert_allclose(found.scores[row, :number], best, atol=1e-5)
                for rank in range(number):
                    image = images[found.indices[row, rank]]
                    assert not is_hidden(image, exclude, query_ids[row], query_cams[row])
                    assert (found.ids[row, rank], found.cams[row, rank], found.paths[row, rank]) == image[1:]
                    assert found.scores[row, rank] == pytest.approx(cosine(query, image[0]), abs=1e-5)
                assert (found.paths[row, number:] == "").all()
                assert (found.ids[row, number:] == -1).all()
                assert np.isneginf(found.scores[row, number:]).all()
    assert len(gallery) == len(images)


def test_ivfpq_keeps_labels_in_step_when_images_go_and_come():
    count = 10_000
    features = vectors(count, width=8)
    gallery = Gallery.build(features, names(count), np.arange(count), model="a1", kind="ivfpq")
    assert 0.3 < gallery.recall[10] < 1
    gallery.remove(names(5000))
    new = vectors(100, seed=1, width=8)
    gallery.add(new, names(100, count), count + np.arange(100), model="a1")
    found = gallery.search(np.concatenate([features[4990:5010], new[:10]]), 5, model="a1")
    expected = [*range(5000, 5010), *range(count, count + 10)]
    hits = [identity in found.ids[row] for row, identity in enumerate(expected, start=10)]
    assert np.mean(hits) > 0.7  # codes are coarse; labels out of step would give 0
    assert (found.ids >= 5000).all()  # nobody removed comes back
    np.testing.assert_array_equal(found.paths, np.array(names(count + 100), dtype=object)[found.ids])


def test_recall_is_what_a_loop_counts():
    features = vectors(300)
    gallery = Gallery.build(features, names(300), model="a1", kind="hnsw")
    assert gallery.recall == {1: 1.0, 10: 1.0}  # so small a graph is searched whole
    units = features / np.linalg.norm(features, axis=1, keepdims=True)
    half = new_index("flat", units)
    half.remove_ids(np.arange(0, 300, 2))  # an index that has lost every other image
    sample = np.unique(np.linspace(0, 299, 256).astype(int))
    hits = 0
    for image in sample:
        order = [other for other in np.argsort(-(units @ units[image]), kind="stable") if other != image][:10]
        hits += sum(other % 2 for other in order)
    assert measure_recall(half, units)[10] == pytest.approx(hits / (10 * len(sample)), abs=1e-3)


def test_features_of_another_model_are_refused_unless_asked_for():
    gallery = small()
    with pytest.raises(InputError, match="holds features of model a1, these are of model b2"):
        gallery.search(vectors(1), model="b2")
    with pytest.raises(InputError, match="model b2"):
        gallery.add(vectors(1), ["new.jpg"], model="b2")
    found = gallery.search(vectors(1), 1, model="b2", cross_model=True)
    assert found.paths[0, 0] == "00000.jpg"
    with pytest.raises(InputError, match="features have 5 numbers a row, the gallery's 8"):
        gallery.search(np.ones((1, 5)), model="b2", cross_model=True)


def test_threshold_lets_the_wanted_share_of_strangers_in():
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((50, WIDTH))
    ids = np.repeat(np.arange(50), 4)
    gallery = Gallery.build(
        centers[ids] + 0.3 * rng.standard_normal((200, WIDTH)), names(200), ids, model="a1"
    )
    strangers = rng.standard_normal((400, WIDTH))
    threshold = gallery.calibrate(strangers, 1000 + np.arange(400), model="a1", false_accept_rate=0.05)
    found = gallery.search(strangers, 3, model="a1")
    assert (~found.unknown).sum() == 20
    np.testing.assert_array_equal(found.known, found.scores >= np.float32(threshold))
    known = gallery.search(centers, 1, model="a1")
    assert known.unknown.mean() < 0.5
    assert (known.ids[~known.unknown, 0] == np.arange(50)[~known.unknown]).all()


def test_calibration_leaves_a_persons_own_images_out():
    features = np.eye(WIDTH)[:3]
    gallery = Gallery.build(features, names(3), [0, 1, -1], model="a1")
    # The second image is itself in the gallery; as a stranger it sees identity 0 only.
    query = np.array([[0.6, 0.8, 0, 0, 0, 0, 0, 0]])
    assert gallery.calibrate(query, [1], model="a1", false_accept_rate=0) == pytest.approx(0.6, abs=1e-6)
    assert gallery.calibrate(query, [0], model="a1", false_accept_rate=0) == pytest.approx(0.8, abs=1e-6)
    with pytest.raises(InputError, match="have no identities"):
        Gallery.build(features, names(3), model="a1").calibrate(query, [1], model="a1")


@pytest.mark.parametrize("memory_map", [False, True])
@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_saving_keeps_everything(tmp_path, kind, memory_map):
    gallery = small(kind)
    gallery.paths[3] = "straße/\n\udcff.jpg"  # file names need be neither ASCII nor even Unicode
    gallery.extras["running_mean"] = np.arange(3.0)
    gallery.calibrate(vectors(5, seed=2), np.arange(5), model="a1", false_accept_rate=0.2)
    file = tmp_path / "new folder" / "people.gallery"
    gallery.save(file)
    again = Gallery.load(file, memory_map=memory_map)
    assert [path.name for path in file.parent.iterdir()] == ["people.gallery"]
    for name in ("kind", "model", "next_key", "recall", "threshold", "false_accept_rate"):
        assert getattr(again, name) == getattr(gallery, name)
    np.testing.assert_array_equal(again.extras["running_mean"], np.arange(3.0))
    queries = vectors(4, seed=3)
    one, two = (each.search(queries, 5, model="a1") for each in (gallery, again))
    for name in ("scores", "indices", "ids", "cams", "paths", "known"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    again.save(file)  # over the file that may be mapped just now
    assert len(Gallery.load(file)) == 12


def test_a_memory_mapped_gallery_cannot_be_changed(tmp_path):
    small().save(tmp_path / "g")
    gallery = Gallery.load(tmp_path / "g", memory_map=True)
    with pytest.raises(InputError, match="memory_map=False"):
        gallery.remove(["00000.jpg"])
    with pytest.raises(InputError, match="memory_map=False"):
        gallery.add(vectors(1), ["new.jpg"], model="a1")


@pytest.mark.parametrize("moment", ["write_index", "savez", "fsync"])
def test_killed_while_saving_leaves_the_old_gallery_whole(tmp_path, moment):
    file = tmp_path / "people.gallery"
    small(count=12).save(file)
    program = f"""
import os, signal, sys
import numpy as np, faiss
from lreid.retrieval import Gallery
from lreid.retrieval.index import measure_recall, new_index

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

gallery = Gallery.build(np.eye(8, dtype="f4"), list("abcdefgh"), model="a1")
moment = {moment!r}
if moment == "write_index":
    def half(index, path):
        open(path, "wb").write(b"IxMp half an index")
        die()
    faiss.write_index = half
else:
    setattr(*((np, "savez") if moment == "savez" else (os, "fsync")), die)
gallery.save(sys.argv[1])
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.run([sys.executable, "-c", program, str(file)], env=environment, capture_output=True)
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()
    assert len(Gallery.load(file)) == 12


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


def test_another_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("lreid.retrieval.gallery_file.FORMAT", 0)
    small().save(tmp_path / "g")
    monkeypatch.undo()
    with pytest.raises(InputError, match="another version"):
        Gallery.load(tmp_path / "g")


def test_the_file_opens_as_a_faiss_index_and_as_a_zip_archive(tmp_path):
    small().save(tmp_path / "g")
    assert faiss.read_index(str(tmp_path / "g")).ntotal == 12
    assert "ids.npy" in zipfile.ZipFile(tmp_path / "g").namelist()


def test_a_failed_change_changes_nothing():
    gallery = small()
    with pytest.raises(InputError, match="nobody.jpg: is not in the gallery"):
        gallery.remove(["00001.jpg", "nobody.jpg"])
    with pytest.raises(InputError, match="00001.jpg: is in the gallery already"):
        gallery.add(vectors(2), ["new.jpg", "00001.jpg"], model="a1")
    assert len(gallery) == gallery.index.ntotal == 12


def test_an_empty_gallery_knows_nobody():
    for kind in ("flat", "hnsw"):
        gallery = small(kind)
        gallery.remove(names(12))
        found = gallery.search(vectors(2), 3, model="a1")
        assert (found.indices == -1).all() and found.unknown.all()
        gallery.add(vectors(1), ["back.jpg"], model="a1")
        assert gallery.search(vectors(1), 3, model="a1").paths[0].tolist() == ["back.jpg", "", ""]


def test_bad_input_is_named(monkeypatch):
    with pytest.raises(InputError, match="index kind 'lsh': unknown; use flat, hnsw or ivfpq"):
        small("lsh")
    with pytest.raises(InputError, match="ivfpq learns from 9984 images or more, got 12; use flat"):
        small("ivfpq")
    with pytest.raises(InputError, match="gallery paths: expected 2, one a feature row, got 1"):
        Gallery.build(vectors(2), ["a"], model="a1")
    with pytest.raises(InputError, match="some name comes twice"):
        Gallery.build(vectors(2), ["a", "a"], model="a1")
    with pytest.raises(InputError, match="gallery features: 1 of 2 rows hold NaN"):
        Gallery.build(np.array([[1.0, 0], [np.nan, 0]]), ["a", "b"], model="a1")
    with pytest.raises(InputError, match="needs query_cams"):
        small().search(vectors(1), model="a1", exclude_same_camera=True)
    with pytest.raises(InputError, match="at least one image"):
        small().search(vectors(1), 0, model="a1")
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match=r"install lreid\[cpu\], or lreid\[gpu\]"):
        small()
