"""Galleries in a file, in Milvus Lite and on its server."""

from pathlib import Path

import numpy as np
import pytest
import torch
from galleries import WIDTH, names, play, small, vectors
from hypothesis import given, settings
from hypothesis import strategies as st

from lreid.errors import InputError
from lreid.gallery import Filter, Gallery, roll_back
from lreid.gallery.scoring import GallerySearch
from lreid.retrieval import evaluate

pytest.importorskip("faiss")
RUN = [("search", 4), ("add", 5), ("remove", [0, 7, 3]), ("search", 20), ("reload", True), ("add", 3), ("search", 6)]
RUN += [("remove", [1]), ("remove", []), ("reload", True), ("search", 3)]


@pytest.mark.parametrize(
    ("kind", "exclude"), [("flat", "nothing"), ("hnsw", "camera"), ("flat", "camera and identity")]
)
def test_gallery_agrees_with_a_plain_list(new_place, kind, exclude):
    play(RUN, exclude, kind, new_place)


def test_features_of_another_model_or_length_are_refused(new_place):
    gallery = small(at=new_place())
    found = gallery.search(vectors(1), 1, model="b2", cross_model=True)
    assert found.paths[0, 0] == "00000.jpg"
    for features, model, fault in ((vectors(1), "b2", "model b2"), (np.ones((1, 5)), "a1", "5 numbers")):
        with pytest.raises(InputError, match=fault):
            gallery.search(features, model=model)
        with pytest.raises(InputError, match=fault):
            gallery.add(features, ["new.jpg"], model=model)


def test_threshold_accepts_the_given_share_of_impostors(new_place):
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((20, WIDTH))
    ids = np.repeat(np.arange(20), 4)
    place = new_place()
    gallery = Gallery.build(centers[ids] + 0.3 * rng.standard_normal((80, WIDTH)), names(80), ids, model="a1", at=place)
    impostors = rng.standard_normal((40, WIDTH))
    threshold = gallery.calibrate(impostors, 1000 + np.arange(40), model="a1", false_accept_rate=0.05)
    gallery.save()
    gallery = Gallery.load(place)
    assert (gallery.about.threshold, gallery.about.false_accept_rate) == (threshold, 0.05)
    found = gallery.search(impostors, 3, model="a1")
    assert (~found.unknown).sum() == 2
    np.testing.assert_array_equal(found.known, found.scores >= np.float32(threshold))
    known = gallery.search(centers, 1, model="a1")
    assert known.unknown.mean() < 0.9
    assert (known.ids[~known.unknown, 0] == np.arange(20)[~known.unknown]).all()


def test_images_without_identity_are_never_known(new_place):
    rng = np.random.default_rng(0)
    ids = np.repeat([*range(50), -1], [1] * 50 + [500])
    gallery = Gallery.build(rng.standard_normal((550, WIDTH)), names(550), ids, model="a1", at=new_place())
    assert gallery.search(vectors(3), 50, model="a1").known.all()  # there is no threshold yet
    impostors = rng.standard_normal((100, WIDTH))
    threshold = gallery.calibrate(impostors, 1000 + np.arange(100), model="a1", false_accept_rate=0.02)
    found = gallery.search(impostors, 50, model="a1")
    np.testing.assert_array_equal(found.known, (found.scores >= np.float32(threshold)) & (found.ids != -1))
    assert (~found.unknown).mean() == pytest.approx(0.02)
    assert (found.scores[:, 0] >= threshold).mean() > 0.1  # most of them by a nameless image


def test_paths_and_text_name_the_same_image(new_place):
    paths = [Path(name) for name in names(3)]
    gallery = Gallery.build(vectors(3), paths, model="a1", at=new_place())
    assert gallery.labels().paths.tolist() and all(type(path) is str for path in gallery.labels().paths)
    assert gallery.holds([Path("00001.jpg"), Path("new.jpg")]).tolist() == [True, False]
    with pytest.raises(InputError, match="^paths "):
        gallery.add(vectors(2), [Path("new.jpg"), "new.jpg"], model="a1")
    with pytest.raises(InputError, match="00001.jpg: "):
        gallery.add(vectors(2), ["new.jpg", Path("00001.jpg")], model="a1")
    with pytest.raises(InputError, match="nobody.jpg: "):
        gallery.remove(["00001.jpg", "nobody.jpg"])
    assert len(gallery) == len(gallery.labels()) == 3  # a change that fails changes nothing
    gallery.remove([Path("00001.jpg"), "00001.jpg"])
    assert len(gallery) == 2


