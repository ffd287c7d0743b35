"""Episodes: who is in them, and that a query is not its own support."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import data

from lreid.data.samplers import CameraSampler, EpisodeSampler, IdentitySampler, StreamSampler
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


def test_all_identities_and_images_occur() -> None:
    episodes, _ = sampler([7] * 7, identities=3, num_support=2, num_query=1)
    drawn = np.concatenate([episode for epoch in range(200) for episode in episodes.epoch(epoch)])
    counts = np.bincount(drawn, minlength=49)
    # 200 epochs x 6 of 7 identities x 3 of 7 images: 73.5 each, deviation about 7
    assert counts.min() > 40 and counts.max() < 110


def test_wrong_numbers_are_named() -> None:
    with pytest.raises(ArgumentError, match="identities is 4, .*'greek' .*3"):
        EpisodeSampler([0, 0, 1, 1, 2], identities=4, num_support=1, num_query=1, seed=(0,), task_name="greek")
    with pytest.raises(ArgumentError, match="^neighbours is 2; .*3$"):
        CameraSampler([0, 1, 2], cameras=[0] * 3, neighbours=2, identities=3, images=1)


SAMPLERS = {
    "identities": partial(IdentitySampler, identities=2, images=3),
    "episodes": partial(EpisodeSampler, identities=2, num_support=2, num_query=1),
    "stream": partial(StreamSampler, segment=7, correlation=2),
}


@given(
    kind=st.sampled_from(["episodes", "identities"]),
    own=st.lists(st.integers(1, 6), min_size=2, max_size=9),
    old=st.lists(st.integers(1, 6), min_size=1, max_size=9),
    share=st.one_of(st.just(0.0), st.floats(0.01, 0.9)),
    epoch=st.integers(0, 10**6),
)
def test_exemplars_are_added_to_the_batch(kind: str, own: list[int], old: list[int], share: float, epoch: int) -> None:
    """New images are seen exactly as without exemplars, in as many batches; behind them stands the share of exemplars.

    Labels of the task are 100 and up.
    """
    labels, exemplars = 100 + np.arange(len(own)).repeat(own), np.arange(len(old)).repeat(old)
    make = partial(SAMPLERS[kind], labels, seed=(1, 2))
    plain, batches = make(), make(exemplars=exemplars, exemplar_share=share)
    drawn = batches.epoch(epoch)
    assert len(drawn) == batches.batches_per_epoch == plain.batches_per_epoch
    ratio = share / (1 - share) if share else sum(old) / sum(own)
    unit, most = {"identities": (6, sum(old)), "episodes": (2, len(old))}[kind]
    wanted = min(max(round(ratio * unit), 1), most) * (3 if kind == "episodes" else 1)
    for alone, batch in zip(plain.epoch(epoch), drawn, strict=True):
        assert np.array_equal(batch[: len(alone)], alone)
        stored = batch[len(alone) :] - len(labels)
        assert len(stored) == wanted and (stored >= 0).all()
        if kind == "episodes":
            blocks = exemplars[stored].reshape(-1, 3)
            assert (blocks == blocks[:, :1]).all() and len(set(blocks[:, 0])) == len(blocks)
        else:
            assert len(set(stored)) == len(stored)  # no image twice in a batch
    again = make(exemplars=exemplars, exemplar_share=share).epoch(epoch)  # from the seed and the number alone
    assert all(np.array_equal(one, other) for one, other in zip(drawn, again, strict=True))


def test_exemplars_are_drawn_as_often_as_images_by_default() -> None:
    """Whatever the number of images of an identity: 60 new images, 20 exemplars of 5 identities."""
    labels, exemplars = np.arange(10).repeat(6), np.arange(5).repeat([1, 2, 3, 6, 8])
    batches = SAMPLERS["identities"](labels, seed=(0,), exemplars=exemplars)
    drawn = np.concatenate([batch for epoch in range(600) for batch in batches.epoch(epoch)])
    new, stored = np.split(np.bincount(drawn, minlength=80), [60])
    assert stored.mean() == new.mean()  # two behind every six
    assert stored.max() - stored.min() < 0.2 * stored.mean()


def test_exemplars_come_in_pairs() -> None:
    batches = IdentitySampler(np.arange(4).repeat(5), identities=2, images=6, seed=(0,), exemplars=[7] * 4 + [8] * 6)
    for batch in batches.epoch(0):
        stored = batch[12:].reshape(-1, 2) - 20  # six, half of twelve
        assert ((stored < 4).sum(1) != 1).all()  # both of a pair are of the identity with four, or neither


def test_exemplars_repeat_only_after_all_were_drawn() -> None:
    for kind, make in SAMPLERS.items():
        batches = make(np.arange(20).repeat(3), seed=(3,), exemplars=np.arange(12).repeat(2), exemplar_share=0.5)
        stored = np.concatenate([batch[batch >= 60] - 60 for batch in batches.epoch(5)])
        used = stored // 2 if kind == "episodes" else stored
        counts = np.bincount(used, minlength=12 if kind == "episodes" else 24)
        assert counts.max() - counts.min() <= (3 if kind == "episodes" else 1), kind


@pytest.mark.parametrize(("own", "stored", "share"), [(100, 30, 0.0), (100, 30, 0.5), (101, 9, 0.5), (64, 5, 0.3)])
def test_exemplars_are_part_of_a_segment(own: int, stored: int, share: float) -> None:
    """Without a share, the stream is the union; with one, every segment has this share, whatever the memory holds."""
    labels, exemplars = np.arange(own) % 4, 4 + np.arange(stored) % 3
    make = partial(StreamSampler, labels, segment=20, correlation=1, seed=(0, 1), exemplar_share=share)
    assert len(make().epoch(0)) == -(-own // 20)  # a first task, without exemplars
    sampler = make(exemplars=exemplars)
    drawn = sampler.epoch(2)
    counts = np.bincount(np.concatenate(drawn), minlength=own + stored)
    assert len(drawn) == sampler.batches_per_epoch and max(map(len, drawn)) <= 20
    assert (counts[:own] == 1).all() and np.ptp(counts[own:]) <= 1
    if share == 0:
        assert (counts == 1).all() and min(map(len, drawn)) > 17
    for batch in drawn if share else []:
        assert abs((batch >= own).mean() - share) < 0.06


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


@given(st.lists(st.integers(1, 25), min_size=1, max_size=8), st.integers(2, 7), st.integers(0, 99))
def test_no_two_runs_of_one_identity_follow_each_other(counts: list[int], correlation: int, epoch: int) -> None:
    """Contrast Scoring's STC is the number of images until the class changes, so no run may be longer."""
    labels = np.repeat(np.arange(len(counts)), counts)
    order = labels[np.concatenate(StreamSampler(labels, segment=9, correlation=correlation, seed=(0, 1)).epoch(epoch))]
    lengths = np.diff(np.flatnonzero(np.r_[True, np.diff(order) != 0, True]))
    runs = -(-np.array(counts) // correlation)
    surplus = max(2 * runs.max() - runs.sum() - 1, 0)  # runs of an identity that has more than half of all
    assert len(lengths) == runs.sum() - surplus
    assert surplus or lengths.max() <= correlation


def test_runs_come_in_every_order_that_keeps_equal_ones_apart() -> None:
    labels = np.repeat(np.arange(3), 4)
    stream = StreamSampler(labels, segment=12, correlation=2, seed=(0, 0))
    firsts = [tuple(labels[stream.epoch(epoch)[0]][::2]) for epoch in range(3000)]
    counts = np.unique(firsts, axis=0, return_counts=True)[1]
    assert len(counts) == 30 and counts.min() > 20  # AABBCC has 30 orders without equal neighbours


@given(
    counts=st.lists(st.integers(1, 30), min_size=2, max_size=12),
    identities=st.integers(1, 3),
    images=st.integers(1, 5),
    epoch=st.integers(0, 10**6),
)
def test_pass_over_images_uses_nearly_every_image_once(
    counts: list[int], identities: int, images: int, epoch: int
) -> None:
    identities = min(identities, len(counts))
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    sampler = IdentitySampler(labels, identities=identities, images=images, seed=(0, 1), passes="images")
    drawn = sampler.epoch(epoch)
    groups = [max(count // images, 1) for count in counts]
    batches = sampler.batches_per_epoch
    assert len(drawn) == batches
    # No more could be filled with P identities each, nor fewer.
    assert sum(min(each, batches) for each in groups) >= batches * identities
    assert sum(min(each, batches + 1) for each in groups) < (batches + 1) * identities
    for batch in drawn:
        blocks = labels[batch].reshape(identities, images)
        assert (blocks == blocks[:, :1]).all() and len(set(blocks[:, 0])) == identities
    times = np.bincount(np.concatenate(drawn), minlength=len(labels))
    enough = np.array(counts)[labels] >= images
    assert times[enough].max(initial=0) <= 1  # but for identities with fewer images than a block


def test_over_many_epochs_all_images_are_seen_equally_often() -> None:
    labels = np.arange(6).repeat([5, 6, 7, 8, 9, 10])
    sampler = IdentitySampler(labels, identities=2, images=3, seed=(0, 1), passes="images")
    times = np.bincount(np.concatenate([batch for epoch in range(400) for batch in sampler.epoch(epoch)]), minlength=45)
    left = np.array([5, 6, 7, 8, 9, 10]) // 3 * 3 / [5, 6, 7, 8, 9, 10]  # share of an identity's images in groups
    assert np.abs(times / 400 - left[labels]).max() < 0.15


@pytest.mark.parametrize("steps", [1, 4, 11])
@pytest.mark.parametrize("kind", sorted(SAMPLERS))
def test_steps_per_epoch_may_need_several_passes(kind: str, steps: int) -> None:
    labels = np.arange(8).repeat(6)
    plain, sampler = (SAMPLERS[kind](labels, seed=(0, 1), steps=each) for each in (0, steps))
    drawn = sampler.epoch(3)
    assert len(drawn) == sampler.batches_per_epoch == steps
    same = min(steps, plain.batches_per_epoch)
    assert all(np.array_equal(*pair) for pair in zip(plain.epoch(3)[:same], drawn[:same], strict=True))
    if kind == "stream":  # whose segments contain exemplars
        return
    with_exemplars = SAMPLERS[kind](labels, seed=(0, 1), steps=steps, exemplars=np.arange(3).repeat(4) + 10).epoch(3)
    for batch, alone in zip(with_exemplars, drawn, strict=True):
        assert np.array_equal(batch[: len(alone)], alone) and (batch[len(alone) :] >= 48).all()


@given(
    images=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), min_size=3, max_size=12),
    identities=st.integers(1, 3),
    each=st.integers(1, 5),
    passes=st.sampled_from(["identities", "images"]),
    epoch=st.integers(0, 99),
)
def test_images_of_other_cameras(images: list[list[int]], identities: int, each: int, passes: str, epoch: int) -> None:
    labels = np.repeat(np.arange(len(images)), [len(cameras) for cameras in images])
    cameras = np.concatenate([np.array(own) for own in images])
    sampler = CameraSampler(labels, cameras=cameras, identities=identities, images=each, seed=(0, 0), passes=passes)
    drawn = sampler.epoch(epoch)
    looks = len(images) // identities
    assert len(drawn) == (looks if passes == "identities" else max(len(labels) // (identities * each), 1))
    for batch in drawn:
        assert batch.shape == (identities * each,)
        assert len({labels[block[0]] for block in batch.reshape(identities, each)}) == identities
        for first, *rest in batch.reshape(identities, each):
            own = np.flatnonzero(labels == labels[first])
            others = own[cameras[own] != cameras[first]]
            if len(others) == 0:
                others = own[own != first] if len(own) > 1 else own
            assert set(rest) <= set(others)
            if len(others) >= each:
                assert len(set(rest)) == len(rest)
    first_look = [labels[batch[::each]] for batch in drawn[:looks]]
    seen = np.concatenate(first_look)
    assert len(seen) == len(set(seen))  # every identity once


@given(
    places=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    neighbours=st.integers(2, 4),
    groups=st.integers(1, 2),
    epoch=st.integers(0, 10**6),
)
def test_identities_come_in_groups_of_one_place(places: list[int], neighbours: int, groups: int, epoch: int) -> None:
    place_of = np.random.default_rng(0).permutation(np.repeat(np.arange(len(places)), places))  # of each identity
    identities = neighbours * groups
    if len(place_of) < identities:
        return
    labels = np.repeat(np.arange(len(place_of)), 2)
    # Cameras 3p, 3p + 1 and 3p + 2 are of place p; all of its identities are seen by the first, and by one of the two.
    shot = np.stack([place_of * 3, place_of * 3 + 1 + np.arange(len(place_of)) % 2], axis=1).ravel()
    sampler = CameraSampler(labels, cameras=shot, neighbours=neighbours, identities=identities, images=2, seed=(0, 0))
    drawn = sampler.epoch(epoch)
    chosen = labels[np.concatenate(drawn)[::2]]  # one image of each block
    assert len(set(chosen)) == len(chosen) == len(place_of) // identities * identities
    rows = place_of[chosen].reshape(-1, neighbours)
    mixed = (rows != rows[:, :1]).any(1).sum()
    assert mixed <= sum(count % neighbours for count in places) // neighbours  # of those left over at their places
    for block in np.concatenate(drawn).reshape(-1, 2):
        assert labels[block[0]] == labels[block[1]] and shot[block[0]] != shot[block[1]]


def test_cameras_of_one_identity_share_a_place() -> None:
    sampler = CameraSampler(
        [0, 0, 1, 2, 3, 3, 4], cameras=[0, 1, 2, 3, 2, 1, 9], neighbours=2, identities=2, images=1, seed=0
    )
    assert sorted(place.tolist() for place in sampler.places) == [[0, 1, 3], [2], [4]]


def test_the_first_image_is_any_of_an_identity() -> None:
    sampler = CameraSampler([0] * 4 + [1] * 2, cameras=[0, 0, 1, 1, 0, 1], identities=1, images=2, seed=(0, 0))
    firsts = [batch[0] for epoch in range(400) for batch in sampler.epoch(epoch)]
    counts = np.bincount(firsts, minlength=6)
    assert counts.sum() == 800 and (abs(counts[:4] - 100) < 40).all() and (abs(counts[4:] - 200) < 60).all()


@pytest.mark.parametrize(
    "one",
    [
        EpisodeSampler([0, 1, 2, 3] * 6, identities=2, num_support=2, num_query=1, seed=5),
        IdentitySampler([0, 1, 2, 3] * 6, identities=2, images=3, exemplars=[8, 9], seed=5),
        CameraSampler([0, 1, 2, 3] * 6, cameras=[0, 1] * 12, identities=2, images=2, passes="images", seed=5),
        StreamSampler([0, 1, 2, 3] * 6, segment=5, correlation=2, seed=np.int64(5)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_sampler_works_in_a_torch_loader(one: data.Sampler) -> None:
    assert isinstance(one, data.Sampler) and one.seed == (5,)
    images = list(range(100, 126))
    for epoch in (0, 3, 0):
        one.set_epoch(epoch)
        wanted = [batch.tolist() for batch in one.epoch(epoch)]
        assert list(one) == list(one) == wanted and len(one) == len(wanted) > 1
        loader = data.DataLoader(images, batch_sampler=one)
        assert [batch.tolist() for batch in loader] == [[images[row] for row in batch] for batch in wanted]
        assert len(loader) == len(one)
        whole = data.DataLoader(np.array(images), sampler=one, batch_size=None)  # an item is a batch
        assert [batch.tolist() for batch in whole] == [[images[row] for row in batch] for batch in wanted]
