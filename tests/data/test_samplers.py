"""Episodes: who is in them, and that a query is not its own support."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lreid.data.samplers import EpisodeSampler, IdentitySampler, StreamSampler
from lreid.errors import ArgumentError


def sampler(counts: list[int], **options: int) -> tuple[EpisodeSampler, np.ndarray]:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    return EpisodeSampler(labels, seed=(0, 0), **options), labels


@given(
    counts=st.lists(st.integers(1, 9), min_size=3, max_size=20),
    identities=st.integers(1, 3),
    num_support=st.integers(1, 5),
    num_query=st.integers(1, 3),
    epoch=st.integers(0, 10**6),
)
def test_episodes(counts: list[int], identities: int, num_support: int, num_query: int, epoch: int) -> None:
    episodes, labels = sampler(counts, identities=identities, num_support=num_support, num_query=num_query)
    size = num_support + num_query
    drawn = episodes.epoch(epoch)
    assert len(drawn) == episodes.batches_per_epoch == len(counts) // identities
    seen: list[int] = []
    for episode in drawn:
        assert episode.shape == (identities * size,)
        for block in episode.reshape(identities, size):
            identity = labels[block[0]]
            assert (labels[block] == identity).all()  # one identity a block
            seen.append(identity)
            support, query = block[:num_support], block[num_support:]
            images = counts[identity]
            if images > 1:
                assert not set(support) & set(query)
            if images >= size:
                assert len(set(block)) == size  # without replacement
            else:  # as few repetitions as can be
                queries = max(1, min(num_query, images - 1))
                assert len(set(query)) == queries
                assert len(set(support)) == min(num_support, max(1, images - queries))
    assert len(seen) == len(set(seen))  # each identity at most once an epoch


def test_epochs_follow_from_seed_and_number_alone() -> None:
    one, _ = sampler([5] * 8, identities=3, num_support=2, num_query=1)
    other, _ = sampler([5] * 8, identities=3, num_support=2, num_query=1)
    one.epoch(0), one.epoch(1)
    assert np.array_equal(one.epoch(7), other.epoch(7))
    assert not np.array_equal(one.epoch(7), one.epoch(8))
    assert not np.array_equal(
        one.epoch(7),
        EpisodeSampler(np.repeat(np.arange(8), 5), identities=3, num_support=2, num_query=1, seed=(0, 1)).epoch(7),
    )


def test_all_identities_and_images_get_their_turn() -> None:
    episodes, _ = sampler([7] * 7, identities=3, num_support=2, num_query=1)
    drawn = np.concatenate([episode for epoch in range(200) for episode in episodes.epoch(epoch)])
    counts = np.bincount(drawn, minlength=49)
    # 200 epochs x 6 of 7 identities x 3 of 7 images: 73.5 each, deviation about 7
    assert counts.min() > 40 and counts.max() < 110


def test_too_few_identities_are_named() -> None:
    with pytest.raises(ArgumentError, match="identities is 4, but task 'greek' has only 3; set it to 3 or less"):
        EpisodeSampler([0, 0, 1, 1, 2], identities=4, num_support=1, num_query=1, seed=(0,), task_name="greek")
    with pytest.raises(ArgumentError, match="num_support is 0; must be 1 or more"):
        sampler([2, 2], identities=1, num_support=0, num_query=1)


@given(
    own=st.integers(3, 12),
    old=st.integers(1, 9),
    share=st.floats(0, 0.99),
    identities=st.integers(1, 3),
    epoch=st.integers(0, 10**6),
)
def test_exemplars_take_their_share(own: int, old: int, share: float, identities: int, epoch: int) -> None:
    """Labels of the task are 100 and up; two images an identity."""
    labels, exemplars = 100 + np.arange(own).repeat(2), np.arange(old).repeat(2)
    batches = IdentitySampler(
        labels, identities=identities, images=2, seed=(1, 2), exemplars=exemplars, exemplar_share=share
    )
    every = np.concatenate([labels, exemplars])
    drawn = batches.epoch(epoch)
    assert len(drawn) == batches.batches_per_epoch == own // identities  # as many as without exemplars
    seen: list[int] = []
    for batch in drawn:
        assert all(len(set(block)) == 2 and len(set(every[block])) == 1 for block in batch.reshape(-1, 2))
        present = every[batch].reshape(-1, 2)[:, 0].tolist()
        assert len(present) == len(set(present)) == identities
        if share > 0:
            from_memory = min(int(share * identities), old)
            assert [label < 100 for label in present] == sorted(
                [True] * from_memory + [False] * (identities - from_memory)
            )
        seen += [label for label in present if label >= 100 or share == 0]
    assert len(seen) == len(set(seen))  # each identity at most once an epoch, but for a fixed share of exemplars


def test_without_a_share_old_and_new_identities_have_the_same_chance() -> None:
    batches = IdentitySampler(
        np.arange(4).repeat(3) + 6, identities=2, images=1, seed=(0,), exemplars=np.arange(6).repeat(2)
    )
    drawn = np.concatenate([batch for epoch in range(1000) for batch in batches.epoch(epoch)])
    counts = np.bincount(np.concatenate([np.arange(4).repeat(3) + 6, np.arange(6).repeat(2)])[drawn])
    assert (np.abs(counts - 400) < 70).all()  # 4 of 10 in each epoch; deviation 15


def test_no_exemplars_change_nothing() -> None:
    labels = np.arange(9).repeat(4)
    plain = IdentitySampler(labels, identities=2, images=3, seed=(5, 6))
    for share in (0.0, 0.5):
        other = IdentitySampler(labels, identities=2, images=3, seed=(5, 6), exemplars=(), exemplar_share=share)
        for epoch in range(5):
            assert np.array_equal(plain.epoch(epoch), other.epoch(epoch))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 12), st.integers(1, 12), st.integers(0, 3))
def test_a_stream_shows_every_image_once(counts: list[int], segment: int, correlation: int, epoch: int) -> None:
    labels = np.repeat(np.arange(len(counts)) + 5, counts)
    stream = StreamSampler(labels, segment=segment, correlation=correlation, seed=(1, 2))
    segments = stream.epoch(epoch)
    assert len(segments) == stream.batches_per_epoch == -(-len(labels) // segment)
    sizes = [len(rows) for rows in segments]
    assert max(sizes) <= segment and max(sizes) - min(sizes) <= 1
    order = np.concatenate(segments)
    assert sorted(order) == list(range(len(labels)))
    assert all((one == other).all() for one, other in zip(segments, stream.epoch(epoch), strict=True))


def test_the_correlation_is_the_length_of_runs() -> None:
    labels = np.repeat(np.arange(20), 12)
    for correlation, expected in ((1, 240), (4, 60), (12, 20), (100, 20)):
        stream = StreamSampler(labels, segment=16, correlation=correlation, seed=(0, 0))
        order = labels[np.concatenate(stream.epoch(0))]
        runs = 1 + np.count_nonzero(np.diff(order))
        assert 0.85 * expected <= runs <= expected  # two runs of one identity may meet


def test_a_stream_of_nothing_at_a_time_is_refused() -> None:
    with pytest.raises(ArgumentError, match="segment is 0; must be 1 or more"):
        StreamSampler([0, 1], segment=0, correlation=1, seed=(0, 0))
