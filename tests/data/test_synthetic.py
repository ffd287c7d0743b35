"""Drawn images: the same everywhere, distinguished by identity, and data sets that can be evaluated."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lreid.data.synthetic import CAMERAS, DOMAINS, QUERIES, SEASON, draw, load_synthetic
from lreid.errors import InputError

SIZES = {"person": (64, 32, 3), "vehicle": (48, 64, 3)}
SMALL = {"train_identities": 12, "test_identities": 9, "images_per_identity": 6, "distractors": 7, "seed": 0}

# Mean of each colour channel, as drawn when the benchmarks were tuned.
GOLDEN = {
    "synthetic:plaza/0/2000/1/0": (126.1, 113.3, 111.1),
    "synthetic:campus/0/4500/2/1": (128.5, 121.3, 108.8),
    "synthetic:station/0/7000/3/2": (83.6, 79.6, 66.8),
    "synthetic:market/0/9500/4/3": (201.6, 135.4, 91.4),
    "synthetic:mall/0/12000/5/4": (177.5, 132.5, 150.5),
    "synthetic:snow/0/14500/6/5": (198.7, 220.4, 221.5),
    "synthetic:park/0/17000/1/6": (145.2, 163.8, 99.9),
    "synthetic:night-street/0/19500/2/7": (20.8, 25.1, 28.2),
    "synthetic:highway/0/22000/3/8": (67.1, 97.7, 103.0),
    "synthetic:car-park/0/24500/4/9": (97.8, 84.2, 74.9),
}


@pytest.mark.parametrize("address", GOLDEN)
def test_images_are_the_ones_of_the_published_figures(address: str) -> None:
    means = draw(address).mean((0, 1))
    assert np.abs(means - GOLDEN[address]).max() < 1, means


def test_an_image_depends_on_its_address_alone() -> None:
    addresses = [f"synthetic:{name}/{seed}/{i}/4/1" for name in DOMAINS for i in (5, 20_000) for seed in (2, 3)]
    first = {address: draw(address).tobytes() for address in addresses}
    draw(addresses[0])[:] = 0  # the caller's own copy
    random.Random(0).shuffle(addresses)
    assert all(draw(address).tobytes() == first[address] for address in addresses)
    assert len(set(first.values())) == len(addresses)


@settings(max_examples=200, deadline=None)
@given(
    name=st.sampled_from(sorted(DOMAINS)),
    seed=st.integers(0, 10**9),
    identity=st.integers(0, SEASON - 1),
    camera=st.integers(1, CAMERAS),
    shot=st.integers(0, 10**6),
)
def test_every_valid_address_draws(name: str, seed: int, identity: int, camera: int, shot: int) -> None:
    image = draw(f"synthetic:{name}/{seed}/{identity}/{camera}/{shot}")
    assert image.shape == SIZES[DOMAINS[name].kind] and image.dtype == np.uint8
    assert image.std() > 5  # something is to be seen


@pytest.mark.parametrize("name", ["plaza", "snow", "highway"])
def test_identities_differ_more_than_two_shots_of_one(name: str) -> None:
    def middle(identity: int, shot: int) -> np.ndarray:  # where the body is
        image = draw(f"synthetic:{name}/0/{identity}/2/{shot}").astype(float)
        height, width = image.shape[:2]
        part = image[height // 4 : height * 3 // 4, width // 4 : width * 3 // 4]
        return part.mean((0, 1))

    people = range(0, SEASON, SEASON // 60)
    within = np.mean([np.abs(middle(i, 0) - middle(i, 1)).mean() for i in people])
    between = np.mean([np.abs(middle(i, 0) - middle(j, 0)).mean() for i, j in zip(people, people[7:])])  # noqa: B905
    assert between > 1.5 * within


def test_the_season_drifts() -> None:
    def brightness(identities: range) -> float:
        return np.mean([draw(f"synthetic:plaza/0/{i}/1/0").mean() for i in identities])

    assert brightness(range(0, 300, 10)) > 1.2 * brightness(range(SEASON - 300, SEASON, 10))


@pytest.mark.parametrize("images", [3, 4, 6, 11])
@pytest.mark.parametrize("name", ["plaza", "highway"])
def test_load_gives_a_data_set_that_can_be_evaluated(name: str, images: int) -> None:
    found = load_synthetic(name, **SMALL | {"images_per_identity": images})
    assert found.name == name
    train, test = {r.pid for r in found.train}, {r.pid for r in found.query}
    assert (len(train), len(test)) == (12, 9)
    assert not train & test
    assert min(train | test) > 0
    assert Counter(r.pid for r in found.train) == dict.fromkeys(train, images)
    assert Counter(r.pid for r in found.query) == dict.fromkeys(test, QUERIES)
    assert Counter(r.pid for r in found.gallery) == dict.fromkeys(test, images - QUERIES) | {0: 7}
    for query in found.query:
        assert any(r.pid == query.pid and r.camid != query.camid for r in found.gallery)
    records = found.train + found.query + found.gallery
    assert len({r.path for r in records}) == len(records)
    for record in records:
        domain, _, identity, camera, _ = record.path.removeprefix("synthetic:").split("/")
        assert (domain, int(camera)) == (name, record.camid)
        assert record.pid in (0, int(identity))


def test_training_people_test_people_and_distractors_are_disjoint_and_span_the_season() -> None:
    found = load_synthetic("mall", **SMALL | {"train_identities": 200, "test_identities": 100, "distractors": 150})
    groups = [
        {int(r.path.split("/")[2]) for r in records}
        for records in (found.train, found.query, [r for r in found.gallery if r.pid == 0])
    ]
    assert [len(group) for group in groups] == [200, 100, 150]
    assert len(set.union(*groups)) == 450
    for group in groups:
        assert min(group) < SEASON // 50
        assert max(group) > SEASON * 49 // 50 - SEASON // 50
    pids = [r.pid for r in found.train]
    assert pids == sorted(pids)


@pytest.mark.parametrize(
    ("change", "message"), [({"domain": "plazza"}, "plaza"), ({"distractors": SEASON}, "distractors")]
)
def test_invalid_arguments_raise_an_error(change: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_synthetic(**{"domain": "plaza"} | SMALL | change)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("synthetic:plaza/0/17/2", "not the address"),
        ("synthetic:plaza/0/-1/2/5/6", "not the address"),
        ("synthetic:nowhere/0/17/2/5", "nearest"),
        (f"synthetic:plaza/0/{SEASON}/2/5", "identities"),
        ("synthetic:plaza/0/17/0/5", "cameras"),
        (f"synthetic:plaza/0/17/{CAMERAS + 1}/5", "cameras"),
    ],
)
def test_invalid_address_raises_an_error(address: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw(address)