def test_features_of_a_removed_image_are_refused(new_place):
    gallery = small(at=new_place())
    labels = gallery.labels()
    gallery.remove(labels.paths[[4, 11]])
    for gone in labels.keys[[4, 11]]:
        with pytest.raises(InputError, match=f"key {gone}: "):
            gallery.features(np.array([labels.keys[0], gone]))
    assert gallery.features([]).shape == (0, WIDTH)


def test_calibration_excludes_a_persons_own_images(new_place):
    features = np.eye(WIDTH)[:3]
    gallery = Gallery.build(features, names(3), [0, 1, -1], model="a1", at=new_place())
    # The second image is itself in the gallery; as an impostor it sees identity 0 only.
    query = np.array([[0.6, 0.8, 0, 0, 0, 0, 0, 0]])
    assert gallery.calibrate(query, [1], model="a1", false_accept_rate=0) == pytest.approx(0.6, abs=1e-6)
    assert gallery.calibrate(query, [0], model="a1", false_accept_rate=0) == pytest.approx(0.8, abs=1e-6)
    gallery.remove(names(2))
    with pytest.raises(InputError, match="have no identities"):
        gallery.calibrate(query, [1], model="a1")


def test_saved_gallery_equals_the_original(new_place):
    paths = names(12)
    paths[3] = "straße/\n\"'\udcff.jpg"  # file names need be neither ASCII nor even Unicode
    big = np.random.default_rng(0).standard_normal((3, 40_000))
    place, people = new_place(), {2**62 + 1: "ann\udcfe", 5: 'b"; drop'}
    labels, extras = (np.arange(12), np.arange(12) % 3, np.arange(12) - 1), {"mean": big, "text": np.array(["ü"])}
    about = {"names": {"identity": dict(people)}, "extras": extras}
    gallery = Gallery.build(vectors(12), paths, *labels, model="a1", at=place, **about)
    gallery.about.names["identity"] |= dict.fromkeys(range(10, 200), "x" * 500)  # more than a row holds
    gallery.add(vectors(1, seed=9), ["new.jpg"], [11], [2], [4 * 10**9], model="a1")
    gallery.calibrate(vectors(5, seed=2), np.arange(5), model="a1", false_accept_rate=0.2)
    gallery.save()
    again = Gallery.load(place)
    for name in ("kind", "model", "recall", "threshold", "false_accept_rate", "names", "whole"):
        assert getattr(again.about, name) == getattr(gallery.about, name)
    assert again.about.names["identity"][2**62 + 1] == "ann\udcfe" and again.width == WIDTH
    np.testing.assert_array_equal(again.about.extras["mean"], big)
    assert again.about.extras["text"].tolist() == ["ü"]
    queries = vectors(4, seed=3)
    one, two = (each.search(queries, 5, model="a1") for each in (gallery, again))
    for name in ("scores", "keys", "ids", "cams", "times", "paths", "known"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert again.holds([paths[3], "nobody"]).tolist() == [True, False]
    labels = again.labels()
    assert dict(zip(labels.paths, labels.times.tolist(), strict=True))["new.jpg"] == 4 * 10**9
    assert (np.diff(labels.keys) > 0).all()
    units = again.features(labels.keys)
    own = again.search(units, 1, model="a1")
    np.testing.assert_array_equal(own.paths[:, 0], labels.paths)
    again.save()  # again, and after a search


def test_removed_names_are_deleted_from_the_store(new_place):
    place, many = (new_place(), {number: f"somebody {number}" for number in range(3000)})  # more than a row holds
    small(at=place, names={"identity": dict(many), "camera": {0: "door", 1: "hall"}}).save()
    gallery = Gallery.load(place)
    for number in (0, 1, 2999):
        del gallery.about.names["identity"][number], many[number]
    gallery.save()
    again = Gallery.load(place)
    assert again.about.names == {"identity": many, "camera": {0: "door", 1: "hall"}}
    gallery.about.names["identity"][1] = "back"
    gallery.save()
    assert Gallery.load(place).about.names["identity"] == many | {1: "back"}


def test_search_returns_only_images_that_a_filter_allows(new_place):
    rng = np.random.default_rng(5)
    features, count = vectors(300), 300
    ids, cams = rng.integers(-1, 12, count), rng.integers(-1, 6, count)
    times = np.where(rng.random(count) < 0.2, -1, rng.integers(0, 100, count))
    gallery = Gallery.build(features, names(count), ids, cams, times, model="a1", at=new_place())
    units = features / np.linalg.norm(features, axis=1, keepdims=True)
    for turn in range(25):
        where = random_filter(rng)
        allowed = where.allows(ids, cams, times)
        assert gallery.count(where) == allowed.sum()
        queries, other = vectors(8, seed=100 + turn), turn % 2 == 1
        labels = rng.integers(0, 12, 8), rng.integers(0, 6, 8)
        found = gallery.search(queries, 5, *labels, model="a1", exclude_same_camera=other, where=where)
        for row, query in enumerate(queries):
            shown = allowed & ~((ids == labels[0][row]) & (cams == labels[1][row]) & other)
            scores = np.where(shown, units @ (query / np.linalg.norm(query)), -np.inf)
            best = np.argsort(-scores)[: min(5, shown.sum())]
            assert found.paths[row].tolist() == [names(count)[i] for i in best] + [""] * (5 - len(best))


def random_filter(rng: np.random.Generator) -> Filter:
    def some(most: int) -> list[int]:
        return rng.integers(-1, most, rng.integers(0, 4)).tolist()

    start = int(rng.integers(0, 100))
    return Filter(
        cameras=some(6) if rng.random() < 0.3 else None,
        not_cameras=some(6) if rng.random() < 0.3 else (),
        identities=some(12) if rng.random() < 0.3 else None,
        not_identities=some(12) if rng.random() < 0.3 else (),
        since=start if rng.random() < 0.3 else None,
        until=start + 30 if rng.random() < 0.3 else None,
        not_both=[(int(rng.integers(12)), int(rng.integers(6)))] if rng.random() < 0.5 else (),
    )


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_empty_gallery_returns_no_matches(new_place, kind):
    gallery = small(kind, at=new_place())
    gallery.remove(names(12))
    found = gallery.search(vectors(2), 3, model="a1")
    assert (found.keys == -1).all() and found.unknown.all() and len(gallery) == 0
    gallery.add(vectors(1), ["back.jpg"], model="a1")
    assert gallery.search(vectors(1), 3, model="a1").paths[0].tolist() == ["back.jpg", "", ""]


@pytest.mark.parametrize(
    ("features", "paths", "kind", "fault"),
    [
        (vectors(2), ["a", "b"], "lsh", "kind is 'lsh'"),
        (vectors(2), ["a", "b"], "ivfpq", "ivfpq"),
        (vectors(2), ["a"], "flat", "paths"),
        (vectors(2), ["a", "a"], "flat", "paths"),
        (np.array([[1.0, 0], [np.nan, 0]]), ["a", "b"], "flat", "features: 1 of 2"),
    ],
)
def test_gallery_of_invalid_images_is_not_built(new_place, features, paths, kind, fault):
    with pytest.raises(InputError, match=fault):
        Gallery.build(features, paths, model="a1", kind=kind, at=new_place())


def test_invalid_arguments_are_named(new_place):
    place = new_place()
    with pytest.raises(InputError, match="no such "):
        Gallery.load(place)
    gallery = small(at=place)
    with pytest.raises(InputError, match="query_cams is missing"):
        gallery.search(vectors(1), model="a1", exclude_same_camera=True)
    for argument, value in [("k", 0), ("where", None), ("where", [1])]:
        with pytest.raises(InputError, match=f"^{argument} is "):
            gallery.search(vectors(1), model="a1", **{argument: value})
    for paths in (None, 3):
        with pytest.raises(InputError, match="^paths is "):
            gallery.remove(paths)
    for path in (3, "", "a\0b", "https://host/people.gallery", "milvus:people.db"):
        with pytest.raises(InputError, match="(gallery|path) is |is in Milvus"):
            gallery.save(path)
    assert len(gallery) == 12


def test_versions_are_switched_and_rolled_back(new_place):
    from lreid.gallery.gallery import place_of

    place = place_of(new_place())
    current = small(at=place)
    current.save()
    assert not place.next().exists() and not place.previous().exists()
    with pytest.raises(InputError, match="no previous version"):
        roll_back(place)
    new = Gallery.build(vectors(3), names(3), model="b2", at=place.next(), whole=False)
    new.save()
    with pytest.raises(InputError, match="not complete yet"):
        Gallery.load(place.next())
    assert Gallery.load(place).about.model == "a1" and place.next().exists()
    new = Gallery.load(place.next(), unfinished=True)
    new.add(vectors(1, seed=1), ["late.jpg"], model="b2")
    new.finish()
    place.switch(Gallery.load(place).store)
    assert (Gallery.load(place).about.model, len(Gallery.load(place))) == ("b2", 4)
    with pytest.raises(InputError, match="run this again|in the meantime"):
        current.add(vectors(1, seed=1), ["late.jpg"], model="a1")
        current.save()
    assert len(Gallery.load(place)) == 4
    place.roll_back()
    assert Gallery.load(place).about.model == "a1"
    assert Gallery.load(place.next()).about.model == "b2" and not place.previous().exists()
    place.next().delete()
    assert not place.next().exists()


def test_labels_are_returned_in_the_form_in_which_they_were_given(new_place):
    place, features = new_place(), vectors(6)
    people, doors = ["ann", "ann", "bob", 'e"v\ne', None, "-1"], np.array(["north"] * 3 + ["south"] * 3)
    gallery = Gallery.build(features, names(6), people, doors, model="a1", at=place)
    gallery.add(vectors(1, seed=1), ["new.jpg"], ["bob"], ["hall"], model="a1")
    gallery.save()
    for each in (gallery, Gallery.load(place)):
        found = each.search(features, 1, model="a1")
        assert found.ids[:, 0].tolist() == ["ann", "ann", "bob", 'e"v\ne', None, None]
        assert found.cams[:, 0].tolist() == doors.tolist()
        labels = each.labels()
        assert dict(zip(labels.paths, labels.ids, strict=True))["new.jpg"] == "bob"

        def among(where, each=each):
            return set(each.search(features[:1], 7, model="a1", where=where).paths[0]) - {""}

        assert among(Filter(identities=["bob"])) == {"00002.jpg", "new.jpg"}
        assert among(Filter(not_identities=["ann"], cameras=["north"])) == {"00002.jpg"}
        assert len(among(Filter(not_both=[("ann", "north")]))) == 5 == each.count(Filter(not_identities=["ann"]))
        with pytest.raises(InputError, match="'west' .*hall, north, south"):
            among(Filter(cameras=["west"]))
        own = each.search(features[:1], 7, ["ann"], ["north"], model="a1", exclude_same_camera=True)
        assert not {"00000.jpg", "00001.jpg"} & set(own.paths[0])
    strangers = gallery.calibrate(features[:4], ["ann", "ann", "bob", "never seen"], model="a1", false_accept_rate=0.5)
    assert strangers == Gallery.load(place).calibrate(
        features[:4], ["ann", "ann", "bob", "x"], model="a1", false_accept_rate=0.5
    )
    gallery.remove(["00002.jpg", "00003.jpg"])
    assert sorted(gallery.about.names["identity"].values()) == ["ann", "bob"]  # a name goes with its last image
    gallery = small(at=new_place())
    assert gallery.labels().ids.dtype == gallery.search(vectors(1), 2, model="a1").cams.dtype == np.int64
    gallery = Gallery.build(vectors(3), names(3), [0, 1, 2], ["a", "b", "c"], model="a1", at=new_place())
    assert gallery.labels().ids.dtype == np.int64 and set(gallery.labels().cams) == {"a", "b", "c"}


@pytest.mark.parametrize(("kept", "other", "both"), [([7, 8], "ann", "7|integers|ann"), (["ann", "bob"], 7, "7")])
def test_numbers_mixed_with_text_are_refused(new_place, kept, other, both):
    gallery, query = Gallery.build(vectors(2), names(2), kept, kept, model="a1", at=new_place()), vectors(1)
    filters = [Filter(**{name: [other]}) for name in ("cameras", "not_cameras", "identities", "not_identities")]
    for use in (
        lambda: gallery.add(query, ["new.jpg"], [other], None, model="a1"),
        lambda: gallery.add(query, ["new.jpg"], None, [other], model="a1"),
        lambda: gallery.search(query, 1, [other], kept[:1], model="a1", exclude_same_camera=True),
        lambda: gallery.search(query, 1, kept[:1], [other], model="a1", exclude_same_camera=True),
        lambda: gallery.calibrate(query, [other], model="a1"),
        *(lambda where=where: gallery.search(query, 1, model="a1", where=where) for where in filters),
    ):
        with pytest.raises(InputError, match=both):
            use()
    assert len(gallery) == 2


def test_unknown_labels_are_returned_as_unknown_and_match_nothing(new_place):
    nan = float("nan")
    ids, cams = ["a", "b", nan, "", "-1.0", None], [1.0, nan, 2, -1, 1, None]
    gallery = Gallery.build(np.eye(6), names(6), ids, cams, [nan, 5.0, None, 7, -1, 0], model="a1", at=new_place())
    labels = gallery.labels()
    by_path = {path: row for path, *row in zip(labels.paths, labels.ids, labels.cams, labels.times, strict=True)}
    assert [by_path[path] for path in names(6)] == [
        ["a", 1, -1], ["b", -1, 5], [None, 2, -1], [None, -1, 7], [None, 1, -1], [None, -1, 0]
    ]  # fmt: skip
    assert gallery.count(Filter(not_identities=[-1])) == 2 and gallery.count(Filter(cameras=["-1.0"])) == 3
    for ids, cams in (([None], [1]), (["a"], [nan]), ([" "], [" "]), (None, [None])):
        found = gallery.search(np.ones((1, 6)), 6, ids, cams, model="a1", exclude_same_camera=True)
        assert (found.keys >= 0).all()  # nobody is known to be the same, so none is left out
    assert gallery.count(Filter(not_both=[("a", 1), (-1, 1), ("b", -1)])) == 5
    # An unknown person may be a, who is enrolled, and is no impostor.
    queries = np.array([[1.0, 0, 0, 0, 0, 0], [0.6, 0.8, 0, 0, 0, 0]])
    for ids in ([nan, "b"], ["-01", "b"]):
        threshold = gallery.calibrate(queries, ids, model="a1", false_accept_rate=0)
        assert threshold == pytest.approx(0.6, abs=1e-6)
    with pytest.raises(InputError, match="calibration identities"):
        gallery.calibrate(queries, [None, ""], model="a1")


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_search_ranks_like_an_evaluation(seed):
    rng = np.random.default_rng(seed)
    queries, features = rng.standard_normal((4, WIDTH)), rng.standard_normal((15, WIDTH))
    ids, cams = rng.integers(1, 4, 4), rng.choice([-1, 0, 1], 4)
    gallery_ids, gallery_cams = rng.choice([-1, 1, 2, 3], 15), rng.choice([-1, 0, 1], 15)
    gallery = Gallery.build(features, names(15), gallery_ids, gallery_cams, model="a1")
    known = Filter(not_identities=[-1])  # in a ranking that is scored, an image of nobody is junk
    found = gallery.search(queries, 15, ids, cams, model="a1", exclude_same_camera=True, where=known)
    precisions = []
    for row, pid in enumerate(ids):
        right = found.ids[row][found.keys[row] >= 0] == pid
        precisions.append((np.cumsum(right) / np.arange(1, len(right) + 1))[right].mean() if right.any() else np.nan)
    if not np.isnan(precisions).all():
        result = evaluate(queries, features, ids, gallery_ids, cams, gallery_cams)
        np.testing.assert_allclose(result.ap, precisions)


@pytest.mark.parametrize("scale", [1e-46, 1e-300, 1e100])
def test_float64_features_are_normalised_in_float64(new_place, scale):
    features, queries = vectors(7).astype(np.float64), vectors(3, seed=1).astype(np.float64)
    gallery = Gallery.build(scale * features[:4], names(4), np.arange(4), model="a1", at=new_place())
    gallery.add(scale * features[4:], names(3, 4), np.arange(4, 7), model="a1")
    units = features / np.linalg.norm(features, axis=1, keepdims=True)
    cosines = queries / np.linalg.norm(queries, axis=1, keepdims=True) @ units.T
    found = gallery.search(scale * queries, 7, model="a1")
    np.testing.assert_allclose(found.scores, -np.sort(-cosines), atol=1e-6)
    np.testing.assert_array_equal(found.ids, np.argsort(-cosines))
    if scale > 1e-100:  # so that lengths, which scores are multiplied with, do not vanish
        tensor = torch.from_numpy(scale * queries)
        scores, rows = GallerySearch(gallery, 7)(tensor)
        order = [int(path[:5]) for path in gallery.labels().paths]
        expected = np.take_along_axis(cosines[:, order], rows.numpy(), 1)
        np.testing.assert_allclose(scores / tensor.norm(dim=1, keepdim=True), expected, atol=1e-6)
    threshold = gallery.calibrate(scale * queries, [100, 101, 102], model="a1", false_accept_rate=0)
    assert threshold == pytest.approx(cosines.max(), abs=1e-6)


def test_matches_are_rows_of_the_arrays_and_a_threshold_decides_which_are_known(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    ids, paths = ["anna", "ben", None, "anna"], [f"{number}.jpg" for number in range(4)]
    built = Gallery.build(rng.standard_normal((4, 6)), paths, ids, model="a1")
    built.save(tmp_path / "people.gallery")
    gallery, queries = Gallery(tmp_path / "people.gallery"), rng.standard_normal((2, 6))
    with pytest.raises(InputError, match="none.gallery"):
        Gallery(tmp_path / "none.gallery")
    for k in (7, 10**6):  # both above the size of the gallery
        matches = gallery.search(queries, k, model="a1", threshold=0.1)
        assert len(matches) == 8 and matches[0] == next(iter(matches)) and matches.unknown.shape == (2,)
        for place, match in enumerate(matches):
            row = place // 4, place % 4
            assert (match.query, match.rank) == (row[0], row[1] + 1)
            assert match.score == matches.scores[row] and match.path == matches.paths[row]
            assert match.identity == matches.ids[row] == ids[paths.index(match.path)]
            assert match.known == (match.identity is not None and match.score >= 0.1)
        frame = matches.to_frame().replace({np.nan: None}).to_dict("list")
        assert matches.to_dict() == frame
    assert {match.known for match in gallery.search(queries, 4, model="a1")} == {True}  # the gallery has no threshold
    for wrong in (1.5, "high", True + 1):
        with pytest.raises(InputError, match="threshold"):
            gallery.search(queries, model="a1", threshold=wrong)
    for guess, call in (("ids", "labels"), ("names", "identities"), ("other", "other")):
        with pytest.raises(AttributeError, match=call):
            getattr(gallery, guess)


@pytest.mark.parametrize(
    "extras",
    [
        {},
        {"checkpoint": np.array([]), "flip": np.array([False])},
        {"checkpoint": np.array(["a.pt"]), "flip": np.array([False]), "norm/features/1": np.zeros(2)},
        {"checkpoint": np.array(["a.pt"]), "flip": np.array([False]), "norm/features/whole": np.array(["a"])},
    ],
)
def test_gallery_without_a_record_of_its_extraction_is_named(extras: dict[str, np.ndarray]) -> None:
    gallery = Gallery.build(np.eye(3, dtype=np.float32), ["a", "b", "c"], model="any", extras=extras)
    with pytest.raises(InputError, match="does not record its extraction"):
        _ = gallery.extraction
