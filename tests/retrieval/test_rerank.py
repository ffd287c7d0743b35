import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lreid.errors import InputError
from lreid.retrieval import KReciprocal, evaluate, expand_queries


def problem(num_queries, num_gallery, seed, width=6, num_ids=5):
    """Features around a centre an identity, with a camera each."""
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((num_ids, width))
    ids = [rng.integers(num_ids, size=count) for count in (num_queries, num_gallery)]
    features = [centers[each] + 0.5 * rng.standard_normal((len(each), width)) for each in ids]
    return *features, *ids, *(rng.integers(3, size=len(each)) for each in ids)


def dense(queries, gallery, metric, k1, k2, weight):
    """The textbook algorithm on whole N × N matrices: final distances (Q, G)."""
    features = np.concatenate([queries, gallery])
    if metric == "cosine":
        features = features / np.linalg.norm(features, axis=1, keepdims=True)
    distances = ((features[:, None] - features) ** 2).sum(2)
    original = distances / distances.max(1, keepdims=True)
    order = np.argsort(distances, axis=1, kind="stable")

    def reciprocal(image, k):
        return [other for other in order[image, : k + 1] if image in order[other, : k + 1]]

    vectors = np.zeros_like(original)
    for image in range(len(features)):
        mine = reciprocal(image, k1)
        members = set(mine)
        for other in mine:
            theirs = reciprocal(other, int(np.around(k1 / 2)))
            if len(set(theirs) & set(mine)) > 2 / 3 * len(theirs):
                members |= set(theirs)
        for member in members:
            vectors[image, member] = np.exp(-original[image, member])
        vectors[image] /= vectors[image].sum()
    vectors = np.stack([vectors[order[image, :k2]].mean(0) for image in range(len(features))])
    final = np.empty((len(queries), len(gallery)))
    for query in range(len(queries)):
        for image in range(len(gallery)):
            pair = vectors[query], vectors[len(queries) + image]
            jaccard = 1 - np.minimum(*pair).sum() / np.maximum(*pair).sum()
            final[query, image] = (1 - weight) * jaccard + weight * original[query, len(queries) + image]
    return final


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(1, 25),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["cosine", "sqeuclidean"]),
    st.integers(1, 12),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_equals_the_dense_algorithm(num_queries, num_gallery, seed, metric, k1, k2, weight):
    k2 = min(k2, k1 + 1)
    queries, gallery, *_ = problem(num_queries, num_gallery, seed)
    score = KReciprocal(k1, k2, weight)(torch.from_numpy(queries), torch.from_numpy(gallery), metric)
    expected = -dense(queries, gallery, metric, k1, k2, weight)
    whole = score(slice(0, num_queries)).numpy()
    np.testing.assert_allclose(whole, expected, atol=1e-9)
    one_by_one = np.concatenate([score(slice(row, row + 1)).numpy() for row in range(num_queries)])
    np.testing.assert_allclose(one_by_one, expected, atol=1e-9)


def test_blocks_do_not_change_scores(monkeypatch):
    queries, gallery, *_ = problem(10, 60, seed=0)
    expected = -dense(queries, gallery, "cosine", 8, 3, 0.3)
    monkeypatch.setattr("lreid.retrieval.scores.BLOCK_SCORES", 500)
    score = KReciprocal(8, 3)(torch.from_numpy(queries), torch.from_numpy(gallery))
    np.testing.assert_allclose(score(slice(0, 10)).numpy(), expected, atol=1e-9)


def test_evaluation_ranks_by_reranked_distances():
    queries, gallery, *labels = problem(12, 60, seed=1)
    distances = dense(queries, gallery, "cosine", 8, 3, 0.3)
    precisions = []
    for row, (pid, cam) in enumerate(zip(labels[0], labels[2], strict=True)):
        order = [i for i in np.argsort(distances[row]) if not (labels[1][i] == pid and labels[3][i] == cam)]
        ranks = [rank for rank, image in enumerate(order) if labels[1][image] == pid]
        precisions.append(np.mean([(found + 1) / (rank + 1) for found, rank in enumerate(ranks)]))
    result = evaluate(queries, gallery, *labels, rerank=KReciprocal(8, 3))
    np.testing.assert_allclose(result.ap, precisions)
    assert result.mAP > evaluate(queries, gallery, *labels).mAP


@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.0])
def test_query_expansion_equals_a_loop(alpha):
    queries, gallery, *_ = problem(5, 20, seed=2)
    expected = []
    for query in queries:
        query = query / np.linalg.norm(query)
        near = sorted((image / np.linalg.norm(image) for image in gallery), key=lambda im: -(im @ query))[:4]
        total = query + sum((image @ query) ** alpha * image for image in near if image @ query > 0)
        expected.append(total / np.linalg.norm(total))
    np.testing.assert_allclose(expand_queries(queries, gallery, k=4, alpha=alpha), expected, atol=1e-12)
    wide = expand_queries(queries, gallery, k=99)  # more than there are
    np.testing.assert_allclose(wide, expand_queries(queries, gallery, k=20))


def test_invalid_input_is_named():
    queries, gallery, *_ = problem(2, 3, seed=0)
    for settings_ in ({"k1": 0}, {"k2": 0}, {"k1": 3, "k2": 5}, {"weight": 1.5}):
        with pytest.raises(InputError, match="KReciprocal"):
            KReciprocal(**settings_)(torch.from_numpy(queries), torch.from_numpy(gallery))
    with pytest.raises(InputError, match="k = 0"):
        expand_queries(queries, gallery, k=0)
