"""Features standardised per camera, compared with loops."""

import math

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lreid.errors import InputError
from lreid.retrieval import CameraNorm, evaluate
from lreid.retrieval.camera_norm import PRIOR


def people_of_cameras(seed: int, images: int = 300, strength: float = 2.0) -> tuple[np.ndarray, ...]:
    """Features of people with two images each; every camera shifts and scales them differently."""
    dice = np.random.default_rng(seed)
    ids = np.repeat(np.arange(images // 2), 2)
    cameras = np.tile([0, 1], images // 2)
    clean = dice.normal(size=(images // 2, 16))[ids] + 0.3 * dice.normal(size=(images, 16))
    moved, stretched = strength * dice.normal(size=(2, 16)), dice.uniform(0.5, 2, (2, 16))
    return (clean * stretched[cameras] + moved[cameras]).astype(np.float32), ids, cameras


def by_loops(features: np.ndarray, cameras: np.ndarray) -> np.ndarray:
    """Compute the same in float64, image by image and number by number."""
    units = [[x / math.sqrt(sum(y * y for y in row)) for x in row] for row in features.astype(float).tolist()]
    made = np.zeros(features.shape)
    for place, (row, camera) in enumerate(zip(units, cameras, strict=True)):
        for d, x in enumerate(row):
            everybody = [other[d] for other in units]
            own = [other[d] for other, its in zip(units, cameras, strict=True) if its == camera and camera >= 0]
            # twenty images more, whose mean and mean square are those of all
            weight = len(own) + PRIOR
            mean = (sum(own) + PRIOR * sum(everybody) / len(units)) / weight
            square = (sum(y * y for y in own) + PRIOR * sum(y * y for y in everybody) / len(units)) / weight
            made[place, d] = (x - mean) / math.sqrt(square - mean * mean)
    return made


def test_standardised_features_equal_loops() -> None:
    features, _, cameras = people_of_cameras(0, images=40)
    cameras = np.where(np.arange(40) < 5, -1, cameras + 3 * (np.arange(40) == 17))  # not known; alone
    made = CameraNorm.estimate(features, cameras)(features, cameras)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, by_loops(features, cameras), atol=2e-4)


def test_camera_bias_is_removed() -> None:
    features, ids, cameras = people_of_cameras(1)
    query, gallery = cameras == 0, cameras == 1

    def found(values: np.ndarray) -> float:
        return evaluate(values[query], values[gallery], ids[query], ids[gallery], cameras[query], cameras[gallery]).mAP

    made = CameraNorm.estimate(features, cameras)(features, cameras)
    assert found(features) < 0.5 < 0.85 < found(made)


@settings(max_examples=30)
@given(
    hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12),
        elements=st.floats(-4, 4, width=16),
    ),
    st.data(),
)
def test_result_is_finite_and_independent_of_length_and_order(features: np.ndarray, data: st.DataObject) -> None:
    cameras = np.array(data.draw(st.lists(st.integers(-1, 2), min_size=len(features), max_size=len(features))))
    norm = CameraNorm.estimate(features, cameras)
    made = norm(features, cameras)
    assert made.shape == features.shape and np.isfinite(made).all()
    order = np.random.default_rng(0).permutation(len(features))
    again = CameraNorm.estimate(2 * features[order], cameras[order])
    for of, statistics in {-1: norm.whole, **norm.cameras}.items():
        np.testing.assert_allclose(again.cameras.get(of, again.whole), statistics, atol=1e-5)


def test_new_cameras_use_the_statistics_of_all_images() -> None:
    features, _, cameras = people_of_cameras(2)
    norm = CameraNorm.estimate(features, cameras)
    np.testing.assert_array_equal(norm(features[:3], [7, 8, -1]), norm(features[:3], [-1, -1, -1]))
    many = np.tile(features, (400, 1))
    made = CameraNorm.estimate(many, np.tile(cameras, 400))(features, cameras)
    for camera in (0, 1):  # of 60,000 images each, so that the prior of twenty does not show
        np.testing.assert_allclose(made[cameras == camera].mean(0), 0, atol=0.02)
        np.testing.assert_allclose(made[cameras == camera].std(0), 1, atol=0.02)


def test_statistics_are_written_and_read() -> None:
    features, _, cameras = people_of_cameras(3)
    norm = CameraNorm.estimate(features, cameras)
    arrays = norm.to_arrays() | {"norm/whole/other": np.zeros(3)}
    back = CameraNorm.from_arrays(arrays, 16)
    assert back is not None
    np.testing.assert_array_equal(back(features, cameras), norm(features, cameras))
    assert CameraNorm.from_arrays({"norm/whole/other": np.zeros(3)}, 16) is None
    with pytest.raises(ValueError, match="not of 8 features"):
        CameraNorm.from_arrays(arrays, 8)
    arrays.pop("norm/features/whole")
    with pytest.raises(KeyError):
        CameraNorm.from_arrays(arrays, 16)


def test_invalid_arrays_are_named() -> None:
    features, _, cameras = people_of_cameras(4, images=10)
    for wrong, fault in ((cameras[:9], "10"), (["a"] * 10, "integers")):
        with pytest.raises(InputError, match=f"cameras: expected {fault}"):
            CameraNorm.estimate(features, wrong)
    features[3, 2] = np.nan
    with pytest.raises(InputError, match="1 of 10 rows"):
        CameraNorm.estimate(features, cameras)
