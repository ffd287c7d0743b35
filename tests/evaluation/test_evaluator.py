"""Figures of a model on test sets, against those of its features."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from lreid.data.listing import folders_test
from lreid.data.records import QueryGallery
from lreid.data.synthetic import load_synthetic
from lreid.data.tables import csv_tests
from lreid.errors import InputError
from lreid.evaluation import Evaluator, Rules, load_tests
from lreid.models import Embedder
from lreid.retrieval import FaissIndex, evaluate
from lreid.utils.identities import usable


@pytest.fixture(scope="module")
def test_set() -> QueryGallery:
    drawn = load_synthetic(
        "campus", train_identities=1, test_identities=8, images_per_identity=5, distractors=6, seed=0
    )
    return QueryGallery("campus", "seen", drawn.query, drawn.gallery, 0)


def evaluator(test_set: QueryGallery, *, skip_bad: bool = False, **options: Any) -> Evaluator:
    index = options.pop("index", None)
    tests = load_tests([test_set], Rules(**options), height=32, width=16, skip_bad=skip_bad)
    return Evaluator(tests, batch_size=16, index=index)


@pytest.mark.parametrize("camera_filter", [True, False])
def test_metrics_equal_the_exact_ranking(test_set: QueryGallery, camera_filter: bool) -> None:
    torch.manual_seed(0)
    model, both = Embedder("small", height=32, width=16), (test_set.query, test_set.gallery)
    (figures,) = evaluator(test_set, camera_filter=camera_filter).evaluate(model)
    features = [model.extract([record.path for record in records]) for records in both]
    labels = [np.array([record[column] for record in records]) for column in (1, 2) for records in both]
    wanted = evaluate(*features, *labels, camera_filter=camera_filter)
    assert figures.num_valid == wanted.num_valid == len(test_set.query)
    assert figures.metrics["mAP"] == pytest.approx(100 * wanted.mAP)
    for rank in (1, 5, 10):
        assert figures.metrics[f"rank{rank}"] == pytest.approx(100 * wanted.cmc[rank - 1])
    precisions = {pid: 100 * wanted.ap[labels[0] == pid].mean() for pid in np.unique(labels[0])}
    assert figures.identity_ap == pytest.approx(precisions) and list(figures.identity_ap) == sorted(precisions)


COPIES = {
    "symbolic link": lambda old, new: new.symlink_to(old),
    "hard link": lambda old, new: new.hardlink_to(old),
    "copied file": lambda old, new: new.write_bytes(old.read_bytes()),
    "lossless conversion": lambda old, new: Image.open(old).save(new.with_suffix(".bmp")),
}


@pytest.mark.parametrize("listed", ["folders", "csv"])
@pytest.mark.parametrize("how", COPIES)
def test_copies_of_gallery_images_are_left_out_of_their_own_ranking(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str, listed: str
) -> None:
    """Of each of three people, one query is a copy of the first of two gallery images, and one is not."""
    rng = np.random.default_rng(0)
    for person in "abc":
        for folder in ("q", "g"):
            (tmp_path / folder / person).mkdir(parents=True)
        for file in (f"g/{person}/1.png", f"g/{person}/2.png", f"q/{person}/2.png"):
            Image.fromarray(rng.integers(0, 256, (32, 16, 3), np.uint8)).save(tmp_path / file)
        COPIES[how](tmp_path / f"g/{person}/1.png", tmp_path / f"q/{person}/1.png")
    files = sorted(tmp_path.rglob("*.*"))
    lines = (f"{file},{file.parent.name},{'query' if file.parts[-3] == 'q' else 'gallery'}" for file in files)
    (tmp_path / "list.csv").write_text("\n".join(["path,pid,split", *lines]))
    own = folders_test(tmp_path / "q", tmp_path / "g") if listed == "folders" else csv_tests(tmp_path / "list.csv")[0]
    (loaded,) = load_tests([own], height=32, width=16)
    assert loaded.test.in_gallery == 3 and len(caplog.messages) == (how != "symbolic link")
    query, gallery = loaded.labels
    names = [[record.path.split("/")[-2:] for record in images.records] for images in (loaded.query, loaded.gallery)]
    for row, (person, file) in enumerate(names[0]):
        left_out = [(person, "1.png")] if file.startswith("1") else []
        ranked = usable(query[row : row + 1], gallery)
        assert [each for each, kept in zip(names[1], ranked, strict=True) if not kept] == [*map(list, left_out)]
    (published,) = load_tests([replace(own, in_gallery=None)], height=32, width=16)
    assert published.test.in_gallery is None and published.labels[0].cameras is None


def test_skipped_images_are_listed(test_set: QueryGallery) -> None:
    gone = test_set.gallery[0]._replace(path="gone.png")
    with_gap = QueryGallery("campus", "seen", test_set.query, (gone, *test_set.gallery[1:]), 0)
    assert evaluator(with_gap, skip_bad=True).skipped == ["gone.png"]


def test_splits_are_averaged(test_set: QueryGallery) -> None:
    torch.manual_seed(0)
    model = Embedder("small", height=32, width=16)
    choices = [((0, 2, 3), tuple(range(len(test_set.gallery)))), ((1, 3), tuple(range(0, len(test_set.gallery), 2)))]
    singles = [
        QueryGallery(
            "campus", "unseen", tuple(test_set.query[i] for i in query), tuple(test_set.gallery[i] for i in gallery)
        )
        for query, gallery in choices
    ]
    first, second = (evaluator(single).evaluate(model)[0] for single in singles)
    (both,) = evaluator(replace(test_set, splits=tuple(choices))).evaluate(model)
    for name, value in both.metrics.items():
        assert value == pytest.approx((first.metrics[name] + second.metrics[name]) / 2)
    assert (first.num_valid, second.num_valid, both.num_valid) == (3, 2, 4)  # query 3 is in both
    for pid in first.identity_ap.keys() - second.identity_ap.keys():
        assert both.identity_ap[pid] == pytest.approx(first.identity_ap[pid])
    assert both.identity_ap.keys() == first.identity_ap.keys() | second.identity_ap.keys()


def test_splits_leave_out_unreadable_images(test_set: QueryGallery) -> None:
    torch.manual_seed(0)
    model = Embedder("small", height=32, width=16)
    everything = (tuple(range(len(test_set.query))), tuple(range(len(test_set.gallery))))
    gone = test_set.gallery[0]._replace(path="gone.png")
    broken = replace(test_set, gallery=(gone, *test_set.gallery[1:]))
    figures = evaluator(broken, skip_bad=True).evaluate(model)
    assert evaluator(replace(broken, splits=(everything,)), skip_bad=True).evaluate(model) == figures


def test_test_set_without_matches_is_refused(test_set: QueryGallery) -> None:
    same = replace(test_set, gallery=tuple(r._replace(camid=0) for r in test_set.gallery))
    same = replace(same, query=tuple(r._replace(camid=0) for r in test_set.query))
    with pytest.raises(InputError, match="campus: .*camera_filter=False"):
        evaluator(same)
    evaluator(same, camera_filter=False)
    nowhere = tuple(r._replace(camid=-1) for r in test_set.gallery)  # by cameras that are not known
    evaluator(replace(same, gallery=nowhere, query=tuple(r._replace(camid=-1) for r in test_set.query)))
    others = replace(test_set, query=tuple(r._replace(pid=10**6) for r in test_set.query))
    for camera_filter in (True, False):
        with pytest.raises(InputError, match="campus: none of the queries"):
            evaluator(others, camera_filter=camera_filter)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_flat_index_gives_the_metrics_of_exact_search(test_set: QueryGallery, metric: str) -> None:
    torch.manual_seed(0)
    model = Embedder("small", height=32, width=16)
    (exact,) = evaluator(test_set, metric=metric).evaluate(model)
    (flat,) = evaluator(test_set, metric=metric, index=FaissIndex()).evaluate(model)
    # Two images whose scores differ by less than rounding may change places, which affects one query.
    assert flat.metrics == pytest.approx(exact.metrics, abs=100 / exact.num_valid)
    coarse = FaissIndex("IVF4,PQ2x2", depth=5)
    assert evaluator(test_set, metric=metric, index=coarse).evaluate(model) != [exact]
