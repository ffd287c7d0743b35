import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from oracles import affinities, draw, golden_names, load_golden

from lreid.losses import fusion, linear_combination, lstkc_alpha, lstkcpp_alpha, pad_ema


def parts(arrays, prefix):
    return {name.removeprefix(prefix): each for name, each in arrays.items() if name.startswith(prefix)}


@pytest.mark.parametrize("name", golden_names("linear_combination"))
def test_golden_combination(name):
    hyper, arrays = load_golden(name)
    fused = linear_combination(parts(arrays, "new_"), parts(arrays, "old_"), hyper["alpha"])
    expected = parts(arrays, "fused_")
    assert fused.keys() == expected.keys() and fused["bn.num_batches_tracked"].dtype == torch.int64
    torch.testing.assert_close(fused, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", golden_names("pad_ema"))
def test_golden_ema(name):
    hyper, arrays = load_golden(name)
    after = pad_ema(parts(arrays, "before_"), parts(arrays, "student_"), momentum=hyper["momentum"])
    torch.testing.assert_close(after, parts(arrays, "after_"), rtol=1e-12, atol=1e-12)


def rows_of(features, scale, diagonal):
    rows = affinities(features.tolist(), 1 / scale)
    if diagonal:
        return rows
    return [
        {j: value / sum(each for k, each in row.items() if k != i) for j, value in row.items() if j != i}
        for i, row in enumerate(rows)
    ]


@given(st.integers(2, 7), st.floats(0.5, 20), st.integers(1, 8), st.integers(0, 9))
def test_alphas_match_the_loops_in_parts_of_any_size(count, scale, part, seed):
    new, old = draw(count, 3, seed=seed), draw(count, 4, seed=seed + 1)
    whole, others = (
        [(a[j], b[j]) for a, b in zip(*(rows_of(each, scale, diagonal) for each in (new, old)), strict=True) for j in a]
        for diagonal in (True, False)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusion, "ROWS", part)
        assert lstkc_alpha(new, old, scale=scale) == pytest.approx(1 - sum(abs(a - b) for a, b in whole) / count)
        assert lstkcpp_alpha(new, old, scale=scale) == pytest.approx(sum(a * b for a, b in others) / count)


@given(st.floats(-1, 2), st.integers(0, 3), st.integers(0, 2), st.integers(0, 9))
@example(-(2.0**-52), 0, 0, 0)
@example(-8e-10, 0, 0, 0)
def test_combination_matches_the_loops(alpha, old_rows, added, seed):
    old = {"weight": draw(3, 2, seed=seed), "head": draw(old_rows, 2, seed=seed + 1), "count": torch.tensor(7)}
    new = {
        "weight": draw(3, 2, seed=seed + 2),
        "head": draw(old_rows + added, 2, seed=seed + 3),
        "count": torch.tensor(12),
    }
    fused = linear_combination(new, old, alpha)
    new_share, old_share = np.float32(alpha), np.float32(1 - alpha)  # torch multiplies integers in float32
    assert fused["count"].item() == int(new_share * np.float32(12) + old_share * np.float32(7))
    for name in ("weight", "head"):
        for row, values in enumerate(new[name].tolist()):
            for column, value in enumerate(values):
                in_old = row < len(old[name])
                expected = alpha * value + (1 - alpha) * old[name][row, column].item() if in_old else value
                assert fused[name][row, column].item() == pytest.approx(expected)


def test_extreme_shares_return_the_networks():
    network = [torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)) for _ in range(2)]
    for each in network:
        each(torch.randn(5, 3))
    new, old = (each.state_dict() for each in network)
    before = {name: each.clone() for name, each in new.items()}
    torch.testing.assert_close(linear_combination(new, old, 1.0), dict(new))
    torch.testing.assert_close(linear_combination(new, old, 0.0), dict(old))
    torch.testing.assert_close(pad_ema(old, new, momentum=1.0), dict(old))
    linear_combination(new, old, 0.5)["0.weight"].zero_()
    torch.testing.assert_close(dict(new), before)
    network[0].load_state_dict(linear_combination(new, old, 0.5))


def test_teacher_shares_decay_exponentially():
    teacher, student = {"w": torch.ones(1, dtype=torch.float64)}, {"w": torch.zeros(1, dtype=torch.float64)}
    for _ in range(200):
        teacher = pad_ema(teacher, student)
    assert teacher["w"].item() == pytest.approx(0.997**200)
